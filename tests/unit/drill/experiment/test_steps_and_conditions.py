"""What exit codes of the failover and documents of the status mean to a drill."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import pytest
from pydantic import ValidationError

from drkit.drill import conditions
from drkit.drill.conditions import _captured, _mirrored, _problem_told
from drkit.drill.environment.child_processes import Finished
from drkit.drill.environment.clients import LinkProgress
from drkit.drill.environment.environment import DrillEnvironment, document, stated_loss, stated_positions
from drkit.drill.experiment.base import LinkSpec
from drkit.drill.experiment.faults import (
    Disconnect,
    Fault,
    Kill,
    PartitionNetwork,
    PurgeTopic,
    WriteForeign,
    is_disaster,
)
from drkit.drill.experiment.steps import (
    Drained,
    Failback,
    Failover,
    Hold,
    Load,
    Mirror,
    Mirrored,
    MoveClients,
    Parallel,
    ProblemTold,
    Reprotect,
    StopClients,
    Wait,
    Workload,
    describe,
    describe_strike,
)
from drkit.drill.judge.history import Landed, RecordId, StatedLoss, StatedPosition
from drkit.drill.steps import Played, PlayedStrike, _with_strikes, judge_failover
from drkit.evidence import verifier
from drkit.model.errors import DrkitError

WORKLOAD = Workload(do="workload", topic="t", partitions=2, group="g")
LINK = LinkProgress(LinkSpec(source="primary", target="dr"), WORKLOAD, None, "drill-test/primary->dr")


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (0, "ok"),
        (6, "ok"),
        (1, "failed"),
        (2, "failed"),
        (3, "failed"),
        (4, "failed"),
        (7, "failed"),
        (8, "unknown"),
        (None, "failed"),
        (-9, "failed"),
    ],
)
def test_exit_codes_of_the_failover(code, outcome):
    played = judge_failover(Finished(code, "", "; its log ends: refused"), 120.0)
    assert played.outcome == outcome
    if code not in (0, 6):
        assert "refused" in played.reason


@pytest.mark.parametrize("text", ["", "[]", "nonsense", '{"a": 1}{"b": 2}'])
def test_what_is_no_document_is_none(text):
    assert document(text) is None


def stated(partition, offset, most, *, group="g", topic="t"):
    return {
        "group": group,
        "topic": topic,
        "partition": partition,
        "target_offset": offset,
        "reread": None,
        "reread_at_most": most,
    }


def lost(topic, records):
    return {"topic": topic, "records": records, "seconds": None}


def test_what_a_failover_stated_of_the_drills_group_is_what_its_document_says():
    """Not of other groups and topics, nor of a partition on which it placed nothing."""
    rows = [stated(0, 7, 3), stated(1, 0, None), stated(2, None, None), stated(0, 9, 0, group="h")]
    told = {"groups": [*rows, stated(0, 9, 0, topic="u")]}
    assert stated_positions(told, WORKLOAD, 4.5) == (StatedPosition(0, 7, 3, 4.5), StatedPosition(1, 0, None, 4.5))
    told |= {"lost_by_topic": [lost("u", 3), lost("t", 5)], "evidence": {"rpo_lower_bound": True}}
    assert stated_loss(told, WORKLOAD, 4.5) == StatedLoss(5, lower_bound=True, at=4.5)
    for nothing in (None, {"error": {}}, {**told, "lost_by_topic": [lost("t", None)]}):
        assert stated_loss(nothing, WORKLOAD, 4.5) is None
    assert stated_positions(None, WORKLOAD, 4.5) == stated_positions({"error": {}}, WORKLOAD, 4.5) == ()


def status(lags, groups=()):
    partitions = [{"topic": "t", "partition": n, "lag_records": lag} for n, lag in enumerate(lags)]
    partitions.append({"topic": "other", "partition": 0, "lag_records": 10_000})
    link = {"source": "primary", "target": "dr", "partitions": partitions, "groups": list(groups)}
    other = [{"topic": "t", "partition": n, "lag_records": 10_000} for n in range(2)]
    return {"links": [link, {"source": "dr", "target": "primary", "partitions": other, "groups": []}]}


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        (status([0, 5]), True),
        (status([3, 3]), False),
        (status([0]), False),
        (status([0, None]), False),
        (None, False),
    ],
)
def test_mirrored_is_the_sum_over_every_partition_and_nothing_unknown(found, holds):
    condition = Mirrored(condition="mirrored", at_most_behind=5)
    assert _mirrored(found, LINK, condition).holds is holds


def test_a_partition_that_stands_still_may_be_left_out():
    condition = Mirrored(condition="mirrored", at_most_behind=5, leaving_out=[0])
    assert _mirrored(status([None, 5]), LINK, condition).holds is True
    assert _mirrored(status([0, 6]), LINK, condition).holds is False
    assert _mirrored(status([None]), LINK, condition).holds is False, "the other one isn't known"


TOLD = {"type": "problem", "link": "primary->dr", "topic": "t"}


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([{**TOLD, "kind": "source_truncated"}], {("source_truncated", None)}),
        ([{**TOLD, "partition": 2, "kind": "record_rejected"}], {("record_rejected", 2)}),
        ([{**TOLD, "topic": "other", "kind": "source_truncated"}], set()),
        ([{**TOLD, "link": "west->dr", "kind": "source_truncated"}], set()),
        ([{**TOLD, "type": "progress", "kind": "source_truncated"}], set()),
        ([], set()),
    ],
)
def test_what_the_mirror_tells_is_what_its_own_output_says(tmp_path, lines, told):
    """Remarks and a line that a kill cut short are none of it."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "mirror.log").write_text(f'[21:00] WARNING source_truncated\n{text}{{"type": "problem", "top')
    env = SimpleNamespace(folder=tmp_path, links={"primary->dr": LINK})
    assert DrillEnvironment.mirror_problems(env, "primary->dr") == told


def test_a_mirror_that_never_ran_tells_nothing(tmp_path):
    env = SimpleNamespace(folder=tmp_path, links={"primary->dr": LINK})
    assert DrillEnvironment.mirror_problems(env, "primary->dr") == set()


def test_the_link_is_turned_round_in_the_configuration_once(tmp_path):
    config = tmp_path / "drkit.toml"
    config.write_text('[[links]]\nsource = "primary"\ntarget = "dr"\ntopics = [".*"]\n')
    link = replace(LINK)
    env = SimpleNamespace(lab=SimpleNamespace(config_path=config))
    DrillEnvironment.turn_link_round(env, link)
    assert config.read_text() == '[[links]]\nsource = "dr"\ntarget = "primary"\ntopics = [".*"]\n'
    assert link.configured == ("dr", "primary")
    config.write_text("")
    with pytest.raises(DrkitError, match="has no link from dr to primary"):
        DrillEnvironment.turn_link_round(env, link)


def held(*records):
    return [Landed(partition, offset, RecordId("k", seq), 7) for partition, offset, seq in records]


@pytest.mark.parametrize(
    ("source", "target", "holds", "said"),
    [
        (held((0, 0, 1)), held((0, 5, 1)), True, "each partition is the same"),
        (held((0, 0, 1)), held((0, 0, 2)), False, "partitions 0 differ"),
        (held((0, 0, 1)), held((0, 0, 1), (7, 0, 1)), False, "partitions 7 differ"),
        ([], [], False, "nothing to compare"),
    ],
)
def test_both_sides_hold_the_same_records_in_every_partition_that_either_has(monkeypatch, source, target, holds, said):
    both = {"primary": source, "dr": target}
    monkeypatch.setattr(conditions, "read_all", lambda properties, *_: both[properties])
    found = conditions._same_records(SimpleNamespace(properties={name: name for name in both}), LINK)
    assert (found.holds, said in found.seen) == (holds, True)


@pytest.mark.parametrize(("ends", "holds"), [({0: 3, 1: 0}, True), ({0: 4}, False), ({0: 0, 1: 0}, False)])
def test_a_group_is_at_the_end_of_records_and_not_of_nothing(monkeypatch, ends, holds):
    monkeypatch.setattr(conditions, "log_ends", lambda *_: ends)
    link = replace(LINK, clients=SimpleNamespace(positions=lambda _: {0: 3}))
    env = SimpleNamespace(links={"primary->dr": link}, properties={"dr": {}})
    assert conditions._drained(env, Drained(condition="drained", cluster="dr")).holds is holds


def group(partition, *, name="g", captured="2026-11-20T04:02:59Z", topic="t"):
    return {"group": name, "topic": topic, "partition": partition, "captured_at": captured}


@pytest.mark.parametrize(
    ("groups", "holds"),
    [
        ([group(0), group(1)], True),
        ([group(0)], False),
        ([group(0), group(1, captured=None)], False),
        ([group(0), group(1, name="h")], False),
        ([group(0), group(1, topic="other")], False),
    ],
)
def test_positions_are_captured_when_every_partition_has_one(groups, holds):
    assert _captured(status([0, 0], groups), LINK).holds is holds
    assert _captured(None, LINK).holds is False


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (WORKLOAD, "workload"),
        (Mirror(do="mirror"), "mirror"),
        (Load(do="load", dataset="flights"), "load flights"),
        (Kill(do="kill", node="primary-1"), "kill primary-1"),
        (Disconnect(do="disconnect"), "disconnect mirror"),
        (PurgeTopic(do="purge_topic", cluster="primary"), "purge topic on primary"),
        (WriteForeign(do="write_foreign", cluster="dr"), "write foreign on dr"),
        (Failover(do="failover"), "failover to dr"),
        (Failover(do="failover", to="hub", links=["a->hub", "b->hub"]), "failover of a->hub, b->hub to hub"),
        (Workload(do="workload", link="a->hub"), "workload of a->hub"),
        (MoveClients(do="move_clients", link="a->hub", to="hub"), "move clients of a->hub to hub"),
        (StopClients(do="stop_clients", link="a->hub"), "stop clients of a->hub"),
        (
            Wait(do="wait", until=Mirrored(condition="mirrored", link="a->hub", at_most_behind=0)),
            "wait until mirrored of a->hub",
        ),
        (Failback(do="failback"), "failback"),
        (Failback(do="failback", to="primary"), "failback to primary"),
        (Failback(do="failback", links=["a->hub", "b->hub"]), "failback of a->hub, b->hub"),
        (Reprotect(do="reprotect", links=["a->hub"]), "reprotect of a->hub"),
        (Reprotect(do="reprotect"), "reprotect"),
        (PartitionNetwork(do="partition_network"), "partition network on primary"),
        (Hold(do="hold", seconds=1.5), "hold 1.5 s"),
        (MoveClients(do="move_clients", to="dr"), "move clients to dr"),
        (StopClients(do="stop_clients"), "stop clients"),
        (StopClients(do="stop_clients", who="producer"), "stop producer"),
        (
            Parallel(
                do="parallel",
                branches=[[Hold(do="hold", seconds=1.0), Disconnect(do="disconnect")], [Failover(do="failover")]],
            ),
            "in parallel: hold 1 s, disconnect mirror | failover to dr",
        ),
        (
            Wait(do="wait", until=Mirrored(condition="mirrored", at_most_behind=0)),
            "wait until mirrored",
        ),
    ],
)
def test_steps_in_a_few_words(step, said):
    assert describe(step) == said
    assert verifier.describe(step.model_dump(mode="json")) == said, "a verifier of evidence says the same"


def test_a_strike_in_a_few_words():
    said = describe_strike(Failback(do="failback"), "reseed", Kill(do="kill", node="run"))
    assert said == "kill run at failback reseed"


@pytest.mark.parametrize(
    ("outcome", "struck", "said"),
    [
        ("ok", "ok", "ok"),
        ("ok", "unknown", "unknown"),
        ("failed", "unknown", "failed"),
        ("unknown", "ok", "unknown"),
    ],
)
def test_a_move_that_nothing_struck_is_unknown(outcome, struck, said):
    strike = PlayedStrike((0, 0), "kill run at failover commit", Played(struck, "why"), None, 0.0)
    played = _with_strikes(Played(outcome, "its own"), (strike,))
    assert (played.outcome, played.strikes) == (said, (strike,))
    assert ("kill run at failover commit: why" in played.reason) is ((outcome, struck) == ("ok", "unknown"))


def every_fault():
    """One of each kind, at each cluster or node that it may be of."""
    for kind in get_args(Fault):
        field = "cluster" if "cluster" in kind.model_fields else "node"
        for on in ("primary", "dr") if field == "cluster" else ("primary", "primary-1", "dr", "mirror"):
            try:
                yield kind.model_validate({"do": get_args(kind.model_fields["do"].annotation)[0], field: on})
            except ValidationError:  # connections are the mirror's
                continue


@pytest.mark.parametrize("fault", list(every_fault()), ids=describe)
def test_a_verifier_of_evidence_knows_what_each_fault_is(fault):
    """Its words, and whether RPO and RTO are counted from it."""
    assert verifier.describe(fault.model_dump(mode="json")) == describe(fault)
    for source in ("primary", "dr"):
        assert verifier.is_disaster_of(describe(fault), source) is is_disaster(fault, source)
    on = fault.cluster if "cluster" in type(fault).model_fields else fault.node
    assert verifier._fault_of(describe(fault)) == (fault.do, on)


@pytest.mark.parametrize(
    ("kinds", "holds"), [(["source_truncated"], True), (["retention_gap"], False), ([], False), (None, False)]
)
def test_a_problem_is_told_of_the_workloads_topic(kinds, holds):
    """Of another topic it doesn't count."""
    problems = [{"kind": kind, "topic": "t"} for kind in kinds or ()]
    mine = {"source": "primary", "target": "dr"}
    found = {"links": [{**mine, "problems": [*problems, {"kind": "source_truncated", "topic": "other"}]}]}
    condition = ProblemTold(condition="problem_told", kind="source_truncated")
    assert _problem_told(None if kinds is None else found, LINK, condition).holds is holds
