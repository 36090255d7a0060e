"""What a plan says of what it found: warnings, obstacles with their remedies, and the link that it is about."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from drkit.config import Config
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import Mode
from drkit.failover.plan.failover_plan import DirectoryView, FailoverPlan
from drkit.failover.plan.loss import loss_at
from drkit.failover.plan.loss_budget import LossBudget
from drkit.failover.plan.preconditions import within
from drkit.failover.planning.failover_planner import PlanRequest, failover_stages, find_link, plan_for
from drkit.failover.snapshot.selection import Selection, TopicSelector
from drkit.failover.snapshot.snapshot import ClusterView
from drkit.lag.partition_lag import Doubts
from drkit.model.errors import ConfigError, Refused
from drkit.model.groups import UnmovableGroup
from drkit.model.link_state import Direction, Problem
from drkit.model.offsets import WaitingRecords
from drkit.model.runs import ACCEPT_LOSS, ACCEPT_UNFENCED, ALLOW_REWIND, FenceMethod
from drkit.model.topology import LinkId, TopicPartition
from drkit.state_topic.store_age import OlderStore
from drkit.store import open_store
from tests.unit.failover.plan.worlds import AT, Log, moment, position, world

TP = TopicPartition("t", 0)


def a_world(log=None, offset=3, **options):
    return world([(log or Log("rrrrrr", through=4)).view()], [position(offset)], **options)


def a_plan(seen=None, *, given=None, **asked) -> FailoverPlan:
    return plan_for(seen or a_world(), PlanRequest("dr", **asked), endpoint="127.0.0.1:1", **(given or {}))


def said(plan, words):
    return [warning for warning in plan.warnings if words in warning]


def waived(plan, flag):
    return [obstacle for obstacle in plan.obstacles if obstacle.waived_by == flag]


# -- warnings --------------------------------------------------------------------------------------


def test_how_long_ago_a_mirror_saw_a_source_that_is_gone():
    seen = replace(a_world(), observed_at=AT + timedelta(seconds=3_600))
    (warning,) = said(a_plan(seen), "last looked at")
    assert "last looked at 3,600.0 s before: what came since isn't counted" in warning


def test_positions_without_a_place_are_counted_and_the_first_is_named():
    bare = replace(Log("rr").view(), rows=(), watermark=None, target_end=None)
    views = [Log("rr").view(), *(replace(bare, topic=t, target_topic=t) for t in ("u", "v"))]
    groups = [position(1), position(1, topic="u"), position(1, topic="v", group="other"), position(2, topic="w")]
    (warning,) = said(a_plan(world(views, groups)), "have no place on dr")
    assert warning.startswith("3 positions have no place on dr, e.g. billing on u:0: ")
    assert said(a_plan(), "have no place") == []


def test_a_group_that_can_t_be_moved_is_not_counted_among_those_without_a_place():
    bare = replace(Log("rr").view(), topic="u", target_topic="u", rows=(), watermark=None, target_end=None)
    seen = world([Log("rr").view(), bare], [position(1), position(1, topic="u", group="shared")])
    seen = replace(seen, unmovable=(UnmovableGroup("shared", "share", {}, AT),))
    assert said(a_plan(seen), "have no place") == []
    assert len(said(a_plan(seen), "shared is not moved: a share group")) == 1


@pytest.mark.parametrize(("count", "rest"), [(5, None), (6, "1 more group commit"), (8, "3 more groups commit")])
def test_groups_that_can_t_be_moved_are_named_and_many_are_counted(count, rest):
    unmovable = tuple(UnmovableGroup(f"s{n}", "share", {}, AT) for n in range(count))
    plan = a_plan(replace(a_world(), unmovable=unmovable))
    assert len(said(plan, "is not moved")) == 5
    assert [rest in warning for warning in said(plan, "no offsets and are not moved")] == ([True] if rest else [])


def test_only_groups_that_were_asked_for_are_told():
    unmovable = tuple(UnmovableGroup(name, "share", {}, AT) for name in ("one", "other"))
    plan = a_plan(replace(a_world(), unmovable=unmovable), selection=Selection(groups=("billing", "one")))
    assert [warning.split(" ")[0] for warning in said(plan, "is not moved: a share")] == ["one"]


@pytest.mark.parametrize(("count", "rest"), [(5, None), (6, "1 more group never"), (7, "2 more groups never")])
def test_groups_that_never_committed_somewhere_are_named_and_many_are_counted(count, rest):
    views = [Log("rr").view(), replace(Log("rr").view(), partition=1)]
    plan = a_plan(world(views, [position(1, group=f"g{n}") for n in range(count)]))
    assert len(said(plan, "never committed on t:1")) == 5
    assert [rest in warning for warning in said(plan, "never committed on some partitions")] == ([True] if rest else [])


def test_members_on_the_source_matter_to_a_planned_move_only():
    seen = a_world(source_reachable=True, mirror="worker", source_members={"billing": 2, "idle": 0, "audit": 1})
    (warning,) = said(a_plan(seen, mode=Mode.PLANNED), "still read on primary")
    assert warning.startswith("audit, billing still read")
    assert said(a_plan(seen), "still read on") == []
    none = a_world(source_reachable=True, mirror="worker", source_members={"billing": 0})
    assert said(a_plan(none, mode=Mode.PLANNED), "still read on") == []


def test_what_the_clusters_and_the_store_told_is_passed_on():
    problem = Problem("retention_gap", "t", 0, "records are gone", "re-seed it", halted=False, since=AT)
    view = replace(Log("rr").view(), remark="two records of nobody's")
    seen = replace(world([view], [position(1)]), notes=("a note",), left=("old", "older"), problems=(problem,))
    warnings = a_plan(seen).warnings
    assert "a note" in warnings
    assert "t:0: two records of nobody's" in warnings
    assert "t: records are gone" in warnings
    assert len(said(a_plan(seen), "no group is moved on old, older")) == 1
    assert said(a_plan(), "no group is moved on") == []
    quiet = replace(Log("rrrr").view(), source_start=0, source_end=4)
    assert a_plan(world([quiet], [position(3)], source_reachable=True)).warnings == ()


@pytest.mark.parametrize(
    ("selection", "partial"),
    [
        (Selection(), False),
        (Selection(groups=("billing",)), True),
        (Selection(topics=(TopicSelector("t"),)), True),
    ],
)
def test_that_a_link_is_sealed_as_a_whole_is_said_where_a_part_moves(selection, partial):
    assert len(said(a_plan(selection=selection), "all of primary->dr is sealed")) == partial


def test_how_surely_the_loss_is_known_is_said():
    gone = a_plan()
    assert said(gone, " or more: the source does not answer")
    held = replace(Log("rrrr").view(), source_start=0, source_end=4, source_high=6)
    (warning,) = said(a_plan(world([held], [position(1)], source_reachable=True)), "the expected loss")
    assert warning.startswith(
        "the expected loss is 2 records at most: 2 offsets of them stand behind open transactions"
    )
    unrecorded = replace(Log("rr").view(), topic="u", target_topic="u", watermark=None)
    both = world([replace(Log("rr").view(), source_start=0, source_end=2), unrecorded], [position(1)])
    assert said(a_plan(both), "the expected loss is not known: how much is missing isn't known of u:0")


def test_what_positions_skip_where_that_is_not_known():
    views = [replace(Log("rrrr").view(at=moment(5)), topic=t, target_topic=t, rows=(), watermark=None) for t in "ab"]
    groups = [position(2, topic="a"), position(2, topic="b")]
    seen = world([Log("rr").view(at=moment(5)), *views], groups)
    plan = a_plan(seen, at=moment(5))
    unknown = [each for each in plan.placed if each.skipped is None]
    assert len(unknown) == 2
    assert len(said(plan, "what 2 positions skip is not known, e.g. billing on a:0: ")) == 1
    assert said(a_plan(), "skip is not known") == []


def test_what_groups_had_not_read_and_the_target_no_longer_holds():
    purged = replace(Log("rrrrrrrr").view(), target_start=5)
    seen = world([purged], [position(2), position(4, group="audits"), position(6, group="late")])
    (warning,) = said(a_plan(seen), "retention or DeleteRecords removed")
    assert warning == (
        "2 positions begin where the logs on dr do: retention or DeleteRecords removed 4 offsets there that the groups "
        "had not read, most of billing on t:0 (3)"
    )
    assert said(a_plan(), "retention or DeleteRecords removed") == []


def test_what_directories_and_other_stores_say():
    silent = DirectoryView("etcd", reason="etcd does not answer")
    assert said(a_plan(given={"directories": (silent,)}), "etcd does not answer; without it the switch stops")
    other = a_plan(given={"elsewhere": ["worker-7"], "older": OlderStore([TP], 5)})
    assert "worker-7" in other.obstacles[0].what + other.obstacles[0].meaning
    older = other.obstacles[1]
    assert "has a later decision about the link (5) and newer watermarks of t:0" in older.what
    assert "drkit store recover --from dr --link 'primary->dr'" in older.remedy
    only = a_plan(given={"older": OlderStore([TP], None)}).obstacles[0]
    assert "or start drkit mirror while primary answers" in only.remedy
    altering = replace(a_world(), link=replace(a_world().link, filter="m:f"))
    halting = a_plan(altering, given={"older": OlderStore([TP], None)}).obstacles[0]
    assert "start drkit mirror" not in halting.remedy
    assert "No mirror starts with this store" in halting.remedy
    lacking = a_plan(given={"older": OlderStore([TP], None, ("topic new",), ("g",))}).obstacles[0]
    assert "topic new, unknown to the store and newer watermarks of t:0 and newer positions of g" in lacking.what
    assert "drkit mirror" not in lacking.remedy
    assert "which has newer watermarks of t:0" in only.what
    assert (
        "which has a later decision about the link (0)" in a_plan(given={"older": OlderStore([], 0)}).obstacles[0].what
    )


# -- obstacles -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("direction", "entry", "stands_in_the_way"),
    [
        (None, 0, False),
        (None, 1, True),  # the first decision will have version 1
        (Direction.ACTIVE, 3, False),
        (Direction.ACTIVE, 4, True),
        (Direction.SEALED, 2, False),
        (Direction.SEALED, 3, False),  # the run before has written it
        (Direction.SEALED, 4, True),
    ],
)
def test_an_entry_that_is_newer_than_the_run_s_stands_in_the_way(direction, entry, stands_in_the_way):
    view = DirectoryView("consul", active="dr", epoch=entry)
    plan = a_plan(a_world(direction=direction), given={"directories": (view,)})
    assert any("consul says dr" in each.what for each in plan.obstacles) == stands_in_the_way


def test_a_link_without_a_run_that_sealed_it_is_said_so_without_one():
    seen = a_world(direction=Direction.SEALED)
    nobody = replace(seen, control=replace(seen.control, run=None))
    (obstacle,) = [each for each in a_plan(nobody).obstacles if "failed over already" in each.what]
    assert "by run" not in obstacle.what
    assert [each for each in a_plan(a_world(direction=Direction.PAUSED)).obstacles if "already" in each.what] == []


def test_a_planned_move_without_its_source_says_nothing_else_of_it():
    plan = a_plan(a_world(), mode=Mode.PLANNED)
    assert [each.what for each in plan.obstacles if "no mirror runs" in each.what] == []


def test_a_planned_move_whose_lag_is_not_known_needs_a_mirror():
    unknown = replace(Log("rr").view(), topic="u", target_topic="u", watermark=None)
    seen = world([Log("rr").view(), unknown], [position(1)], source_reachable=True)
    (obstacle,) = [each for each in a_plan(seen, mode=Mode.PLANNED).obstacles if "no mirror runs" in each.what]
    assert obstacle.what.startswith("an unknown number of records are not on dr")


@pytest.mark.parametrize(("through", "said"), [(3, "1 record is not on dr"), (2, "2 records are not on dr")])
def test_a_planned_move_says_how_many_records_wait_for_a_mirror(through, said):
    seen = world([Log("rrrr", through=through).view()], [position(1)], source_reachable=True)
    (obstacle,) = [each for each in a_plan(seen, mode=Mode.PLANNED).obstacles if "no mirror runs" in each.what]
    assert obstacle.what == f"{said} and no mirror runs"


HALTED = Problem("retention_gap", "t", 0, "records are gone", "re-seed it", halted=True, since=AT)


@pytest.mark.parametrize(
    ("mirror", "problems", "why"),
    [
        (None, (), "no mirror runs"),
        (None, (HALTED,), "the mirror has halted on t: records are gone"),
        ("worker", (HALTED,), "the mirror has halted on t: records are gone"),
        ("worker", (replace(HALTED, halted=False),), None),
        ("worker", (), None),
    ],
)
def test_a_backlog_of_a_source_that_answers_is_waited_for_only_with_a_mirror_that_works(mirror, problems, why):
    seen = replace(a_world(source_reachable=True, mirror=mirror), problems=problems)
    plan = a_plan(seen, catch_up=True)
    assert plan.catch_up
    found = waived(plan, ACCEPT_LOSS)
    assert len(found) == (why is not None)
    for obstacle in found:
        assert obstacle.what == f"2 records of primary would be lost although it answers: not on dr yet, and {why}"
        assert "or give --accept-loss 2, or --unplanned" in obstacle.remedy


def test_a_backlog_that_is_not_known_needs_the_word():
    unknown = replace(Log("rr").view(), topic="u", target_topic="u", watermark=None)
    seen = world([Log("rr").view(), unknown], [position(1)], source_reachable=True)
    (obstacle,) = waived(a_plan(seen, catch_up=True), ACCEPT_LOSS)
    assert obstacle.what.startswith("an unknown number of records of primary would be lost")
    assert "--accept-loss unknown" in obstacle.remedy
    assert waived(a_plan(seen, catch_up=True, accept_loss=10**9), ACCEPT_LOSS)
    assert waived(a_plan(seen, catch_up=True, accept_loss="unknown"), ACCEPT_LOSS) == []


def test_what_may_be_lost():
    assert [within(lag, 2) for lag in (None, 0, 2, 3)] == [False, True, True, False]
    assert [within(lag, None) for lag in (None, 0, 1)] == [False, True, False]
    assert all(within(lag, "unknown") for lag in (None, 0, 10**9))


@pytest.mark.parametrize(
    ("reachable", "mode", "catch_up", "waits"),
    [
        (True, Mode.UNPLANNED, True, True),
        (False, Mode.UNPLANNED, True, False),
        (True, Mode.PLANNED, False, False),
    ],
)
def test_only_an_unplanned_move_from_a_source_that_answers_is_waited_for(reachable, mode, catch_up, waits):
    seen = a_world(source_reachable=reachable, mirror="worker")
    plan = a_plan(seen, mode=mode, catch_up=True)
    assert (plan.catch_up, plan.waits) == (catch_up, waits)
    assert not a_plan(seen, mode=mode).catch_up


def test_a_source_that_is_silent_now_is_waited_for_if_it_answers_when_it_is_fenced():
    fence = failover_stages(a_plan(a_world(source_reachable=False, mirror="worker"), catch_up=True))[0]
    assert "if it answers by then, wait at most 60 s" in fence.explain()


def test_who_is_over_a_budget_is_told_to_wait_where_the_source_answers():
    tight = {"budgets": (LossBudget((".*",), 0, None),)}
    assert not waived(a_plan(given=tight), ACCEPT_LOSS)[0].remedy.startswith("primary answers")
    there = a_plan(a_world(source_reachable=True), given=tight)
    assert waived(there, ACCEPT_LOSS)[0].remedy.startswith("primary answers: without --unplanned")


def test_several_active_groups_and_only_those_that_are_to_move():
    seen = world(
        [Log("rrrr").view()], [position(1, group=g) for g in ("a", "b", "c")], members={"a": 1, "b": 3, "c": 0}
    )
    (obstacle,) = [each for each in a_plan(seen).obstacles if "active on dr" in each.what]
    assert obstacle.what == "a, b are active on dr"
    only = a_plan(seen, selection=Selection(groups=("c",)))
    assert [each for each in only.obstacles if "active on dr" in each.what] == []


def test_a_rewind_names_each_group_once():
    views = [replace(Log("rrrrrr").view(), partition=p) for p in (0, 1)]
    groups = [position(2, partition=0), position(2, partition=1), position(2, group="audit")]
    committed = {(g, TopicPartition("t", p)): 4 for g, p in (("billing", 0), ("billing", 1), ("audit", 0))}
    (obstacle,) = waived(a_plan(world(views, groups, committed=committed)), ALLOW_REWIND)
    assert obstacle.what.startswith("3 existing positions on dr would be moved back (audit, billing), e.g. ")


def test_a_source_that_answers_and_can_t_be_fenced_says_why():
    there = a_plan(a_world(source_reachable=True), given={"fence": (FenceMethod.NONE, "no authorizer")})
    (obstacle,) = waived(there, ACCEPT_UNFENCED)
    assert "it answers, and drkit can't deny its writes (no authorizer)" in obstacle.what
    assert (there.fence, there.fence_reason) == (FenceMethod.NONE, "no authorizer")
    method = next(each for each in FenceMethod if each is not FenceMethod.NONE)
    fenced = a_plan(a_world(source_reachable=True), given={"fence": (method, "")})
    assert waived(fenced, ACCEPT_UNFENCED) == []
    assert (fenced.fence, fenced.digest == there.digest) == (method, False)


# -- what is frozen --------------------------------------------------------------------------------


def test_a_plan_keeps_on_what_it_was_made():
    seen = a_world(direction=Direction.PAUSED)
    plan = a_plan(seen)
    assert (plan.control, plan.control_version, plan.control_run) == ("paused", 3, "01JTHEOTHERRUN000000000000")
    never = a_plan()
    assert (never.control, never.control_version, never.control_run) == ("active", None, None)
    assert (plan.made_at, plan.endpoint, plan.link) == (AT, "127.0.0.1:1", LinkId("primary", "dr"))


def test_stages_know_what_was_decided_before_them():
    fresh = failover_stages(a_plan(a_world(source_reachable=True, mirror="worker"), catch_up=True))
    again = failover_stages(
        a_plan(a_world(source_reachable=True, mirror="worker", direction=Direction.SEALED), catch_up=True)
    )
    assert (fresh[0].catch_up, again[0].catch_up) == (True, False)
    assert (fresh[0].already_sealed, again[0].already_sealed) == (None, "01JTHEOTHERRUN000000000000")
    paused = failover_stages(a_plan(a_world(direction=Direction.PAUSED)))
    assert paused[0].already_sealed is None


def test_groups_and_positions_are_counted_apart():
    views = [replace(Log("rrrrrr").view(), partition=p) for p in (0, 1)]
    groups = [position(2, partition=0), position(2, partition=1), position(2, group="audit")]
    plan = a_plan(world(views, groups))
    explained = next(each.explanation for each in plan.stages if each.name == "commit")
    assert "3 positions" in explained
    assert "2 groups" in explained


# -- the snapshot ----------------------------------------------------------------------------------


def test_what_an_open_transaction_holds_back_counts_as_missing():
    view = replace(Log("rrrr").view(), source_start=0, source_end=4, source_high=6)
    assert (view.held, view.lag) == (2, 2)
    assert replace(view, source_high=4).held == 0
    assert replace(view, source_high=3).held == 0
    assert replace(view, source_high=None).held == 0
    assert replace(view, source_end=None, source_high=9).held == 0


def test_what_is_behind_a_transaction_is_as_old_as_its_first_sight_also_once_the_source_is_gone():
    mark = replace(Log("rrrr").watermark(), waiting=WaitingRecords(6, AT - timedelta(minutes=10)))
    gone = replace(Log("rrrr").view(), watermark=mark)
    assert (gone.held, gone.lag, gone.missing.mirrored_through) == (2, 2, 4)
    loss = loss_at([gone], AT + timedelta(minutes=1))
    assert (loss.records, loss.seconds, loss.lower_bound, loss.upper_bound) == (2, 660.0, True, True)
    assert "2 offsets of them stand behind open transactions" in (loss.reason or "")
    live = replace(gone, source_start=0, source_end=4, source_high=6)
    assert (loss_at([live], AT).records, loss_at([live], AT).seconds) == (2, 600.0)
    over = replace(live, source_end=6)
    assert loss_at([over], AT).seconds == 600.0, "it is committed, and isn't copied yet"


def test_of_what_was_open_when_no_mirror_looked_the_reason_says_what_the_age_rests_on():
    view = replace(Log("rrrr").view(), source_start=0, source_end=4, source_high=6)
    mark = Log("rrrr").watermark()
    unseen = loss_at([replace(view, watermark=replace(mark, waiting=WaitingRecords(6, None, True)))], AT)
    assert (unseen.records, unseen.seconds) == (2, None)
    assert "since when records of t:0 wait behind a transaction isn't known" in (unseen.reason or "")
    at_most = replace(mark, waiting=WaitingRecords(6, AT - timedelta(hours=1), True))
    bounded = loss_at([replace(view, watermark=at_most)], AT)
    assert bounded.seconds == 3600.0
    assert "the age of what waits in t:0 is the most that it can be" in (bounded.reason or "")


def test_up_to_where_all_is_on_the_target():
    view = Log("rrrrrr", through=4).view()
    assert view.through == 4
    assert replace(view, watermark=None).through is None
    assert replace(view, recreated=True).through is None
    assert replace(view, target_end=5).through is None


def test_a_lag_that_is_not_known_of_one_partition_is_not_known():
    known = Log("rrrrrr", through=4).view()
    assert known.lag == 2
    assert replace(Log("rr").view(), watermark=None).lag is None


def test_names_of_a_partition_on_either_side():
    view = replace(Log("rr").view(), target_topic="primary.t", partition=3)
    assert (view.tp, view.target_tp) == (TopicPartition("t", 3), TopicPartition("primary.t", 3))
    assert view.on_target
    assert not replace(view, target_end=None).on_target


def test_a_target_that_is_gone_and_one_that_lets_nobody_in_are_told_apart():
    gone = ClusterView("dr", reachable=False, reason="timeout").refusal()
    assert (gone.what, gone.meaning) == ("dr does not answer: timeout", "There is nothing to fail over to")


# -- names -----------------------------------------------------------------------------------------


def test_known_names_are_listed_up_to_a_screenful():
    groups = [position(1, group=f"g{n:02}") for n in range(22)]
    with pytest.raises(ConfigError) as many:
        a_plan(world([Log("rr").view()], groups), selection=Selection(groups=("nope",)))
    assert many.value.remedy.endswith("g18, g19 and 2 more")
    with pytest.raises(ConfigError) as few:
        a_plan(world([Log("rr").view()], groups[:20]), selection=Selection(groups=("nope",)))
    assert few.value.remedy.endswith("g18, g19")
    with pytest.raises(ConfigError) as none:
        a_plan(world([Log("rr").view()], []), selection=Selection(groups=("nope",)))
    assert none.value.remedy == "Known groups: none"


def test_all_unknown_names_are_told_to_who_asks_several_links():
    seen = replace(a_world(), unmovable=(UnmovableGroup("shared", "share", {}, AT),))
    chosen = Selection(groups=("nope", "billing", "shared"), topics=(TopicSelector("t"), TopicSelector("no")))
    with pytest.raises(ConfigError, match="no group nope is known") as caught:
        a_plan(seen, selection=chosen)
    assert (caught.value.groups, caught.value.topics) == ({"nope"}, {"no"})
    only = replace(chosen, groups=("billing",))
    with pytest.raises(ConfigError, match="carries no topic no") as caught:
        a_plan(seen, selection=only)
    assert (caught.value.groups, caught.value.topics) == (set(), {"no"})


def test_partitions_that_are_not_there_are_all_named_with_those_that_are():
    views = [replace(Log("rr").view(), partition=p) for p in (1, 0)]
    views.append(replace(Log("rr").view(), topic="u", target_topic="u", partition=7))
    with pytest.raises(ConfigError) as caught:
        a_plan(world(views, [position(1)]), selection=Selection(topics=(TopicSelector("t", (0, 7, 9)),)))
    assert caught.value.what == "topic t has no partition 7, 9"
    assert caught.value.remedy == "Known partitions: 0, 1"


# -- the link --------------------------------------------------------------------------------------


@pytest.fixture
def estate():
    links = [("east", "dr"), ("west", "dr"), ("primary", "standby")]
    aliases = sorted({alias for pair in links for alias in pair})
    config = Config.model_validate(
        {
            "clusters": {alias: {"bootstrap_servers": f" {alias}1:1 ,{alias}2:2"} for alias in aliases},
            "store": {"url": "sqlite:///:memory:"},
            "links": [{"source": source, "target": target, "topics": [f"{source}.*"]} for source, target in links],
        }
    )
    store = open_store("sqlite:///:memory:")
    with ClusterContext(config, store) as context:
        yield context
    store.close()


def test_a_link_is_found_by_where_it_leads(estate):
    assert find_link(estate, PlanRequest("standby")).id == LinkId("primary", "standby")
    west = estate.link(LinkId("west", "dr"))
    assert find_link(estate, PlanRequest("dr", link=west)) == west


def test_which_of_several_links_is_meant_has_to_be_said(estate):
    with pytest.raises(ConfigError, match="several links lead to dr: east->dr, west->dr") as caught:
        find_link(estate, PlanRequest("dr"))
    assert "--link 'east->dr'; drkit failover --to dr --link 'west->dr'" in caught.value.remedy


def test_where_no_link_leads_nothing_can_move(estate):
    with pytest.raises(Refused, match="no link leads to primary") as caught:
        find_link(estate, PlanRequest("primary"))
    assert "east->dr, west->dr, primary->standby" in caught.value.remedy
    assert "drkit failback --to primary" in caught.value.remedy
    with pytest.raises(Refused, match="no link leads to standby") as caught:
        find_link(estate, PlanRequest("standby", link=estate.link(LinkId("west", "dr"))))
    assert "failback" not in caught.value.remedy
    with pytest.raises(ConfigError, match="no cluster 'nowhere' is configured") as caught:
        find_link(estate, PlanRequest("nowhere"))
    assert caught.value.remedy == "Known: dr, east, primary, standby, west"


def test_what_a_run_acts_on(estate):
    assert estate.endpoint("dr") == "dr1:1,dr2:2"
    with pytest.raises(ConfigError, match="no link a->b is configured"):
        estate.link(LinkId("a", "b"))
    estate.approval = "somebody's"
    other = estate.another()
    assert (other.approval, other.config, other.store) == ("somebody's", estate.config, estate.store)
    assert other.timeout_seconds == estate.timeout_seconds
    other.close()


# -- a target without what was mirrored ------------------------------------------------------------


def gone(topic="t", **changes):
    reason = f"{topic} on dr was deleted"
    problem = Problem("target_recreated", topic, None, reason, "Find out who did it", halted=True, since=AT)
    view = replace(Log("rrrr").view(), topic=topic, target_topic=topic, problems=(problem,), doubts=Doubts(gone=True))
    return replace(view, **{"target_start": None, "target_end": None, **changes})


def nothing_there(plan):
    return [each for each in plan.obstacles if each.what.startswith("dr has nothing of what")]


def test_a_target_that_has_nothing_of_what_groups_read_is_refused_unless_the_loss_is_accepted():
    seen = world([gone(), gone("u")], [position(1), position(2, topic="u", group="audit")])
    plan = a_plan(seen)
    (obstacle,) = nothing_there(plan)
    assert obstacle.what == "dr has nothing of what audit, billing read: t, u are not there as mirrored"
    assert obstacle.remedy.startswith("Find out who did it; or give --accept-loss unknown")
    assert (obstacle.waived_by, obstacle.loss) == (ACCEPT_LOSS, "unknown")
    assert plan.placed == ()
    assert nothing_there(a_plan(seen, accept_loss=8)) == [obstacle], "more may have come since: 8 isn't known"
    assert nothing_there(a_plan(seen, accept_loss="unknown")) == []


def test_a_topic_of_the_same_name_is_not_what_was_mirrored():
    (obstacle,) = nothing_there(a_plan(world([gone(target_start=0, target_end=9)], [position(1)])))
    assert "t is not there as mirrored" in obstacle.what


def test_without_groups_all_that_was_mirrored_counts():
    (obstacle,) = nothing_there(a_plan(world([gone()], [])))
    assert obstacle.what.startswith("dr has nothing of what was mirrored: t")
    assert nothing_there(a_plan(world([gone(), replace(Log("rr").view(), topic="u", target_topic="u")], []))) == []


def test_what_groups_read_counts_and_one_topic_of_it_is_enough():
    there = replace(Log("rr").view(), topic="u", target_topic="u")
    assert nothing_there(a_plan(world([gone(), there], [position(1)]))), "nobody reads u"
    assert nothing_there(a_plan(world([gone(), there], [position(1), position(1, topic="u")]))) == []


def test_another_cluster_than_the_one_that_was_mirrored_to_is_refused_whatever_is_accepted():
    reason, remedy = "dr is another cluster than the one that was mirrored to: its id is new, was old", "Correct it"
    replaced = Problem("target_replaced", "*", None, reason, remedy, halted=True, since=AT)
    mine = replace(replaced, kind="target_recreated", topic="t")
    seen = replace(world([gone(problems=(mine,))], [position(1)]), problems=(replaced, mine))
    plan = a_plan(seen, accept_loss="unknown")
    assert (plan.obstacles[0].what, plan.obstacles[0].remedy) == (reason, remedy)
    assert plan.obstacles[0].waived_by is None
    assert said(plan, "is another cluster") == [], "said once, by the obstacle"
