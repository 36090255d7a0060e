"""`drkit audit group`: what it says a group missed and sees twice is what plain readers of both clusters find."""

from __future__ import annotations

import base64
import json
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from drkit.audit import group_view, run
from drkit.cli.application import application
from drkit.drill.environment.log_surgery import flip
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.failover.snapshot.point_in_time import parse_moment
from drkit.failover.snapshot.selection import Edge, GroupTarget, Selection
from drkit.model.clock import now
from drkit.model.errors import ExitCode
from tests.support.audits.damage import Bench, Expected, Record, Stored, dense, records, seeded
from tests.support.links.estates import OwnLink, mirror, own_link, texts

pytestmark = [pytest.mark.lab, pytest.mark.spark]

APP = application(("audit",))
SCHEMA = json.loads((Path(__file__).parents[4] / "docs" / "schemas" / "audit-group.schema.json").read_text())
SPOILED, COPIED, ENDS = (60, 95, 125, 200), (20, 100, 126, 150, 210), 230


@pytest.fixture
def own(lab, tmp_path, unique_name):
    mine = own_link(lab, tmp_path, unique_name)
    yield mine
    mine.store.close()


@pytest.fixture
def view(own, spark, tmp_path, monkeypatch):  # noqa: ARG001 - Spark ends with the session, not with a test
    """The verb, in this process: Spark is started once for all tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def verb(group: str, *arguments: str, code: int, config: Path | None = None) -> dict:
        words = ["audit", "group", group, *arguments, "--config", str(config or own.config_path), "-o", "json"]
        done = CliRunner().invoke(APP, words)
        assert done.exit_code == code, done.output
        document = json.loads(done.stdout)
        if "error" not in document:
            jsonschema.validate(document, SCHEMA)
        return document

    return verb


@pytest.fixture
def judged_once(monkeypatch):
    """Both sides stand still, so they are judged once for all groups that are on the same partitions."""
    known: dict[object, run.ClassifiedScope] = {}

    def judged(request, *arguments):
        if request.topics not in known:
            known[request.topics] = run.judged(request, *arguments)
        return known[request.topics]

    monkeypatch.setattr(group_view, "judged", judged)
    return known


@dataclass
class Truth:
    """What plain readers find: of a partition's records those that a group missed, and how often it sees some twice."""

    missed: int
    twice: int


def truth(bench: Bench, topic: str, partition: int, source_offset: int, target_offset: int, theirs: int) -> Truth:
    """By content, which is different for every record; `theirs`: records at the target's end that clients wrote."""
    source = bench.read("primary", topic, partition)
    target = bench.read("dr", topic, partition)
    mirrored = target[: len(target) - theirs]
    ahead = Counter(each.record for each in mirrored if each.offset >= target_offset)
    unread = [each.record for each in source if each.offset >= source_offset]
    again = sum(ahead[each.record] for each in source if each.offset < source_offset)
    return Truth(
        missed=sum(not ahead[record] for record in unread),
        twice=again + sum(max(0, ahead[record] - 1) for record in unread),
    )


def away(own: OwnLink, **asked) -> str:
    with own.estate() as estate:
        done = run_failover(estate, make_plan(estate, PlanRequest("dr", **asked)), accept_unfenced=True)
    assert done.error is None
    return done.run


def spoilt(source: list[Stored]) -> tuple[list[Record], set[Expected]]:
    """240 records as a bad mirror left them: some altered, the last ten missing, copies of others in their place."""
    held = [each.record for each in source[:ENDS]]
    for offset in SPOILED:
        held[offset] = replace(held[offset], value=b"spoilt")
    findings: set[Expected] = {("corrupted", offset, offset) for offset in SPOILED}
    findings |= {("lost", offset, None) for offset in range(ENDS, 240)}
    findings |= {("duplicated", offset, ENDS + number) for number, offset in enumerate(COPIED)}
    return [*held, *(source[offset].record for offset in COPIED)], findings


def agrees(each: dict, bench: Bench, findings: set[Expected]) -> None:
    """Whether a partition of the view is what plain readers find; `findings`: what was done to it."""
    if each["source_offset"] is None:
        assert each["missed"] is None
        assert any("had committed nothing here" in note for note in each["notes"])
        return
    assert (each["before"], each["after"]) == ("source", "failover")
    at = (each["source_offset"], each["target_offset"])
    told = truth(bench, each["topic"], each["partition"], *at, theirs=5)
    spoiled = [(s, t) for kind, s, t in findings if kind == "corrupted"]
    unread = sum(s >= at[0] and t >= at[1] for s, t in spoiled)
    again = sum(s < at[0] and t >= at[1] for s, t in spoiled)  # content tells no reader what they were
    assert each["corrupted"] == unread, each
    assert each["missed"] == told.missed - unread, each
    assert each["seen_twice"] == told.twice + again, each
    assert each["missed_by"]["lost"] == sum(kind == "lost" and s >= at[0] for kind, s, _ in findings)
    if not findings:
        assert each["missed_by"]["unmirrored"] == 110 - max(100, at[0])


def test_an_unplanned_failover_with_a_known_tail_and_damage(own: OwnLink, lab, view, judged_once, tmp_path):
    flights = own.create("primary", "flights", partitions=3)
    own.produce("primary", flights, texts("early", 100, range(3)))
    mirror(own)
    own.produce("primary", flights, texts("late", 10, range(3)))
    groups = {
        "latest": own.commit("primary", "latest", flights, {0: 40}),
        "earliest": own.commit("primary", "earliest", flights, {0: 104, 1: 60}),
    }
    bench = Bench(lab, own.store)
    orders = own.topic("orders")
    bench.create(orders)
    bench.produce("primary", orders, 0, records(260, rng=seeded(6)))
    source = bench.read("primary", orders, 0)
    target, findings = spoilt(source)
    bench.produce("dr", orders, 0, target)
    bench.remember(orders, {0: dense(source[:240])}, target_end={0: len(target)})
    stands = {"latest": 120, "earliest": 130}
    for name, offset in stands.items():
        own.commit("primary", name, orders, {0: offset})
    places = (GroupTarget(groups["latest"], Edge.LATEST), GroupTarget(groups["earliest"], Edge.EARLIEST))
    failover = away(own, selection=Selection(places=places))
    own.produce("dr", flights, texts("theirs", 5, range(3)))  # the target's own, from now on
    own.produce("dr", orders, {0: [f"theirs-{n}" for n in range(5)]})

    held = {each.offset: each.record for each in source}
    page = tmp_path / "view.html"
    for group in groups.values():
        found = view(group, "--report", str(page), code=ExitCode.DEVIATION)
        assert (found["failover"], found["means"], found["verdict"]) == (failover, "records", "deviated")
        for each in found["partitions"]:
            agrees(each, bench, findings if each["topic"] == orders else set())
        missed = [w for w in found["witnesses"] if w["topic"] == orders and w["reason"] in {"lost", "unmirrored"}]
        assert {w["reason"] for w in missed} == {"lost", "unmirrored"}
        for witness in missed:
            record = held[witness["source_offset"]]
            value = None if record.value is None else base64.b64encode(record.value).decode()
            assert (witness["value"], witness["problem"]) == (value, None)
        assert group in page.read_text()
        assert "https://" not in page.read_text()
        summary = next(each for each in own.store.runs() if each.run == found["run"])
        assert (summary.kind, summary.state, failover in summary.detail) == ("audit", "deviated", True)
        if group == groups["latest"]:
            assert max(each["missed_by"]["position"] or 0 for each in found["partitions"]) > 100
    assert len(judged_once) == 1


def test_with_the_source_gone_the_mapping_tells_what_can_be_told(own: OwnLink, view, tmp_path):
    topic = own.create("primary", "t", partitions=1)
    start = int(time.time() * 1000) - 600_000
    own.produce("primary", topic, {0: [f"r{n}" for n in range(40)]}, stamp=start)
    group = own.commit("primary", "g", topic, {0: 30})
    mirror(own)
    away(own, at=parse_moment(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start / 1000 + 21)), now=now()))
    bare = own.config_path.read_text()
    gone = tmp_path / "gone.toml"
    primary = own.config.clusters["primary"].bootstrap_servers
    gone.write_text(bare.replace(primary, "127.0.0.1:1"))

    there = view(group, code=ExitCode.OK)
    found = view(group, code=ExitCode.UNKNOWN, config=gone)

    (each,) = there["partitions"]
    at = own.committed("dr", group)[topic, 0]
    assert at < 30
    assert (each["seen_twice"], each["missed"], each["before"]) == (30 - at, 0, "source")
    (each,) = found["partitions"]
    assert (found["verdict"], found["means"], each["before"]) == ("unknown", "mapping", "journal")
    assert each["seen_twice_by"] == {"reread": 30 - at, "duplicated": None}
    assert each["missed_by"] == {"position": 0, "lost": None, "unreadable": None, "unmirrored": None}
    assert each["unmirrored_at_least"] == 0
    assert any("did not answer" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nobody"], 3, "no failover has moved a group nobody"),
        (["g", "--run", "nothing"], 3, "there is no run nothing"),
    ],
)
def test_what_is_refused_says_why(own: OwnLink, words, code, said):
    done = CliRunner().invoke(APP, ["audit", "group", *words, "--config", str(own.config_path), "-o", "json"])
    assert done.exit_code == code, done.output
    assert said in json.loads(done.stdout)["error"]["what"]


def test_what_can_t_be_read_is_missed_or_not_known(own: OwnLink, lab, view):
    """A batch of the target fails its checksum (50 to 59), one of the source another (80 to 89)."""
    own.create("primary", "empty", partitions=1)
    mirror(own)
    bench, topic = Bench(lab, own.store), own.topic("t")
    bench.create(topic)
    bench.produce("primary", topic, 0, records(100, rng=seeded(1)), batched=10)
    source = bench.read("primary", topic, 0)
    bench.forward(topic, 0, source, [each.record for each in source])  # a mirror would merge such small batches
    bench.remember(topic, {0: dense(source)})
    groups = {at: own.commit("primary", f"at-{at}", topic, {0: at}) for at in (20, 60, 90)}
    away(own)
    for alias, offset in (("dr", 50), ("primary", 80)):
        flip(lab.dir / "nodes" / f"{alias}-1" / "data" / f"{topic}-0", offset, -1, mask=0x01)

    codes = {20: ExitCode.DEVIATION, 60: ExitCode.UNKNOWN, 90: ExitCode.OK}
    found = {at: view(group, code=codes[at]) for at, group in groups.items()}

    missed = {20: (10, 10), 60: (0, 10), 90: (0, 0)}
    for at, document in found.items():
        (each,) = document["partitions"]
        assert (each["missed_by"]["unreadable"], each["uncompared"]) == missed[at]
        assert (each["missed"], document["missed_at_least"]) == (None if missed[at][1] else 0, missed[at][0])
        assert any("primary can't be read" in note for note in each["notes"]) == (at < 90)
        assert each["seen_twice"] == at - each["target_offset"]
