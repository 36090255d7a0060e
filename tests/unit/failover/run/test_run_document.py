"""The JSON of plans, runs and journals: the contract's shapes, and null for what isn't known."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest

from drkit.failover.context.evidence import Judgement
from drkit.failover.context.live_log import TopicKept
from drkit.failover.context.state_machine import Facts, Loss, Mode, PlacesSeen, Run, StageOutcome, State, TopicLoss
from drkit.failover.journal.journal import StageRecord
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.plan.failover_plan import DirectoryView, Obstacle
from drkit.failover.positions.consistent_cut import ConsistentCut
from drkit.failover.positions.position_checks import PositionCheck
from drkit.failover.run.run_document import (
    journal_document,
    plan_document,
    rehearsal_document,
    run_document,
    runs_document,
)
from drkit.failover.run.runner import RunResult
from drkit.failover.snapshot.point_in_time import TimeBasis
from drkit.model.errors import PartlyDone
from drkit.model.runs import Anchor, AnchorPlace, JournalEntry, RunSummary, judge_chain
from drkit.model.topology import LinkId
from tests.unit.failover.plan.test_plan import a_plan
from tests.unit.failover.plan.worlds import AT, moment
from tests.unit.failover.site.test_site_failback_plan import a_link_plan

SCHEMAS = Path(__file__).parents[4] / "docs" / "schemas"
NOON = "2026-11-20T04:03:00.000Z"


def valid(document, schema):
    """The document as who reads it gets it; it is what the schema says."""
    read = json.loads(json.dumps(document))
    jsonschema.validate(read, json.loads((SCHEMAS / schema).read_text()))
    return read


def a_place(**more):
    return PositionCheck("t", 0, 3, 3, 1_000, 0xABC, None)._replace(**more)


# -- plans -----------------------------------------------------------------------------------------


def test_a_dry_run_says_what_each_stage_would_do_and_what_would_be_lost():
    plan = a_plan()
    obstacle = plan.obstacles[0]
    found = valid(plan_document(plan, standing=[obstacle]), "failover.schema.json")
    assert (found["run"], found["kind"], found["mode"], found["to"]) == (None, "failover", "unplanned", "dr")
    assert (found["state"], found["dry_run"], found["digest"]) == ("planned", True, plan.digest)
    assert (found["link"], found["made_at"], found["warnings"]) == ("primary->dr", NOON, list(plan.warnings))
    assert found["stages"] == [
        {"name": stage.name, "outcome": "skipped", "reason": f"dry run: {stage.explanation}", "seconds": 0.0}
        for stage in plan.stages
    ]
    (group,) = found["groups"]
    assert (group["group"], group["topic"], group["partition"], group["target_topic"]) == ("billing", "t", 0, "t")
    assert (group["source_offset"], group["target_offset"], group["strategy"]) == (3, 3, "preserved")
    assert (group["captured_at"], group["existing"], group["transactional"]) == (NOON, None, False)
    assert found["lost_by_topic"] == [{"topic": "t", "records": 2, "seconds": 4.0}]
    assert (found["evidence"]["rpo_records"], found["evidence"]["rpo_seconds"]) == (2, 4.0)
    assert (found["evidence"]["observed_at"], found["evidence"]["rto_seconds"]) == (NOON, None)
    assert (found["evidence"]["rpo_lower_bound"], found["evidence"]["rpo_basis"]) == (True, "observed")
    assert found["refusals"] == [
        {"what": obstacle.what, "meaning": obstacle.meaning, "remedy": obstacle.remedy, "waived_by": obstacle.waived_by}
    ]
    assert found["needs"] == ["--accept-unfenced"]
    assert (found["at"], found["committed_at"], found["timezone"], found["at_local"]) == (None, None, None, None)
    assert (found["consistent"], found["places"], found["directories"]) == (None, [], [])


def test_a_moment_goes_by_stamps_or_by_commits():
    at = replace(moment(1_500), timezone="Europe/Berlin", local="1970-01-01T01:00:01.5+01:00")
    stamps = plan_document(a_plan(at=at))
    assert (stamps["at"], stamps["committed_at"]) == ("1970-01-01T00:00:01.500Z", None)
    assert (stamps["timezone"], stamps["at_local"]) == ("Europe/Berlin", "1970-01-01T01:00:01.5+01:00")
    commits = plan_document(a_plan(at=replace(at, basis=TimeBasis.COMMITS)))
    assert (commits["at"], commits["committed_at"]) == (None, "1970-01-01T00:00:01.500Z")


def test_a_position_that_is_not_placed_is_null():
    unplaced = replace(a_plan().positions[0], strategy=None, target_offset=None, reread=None, reread_at_most=7)
    (group,) = plan_document(replace(a_plan(), positions=(unplaced,)))["groups"]
    assert (group["strategy"], group["target_offset"], group["reread"], group["reread_at_most"]) == (
        None,
        None,
        None,
        7,
    )
    known = replace(unplaced, reread=0)
    (group,) = plan_document(replace(a_plan(), positions=(known,)))["groups"]
    assert (group["reread"], group["reread_at_most"]) == (0, 0)


@pytest.mark.parametrize(
    ("place", "timestamp", "crc"),
    [
        (a_place(), "1970-01-01T00:00:01.000Z", "00000abc"),
        (a_place(timestamp=0), "1970-01-01T00:00:00.000Z", "00000abc"),
        (a_place(timestamp=-1), None, "00000abc"),
        (a_place(timestamp=253_402_300_799_000), "9999-12-31T23:59:59.000Z", "00000abc"),
        (a_place(timestamp=253_402_300_800_000), None, "00000abc"),
        (a_place(timestamp=None, crc=None, record=None, reason="the log's end"), None, None),
    ],
)
def test_what_stands_at_a_place(place, timestamp, crc):
    (found,) = plan_document(replace(a_plan(), places=(place,)))["places"]
    assert (found["timestamp"], found["crc32c"]) == (timestamp, crc)
    assert (found["target_topic"], found["partition"], found["offset"]) == ("t", 0, 3)
    assert (found["record_offset"], found["reason"]) == (place.record, place.reason)


def test_a_consistent_plan_says_where_its_moment_comes_from():
    cut = ConsistentCut(AT, (), (), ("the state of an application",))
    found = plan_document(replace(a_plan(), cut=cut))["consistent"]
    assert (found["instant"], found["limits"], found["beyond"]) == (NOON, [], [])
    assert found["cuts"] == ["the state of an application"]


def test_directories_and_flags_of_a_plan():
    flag = replace(a_plan().obstacles[0], waived_by="--a-flag")
    hard = Obstacle("x", "y", "z")
    plan = replace(a_plan(), directories=(DirectoryView("etcd", "dr", "h:1", 4),), obstacles=(flag, hard, flag))
    found = valid(plan_document(plan), "failover.schema.json")
    assert found["directories"] == [
        {"name": "etcd", "active": "dr", "bootstrap_servers": "h:1", "epoch": 4, "reason": None}
    ]
    assert found["needs"] == ["--a-flag"]


def test_a_failback_s_plan_says_what_is_deleted_unless_it_is_level():
    topic = ScrubTopic("t", "T", "t", 2, 1, 1, created_by_drkit=False, ends={0: 5, 1: 3}, starts={0: 1}, only={0: 2})
    plan = a_link_plan(LinkId("primary", "dr"), groups=("billing",))
    plan = replace(plan, topics=(topic, replace(topic, topic="u", gap="it lacks two")), offsets={"old": 3}, carried=2)
    found = valid(plan_document(plan), "failover.schema.json")
    assert found["scrub"][0] == {
        "topic": "t", "topic_id": "T", "partitions": 2, "deleted_offsets": 7, "only_here": 2, "gap": None,
    }  # fmt: skip
    assert found["scrub"][1]["gap"] == "it lacks two"
    assert (found["cluster_id"], found["level"], found["engine"]) == ("id-primary", False, "mirror")
    assert (found["carried_group_offsets"], found["deleted_group_offsets"]) == (2, {"old": 3})
    assert found["evidence"]["rpo_records"] is None
    assert (found["lost_by_topic"], found["places"], found["needs"]) == ([], [], [])
    level = plan_document(replace(plan, level=True, by_spark=True))
    assert (level["scrub"], level["level"], level["engine"]) == ([], True, "spark")


# -- runs ------------------------------------------------------------------------------------------

LOSS = Loss(2, 1.23456, AT, (TopicLoss("t", 2, 1.23456), TopicLoss("u", None, None)))


def a_result(plan, state=State.CLOSED, **more):
    facts = replace(Facts(mode=Mode.UNPLANNED, loss=LOSS, fenced=False, endpoint="h:1"), **more.pop("facts", {}))
    stages = (StageRecord("fence", StageOutcome.OK, "done", 0.12345),)
    return replace(RunResult("R", Run(plan.kind, state, facts), AT, stages, plan.positions), **more)


def test_a_run_as_it_ended():
    plan = a_plan()
    verified = {"verified_at": AT + timedelta(seconds=3), "late": {"u:0": (1, 2), "t:0": (5, 9)}, "fence_epoch": 4}
    result = a_result(plan, facts={**verified, "places": PlacesSeen(same=1), "fence_reason": "why"})
    document = run_document(result, plan, Judgement(["RTO 3"], ["RPO"]))
    found = valid(document, "failover.schema.json")
    assert (found["run"], found["state"], found["dry_run"]) == ("R", "closed", False)
    assert found["stages"] == [{"name": "fence", "outcome": "ok", "reason": "done", "seconds": 0.123}]
    assert (found["evidence"]["rto_seconds"], found["evidence"]["fenced"]) == (3.0, False)
    assert found["lost_by_topic"][0] == {"topic": "t", "records": 2, "seconds": 1.235}
    assert found["lost_by_topic"][1] == {"topic": "u", "records": None, "seconds": None}
    assert (found["objectives_missed"], found["objectives_not_judged"]) == (["RTO 3"], ["RPO"])
    assert (found["endpoint"], found["fence_reason"], found["fence_epoch"]) == ("h:1", "why", 4)
    assert found["written_unfenced"] == {"t:0": [5, 9], "u:0": [1, 2]}
    assert list(document["written_unfenced"]) == ["t:0", "u:0"]
    assert found["places_verified"]["same"] == 1
    assert "error" not in found
    assert "salvaged" not in found


def test_what_a_run_left_without_a_place_has_its_command():
    plan = a_plan()
    left = replace(plan.positions[0], group="late", target_offset=None, strategy=None, reason="why", existing=2)
    for document in (
        run_document(a_result(plan, positions=(*plan.positions, left)), plan),
        plan_document(replace(plan, positions=(*plan.positions, left))),
    ):
        (found,) = valid(document, "failover.schema.json")["without_place"]
        assert found["group"] == "late"
        assert found["partitions"] == [
            {"topic": "t", "target_topic": "t", "partition": 0, "reason": "why", "existing": 2}
        ]
        assert found["command"].startswith("kafka-consumer-groups.sh --bootstrap-server 127.0.0.1:1 --group late ")
    failback = plan_document(a_link_plan(LinkId("primary", "dr"), groups=("billing",)))
    assert failback["without_place"] == [], "where its groups go isn't known yet"


def test_groups_of_a_run_that_was_not_finished_are_those_of_its_plan():
    plan = a_plan()
    going = a_result(plan, State.FENCED, positions=())
    assert len(run_document(going, plan)["groups"]) == 1
    assert run_document(replace(going, machine=replace(going.machine, state=State.CANCELLED)), plan)["groups"] == []
    found = run_document(going, plan)
    assert (found["places_verified"], found["fence_epoch"]) == (None, None)


def test_a_run_that_stopped_says_why():
    plan = a_plan()
    error = PartlyDone("it stopped", meaning="half of it", remedy="drkit resume R")
    found = valid(run_document(a_result(plan, State.FENCED, error=error), plan), "failover.schema.json")
    assert (found["error"]["what"], found["error"]["remedy"]) == ("it stopped", "drkit resume R")


def test_what_a_failback_salvaged_and_what_its_audit_said(tmp_path):
    plan = a_link_plan(LinkId("primary", "dr"))
    kept = {name: TopicKept(path, 1, {}, {}, "", "") for name, path in (("t", "/b"), ("u", str(tmp_path)), ("v", "/b"))}
    result = a_result(plan, facts={"salvaged": 4, "salvage_path": "/b", "kept": kept, "audit": "clean"})
    found = valid(run_document(result, plan), "failover.schema.json")
    assert found["salvaged"] == {"records": 4, "path": "/b", "folders": ["/b", str(tmp_path)], "not_here": ["/b"]}
    assert found["audit"] == {"verdict": "clean", "detail": None}


def test_a_rehearsal_says_what_a_real_run_would_be_refused_for():
    plan = replace(a_plan(), places=(a_place(),))
    result = a_result(plan, positions=())
    found = rehearsal_document(result, plan, plan.obstacles[:1])
    assert (found["kind"], len(found["groups"]), len(found["places"])) == ("rehearsal", 1, 1)
    assert found["refusals"][0]["what"] == plan.obstacles[0].what


# -- journals --------------------------------------------------------------------------------------

SUMMARY = RunSummary("R", "failover", "fenced", AT, AT + timedelta(seconds=5), "primary->dr")
PLACES = (
    AnchorPlace("a file", (Anchor("R", 4, "h", AT, "s", "dr"), Anchor("R", 2, "h", AT, "s", "dr"),
                           Anchor("OTHER", 9, "h", AT, "s", "dr"))),
    AnchorPlace("a cluster", None, "dr", "it does not answer"),
)  # fmt: skip


def test_runs_are_listed_with_what_is_missing_and_where_anchors_were_asked_for():
    found = valid(runs_document([SUMMARY], ["GONE"], PLACES), "runs.schema.json")
    assert found["runs"] == [
        {
            "run": "R", "kind": "failover", "state": "fenced", "started_at": NOON,
            "updated_at": "2026-11-20T04:03:05.000Z", "detail": "primary->dr",
        }
    ]  # fmt: skip
    assert found["missing"] == ["GONE"]
    assert found["anchors"] == [
        {"place": "a file", "read": True, "reason": None},
        {"place": "a cluster", "read": False, "reason": "it does not answer"},
    ]


def a_journal():
    first = JournalEntry.chained(None, run="R", at=AT, stage="plan", event="plan", payload='{"kind":"x"}')
    later = AT + timedelta(seconds=5)
    return [first, JournalEntry.chained(first, run="R", at=later, stage="fence", event="intent", payload="not json")]


def test_a_journal_is_shown_verbatim_with_its_chain():
    entries = a_journal()
    verdict = judge_chain("R", entries, [])
    found = valid(journal_document("R", SUMMARY, entries, verdict, PLACES, None), "runs.schema.json")
    assert (found["run"], found["kind"], found["state"], found["detail"]) == ("R", "failover", "fenced", "primary->dr")
    assert (found["started_at"], found["result"]) == (NOON, None)
    first, second = found["entries"]
    assert (first["seq"], first["stage"], first["event"], first["payload"]) == (0, "plan", "plan", {"kind": "x"})
    assert (second["payload"], second["payload_text"]) == ("not json", "not json")
    assert second["previous"] == first["hash"]
    assert found["updated_at"] == second["at"]
    chain = found["chain"]
    assert (chain["intact"], chain["problem"], chain["entries"]) == (True, None, 2)
    assert (chain["state"], chain["verdict"]) == (verdict.state.value, verdict.words)
    assert chain["anchored_through"] == verdict.anchored_through
    assert [(place["through"], place["read"]) for place in chain["anchors"]] == [(4, True), (None, False)]


def test_a_journal_whose_chain_is_broken_says_where():
    entries = a_journal()
    broken = [replace(entries[0], payload="{}"), entries[1]]
    verdict = judge_chain("R", broken, [])
    chain = journal_document("R", SUMMARY, broken, verdict, (), None)["chain"]
    assert (chain["intact"], chain["problem"]) == (False, verdict.words)


def test_a_run_that_is_not_listed_or_has_no_entries_is_shown_as_far_as_it_is_known():
    entries = a_journal()
    unlisted = journal_document("R", None, entries, judge_chain("R", entries, []), (), None)
    assert (unlisted["kind"], unlisted["state"], unlisted["detail"]) == (None, None, None)
    assert (unlisted["started_at"], unlisted["updated_at"]) == tuple(each["at"] for each in unlisted["entries"])
    assert unlisted["started_at"] < unlisted["updated_at"]
    listed = journal_document("R", SUMMARY, [], judge_chain("R", [], []), (), None)
    assert (listed["started_at"], listed["updated_at"]) == (NOON, "2026-11-20T04:03:05.000Z")
    nothing = journal_document("R", None, [], judge_chain("R", [], []), (), None)
    assert (nothing["started_at"], nothing["updated_at"]) == (None, None)
