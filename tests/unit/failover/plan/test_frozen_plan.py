"""A plan as it is frozen: what its digest covers, what its file keeps, what moved since; and what a loss is held to."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import TypeAdapter, ValidationError

from drkit.config import Objectives
from drkit.failover.context.state_machine import Mode
from drkit.failover.journal.journal import POSITION_LIST
from drkit.failover.plan.codec import pack
from drkit.failover.plan.failover_plan import (
    DirectoryView,
    checksum_of,
    digest_of,
    plan_file,
    read_plan,
    same_decision,
    shown,
    what_moved,
    write_plan,
)
from drkit.failover.plan.loss_budget import LossBudget, accepted, budgets_of, over_budget
from drkit.failover.planning.failover_planner import PlanRequest, plan_for
from drkit.failover.positions.mirrormaker_positions import captured
from drkit.failover.snapshot.point_in_time import TimeBasis, parse_moment
from drkit.failover.snapshot.selection import Selection, TopicSelector
from drkit.failover.snapshot.snapshot import ClusterView
from drkit.kafka.groups.mirrormaker import MirrorMakerOffsets
from drkit.model.clock import exact_iso
from drkit.model.errors import ConfigError, Refused
from drkit.model.groups import GroupTransaction, TransactionHistory
from drkit.model.link_state import Problem, TopicState
from drkit.model.runs import FenceMethod
from drkit.model.topology import LinkId, TopicPartition
from tests.unit.failover.plan.test_loss_budget import ALL, loss
from tests.unit.failover.plan.test_plan import a_plan, a_world
from tests.unit.failover.plan.worlds import AT, Log, moment, position, world

# -- the digest ------------------------------------------------------------------------------------


def decision(**more):
    """What is decided of the plan below, as it is hashed."""
    return {
        "kind": "failover",
        "link": "primary->dr",
        "mode": "unplanned",
        "at": None,
        "groups": [],
        "topics": [],
        "source": ["primary", False, None],
        "target": ["dr", "new"],
        "control": ["active", None],
        "stages": ["fence", "drain", "translate", "commit", "switch", "verify", "close"],
        "positions": [["grüße", "t", 0, "t", 3, 3, "preserved", "exact", "kept"]],
    } | more


def sha_256(body):
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    assert text.isascii()
    return hashlib.sha256(text.encode()).hexdigest()


PLAN = a_plan(world([Log("rrrrrr", through=4).view()], [position(3, group="grüße")]))
VIEW = DirectoryView("etcd", "primary", "h:1", 4)


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ({}, {}),
        ({"mode": Mode.PLANNED}, {"mode": "planned"}),
        ({"at": moment(1_500)}, {"at": "1970-01-01T00:00:01.500Z"}),
        (
            {"at": replace(moment(1_500), basis=TimeBasis.COMMITS)},
            {"at": "1970-01-01T00:00:01.500Z", "basis": "commits"},
        ),
        (
            {"selection": Selection(groups=("grüße",), topics=(TopicSelector("t", (0, 2)),))},
            {"groups": ["grüße"], "topics": ["t:0,2"]},
        ),
        ({"catch_up": True}, {"catch_up": True}),
        ({"budgets": (LossBudget(("a", "b"), 1, 2.5),)}, {"budgets": [["a", "b", 1, 2.5]]}),
        ({"fence": FenceMethod.NONE}, {}),
        ({"mirrormaker": "eu"}, {"mirrormaker": "eu"}),
        ({"directories": (VIEW,)}, {"directories": [["etcd", "primary", 4]]}),
        ({"control": "paused", "control_version": 7}, {"control": ["paused", 7]}),
        ({"source": ClusterView("primary", reachable=True, cluster_id="old")}, {"source": ["primary", True, "old"]}),
        ({"warnings": ("other",), "obstacles": (), "made_at": AT + timedelta(days=1), "accept_loss": 5}, {}),
    ],
)
def test_the_digest_is_sha_256_over_the_decision_as_canonical_json(changed, more):
    assert digest_of(replace(PLAN, **changed)) == sha_256(decision(**more))


def test_how_a_source_is_fenced_is_decided_too():
    for method in FenceMethod:
        more = {} if method is FenceMethod.NONE else {"fence": method.value}
        assert digest_of(replace(PLAN, fence=method)) == sha_256(decision(**more))


def test_only_what_has_a_place_is_committed():
    unplaced = replace(PLAN.positions[0], group="other", target_offset=None)
    assert replace(PLAN, positions=(*PLAN.positions, unplaced)).placed == PLAN.positions


# -- the file --------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["accept_loss", "allow_rewind", "warnings"])
def test_what_a_digest_does_not_cover_can_t_be_edited_either(tmp_path, field):
    file = tmp_path / "plan.json"
    write_plan(PLAN, file)
    body = json.loads(file.read_text())
    body["plan"][field] = {"accept_loss": 1_000, "allow_rewind": True, "warnings": []}[field]
    file.write_text(json.dumps(body))
    with pytest.raises(ConfigError, match="changed after it was written"):
        read_plan(file)
    body["checksum"] = checksum_of(body["plan"])
    file.write_text(json.dumps(body))
    assert read_plan(file).digest == PLAN.digest
    body["digest"] = "0" * 64
    file.write_text(json.dumps(body))
    with pytest.raises(ConfigError, match="changed after it was written"):
        read_plan(file)


def test_a_plan_of_another_format_is_not_taken_for_one(tmp_path):
    file = tmp_path / "plan.json"
    write_plan(PLAN, file)
    body = json.loads(file.read_text())
    file.write_text(json.dumps(body | {"format": "drkit-failover-plan/2"}))
    with pytest.raises(ConfigError, match="is not a plan of this drkit"):
        read_plan(file)
    file.write_text(json.dumps(body | {"plan": {"link": 1}}))
    with pytest.raises(ConfigError, match=r"is damaged: [0-9]+ fields are wrong"):
        read_plan(file)
    assert plan_file(file)["format"] == "drkit-failover-plan/1"


def test_a_plan_s_file_is_for_people_too(tmp_path):
    file = tmp_path / "plan.json"
    write_plan(PLAN, file)
    assert file.read_text().count("\n") > 20
    (one,) = json.loads(file.read_text())["plan"]["positions"]
    assert (one["group"], one["target_offset"]) == ("grüße", 3)


def test_positions_that_are_damaged_are_told_from_those_of_another_form():
    written = pack(PLAN.positions)
    longer = {**written, "shared": [[*written["shared"][0], 1]]}
    for damaged in ({"looked": [], "shared": [], "groups": [["g", [0]]]}, {"looked": []}, longer):
        with pytest.raises(ValidationError):
            POSITION_LIST.validate_python(damaged)
    with pytest.raises(ValidationError, match="the positions are damaged"):
        POSITION_LIST.validate_python({"looked": []})
    assert TypeAdapter(type(written)).validate_python(written)["groups"] == [("grüße", [[0, "kept", None, 0]])]


def test_positions_are_written_shortest_where_nothing_is_their_own():
    plain = replace(PLAN.positions[0], metadata="")
    later = replace(plain, group="b", captured_at=None)
    there = replace(plain, group="c", existing=0)
    written = pack((plain, later, there))
    assert written["groups"] == [("grüße", [0]), ("b", [[0, "", None, 1]]), ("c", [[0, "", 0, 0]])]
    assert written["looked"] == [exact_iso(AT), None]
    assert POSITION_LIST.validate_python(written) == (plain, later, there)


# -- what moved ------------------------------------------------------------------------------------


def moved(**changed):
    return what_moved(PLAN, replace(PLAN, **changed))


def test_directories_that_say_something_else_are_named():
    before = replace(PLAN, directories=(VIEW, DirectoryView("dns", "primary", epoch=1)))

    def after(*views):
        return what_moved(before, replace(PLAN, directories=views))

    assert after(*before.directories) == []
    other = replace(VIEW, active="dr")
    assert after(other, before.directories[1]) == ["etcd now says dr, not primary"]
    assert after(replace(VIEW, epoch=5), before.directories[1]) == ["etcd now says primary, not primary"]
    assert after(DirectoryView("etcd"), before.directories[1]) == ["etcd now says nothing, not primary"]
    assert what_moved(replace(PLAN, directories=(DirectoryView("etcd"),)), replace(PLAN, directories=(VIEW,))) == [
        "etcd now says primary, not nothing"
    ]
    assert after(replace(VIEW, name="consul", active="dr"), before.directories[1]) == [
        "the clusters or flags differ from those the plan was made with"
    ]
    assert after(VIEW) == ["the clusters or flags differ from those the plan was made with"]


def test_a_cluster_that_is_another_one_or_answers_again():
    there = ClusterView("dr", reachable=True, cluster_id="other")
    assert moved(target=there) == ["the target dr is another cluster: other, was new"]
    assert moved(source=ClusterView("primary", reachable=True)) == ["the source primary is now reachable"]


def test_a_link_that_was_decided_again_with_the_same_result():
    assert moved(control_version=4) == ["the link was active and is active (decided again since)"]


def test_positions_that_moved():
    (one,) = PLAN.positions
    assert moved(positions=(replace(one, target_offset=2),)) == ["grüße on t:0 would now go to 2, not 3"]
    further = moved(positions=(replace(one, source_offset=4),))
    assert further == ["grüße on t:0 is now at 4 on the source, not 3"]
    assert moved(positions=()) == ["grüße has no position on t:0 any more"]
    assert moved(positions=(one, replace(one, group="new"))) == ["new now has a position on t:0"]
    assert moved(positions=(replace(one, why="other words", captured_at=None),)) == []


def test_flags_that_differ_are_said_where_nothing_else_is():
    assert moved(catch_up=True) == ["the clusters or flags differ from those the plan was made with"]


def test_which_positions_are_the_same_decision():
    (one,) = PLAN.positions
    assert same_decision((one,), (replace(one, captured_at=None, reason="other"),))
    assert not same_decision((one,), (replace(one, target_offset=2),))
    assert not same_decision((one,), ())
    assert same_decision(PLAN.positions, PLAN.positions)


def test_many_sentences_are_cut():
    assert shown(["a"]) == "a"
    assert shown(["a", "b", "c", "d", "e"]) == "a; b; c; d; e"
    assert shown(["a", "b", "c", "d", "e", "f", "g"]) == "a; b; c; d; e; and 2 more"


# -- loss ------------------------------------------------------------------------------------------


def test_a_budget_of_several_patterns_is_for_all_that_match_one():
    lost = loss(("orders", 7, 1.0), ("payments", 3, 4.0), ("other", 9, 9.0))
    (said,) = over_budget(lost, [LossBudget(("pay.*", "orders"), 9, None)])
    assert said == "10 records of pay.*, orders would be lost, but max_loss_records is 9"
    assert len(list(over_budget(lost, [LossBudget(("none",), 0, None), LossBudget(ALL, 18, None)]))) == 1
    (named,) = over_budget(lost, [LossBudget(("pay.*",), 2, None, "wave one")])
    assert "3 records of wave one would be lost" in named


def test_a_budget_is_for_links_that_match_one_of_its_patterns():
    objectives = Objectives(max_loss=[{"links": ["west.*", "east.*"], "max_loss_records": 0}])
    assert len(budgets_of(LinkId("east", "dr"), objectives)) == 1
    assert budgets_of(LinkId("north", "dr"), objectives) == ()


def test_nothing_lost_needs_no_acceptance_beyond_none():
    nothing = loss(("orders", 0, 0.0))
    assert accepted(nothing, 0)
    assert not accepted(loss(("orders", 1, 0.0)), 0)
    assert accepted(loss(("orders", 1, 0.0)), 1)


def test_why_a_loss_is_not_known_is_said():
    (bare,) = over_budget(loss(("orders", None, 0.0)), [LossBudget(ALL, 5, None)])
    assert bare.endswith("isn't known, it is 0 records or more")
    (told,) = over_budget(loss(("orders", None, 0.0), reason="no mapping"), [LossBudget(ALL, 5, None)])
    assert told.endswith("isn't known, it is 0 records or more: no mapping")
    (nothing,) = over_budget(loss(reason="no partitions"), [LossBudget(ALL, 5, None)])
    assert nothing.endswith("isn't known, nothing is known: no partitions")
    (least,) = over_budget(loss(("orders", 3, 0.0), lower_bound=True), [LossBudget(ALL, 3, None)])
    assert least.endswith("isn't known, it is 3 records or more")
    (age,) = over_budget(loss(("orders", 1, None), reason="no look"), [LossBudget(ALL, None, 0.5)])
    assert age == "whether records older than max_loss_seconds = 0.5 would be lost isn't known: no look"
    (ageless,) = over_budget(loss(), [LossBudget(ALL, None, 0.5)])
    assert ageless == "whether records older than max_loss_seconds = 0.5 would be lost isn't known"
    assert list(over_budget(loss(("orders", 1, 0.5)), [LossBudget(ALL, None, 0.5)])) == []


# -- what can't be planned, and what is said of transactions ---------------------------------------


def test_a_link_of_which_only_topics_are_known_can_be_planned():
    seen = world([], [])
    state = TopicState("t", "t", "s-id", "t-id", 1, 1, True)
    assert a_plan(replace(seen, topics={"t": state})).positions == ()
    bare = replace(Log("rr").view(), watermark=None)
    with pytest.raises(Refused, match="the store holds nothing about primary->dr"):
        a_plan(replace(world([bare], []), topics={}))
    kept = replace(world([Log("rr").view(), replace(bare, partition=1)], []), topics={})
    assert a_plan(kept).positions == ()
    chosen = Selection(topics=(TopicSelector("t"),))
    assert a_plan(replace(seen, topics={"t": state}), selection=chosen).positions == ()


def test_nothing_is_planned_by_mirrormaker_without_its_checkpoints():
    offsets = MirrorMakerOffsets(())
    seen = a_world(source_reachable=True)
    for mode, words in ((Mode.PLANNED, "can't rely on MirrorMaker 2"), (Mode.UNPLANNED, "has no checkpoint")):
        with pytest.raises(Refused, match=words):
            plan_for(replace(seen, positions=()), PlanRequest("dr", mode), endpoint="h:1", offsets=offsets)
    assert not captured(seen.link, offsets)
    plan = plan_for(seen, PlanRequest("dr", mirrormaker="eu", catch_up=True), endpoint="h:1", offsets=offsets)
    assert (plan.mirrormaker, plan.catch_up, plan.loss.records) == ("eu", False, None)


@pytest.mark.parametrize(("count", "rest"), [(5, None), (6, "and 1 more group that"), (8, "and 3 more groups that")])
def test_groups_that_process_transactions_again_are_named_and_many_are_counted(count, rest):
    out = TopicPartition("a", 0)
    there = Log("r" * 60).view()
    output = replace(
        there, topic="a", target_topic="a", watermark=replace(there.watermark, topic="a", source_through=7)
    )
    names = [f"g{n}" for n in range(count)]
    commits = tuple(
        GroupTransaction(n, {(name, TopicPartition("t", 0)): (10 * n, "") for name in names}, {out: (3 * n, 3 * n + 1)})
        for n in range(1, 4)
    )
    seen = world([there, output], [position(10, group=name) for name in names], positions_live=False)
    plan = a_plan(replace(seen, transactions=TransactionHistory("w", AT, {out: 0}, {out: 1_000}, commits)))
    again = [each for each in plan.placed if each.transactions_again]
    assert len(again) == count
    assert len([each for each in plan.warnings if each.startswith("g") and f": {again[0].reason}" in each]) == 5
    both = replace(there, partition=1)
    wide = replace(seen, partitions={v.tp: v for v in (there, both, output)}, suspected=frozenset(names))
    wide = replace(wide, positions=tuple(position(10, group=n, partition=p) for n in names for p in (0, 1)))
    told = [each for each in a_plan(wide).warnings if each.startswith("g") and "may commit in transactions" in each]
    assert len(told) == 5, "once for each group"
    assert all(" on t:0 (and 1 more partition): " in each for each in told)
    assert [rest in each for each in plan.warnings if "process transactions again" in each] == ([True] if rest else [])
    level = replace(output, watermark=replace(output.watermark, source_through=100), target_end=100)
    quiet = a_plan(replace(seen, partitions={v.tp: v for v in (there, level)}, transactions=replace(
        TransactionHistory("w", AT, {out: 0}, {out: 1_000}, commits))))  # fmt: skip
    assert [each for each in quiet.placed if each.transactions_again] == []


def halting(**more):
    return replace(Problem("retention_gap", "t", 0, "records are gone", "re-seed it", halted=True, since=AT), **more)


def test_only_a_mirror_that_has_halted_never_drains():
    seen = a_world(source_reachable=True, mirror="worker")
    there = replace(seen, problems=(halting(halted=False), halting(topic="u")))
    (obstacle,) = [each for each in a_plan(there, mode=Mode.PLANNED).obstacles if "halted" in each.what]
    assert obstacle.what == "the mirror has halted on u: records are gone"
    calm = replace(seen, problems=(halting(halted=False),))
    assert [each for each in a_plan(calm, mode=Mode.PLANNED).obstacles if "halted" in each.what] == []


def test_what_was_removed_from_the_target_is_told_by_its_own_problem():
    whole = replace(Log("r" * 10).view(), source_start=0, source_end=10)
    purged = halting(kind="target_purged", halted=False, unsure_from=0, unsure_until=4, remedy="do this")
    other = halting(halted=False, reason="something else", remedy="do that")
    view = replace(whole, problems=(other, purged))
    seen = world([view], [position(3)], source_reachable=True, mirror="worker")
    for there in (seen, world([view, replace(view, partition=1)], [], source_reachable=True, mirror="worker")):
        said = [each for each in a_plan(there, mode=Mode.PLANNED).obstacles if "no mirror brings back" in each.what]
        assert [each.remedy for each in said] == ["do this"], "once, however many partitions"
    gone = replace(view, problems=(replace(purged, unsure_from=0, unsure_until=0),))
    assert gone.missing.gaps == ()
    calm = world([gone], [position(3)], source_reachable=True, mirror="worker")
    assert [each for each in a_plan(calm, mode=Mode.PLANNED).obstacles if "no mirror brings back" in each.what] == []


def test_a_store_that_was_recovered_proves_nothing_behind_its_watermark():
    assert replace(Log("r").view(), problems=(halting(kind="store_recovered"),)).unproven is True
    assert replace(Log("r").view(), problems=(halting(),)).unproven is False
    assert Log("r").view().unproven is False


def test_a_mirror_of_another_store_is_said_with_what_to_do():
    plan = plan_for(a_world(), PlanRequest("dr"), endpoint="h:1", elsewhere=["worker-7"])
    assert plan.obstacles[0].meaning
    assert plan.obstacles[0].remedy


# -- the first moments -----------------------------------------------------------------------------

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)


def test_kafka_s_time_begins_in_1970():
    first = parse_moment("1970-01-01T00:00:00Z", now=NOW, timezone="UTC")
    assert first.millis == 0
    for text in ("1969-12-31T23:59:59.999Z", "-30000d", "-99999999d", "-9999999999999d"):
        with pytest.raises(ConfigError, match="is before 1970"):
            parse_moment(text, now=NOW, timezone="UTC")
    assert parse_moment("1970-01-01T12:00:00Z", now=NOW, timezone="UTC").millis == 43_200_000


def test_a_relative_time_is_as_fine_as_stamps_are_and_every_unit_counts():
    assert parse_moment("-0.0004s", now=NOW, timezone="UTC").instant == NOW - timedelta(milliseconds=1)
    assert parse_moment("-1d2h3m4s", now=NOW, timezone="UTC").instant == NOW - timedelta(
        days=1, hours=2, minutes=3, seconds=4
    )


def test_the_option_is_named_as_it_was_given():
    with pytest.raises(ConfigError, match=r"^--committed-at 'soon' is not a time"):
        parse_moment("soon", now=NOW, timezone="UTC", option="--committed-at")
    with pytest.raises(
        ConfigError, match=r"in the future: 2026-11-20T13:00:00\+01:00 \[Europe/Berlin\], 2026-11-20T12:"
    ):
        parse_moment("2026-11-20T12:00:00.9Z", now=NOW, timezone="Europe/Berlin")


def test_a_moment_goes_by_stamps_unless_it_is_said_otherwise():
    at = parse_moment("04:03", now=NOW, timezone="UTC")
    assert not at.by_commits
    assert replace(at, basis=TimeBasis.COMMITS).by_commits
