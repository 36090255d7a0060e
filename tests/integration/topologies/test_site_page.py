"""What the page answers for several links into one cluster is what the run over all of them would be told.

Two primaries, a and b, mirror to c. Each time the page's own command is executed and compared with its answer.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from drkit.cli.wiring.page_sources import page_sources
from drkit.config import load_config
from drkit.model.topology import Link
from drkit.observe.history import StatusHistory
from drkit.observe.page.board import Board, Sources
from drkit.observe.page.decision import Answer, Decision
from drkit.store import open_store
from tests.support.links.sites import LINKS, Site, configure, without
from tests.support.pages.page import served
from tests.support.pages.page_decision import same, words_of

pytestmark = pytest.mark.lab
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_WAIT_MS = 120_000


def page(site: Site, *named: str) -> tuple[Sources, list[Link]]:
    """As `drkit serve` begins with the configuration as it is now."""
    config = load_config(site.net.path)
    links = [each.link() for each in config.links if not named or str(each.link().id) in named]
    return page_sources(config, site.net.store, links, None), links


def agreed(site: Site, *named: str) -> Decision:
    """The page's decision, after the command that it shows said the same."""
    (found,) = page(site, *named)[0].decisions()
    code, told = site.drkit(*words_of(found))
    same(found, told, code)
    return found


def test_the_answer_is_that_of_the_run_over_all_links(site: Site) -> None:
    found = agreed(site)
    assert (found.answer, found.links) == (Answer.UNFENCED, LINKS)
    assert {(row.link, row.group) for row in found.positions} == {
        ("a->c", site.group("both")),
        ("a->c", site.group("alone")),
        ("b->c", site.group("both")),
    }
    without(site.net.path, "b")
    found = agreed(site)
    assert found.answer is Answer.UNFENCED
    assert found.lower_bound, "nobody can count what b took since"
    configure(site, "[objectives]\nmax_loss_records = 0\n")
    found = agreed(site)
    assert (found.answer, found.obstructions[0].link) == (Answer.NO, "b->c"), "its loss isn't known, and has a budget"
    alone = agreed(site, "a->c")
    assert (alone.answer, alone.links, words_of(alone)[3:5]) == (Answer.UNFENCED, ("a->c",), ["--link", "a->c"])
    configure(
        site, '[clusters.d]\nbootstrap_servers = "127.0.0.1:9"\n[[links]]\nsource = "d"\ntarget = "c"\ntopics = ["x"]\n'
    )
    found = agreed(site)
    assert found.answer is Answer.NO
    assert "d->c: the store holds nothing about d->c" in found.obstructions[0].what


def test_what_makes_the_command_refuse_never_is_a_yes(site: Site) -> None:
    """The store, the configuration, the target, and a link that was moved, while the page is being served."""
    sources, links = page(site)
    assert sources.decisions()[0].answer is Answer.UNFENCED
    as_it_was = site.net.path.read_text()
    without(site.net.path, "c")
    board = Board(
        sources,
        StatusHistory(open_store("sqlite:///:memory:"), [each.id for each in links]),
        site.net.config.objectives,
    )
    board.decision.look_once()
    changed = board.summary()["decisions"][0]
    assert (changed["answer"], "was changed since" in changed["obstructions"][0]["what"]) == ("unknown", True)
    found = agreed(site)
    assert (found.answer, "c does not answer" in found.obstructions[0].what) == (Answer.NO, True)
    site.net.path.write_text(as_it_was)
    assert sources.decisions()[0].answer is Answer.UNFENCED
    assert site.drkit("failover", "--to", "c", "--unplanned", "--accept-unfenced")[0] == 0
    moved = agreed(site)
    assert (moved.answer, {each.link for each in moved.obstructions} >= set(LINKS)) == (Answer.MOVED, True)
    store = site.net.path.with_name("drkit.db")
    store.rename(store.with_name("moved-away.db"))
    try:
        board.decision.look_once()
        gone = board.summary()["decisions"][0]
        assert gone["answer"] != "yes"
        assert gone["answer"] != "unfenced"
        assert "removed" in gone["obstructions"][0]["what"]
        assert site.drkit("failover", "--to", "c", "--dry-run")[0] == 3
    finally:
        store.with_name("moved-away.db").rename(store)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is on PATH: apt-get install chromium")
def test_the_first_view_names_the_link_that_stands_in_the_way(site: Site, tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright isn't installed: pip install playwright")
    without(site.net.path, "b")
    configure(site, "[objectives]\nmax_loss_records = 0\n")
    sources, links = page(site)
    config = load_config(site.net.path)
    board = Board(
        sources, StatusHistory(open_store("sqlite:///:memory:"), [each.id for each in links]), config.objectives
    )
    with served(board) as running, sync_api.sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options, timeout=_WAIT_MS)
        for scheme, width in (("light", 1366), ("dark", 390)):
            context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
            context.set_default_timeout(_WAIT_MS)
            view = context.new_page()
            view.goto(f"{running.url}/")
            view.wait_for_selector(".decision.no")
            assert "against a failover to c" in view.locator(".decision h2").inner_text()
            assert view.locator(".decision .from").inner_text().startswith("a->c, b->c")
            assert view.locator(".obstructions li b").first.inner_text() == "b->c: "
            assert view.evaluate("document.documentElement.scrollWidth") <= width
            view.screenshot(path=str(tmp_path / f"site-{scheme}.png"))
            context.close()
        browser.close()
