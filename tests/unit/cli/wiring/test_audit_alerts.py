"""Alerts of a continuous audit and the user's hooks: real commands, a real HTTP server, a real store."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from pathlib import Path
from typing import Self

import jsonschema
import pytest
from pydantic import SecretStr
from rich.console import Console

from drkit.cli.output import OutputMode, OutputWriter, event_console
from drkit.cli.wiring import alert_notifier
from drkit.cli.wiring.alert_notifier import AlertNotifier
from drkit.cli.wiring.context import Invocation
from drkit.model.audit.audit_result import Counts
from drkit.model.audit.continuous_audit import AuditProgress, ClosedRange, Reconciled, Sample
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.link_state import AUDIT_DEVIATION
from drkit.model.runs import JournalEntry, verify_chain
from drkit.model.topology import Link, LinkId
from drkit.observe.alert_hooks import AlertHooks
from drkit.store.api import Store

LINK = Link(LinkId("primary", "dr"), topics=(".*",))
SCHEMA = json.loads((Path(__file__).parents[4] / "docs" / "schemas" / "audit-alert.schema.json").read_text())
PROGRESS = AuditProgress(run="audit-1", link="primary->dr", started_at="2026-01-01T00:00:00Z", batch=7)
LOST = Reconciled(
    ClosedRange("orders", 3, 0, 100, 200, 0), "orders", Counts(100, 99, 99, lost=1), first=(Sample("lost", 150, None),)
)
EQUAL = Reconciled(ClosedRange("orders", 4, 0, 0, 9, 0), "orders", Counts(9, 9, 9))
UNKNOWN = Reconciled(ClosedRange("orders", 5, 0, 0, 9, 0), "orders", problem="retention took it")


class Server(HTTPServer):
    """Keeps what is posted, and answers `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.posted: list[tuple[str, dict]] = []
        self.status = 200


class Handler(BaseHTTPRequestHandler):
    """One request of a webhook."""

    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append((self.path, json.loads(body)))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(f"no such hook token: {self.path.rpartition('/')[2]}".encode())

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def teller(store: Store, hooks: AlertHooks) -> tuple[AlertNotifier, StringIO]:
    said = StringIO()
    console = Console(file=said, width=400)
    return AlertNotifier(
        Invocation(None, OutputWriter(OutputMode.HUMAN, console, console), False), store, LINK, hooks
    ), said


def keeps(path: Path) -> tuple[str, ...]:
    """A command that adds what it is given to a file."""
    code = "import os, sys; open(sys.argv[1], 'a').write(os.environ['DRKIT_HOOK'] + ' ' + sys.stdin.read())"
    return (sys.executable, "-c", code, str(path))


def kept(path: Path) -> list[dict]:
    return [json.loads(line.partition(" ")[2]) for line in path.read_text().splitlines()]


def test_each_finding_is_told_every_hook_once_also_where_one_fails_or_the_batch_is_run_again(store, server, tmp_path):
    file = tmp_path / "alerts"
    fails = (sys.executable, "-c", "import sys; sys.exit('pager is off')")
    url = f"http://127.0.0.1:{server.server_port}/hook?token=hush"
    hooks = AlertHooks((fails, keeps(file)), SecretStr(url))

    for _ in range(2):  # the second is the audit that was killed before its batch was done
        tell, said = teller(store, hooks)
        tell.start(PROGRESS)
        tell.report([LOST, EQUAL, UNKNOWN], PROGRESS)
        tell.finish(PROGRESS)

    (alert,) = kept(file)
    jsonschema.validate(alert, SCHEMA)
    assert (alert["event"], alert["topic"], alert["counts"]["lost"]) == (AUDIT_DEVIATION, "orders", 1)
    assert (alert["first_offset"], alert["last_offset"]) == (100, 199)
    assert alert["first"] == [{"kind": "lost", "source_offset": 150, "target_offset": None}]
    assert server.posted == [("/hook?token=hush", alert)]
    assert file.read_text().startswith("audit_alert ")
    entries = store.entries("audit-1")
    assert [entry.event for entry in entries] == ["deviated", "unknown", "hooks"]
    (failed,) = json.loads(entries[-1].payload)["failed"]
    assert "exit code 1" in failed
    assert "pager is off" in failed
    assert verify_chain(entries) is None
    assert "ALERT" in said.getvalue()


def test_what_fails_is_said_without_what_the_url_holds(store, server):
    server.status = 404
    hooks = AlertHooks(url=SecretStr(f"http://127.0.0.1:{server.server_port}/hush/hush"))
    tell, said = teller(store, hooks)
    tell.start(PROGRESS)
    tell.report([LOST], PROGRESS)
    tell.finish(PROGRESS)
    assert "an alert of orders was not taken: webhook at 127.0.0.1 answered 404" in said.getvalue()

    for status in (400, 503):  # the body quotes a part of the path only
        server.status = status
        assert hooks.call({}, {}) == [f"webhook at 127.0.0.1 answered {status}"]
    server.status = 200
    nobody = replace(hooks, url=SecretStr("http://127.0.0.1:1/hush"))
    (reason,) = nobody.call({}, {})
    assert "does not answer" in reason
    assert "hush" not in reason + said.getvalue()


class Dripping:
    """Answers one connection with `first`, then an octet at a time for as long as it is listened to, 20 s at most."""

    def __init__(self, first: bytes) -> None:
        self._first = first
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/hush"
        self.ended = threading.Event()
        self._gate = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._gate.set()
        self._thread.join()
        self._listening.close()

    def _work(self) -> None:
        connection, _ = self._listening.accept()
        with connection, suppress(OSError):
            connection.sendall(self._first)
            for _ in range(400):
                connection.sendall(b"x")
                if self._gate.wait(0.05):
                    return
            self.ended.set()


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\nX-Hush: "])
def test_a_webhook_that_drips_its_answer_has_its_time_and_no_more(first):
    with Dripping(first) as server:
        said = AlertHooks(url=SecretStr(server.url), timeout_seconds=0.3).call({}, {})
        assert said == ["webhook at 127.0.0.1 does not answer: not within 0.3 s"]
        assert not server.ended.is_set()


def test_an_alert_is_an_event_of_its_partition_and_run(store):
    said = StringIO()
    console, events = event_console(said)
    run = Invocation(None, OutputWriter(OutputMode.HUMAN, console, console, events=events), False)
    tell = AlertNotifier(run, store, LINK, AlertHooks())
    tell.say("begins")
    tell.start(PROGRESS)
    tell.report([LOST, UNKNOWN], PROGRESS)
    tell.finish(PROGRESS)
    told = [json.loads(line) for line in said.getvalue().splitlines()]
    assert [(each["level"], each["topic"], each["partition"], each["link"], each["run"]) for each in told] == [
        ("info", None, None, "primary->dr", None),
        ("error", "orders", 3, "primary->dr", "audit-1"),
        ("warning", "orders", 5, "primary->dr", "audit-1"),
    ]


def test_of_what_a_webhook_says_only_the_status_is_waited_for():
    with Dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n") as server:
        assert AlertHooks(url=SecretStr(server.url)).call({}, {}) == []
        assert not server.ended.is_set()


@pytest.mark.parametrize("answer", [b"no such token: hush\r\n", b"HTTP/1.1 hush hush\r\n"])
def test_what_is_not_http_is_not_repeated(answer):
    with Dripping(answer) as server:
        assert AlertHooks(url=SecretStr(server.url)).call({}, {}) == [
            "webhook at 127.0.0.1 does not answer in HTTP: BadStatusLine"
        ]


def test_a_hook_that_was_not_called_before_the_audit_was_killed_is_called_at_the_next_start(store, tmp_path):
    file, gate = tmp_path / "alerts", tmp_path / "gate"
    waits = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)"
    hooks = AlertHooks(((sys.executable, "-c", waits, str(gate)), keeps(file)), timeout_seconds=60)
    killed, _ = teller(store, hooks)
    killed.start(PROGRESS)
    killed.report([LOST], PROGRESS)  # its first hook hangs
    assert [entry.event for entry in store.entries("audit-1")] == ["deviated"]

    again, _ = teller(store, replace(hooks, commands=hooks.commands[1:]))
    again.start(PROGRESS)
    again.finish(PROGRESS)
    assert len(kept(file)) == 1
    gate.touch()
    killed.finish(PROGRESS)


class Unsteady:
    """A store whose writes fail as `fails` says by name: each "lost" is applied unanswered, each "down" is not."""

    def __init__(self, store: Store, **fails: list[str]) -> None:
        self._store = store
        self.fails = fails

    def __getattr__(self, name: str) -> object:
        method = getattr(self._store, name)

        def call(*arguments: object) -> object:
            how = self.fails[name].pop(0) if self.fails.get(name) else ""
            done = None if how in {"down", "full"} else method(*arguments)
            if how == "full":
                raise DrkitError("the store can't be written: its disk is full")
            if how:
                raise Unreachable(f"no answer to {name}")
            return done

        return call


def journaled(store: Store) -> list[tuple[str, str]]:
    entries = store.entries("audit-1")
    assert verify_chain(entries) is None
    return [(entry.event, json.loads(entry.payload)["range"]) for entry in entries]


WORSE = replace(LOST, closed=LOST.closed._replace(first=200, until=300))
TWO = [("deviated", "orders:3:100"), ("deviated", "orders:3:200")]


@pytest.mark.parametrize(
    "fails",
    [
        {"append_entry": ["lost"]},
        {"append_entry": ["lost"], "entries": ["", "down"]},
        {"append_entry": ["", "lost"], "entries": ["", "down"]},
        {"append_entry": ["down", "down"]},
        {"put_problem": ["down"]},
    ],
)
def test_what_the_store_did_not_answer_to_is_journaled_once_when_it_is_told_again(store, fails):
    unsteady = Unsteady(store, **fails)
    tell, said = teller(unsteady, AlertHooks())
    tell.start(PROGRESS)
    refusals = 0
    while True:
        try:
            tell.report([LOST, WORSE], PROGRESS)
            break
        except Unreachable:
            refusals += 1

    assert refusals >= 1
    assert not any(unsteady.fails.values())
    assert journaled(store) == TWO
    assert said.getvalue().count("ALERT") == 2
    tell.report([EQUAL, replace(LOST, problem="what")], replace(PROGRESS, batch=8))
    assert journaled(store) == [*TWO, ("deviated", "orders:3:100")]


def test_what_stands_behind_the_mirror_and_grew_before_its_alert_was_in_the_sum_is_told_anew(store):
    copies = Reconciled(
        ClosedRange("orders", 3, 0, 9, 9, 0), "orders", counts=Counts(target_records=5, duplicated=5), behind=(9, 14)
    )
    grown = replace(copies, counts=Counts(target_records=7, duplicated=7), behind=(9, 16))
    told = replace(PROGRESS, looks=1)
    killed, _ = teller(store, AlertHooks())
    killed.start(PROGRESS)
    killed.report([copies], told)
    again, _ = teller(store, AlertHooks())
    again.start(PROGRESS)

    again.report([copies], told)
    again.report([grown], replace(told, looks=2))

    assert [json.loads(entry.payload)["target_last_offset"] for entry in store.entries("audit-1")] == [13, 15]


def test_an_append_that_was_kept_unheard_of_leaves_later_ones_their_places(store):
    class Taken(Unsteady):
        """Says of its first append that its place is taken, by itself."""

        first = True

        def append_entry(self, entry: JournalEntry) -> bool:
            kept, self.first = store.append_entry(entry) and not self.first, False
            return kept

    tell, _ = teller(Taken(store), AlertHooks())
    tell.start(PROGRESS)
    tell.report([LOST, WORSE], PROGRESS)
    assert journaled(store) == TWO


def test_hooks_are_told_once_while_the_store_does_not_answer_and_their_ends_are_journaled_later(store, tmp_path):
    file = tmp_path / "alerts"
    hooks = AlertHooks((keeps(file),))
    unsteady = Unsteady(store, append_entry=["down", "lost", "", "lost"])
    tell, _ = teller(unsteady, hooks)
    tell.start(PROGRESS)
    with pytest.raises(Unreachable):
        tell.report([LOST, WORSE], PROGRESS)
    for _ in range(4):
        with suppress(Unreachable):
            tell.report([LOST, WORSE], PROGRESS)
    tell.finish(PROGRESS)

    assert [alert["first_offset"] for alert in kept(file)] == [100, 200]
    hooked = [("hooks", name) for _, name in TWO]
    assert sorted(journaled(store)) == [*TWO, *hooked]
    again, _ = teller(store, hooks)
    again.start(PROGRESS)
    again.report([LOST, WORSE], PROGRESS)
    again.finish(PROGRESS)
    assert len(kept(file)) == 2
    assert len(journaled(store)) == 4


def test_what_the_store_can_not_take_does_not_count_as_told(store):
    tell, _ = teller(Unsteady(store, append_entry=["full"]), AlertHooks())
    tell.start(PROGRESS)
    with pytest.raises(DrkitError, match="disk is full"):
        tell.report([LOST], PROGRESS)
    tell.report([LOST], PROGRESS)
    assert journaled(store) == TWO[:1]


def test_the_end_does_not_wait_for_a_hook_that_hangs_and_counts_its_alert(store, tmp_path, monkeypatch):
    monkeypatch.setattr(alert_notifier, "_PATIENCE_SECONDS", 0.1)
    gate, ended = tmp_path / "gate", tmp_path / "ended"
    waits = "n=0; while [ ! -e $0 ] && [ $n -lt 100 ]; do n=$((n+1)); sleep 0.1; done; touch $1"
    tell, said = teller(store, AlertHooks((("sh", "-c", waits, str(gate), str(ended)),)))
    tell.start(PROGRESS)
    tell.report([LOST, WORSE], PROGRESS)
    tell.finish(PROGRESS)
    waited = ended.exists()
    gate.touch()
    tell._hook_thread._thread.join()
    assert [event for event, _ in journaled(store)] == ["deviated", "deviated"]
    assert "2 alerts were not told to every hook yet" in said.getvalue()
    assert not waited


def test_what_was_found_while_no_hook_was_configured_stays_untold(store, tmp_path):
    before, _ = teller(store, AlertHooks())
    before.start(PROGRESS)
    before.report([LOST], PROGRESS)
    before.finish(PROGRESS)

    after, _ = teller(store, AlertHooks((keeps(tmp_path / "alerts"),)))
    after.start(PROGRESS)
    after.finish(PROGRESS)
    assert not (tmp_path / "alerts").exists()
    assert [problem.kind for problem in store.problems(LINK.id)] == [AUDIT_DEVIATION]
