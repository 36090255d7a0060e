"""The page of `drkit serve`: its data, who may read it, what it says where nothing is known."""

import json
import re
import ssl
import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest
import trustme

from drkit.cli.views.positions_view import again
from drkit.config import Objectives
from drkit.model.clock import now
from drkit.model.errors import ConfigError, Unreachable
from drkit.observe.audit_history import AuditOfLink
from drkit.observe.page.access import Access, checked, is_loopback
from drkit.observe.page.application import MAX_STREAMS, Certificates, PageServer, bind
from drkit.observe.page.board import Board, LastDrill, Poller
from drkit.observe.page.decision import Answer, Duration
from drkit.observe.page.tables import MAX_SEARCH, MAX_SIZE, Table, page_of, plan_rows, position_rows, query_of
from tests.support.pages.page import (
    LINK,
    MARKUP,
    STATIC,
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

TOKEN = "0123456789abcdef"  # noqa: S105 - of servers made for one test
THINGS = Table(("name", "lag"), ("name",), ("kind",), ("lag", True))
ROWS = [{"name": f"t{n}", "kind": "even" if n % 2 == 0 else "odd", "lag": None if n == 7 else n} for n in range(120)]


def asked(**parameters: str):
    return page_of(ROWS, THINGS, query_of(THINGS, parameters))


def test_a_page_holds_the_worst_first_and_what_is_not_known_is_the_worst():
    first = asked()
    assert [row["lag"] for row in first["rows"][:3]] == [None, 119, 118]
    assert (first["total"], first["matched"], first["pages"], len(first["rows"])) == (120, 120, 3, 50)
    assert [row["lag"] for row in asked(page="3")["rows"]] == [*range(20, 7, -1), *range(6, -1, -1)]
    upwards = asked(sort="lag", order="asc", size="120")["rows"]
    assert (upwards[0]["lag"], upwards[-1]["lag"]) == (0, None)


def test_search_and_filters_narrow_a_table_and_a_page_beyond_the_end_is_the_last():
    assert [row["name"] for row in asked(q="T11", sort="name")["rows"]] == sorted(
        ["t11", *(f"t11{n}" for n in range(10))]
    )
    odd = asked(kind="odd", page="99")
    assert (odd["matched"], odd["page"], odd["pages"]) == (60, 2, 2)
    assert asked(q="nothing")["rows"] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("page", "0"),
        ("page", "-1"),
        ("page", "1.5"),
        ("page", "²"),
        ("page", "9" * 40),
        ("size", "0"),
        ("size", str(MAX_SIZE + 1)),
        ("sort", "kind"),
        ("sort", "__class__"),
        ("order", "up"),
        ("q", "x" * (MAX_SEARCH + 1)),
        ("elsewhere", "1"),
    ],
)
def test_a_parameter_that_can_not_be_is_named_with_what_is_expected(name, value):
    with pytest.raises(ConfigError, match=name) as error:
        query_of(THINGS, {name: value})
    assert error.value.remedy


@pytest.fixture(scope="module")
def page():
    """A server of a link with 3,000 partitions and 1,000 groups."""
    status = large(3000, 1000)
    plan = decision(positions=[planned(f"consumer-{n:04d}", n, lost=n % 3 or None) for n in range(400)])
    before = earlier(runs=runs(130))
    with served(board_of(sources(lambda: [status], lambda: [plan], lambda: before))) as running:
        yield running


def test_topics_partitions_and_groups_come_in_pages(page):
    topics = page.ask("/api/topics?size=10").json()
    assert (topics["total"], len(topics["rows"]), topics["pages"]) == (30, 10, 3)
    assert topics["rows"][0]["lag_records"] is None
    assert topics["rows"][0]["unknown"] == 1
    places = page.ask("/api/partitions?topic=orders.region-003&sort=partition&size=200").json()
    assert [row["partition"] for row in places["rows"]] == list(range(100))
    groups = page.ask("/api/groups?q=consumer-09").json()
    assert (groups["total"], groups["matched"]) == (1000, 100)
    assert groups["rows"][0]["unavailable"] == 4
    assert groups["rows"][0]["reason"] == "the target's retention removed it"
    assert page.ask("/api/positions?group=consumer-0042").json()["matched"] == 4
    assert page.ask("/api/runs?page=3").json()["rows"][-1]["run"] == "01RUN00129"


def test_the_plan_is_a_table_by_group_and_by_position(page):
    groups = page.ask("/api/plan?to=dr&q=consumer-0001").json()
    assert groups["rows"][0]["lost"] == 1
    assert page.ask("/api/plan?size=1").json()["total"] == 400
    one = page.ask("/api/planned?group=consumer-0003&to=dr").json()["rows"]
    assert [(row["partition"], row["target_offset"], row["lost"]) for row in one] == [(3, 905, None)]


def test_what_is_read_again_is_exact_at_most_or_at_least_as_the_terminal_has_it():
    plan = decision(
        positions=(
            planned("exact", reread=7, reread_at_most=7),
            planned("bounded", reread=7, reread_at_most=7),
            planned("bounded", 1, reread=None, reread_at_most=293),
            planned("unbounded", reread=7, reread_at_most=7),
            planned("unbounded", 1, reread=None, reread_at_most=None),
            planned("unplaced", reread=None, reread_at_most=None, target_offset=None),
        )
    )
    found = {row["group"]: (row["reread"], row["reread_at_most"]) for row in plan_rows([plan])}
    assert found == {"exact": (7, 7), "bounded": (7, 300), "unbounded": (7, None), "unplaced": (0, 0)}
    shown = {group: again(known, most) for group, (known, most) in found.items()}
    assert shown == {"exact": "7", "bounded": "≤ 300", "unbounded": "≥ 7", "unplaced": "0"}


def test_the_first_view_stays_small_however_much_there_is(page):
    answer = page.ask("/api/summary")
    assert len(answer.text) < 20_000
    found = answer.json()
    assert found["links"][0]["partitions"] == 3000
    assert found["links"][0]["lag_records"] is None
    assert found["decisions"][0]["answer"] == "yes"
    assert found["decisions"][0]["groups"] == 400


@pytest.mark.parametrize(
    "path", ["/api/topics?page=x", "/api/groups?nothing=1", "/api/history?link=a->b", "/api/history?link=x"]
)
def test_a_bad_request_is_an_error_document(page, path):
    answer = page.ask(path)
    assert answer.code == 400
    assert answer.json()["error"]["remedy"]


PATHS = ["/", "/status.json", "/metrics", "/healthz", "/events", "/api/summary", "/api/topics", "/static/page.js"]


@pytest.mark.parametrize("path", PATHS)
def test_head_answers_as_get_does_without_a_body(page, path):
    answer = page.ask(path, method="HEAD")
    assert (answer.code, answer.text) == (200, "")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(page, method):
    assert page.ask("/api/topics", method=method).code == 405
    assert page.ask("/", method=method).code == 405


def test_what_is_not_there_is_404(page):
    for path in ("/other", "/static/../server.py", "/static/%2e%2e/server.py", "/api/runs/none", "/api/drills/none"):
        assert page.ask(path).code == 404, path


def test_events_bring_the_summary(page):
    connection = page.connection()
    try:
        connection.request("GET", "/events")
        answer = connection.getresponse()
        assert answer.getheader("content-type").startswith("text/event-stream")
        lines = iter(answer.readline, b"")
        data = next(line for line in lines if line.startswith(b"data: "))
        assert json.loads(data[6:])["decisions"][0]["to"] == "dr"
    finally:
        connection.close()


def test_pages_that_are_open_are_bounded():
    with served(board_of(sources())) as running:
        open_ones = []
        try:
            for _ in range(MAX_STREAMS):
                connection = running.connection()
                open_ones.append(connection)
                connection.request("GET", "/events")
                assert connection.getresponse().readline() == b"retry: 3000\n"
            refused = running.ask("/events")
            assert refused.code == 503
            assert "retry-after" in refused.headers
            assert running.ask("/api/summary").code == 200
        finally:
            for connection in open_ones:
                connection.close()


def test_history_is_served_by_link_and_span(page):
    found = page.ask("/api/history?link=primary-%3Edr&span=1h").json()
    assert found["step_seconds"] == 10
    assert set(found["series"]["rpo_records"]) == {None}
    assert set(found["series"]["records_per_second"]) <= {1322.5, None}
    assert len(found["at"]) == len(found["series"]["lag_records"]) >= 1
    assert page.ask("/api/history?link=primary-%3Edr&span=2h").code == 400


def test_names_are_data_and_never_markup():
    status = snapshot(partitions=(partition(topic=MARKUP),))
    with served(board_of(sources(lambda: [status], lambda: [decision(Answer.NO, to=MARKUP)]))) as running:
        for path in ("/api/topics", "/api/summary", "/status.json"):
            assert running.ask(path).headers["content-type"].startswith("application/json")
        assert running.ask("/api/topics").json()["rows"][0]["topic"] == MARKUP
        assert MARKUP not in running.ask("/").text
        assert "<img" not in running.ask("/api/topics?sort=%3Cimg%3E").text.replace("'<img>'", "")
    for script in STATIC.glob("*.js"):
        if script.name != "uplot.js":
            careless = re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script.read_text()
            )
            assert careless is None, script.name


def test_the_page_loads_nothing_from_elsewhere():
    for file in (
        *STATIC.glob("*.html"),
        *STATIC.glob("*.css"),
        *(s for s in STATIC.glob("*.js") if s.name != "uplot.js"),
    ):
        assert re.search(r"(https?:)?//[a-z]", re.sub(r"(?m)(^|\s)//.*$", "", file.read_text())) is None, file.name


def test_a_token_opens_the_page_to_programs_and_browsers():
    access = Access(TOKEN, only_loopback=False)
    with served(board_of(sources()), access) as running:
        for path in ("/api/summary", "/status.json", "/metrics", "/events", "/api/topics"):
            refused = running.ask(path)
            assert (refused.code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="drkit"'), path
            assert "primary" not in refused.text
        assert running.ask("/status.json", Authorization=f"Bearer {TOKEN}x").code == 401
        assert running.ask("/status.json", Authorization=f"Bearer {TOKEN}").code == 200
        assert running.ask("/", Accept="text/html").headers["location"] == "login"
        assert running.ask("/login").code == 200
        assert running.ask("/static/page.css").code == 200
        form = {"Content_Type": "application/x-www-form-urlencoded"}
        wrong = running.ask("/login", method="POST", body="token=wrong", **form)
        assert (wrong.code, "set-cookie" in wrong.headers) == (303, False)
        assert running.ask("/login", method="POST", body="x" * 5000, **form).code == 413
        right = running.ask("/login", method="POST", body=f"token={TOKEN}", **form)
        cookie = right.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
        assert TOKEN not in cookie
        session = cookie.split(";")[0]
        assert running.ask("/api/summary", Cookie=session).code == 200
        assert running.ask("/api/summary", Cookie=session[:-1] + ("0" if session[-1] != "0" else "1")).code == 401
        assert running.ask("/api/summary", Cookie="drkit_session=99999999999.").code == 401


def test_a_session_ends_and_another_token_ends_it():
    access = Access(TOKEN)
    session = access.session(1000.0)
    cookie = {"cookie": f"drkit_session={session}"}
    from starlette.datastructures import Headers  # noqa: PLC0415

    assert access.admits(Headers(cookie), 2000.0)
    assert not access.admits(Headers(cookie), 1000.0 + 31 * 24 * 3600)
    assert not Access(TOKEN + "2").admits(Headers(cookie), 2000.0)


def test_health_says_no_more_than_that_to_strangers():
    def away():
        raise Unreachable("the store at 10.1.2.3 does not answer")

    with served(board_of(sources(away)), Access(TOKEN, only_loopback=False)) as running:
        assert (running.ask("/healthz").code, running.ask("/healthz").text) == (503, "there is no status")
        assert "10.1.2.3" in running.ask("/healthz", Authorization=f"Bearer {TOKEN}").text
        assert (running.ask("/readyz").code, running.ask("/readyz").text) == (503, "there is no status")
        assert (running.ask("/livez").code, running.ask("/livez").text) == (200, "ok"), "a restart would not help"


def test_on_loopback_a_name_that_was_pointed_here_gets_nothing():
    with served(board_of(sources())) as running:
        port = running.url.rpartition(":")[2]
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", ""):
            assert running.ask("/api/summary", Host=host).code == 421, host
        for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "localhost"):
            assert running.ask("/api/summary", Host=host).code == 200, host


def test_elsewhere_than_on_loopback_something_is_asked_of_readers():
    assert checked("127.0.0.1", None, encrypted=False, certificates=False).only_loopback
    for host in ("0.0.0.0", "::", "10.0.0.1"):  # noqa: S104 - refused
        with pytest.raises(ConfigError, match="the page has no authentication"):
            checked(host, None, encrypted=False, certificates=False)
        assert not checked(host, TOKEN, encrypted=False, certificates=False).only_loopback
        assert not checked(host, None, encrypted=True, certificates=True).only_loopback
    with pytest.raises(ConfigError, match="15 characters"):
        checked("127.0.0.1", TOKEN[:-1], encrypted=False, certificates=False)
    assert is_loopback("127.8.9.1")
    assert is_loopback("::1")


def test_mutual_tls_lets_in_who_has_a_certificate(tmp_path):
    authority, other = trustme.CA(), trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    server.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    server.cert_chain_pems[0].write_to_path(str(tmp_path / "certificate.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    pem = Certificates(tmp_path / "certificate.pem", tmp_path / "key.pem", tmp_path / "ca.pem")

    def trusting(issuer: trustme.CA | None) -> ssl.SSLContext:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        if issuer is not None:
            issuer.issue_cert("sre@drkit.test").configure_cert(context)
        return context

    access = Access(encrypted=True, only_loopback=False)
    with served(board_of(sources()), access, pem, trusting(authority)) as running:
        assert running.url.startswith("https://")
        assert running.ask("/api/summary").code == 200
        for stranger in (None, other):
            with pytest.raises(OSError, match=r"(?i)certificate|alert|reset|closed|eof|broken"):
                replace(running, trust=trusting(stranger)).ask("/api/summary")


def test_certificates_that_can_not_be_used_are_named(tmp_path):
    (tmp_path / "bad.pem").write_text("nothing")
    listening = bind("127.0.0.1", 0)
    try:
        with pytest.raises(ConfigError, match=r"serve\.certificate"):
            PageServer(board_of, listening, Certificates(tmp_path / "bad.pem", tmp_path / "bad.pem"))  # type: ignore[arg-type]
    finally:
        listening.close()


def test_an_answer_that_was_not_seen_is_unknown_and_never_yes():
    def away():
        raise Unreachable("the store does not answer")

    found = board_of(sources(decisions=away)).summary()["decisions"][0]
    assert (found["answer"], found["obstructions"][0]["what"]) == ("unknown", "the store does not answer")
    assert found["loss"]["records"] is None


def test_before_the_first_plan_the_answer_is_unknown():
    board = Board(sources(), board_of(sources()).history, Objectives())
    found = board.summary()
    assert [each["answer"] for each in found["decisions"]] == ["unknown"]
    assert found["status"]["error"] is not None
    assert found["decisions"][0]["duration"]["seconds"] is None


def test_an_answer_that_is_old_is_unknown_and_its_numbers_are_not_shown(monkeypatch):
    board = board_of(sources())
    assert board.decisions(now())[0].answer is Answer.YES
    late = now() + timedelta(seconds=board.decision.stale_after() + 1)
    monkeypatch.setattr("drkit.observe.page.board.now", lambda: late)
    found = board.decisions(late)[0]
    assert (found.answer, found.records, found.positions) == (Answer.UNKNOWN, None, ())


def test_what_a_page_saw_before_it_was_stopped_for_an_hour_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("drkit.observe.page.board.time.monotonic", lambda: clock[0])
    look = Poller("t", lambda: clock.__setitem__(0, clock[0] + 1.0), seconds=1, rest=4)
    look.look_once()
    assert look.stale_after() == pytest.approx(30.0)
    stopped = Poller(
        "t", lambda: clock.__setitem__(0, clock[0] + (3600.0 if stopped.newest else 1.0)), seconds=1, rest=4
    )
    stopped.look_once()
    stopped.look_once()
    assert stopped.newest is not None
    assert stopped.stale_after() == pytest.approx(30.0)


@pytest.mark.parametrize("set_back", [timedelta(), timedelta(days=1)], ids=str)
def test_a_status_that_is_old_is_not_shown_nor_if_the_clock_was_set_back(monkeypatch, set_back):
    look = Poller("t", lambda: 1, seconds=1, rest=1)
    look.look_once()
    assert look.fresh() is not None
    late, then = time.monotonic() + look.stale_after() + 1, now() - set_back
    monkeypatch.setattr("drkit.observe.page.board.time.monotonic", lambda: late)
    monkeypatch.setattr("drkit.observe.page.board.now", lambda: then)
    assert look.fresh() is None


def test_rows_stamped_in_the_future_have_no_age():
    ahead = snapshot().groups[0]
    status = snapshot(groups=(replace(ahead, captured_at=now() + timedelta(minutes=10)),))
    assert [row["age_seconds"] for row in position_rows([status], now())] == [None]


def test_a_look_that_fails_by_a_defect_is_told_and_looked_again():
    answers = iter([ValueError("odd"), None])

    def odd():
        if (error := next(answers)) is not None:
            raise error
        return 5

    look = Poller("t", odd, seconds=1, rest=1)
    first = look.look_once()
    assert first.error is not None
    assert "internal error: ValueError: odd" in first.error.what
    assert look.look_once().value == 5


def test_the_first_view_has_what_stands_against_a_failover_its_loss_its_time_drill_and_audit():
    at = now()
    before = earlier(
        audits=(AuditOfLink("01A", str(LINK), at - timedelta(hours=5), "deviated", {"matched": 9, "lost": 2}, ""),),
        durations={"dr": Duration(3.1, "the last failover", "01F", at - timedelta(days=2))},
        drill=LastDrill("drill-1", "primary dies", "passed", at - timedelta(days=1), 0, 4.5, None),
    )
    status = snapshot(statistics=(worker(),))
    board = board_of(
        sources(lambda: [status], lambda: [decision(Answer.NO)], lambda: before), Objectives(rpo_records=0)
    )
    found = board.summary()
    first = found["decisions"][0]
    assert first["headline"] == "No: 1 thing stands against a failover to dr"
    assert first["obstructions"][0]["remedy"] == "Stop its consumers"
    exact = {"lower_bound": False, "upper_bound": False, "reason": None}
    assert first["loss"] == {"records": 12, "seconds": 0.8, **exact}
    assert (first["duration"]["seconds"], first["duration"]["of"]) == (3.1, "the last failover")
    assert first["command"] == "drkit failover --to dr --dry-run"
    assert (found["drill"]["verdict"], round(found["drill"]["age_seconds"] / 3600)) == ("passed", 24)
    assert (found["audits"][0]["verdict"], found["audits"][0]["totals"]["lost"]) == ("deviated", 2)
    assert found["objectives"]["rpo_records"] == 0
    assert found["links"][0]["records_per_second"] == 1234.5


def test_without_drill_audit_or_time_it_says_so():
    found = board_of(sources()).summary()
    assert (found["drill"], found["audits"]) == (None, [])
    assert found["no_drill"] == "no drill is kept on this machine"
    assert "no failover to dr" in found["decisions"][0]["duration"]["reason"]


def test_a_failing_store_is_503_and_says_why():
    def away():
        raise Unreachable("the store does not answer", remedy="Start it")

    with served(board_of(sources(away, before=away))) as running:
        for path in ("/status.json", "/api/topics", "/api/runs"):
            answer = running.ask(path)
            assert (answer.code, answer.json()["error"]["what"]) == (503, "the store does not answer"), path
        assert "drkit_up 0.0" in running.ask("/metrics").text
        assert running.ask("/").code == 200
        assert running.ask("/api/summary").json()["status"]["error"]["remedy"] == "Start it"


def test_the_server_stops_with_pages_open():
    with served(board_of(sources())) as running:
        connection = running.connection()
        connection.request("GET", "/events")
        assert connection.getresponse().readline() == b"retry: 3000\n"
    connection.close()


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ({"target_reachable": False}, "has dr without an answer"),
        ({"source_reachable": False}, "has primary without an answer"),
        ({"state": "degraded"}, "went from mirroring to degraded"),
        ({"state": "sealed"}, "went from mirroring to sealed"),
    ],
)
def test_a_yes_that_a_later_status_casts_doubt_on_is_unknown_until_it_is_planned_anew(later, said):
    seen = [snapshot()]
    board = board_of(sources(lambda: [seen[-1]], lambda: [decision(Answer.UNFENCED)]))
    assert board.decisions(now())[0].answer is Answer.UNFENCED
    board.status.look_once()
    assert board.decisions(now())[0].answer is Answer.UNFENCED, "nothing changed"
    seen.append(snapshot(**later))
    board.status.look_once()
    found = board.decisions(now())[0]
    assert (found.answer, found.records, said in found.obstructions[0].what) == (Answer.UNKNOWN, None, True)
    board.decision.look_once()
    assert board.decisions(now())[0].answer is Answer.UNFENCED, "planned on what the status shows"


def test_a_yes_from_before_the_store_went_away_is_unknown():
    def away():
        raise Unreachable("the store does not answer", remedy="Start it")

    looks = [lambda: [snapshot()]]
    board = board_of(sources(lambda: looks[-1](), lambda: [decision()]))  # noqa: PLW0108 - the last one as it is then
    looks.append(away)
    board.status.look_once()
    found = board.decisions(now())[0]
    assert (found.answer, found.obstructions[0].what) == (Answer.UNKNOWN, "the store does not answer")
    assert found.obstructions[0].remedy == "Start it"


def test_who_serves_after_a_failover_is_unknown_once_that_cluster_is_silent():
    seen = [snapshot(state="sealed")]
    moved = "Failed over already: dr serves. To go back: `drkit failback --to primary`"
    board = board_of(sources(lambda: [seen[-1]], lambda: [decision(Answer.MOVED, moved=moved)]))
    first = board.summary()["decisions"][0]
    assert (first["answer"], first["headline"]) == ("moved", moved)
    seen.append(snapshot(state="sealed", target_reachable=False))
    board.status.look_once()
    assert board.summary()["decisions"][0]["answer"] == "unknown"


def test_a_no_stays_a_no_whatever_a_later_status_shows():
    seen = [snapshot()]
    board = board_of(sources(lambda: [seen[-1]], lambda: [decision(Answer.NO)]))
    seen.append(snapshot(target_reachable=False))
    board.status.look_once()
    assert board.decisions(now())[0].answer is Answer.NO


def test_a_change_has_the_plan_made_anew_at_once():
    made = threading.Semaphore(0)

    def planned_now():
        made.release()
        return [decision()]

    seen = [snapshot()]
    board = board_of(sources(lambda: [seen[-1]], planned_now))
    assert made.acquire(timeout=60)
    board.decision.start()
    try:
        assert made.acquire(timeout=60), "the first of the thread"
        seen.append(snapshot(state="stopped"))
        board.status.look_once()
        assert made.acquire(timeout=60), "long before the next one would be due"
    finally:
        board.stop()


def test_the_command_beside_the_answer_names_the_links_that_were_named():
    plain, named = decision(), decision(to="dr site", links=("a->dr site", "b->dr site"), named=True)
    first, second = board_of(sources(decisions=lambda: [plain, named])).summary()["decisions"]
    assert first["command"] == "drkit failover --to dr --dry-run"
    assert second["command"] == ("drkit failover --to 'dr site' --link 'a->dr site' --link 'b->dr site' --dry-run")
