"""The page of `drkit serve` in a real Chromium, over many partitions and groups."""

import os
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from drkit.cli.wiring.page_sources import page_sources
from drkit.config import Config, Objectives
from drkit.drill.results.archive import Drills, new_run
from drkit.failover.context.state_machine import Facts, StageOutcome
from drkit.failover.journal.journal import Journal, StageRecord
from drkit.failover.journal.run_record import begin
from drkit.failover.plan.failover_plan import plan_json
from drkit.model.errors import Unreachable
from drkit.model.runs import RunSummary
from drkit.model.topology import Link
from drkit.observe.page.board import Sources
from drkit.observe.page.decision import Answer, Obstruction
from drkit.store import open_store
from tests.support.drills.drill_results import result_of
from tests.support.pages.page import (
    LATENCY,
    LINK,
    MARKUP,
    Served,
    board_of,
    decision,
    earlier,
    large,
    partition,
    planned,
    runs,
    served,
    snapshot,
    sources,
    worker,
)
from tests.unit.failover.plan.test_plan import a_plan

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright isn't installed: pip install playwright")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is on PATH: apt-get install chromium")
_WAIT_MS = 60_000
"""Of each condition that is waited for: a machine that is busy is no failure."""


RUN = "01JTHERUN"
UNSHOWN = "not shown to meet the objective"
TO = "\N{EN DASH}"
CURSOR = "chart => new DOMMatrix(getComputedStyle(chart.querySelector('.u-cursor-x')).transform).e"
"""Where a chart's cursor is, in pixels from the left."""


def shows(page, rows: str) -> None:
    """Wait until the table says that it shows these rows."""
    page.locator(".pager [role=status]", has_text=rows).wait_for()


def bottom_of_facts(page) -> float:
    """Where the last cluster's facts end; asked of the document, as an event may replace them at any moment."""
    return page.evaluate("[...document.querySelectorAll('.facts')].at(-1).getBoundingClientRect().bottom")


MOST = 20
"""Obstacles that the page is told of each cluster."""
FACTS = ["Would be lost", "Would take", "Last drill", "Last audit"]
SIZES = {"desktop": {"width": 1366, "height": 768}, "phone": {"width": 390, "height": 844}}
LONG = (
    Obstruction(
        "primary->dr",
        "group billing-reconciliation-worker of application billing is active on dr with 3 members on 2 hosts",
        "Its offsets can't be set while a member of it is there: the coordinator refuses the commit, and whoever reads "
        "there now would go on from where it is and not from where primary's consumers were",
        "Stop its consumers on dr, or leave the group out with `drkit failover --to dr --group 'orders-.*'`",
    ),
    Obstruction(
        "primary->dr",
        "the mirror's copy of the store on dr has newer watermarks of 12 topics than the store has",
        "The store was set back to an older state, so positions by its rows could skip records mirrored since",
        "Move that store away and run `drkit store recover --from dr`, then plan anew",
    ),
    Obstruction(
        "primary->dr",
        "10,412 records of primary would be lost although it answers",
        "A planned failover waits until the mirror has brought all of them over, and no mirror of this link runs now",
        "Start `drkit mirror`, or accept the loss with --accept-loss 10412",
    ),
)


def one(page, name: str):
    """The chart of this name, once it shows points."""
    chart = page.get_by_role("application", name=name)
    chart.locator("canvas").wait_for()
    return chart


def contrast(page, one: str, other: str) -> float:
    """Of two of the style's colours, by WCAG 2.2."""
    return page.evaluate(
        """([one, other]) => {
          const style = getComputedStyle(document.documentElement);
          const light = (name) => style.getPropertyValue(`--${name}`).trim().slice(1).match(/../g)
            .map((hex) => parseInt(hex, 16) / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
          const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
          return (high + 0.05) / (low + 0.05);
        }""",
        [one, other],
    )


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with sync_api.sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=options, timeout=_WAIT_MS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def many() -> Iterator[Served]:
    """10,000 partitions and 5,000 groups."""
    status = large(10_000, 5_000)
    plan = decision(positions=[planned(f"consumer-{n // 4:04d}", n % 4, lost=0) for n in range(20_000)])
    before = earlier(runs=runs(60))
    with served(
        board_of(sources(lambda: [status], lambda: [plan], lambda: before), Objectives(rto_seconds=60))
    ) as running:
        yield running


def opened(browser, page_url: str, **options):
    """A page that has got its first event, and the errors of its scripts so far."""
    context = browser.new_context(**options)
    context.set_default_timeout(_WAIT_MS)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.goto(page_url)
    page.wait_for_selector("#decisions .decision, #decisions .notice")
    return page, errors


def test_the_page_answers_pages_searches_and_sorts_by_keyboard(browser, many):
    page, _ = opened(browser, f"{many.url}/", viewport={"width": 1366, "height": 768})
    assert (
        page.locator(".decision h2")
        .inner_text()
        .replace("\n", " ")
        .endswith("Yes: a failover to dr would be accepted now")
    )
    assert bottom_of_facts(page) <= 768, "the first view must need no scrolling"
    said = one(page, "End-to-end latency").get_attribute("aria-label")
    assert "median: now 4\N{NO-BREAK SPACE}ms · highest 4\N{NO-BREAK SPACE}ms; 99th percentile: now 13" in said
    assert "highest" in one(page, "Throughput: records").get_attribute("aria-label")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("nav a", has_text="Topics").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("tbody tr:nth-child(50)")
    assert page.locator("nav a[aria-current=page]").inner_text() == "Topics"
    shows(page, f"1{TO}50 of 100")
    page.goto(f"{many.url}/#partitions")
    shows(page, f"1{TO}50 of 10,000")
    assert page.locator("tbody tr").count() == 50, "the server sends a page, never everything"
    landmarks = [
        each.get_attribute("aria-label") or each.get_attribute("aria-labelledby")
        for each in page.locator("section, [role=region]").all()
    ]
    assert len(set(landmarks)) == len(landmarks), "a screen reader tells them apart by their names"
    page.locator("thead button", has_text="Source end").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("th[aria-sort=descending] button:has-text('Source end')")
    page.goto(f"{many.url}/#groups")
    page.locator("#search").fill("consumer-42")
    shows(page, "found of 5,000")
    page.locator("tbody a").first.focus()
    page.keyboard.press("Enter")
    page.locator("#table-title", has_text="Positions: primary->dr, consumer-42").wait_for()
    page.context.close()


def test_on_a_phone_in_the_dark_the_answer_fits_and_nothing_is_cut_off(browser):
    status = snapshot(partitions=tuple(partition(n) for n in range(10)))
    with served(board_of(sources(lambda: [status], lambda: [decision(Answer.NO)]))) as few:
        page, errors = opened(
            browser, f"{few.url}/", viewport={"width": 390, "height": 844}, color_scheme="dark", has_touch=True
        )
        assert (
            page.locator(".decision h2")
            .inner_text()
            .replace("\n", " ")
            .endswith("No: 1 thing stands against a failover to dr")
        )
        assert bottom_of_facts(page) <= 844
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert max(map(int, background[4:-1].split(","))) < 60, "dark where the device is"
        assert errors == []
        page.context.close()


@pytest.mark.parametrize("size", SIZES)
def test_a_no_with_three_long_obstacles_leaves_the_facts_in_the_first_view(browser, size):
    plan = decision(Answer.NO, obstructions=LONG)
    with served(board_of(sources(lambda: [snapshot()], lambda: [plan]), Objectives(rto_seconds=60))) as running:
        page, errors = opened(browser, f"{running.url}/", viewport=SIZES[size])
        shown = page.locator(".decision.no .facts dt").all_inner_texts()
        assert shown == FACTS
        assert bottom_of_facts(page) <= SIZES[size]["height"]
        assert page.locator(".obstructions li").first.is_visible(), "the first one, and what to do, needs no click"
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
        assert errors == []
        page.context.close()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("answer", [Answer.YES, Answer.UNFENCED, Answer.NO])
def test_the_facts_of_two_clusters_need_no_scrolling(browser, size, answer):
    """What is folded on a phone is unfolded in its place, and stays so when an event comes."""
    obstacles = () if answer is Answer.YES else LONG * 20
    plans = [
        decision(
            answer, to=to, links=(f"primary->{to}",), obstructions=obstacles, lower_bound=True, loss_reason="x" * 90
        )
        for to in ("dr", "archive")
    ]
    objectives = Objectives(rpo_records=0, rpo_seconds=5, rto_seconds=60)
    with served(board_of(sources(lambda: [snapshot()], lambda: plans), objectives)) as running:
        page, errors = opened(browser, f"{running.url}/", viewport=SIZES[size])
        assert page.locator(".facts dt").all_inner_texts() == FACTS * 2
        assert bottom_of_facts(page) <= SIZES[size]["height"]
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
        if size == "phone":
            last = page.get_by_role("article", name="Failover to archive")
            assert not last.locator("code", has_text="drkit failover").first.is_visible()
            last.locator("summary").first.click()
            clipped = """() => [...document.querySelectorAll('[aria-label="Failover to archive"] .note')]
                .filter((each) => each.scrollWidth > each.clientWidth).length"""
            page.wait_for_function(f"() => !({clipped})()")
            told = last.locator(".obstructions li").all_inner_texts()
            assert len(told) == (MOST + 1 if obstacles else 0)
            assert not told or told[-1] == f"and {60 - MOST} more: the command lists them"
            page.locator("#connection").evaluate("element => { element.textContent = 'before' }")
            page.locator("#connection", has_text="Live").wait_for()
            assert last.locator("details").first.get_attribute("open") is not None
        assert errors == []
        page.context.close()


def test_a_latency_that_is_not_measured_names_the_key_that_measures_it(browser):
    status = snapshot()
    with served(board_of(sources(lambda: [status]))) as running:
        page, errors = opened(browser, f"{running.url}/")
        chart = page.get_by_role("img", name="End-to-end latency")
        chart.locator("code", has_text="canary = true").wait_for()
        page.locator("article.link .pairs code", has_text="canary = true").wait_for()
        status = snapshot(link=Link(LINK, topics=(".*",), canary=True))
        page.wait_for_function("() => !document.querySelector('article.link').innerText.includes('canary')")
        assert errors == []
        page.context.close()


def test_points_of_a_chart_are_reached_and_read_by_arrow_keys(browser, many):
    page, errors = opened(browser, f"{many.url}/", viewport=SIZES["desktop"])
    points = (
        "fetch('api/history?link=primary->dr&span=1h').then((answer) => answer.json()).then((found) => found.at.length)"
    )
    page.wait_for_function(f"async () => await {points} > 2")
    page.reload()
    chart = one(page, "End-to-end latency")
    chart.focus()
    read = page.locator("#main-content p[aria-live]")
    page.keyboard.press("ArrowLeft")
    median = "median 4\N{NO-BREAK SPACE}ms, 99th percentile 13\N{NO-BREAK SPACE}ms"
    page.wait_for_function("() => document.querySelector('#main-content p[aria-live]').textContent")
    assert re.fullmatch(rf"End-to-end latency, \d{{4}}-\d\d-\d\d \d\d:\d\d: {median}", read.text_content())
    newest = chart.evaluate(CURSOR)
    page.keyboard.press("Home")
    page.wait_for_function(f"x => ({CURSOR})(document.activeElement) < x", arg=newest)
    assert median in read.text_content()
    oldest = chart.evaluate(CURSOR)
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"x => ({CURSOR})(document.activeElement) > x", arg=oldest)
    chart.locator("canvas").evaluate("canvas => { canvas.dataset.old = true }")
    page.emulate_media(color_scheme="dark")  # drawn anew, in other colours
    chart.locator("canvas:not([data-old])").wait_for()
    assert chart.evaluate("element => element === document.activeElement")
    assert chart.evaluate(CURSOR) > oldest, "where it was"
    assert errors == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_of_charts_and_pressed_buttons_stand_out_in_both_schemes(browser, scheme):
    with served(board_of(sources())) as running:
        page, _ = opened(browser, f"{running.url}/", color_scheme=scheme)
        for colour in ("one", "two", "accent", "text", "dim", "yes", "care", "no", "unknown"):
            for ground in ("card", "page"):
                assert contrast(page, colour, ground) >= 4.5, f"{colour} on {ground}"
        for answer in ("yes", "care", "no", "unknown"):
            for colour in (answer, "text", "dim"):
                assert contrast(page, colour, f"{answer}-back") >= 4.5, f"{colour} on {answer}-back"
        page.context.close()


@pytest.mark.parametrize(
    ("loss", "limits", "verdict"),
    [
        ({"records": None, "seconds": None, "loss_reason": "nobody looked"}, {"rpo_records": 5}, UNSHOWN),
        ({"records": 3, "seconds": None}, {"rpo_seconds": 5}, UNSHOWN),
        ({"records": 3, "seconds": 1.0, "lower_bound": True}, {"rpo_records": 5, "rpo_seconds": 5}, UNSHOWN),
        ({"records": 9, "seconds": 1.0, "upper_bound": True}, {"rpo_records": 5}, UNSHOWN),
        ({"records": 9, "seconds": 1.0, "lower_bound": True}, {"rpo_records": 5}, "misses the objective"),
        ({"records": 3, "seconds": None}, {"rpo_records": 5}, None),
        ({"records": 3, "seconds": 1.0, "upper_bound": True}, {"rpo_records": 5, "rpo_seconds": 5}, None),
        ({"records": None, "seconds": None}, {}, None),
    ],
)
def test_an_objective_is_marked_as_missed_or_as_not_shown_to_be_met(browser, loss, limits, verdict):
    with served(board_of(sources(decisions=lambda: [decision(**loss)]), Objectives(**limits))) as running:
        page, errors = opened(browser, f"{running.url}/")
        fact = page.locator(".facts > div", has_text="Would be lost")
        assert (verdict is not None) == bool(fact.locator(".value.missed").count())
        if verdict is not None:
            assert verdict in fact.locator(".note").inner_text()
        assert errors == []
        page.context.close()


def test_what_is_read_again_has_its_bound_and_a_moved_link_its_next_command(browser):
    rows = [
        planned("bounded", reread=None, reread_at_most=1300),
        planned("known", reread=1300, reread_at_most=1300),
        planned("open", reread=7, reread_at_most=None),
    ]
    moved = "Failed over already: dr serves. To go back: `drkit failback --to primary`"
    plan = decision(Answer.MOVED, positions=rows, moved=moved)
    with served(board_of(sources(lambda: [snapshot(state="sealed")], lambda: [plan]))) as running:
        page, errors = opened(browser, f"{running.url}/#plan")
        page.wait_for_selector("tbody tr")
        cells = {row.locator("th").inner_text(): row.inner_text() for row in page.locator("tbody tr").all()}
        assert "≤ 1,300" in cells["bounded"]
        assert "≥ 7" in cells["open"]
        assert "1,300" in cells["known"]
        assert "≤" not in cells["known"]
        assert page.locator(".decision.moved h2 code").inner_text() == "drkit failback --to primary"
        assert "`" not in page.locator("#announcement").inner_text()
        assert errors == []
        page.context.close()


def test_a_long_reason_is_not_repeated_and_no_sentence_ends_twice(browser):
    why = "dr does not answer: its brokers were asked for 10 s, and the last error was a refused connection."
    rows = [planned(f"g{n}", reason=why if n < 3 else "another one", translation="conservative") for n in range(4)]
    plan = decision(Answer.NO, positions=rows, obstructions=(Obstruction(None, why, "Nothing moves", "Start dr"),))
    with served(board_of(sources(lambda: [snapshot()], lambda: [plan]))) as running:
        page, errors = opened(browser, f"{running.url}/#planned")
        page.wait_for_selector("tbody tr")
        reasons = [row.locator("td").last.inner_text() for row in page.locator("tbody tr").all()]
        assert sorted(reasons) == sorted([why, "as above", "as above", "another one"])
        assert page.locator(".decision .obstructions").inner_text() == f"{why} Nothing moves. Do: Start dr"
        assert errors == []
        page.context.close()


def test_it_prints_dark_on_white_without_what_only_a_screen_needs(browser):
    with served(board_of(sources())) as running:
        page, errors = opened(browser, f"{running.url}/#partitions", color_scheme="dark")
        page.wait_for_selector("tbody tr")
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
        assert not page.locator("nav").is_visible()
        assert not page.locator("#search").is_visible()
        assert page.locator(".facts").is_visible()
        assert page.locator("#connection").inner_text().count("-") == 2, "a print has its date"
        assert errors == []
        page.context.close()


def test_commands_and_flags_of_a_message_are_code_and_flags_stay_whole(browser):
    said = Obstruction(None, "it is sealed", "See `drkit runs`", "Give --accept-unfenced, or `drkit failback --yes`")
    with served(
        board_of(sources(lambda: [snapshot()], lambda: [decision(Answer.NO, obstructions=(said,))]))
    ) as running:
        page, _ = opened(browser, f"{running.url}/", viewport={"width": 390, "height": 844})
        shown = page.locator(".obstructions")
        assert shown.locator("code").all_inner_texts() == ["drkit runs", "--accept-unfenced", "drkit failback --yes"]
        assert "`" not in shown.inner_text()
        # asked of the document: a look that comes meanwhile replaces the element, and one that is gone has no style
        flag = "getComputedStyle(document.querySelector('.obstructions code.flag')).whiteSpace"
        page.wait_for_function(f"() => {flag} === 'nowrap'")
        page.context.close()


def test_a_headline_with_the_id_of_a_run_stays_in_a_narrow_window(browser):
    moved = decision(
        Answer.MOVED, moved=f"A run of primary->dr isn't over. If nobody is on it: drkit resume {'W' * 26}"
    )
    with served(board_of(sources(lambda: [snapshot()], lambda: [moved]))) as running:
        page, _ = opened(browser, f"{running.url}/", viewport={"width": 390, "height": 844})
        page.locator(".decision h2", has_text="drkit resume").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.context.close()


def test_labels_of_charts_have_room(browser):
    """Measured in the font that they are drawn in."""
    with served(board_of(sources(lambda: [snapshot(partitions=(partition(lag=1),))]))) as running:
        page, _ = opened(browser, f"{running.url}/")
        page.wait_for_selector(".charts .uplot canvas")
        room, drawn = page.evaluate(
            """async () => {
              const { labelRoom } = await import("./static/charts.js");
              const context = document.createElement("canvas").getContext("2d");
              context.font = "12px system-ui, sans-serif";
              return [labelRoom(["0 B/s", "200.0 kB/s"]), context.measureText("200.0 kB/s").width];
            }"""
        )
        assert room >= drawn + 15, "ticks and a gap stand between"
        page.context.close()


def test_the_charts_of_a_link_end_where_it_was_failed_over(browser):
    status = snapshot(partitions=(partition(lag=5),))
    with served(board_of(sources(lambda: [status]))) as running:
        page, errors = opened(browser, f"{running.url}/")
        lag = page.locator("figure", has_text="Lag: records").locator("figcaption .now")
        page.locator("figure .now", has_text="now 5").first.wait_for()
        status = snapshot(state="sealed", partitions=(partition(lag=500),))
        page.locator("article.link .badge", has_text="sealed").wait_for()
        page.locator("article.link .pairs", has_text="none: nothing is mirrored since the failover").wait_for()
        page.wait_for_function("() => document.querySelector('.charts').innerText.includes('none since the failover')")
        assert lag.inner_text().startswith("none since the failover")
        assert "500" not in page.locator(".charts").inner_text()
        assert errors == []
        page.context.close()


def test_axes_of_charts_never_label_two_values_alike(browser):
    with served(board_of(sources(lambda: [snapshot(partitions=(partition(lag=1),))]))) as running:
        page, _ = opened(browser, f"{running.url}/")
        page.wait_for_selector(".charts .uplot canvas")
        labels, alone, several = page.evaluate(
            """async () => {
              const { axisLabels, timeRange } = await import("./static/charts.js");
              return [axisLabels(["0", "1 ms", "1 ms", "2 ms"]), timeRange([100]), timeRange([100, 110, 120])];
            }"""
        )
        assert labels == ["0", "1 ms", "", "2 ms"]
        assert alone == [70, 130], "a minute, not years around a single point"
        assert several == [100, 120]
        page.context.close()


@pytest.fixture
def kept(tmp_path, monkeypatch) -> Iterator[Sources]:
    """Of a store with a failover and of a folder with a drill: what `drkit serve` makes the page from."""
    config = Config.model_validate(
        {
            "clusters": {"primary": {"bootstrap_servers": "127.0.0.1:9"}, "dr": {"bootstrap_servers": "127.0.0.1:10"}},
            "store": {"url": "sqlite:///:memory:"},
            "links": [{"source": "primary", "target": "dr", "topics": [".*"]}],
        }
    )
    store, plan, began = open_store(config.store.plain_url), a_plan(), datetime(2026, 11, 20, 4, 3, tzinfo=UTC)
    journal = Journal(store, RUN)
    facts = Facts(mode=plan.mode, unfenced_accepted=True)
    begin(journal, plan, facts, began, plan_json(plan), {})
    for record in (
        StageRecord("fence", StageOutcome.SKIPPED, "accepted as unfenced", 0.4),
        StageRecord("drain", StageOutcome.FAILED, f"the mirror does not stop: {MARKUP}", 61.0),
    ):
        journal.intent(record.name)
        journal.outcome(record, facts)
    store.put_run(RunSummary(RUN, "failover", "planned", began, began, "primary->dr to dr"))
    drills = Drills(tmp_path / "drills")
    (tmp_path / "x.yaml").write_text("title: t\n")
    drill = new_run(began)
    folder = drills.begin(drill, tmp_path / "x.yaml")
    reasons = [f"the check lost failed: {MARKUP}"]
    drills.keep(result_of(drill, folder, title="the primary is lost", verdict="failed", exit_code=1, reasons=reasons))
    monkeypatch.setattr("drkit.cli.wiring.page_sources.default_drills", lambda: drills.path)
    yield page_sources(config, store, [each.link() for each in config.links], None)
    store.close()


def served_with(kept: Sources, **more):
    given = sources(before=kept.earlier, run=kept.run, drills=kept.drills, drill=kept.drill, **more)
    return served(board_of(given))


def test_a_run_and_a_drill_are_opened_with_their_reports_and_left_again(browser, kept):
    with served_with(kept) as running:
        page, errors = opened(browser, f"{running.url}/")
        assert "the primary is lost" in page.locator(".facts > div", has_text="Last drill").inner_text()

        page.locator("nav a", has_text="Runs").click()
        page.locator("tbody tr", has_text="primary->dr to dr").locator("a", has_text=RUN).click()
        page.locator("h2#report-title", has_text=RUN).wait_for()
        stages = page.get_by_role("region", name="Stages").locator("tbody tr")
        stages.first.wait_for()
        assert [each.inner_text().replace("\N{NO-BREAK SPACE}", " ").split("\t")[:3] for each in stages.all()] == [
            ["fence", "\N{EN DASH} skipped", "0.4 s"],
            ["drain", "\N{MULTIPLICATION X} failed", "61 s"],
        ]
        assert MARKUP in stages.last.inner_text(), "shown as it is, and obeyed by nobody"
        assert "it holds by itself" in page.locator("dl.pairs").inner_text()
        journal = page.get_by_role("region", name="Journal").locator("tbody tr")
        assert journal.count() == 5, "the plan, and each stage's intent and outcome"
        assert page.locator("code", has_text=f"drkit runs {RUN}").is_visible()
        page.locator("a", has_text="All runs").click()
        page.locator("h2#table-title", has_text="Runs").wait_for()

        page.locator("nav a", has_text="Drills").click()
        page.locator("tbody tr", has_text="failed").locator("a", has_text="the primary is lost").click()
        checks = page.get_by_role("region", name="Checks").locator("tbody tr")
        checks.first.wait_for()
        assert checks.first.inner_text().split("\t") == ["lost", "\N{MULTIPLICATION X} failed", "1", "gone"]
        assert MARKUP in page.locator("ul.obstructions").inner_text()
        assert page.get_by_role("region", name="Objectives").locator("tbody tr").count() == 1
        assert page.get_by_role("region", name="Steps").locator("tbody tr").count() == 1
        assert "recovery time" in page.locator("dl.pairs").inner_text()
        page.go_back()
        page.locator("h2#table-title", has_text="Drills").wait_for()
        assert page.locator("img").count() == 0
        assert errors == []
        page.context.close()


@pytest.mark.parametrize("view", ["run", "drill"])
def test_a_report_of_nothing_that_is_there_says_so(browser, kept, view):
    with served_with(kept) as running:
        page, _ = opened(browser, f"{running.url}/#{view}?name=none")
        page.locator("section p.failed").wait_for()
        assert page.locator("section p a").inner_text() == f"All {view}s"
        page.context.close()


@pytest.mark.parametrize("view", ["topics", "partitions", "groups", "plan"])
def test_a_phone_shows_what_a_table_is_sorted_by(browser, view):
    """The worst comes first, and nobody has to scroll sideways to see how bad it is."""
    with served(board_of(sources(lambda: [large(200, 20)]))) as running:
        page, _ = opened(browser, f"{running.url}/#{view}", viewport={"width": 390, "height": 844})
        head = page.locator("thead th[aria-sort]")
        head.wait_for()
        box = head.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390
        page.context.close()


def test_reports_fit_a_phone(browser, kept):
    with served_with(kept) as running:
        page, errors = opened(browser, f"{running.url}/#run?name={RUN}", viewport={"width": 390, "height": 844})
        page.get_by_role("region", name="Journal").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.goto(f"{running.url}/#drills")
        page.locator("tbody a").click()
        page.get_by_role("region", name="Steps").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert errors == []
        page.context.close()


def test_workers_are_shown_with_what_they_do_and_why_one_does_not(browser):
    waiting = worker(worker="other:77:1:beef", state="waiting", reason=f"dr does not answer {MARKUP}")
    status = snapshot(statistics=(worker(latency=LATENCY), waiting))
    with served(board_of(sources(lambda: [status]))) as running:
        page, errors = opened(browser, f"{running.url}/")
        page.locator("nav a", has_text="Workers").click()
        rows = page.locator("tbody tr")
        rows.nth(1).wait_for()
        texts = {row.locator("th").inner_text(): row.inner_text() for row in rows.all()}
        assert set(texts) == {"host:12", "other:77"}
        assert "mirroring" in texts["host:12"]
        assert "13 ms" in texts["host:12"]
        assert "waiting" in texts["other:77"]
        assert MARKUP in texts["other:77"]
        page.locator("#search").fill("other")
        shows(page, f"1{TO}1 of 1")
        assert page.locator("img").count() == 0
        assert errors == []
        page.context.close()


def test_heads_of_columns_are_alike_whether_they_sort_or_not(browser):
    with served(board_of(sources())) as running:
        page, _ = opened(browser, f"{running.url}/#plan")
        page.wait_for_selector("tbody tr")
        drawn = page.evaluate(
            """() => [...document.querySelectorAll("thead th:not([aria-sort])")].map((head) => {
              const words = document.createRange();
              words.selectNodeContents(head);
              const box = words.getBoundingClientRect(), within = head.querySelector("button") ?? head;
              return [getComputedStyle(within).color, Math.round((box.top + box.bottom) / 2)];
            })"""
        )
        assert len(set(map(tuple, drawn))) == 1, drawn
        page.context.close()


def test_names_are_shown_as_they_are_and_do_nothing(browser):
    status = snapshot(partitions=(partition(topic=MARKUP),), reason=MARKUP, state="degraded")
    plan = decision(Answer.NO, loss_reason=MARKUP, warnings=(MARKUP,), positions=[planned(MARKUP, reason=MARKUP)])
    with served(board_of(sources(lambda: [status], lambda: [plan]))) as running:
        page, errors = opened(browser, f"{running.url}/")
        for view in ("overview", "topics", "plan"):
            page.goto(f"{running.url}/#{view}")
            page.locator("#main-content", has_text=MARKUP).wait_for()
        assert page.locator("img").count() == 0
        assert "owned" not in page.title()
        assert errors == []
        page.context.close()


def test_a_page_whose_server_is_gone_says_unknown(browser):
    with served(board_of(sources())) as running:
        page, _ = opened(browser, f"{running.url}/")
        assert page.locator(".decision.yes").count() == 1
    page.wait_for_selector(".decision.unknown")
    assert page.locator(".decision.yes").count() == 0
    assert "drkit serve doesn't answer" in page.locator(".decision h2").inner_text()
    outdated = page.evaluate("getComputedStyle(document.querySelector('main'), '::before').content")
    assert "Outdated" in outdated, "link cards and tables still show what was"
    page.context.close()


def test_what_can_not_be_told_is_unknown(browser):
    def away():
        raise Unreachable("the store does not answer")

    with served(board_of(sources(away, away, away))) as running:
        page, errors = opened(browser, f"{running.url}/")
        assert "the store does not answer" in page.locator(".decision.unknown").inner_text()
        assert "the store does not answer" in page.locator("#main-content").inner_text()
        assert not [error for error in errors if "503" not in error]
        page.context.close()
