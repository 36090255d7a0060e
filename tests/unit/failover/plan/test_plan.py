import json
from dataclasses import replace
from datetime import timedelta

import pytest

from drkit.config import Objectives
from drkit.failover.context.evidence import evidence_of, missed_objectives, unproven_objectives
from drkit.failover.context.state_machine import PATHS, Facts, Kind, Loss, Mode
from drkit.failover.plan.failover_plan import plan_from_json, plan_json, read_plan, what_moved, write_plan
from drkit.failover.plan.loss import loss_at
from drkit.failover.planning.failover_planner import PlanRequest, failover_stages, plan_for
from drkit.failover.positions.positions import choose_positions
from drkit.failover.snapshot.selection import Selection
from drkit.failover.stages.failover_stages import Translate
from drkit.failover.stages.fence_stages import _drained
from drkit.lag.partition_lag import Doubts
from drkit.mapping.translate import RowDoubts
from drkit.model.errors import ConfigError, Refused
from drkit.model.link_state import Direction, Problem
from drkit.model.offsets import Certainty
from drkit.model.runs import ACCEPT_LOSS, ACCEPT_UNFENCED, ALLOW_REWIND
from drkit.model.topology import TopicPartition
from tests.unit.failover.plan.worlds import AT, LINK, Log, moment, position, world

TP = TopicPartition("t", 0)


def a_world(log=None, offset=3, **options):
    return world([(log or Log("rrrrrr", through=4)).view()], [position(offset)], **options)


def a_plan(seen=None, **asked):
    return plan_for(seen or a_world(), PlanRequest("dr", **asked), endpoint="127.0.0.1:1")


def hard(plan):
    """Obstacles that no flag waives."""
    return [obstacle for obstacle in plan.obstacles if obstacle.waived_by is None]


LIFT = "drkit fence --lift --cluster primary --yes --link 'primary->dr'"


def test_a_plan_says_that_no_failback_goes_back_along_a_link_that_alters_records():
    """The list of warnings was empty, and the failback refused."""
    altering = replace(LINK, filter="m:f")
    (told,) = [each for each in a_plan(a_world(link=altering)).warnings if "failback" in each]
    assert told.startswith("no failback goes back along primary->dr, which alters records")
    assert LIFT in told
    assert not [each for each in a_plan().warnings if "failback" in each]


def test_what_the_copy_does_not_prove_is_a_warning_kept_with_the_plan_and_a_change_of_it():
    doubts = RowDoubts(single={"t:0": "whether the store is older isn't known"})
    seen = a_world(Log("rrhrrr"), offset=4)
    views = {tp: replace(view, rows_in_doubt=doubts.of(tp)) for tp, view in seen.partitions.items()}
    plan = a_plan(replace(seen, partitions=views, rows_in_doubt=doubts))
    assert "t:0: whether the store is older isn't known" in plan.warnings
    assert [each.skipped for each in plan.placed] == [0]
    (kept,) = [stage for stage in failover_stages(plan_from_json(plan_json(plan))) if isinstance(stage, Translate)]
    assert kept.rows_in_doubt == doubts
    (moved,) = what_moved(a_plan(seen), plan)
    assert moved == "billing on t:0 would now go to 2, not 3"


def test_once_such_a_link_was_failed_over_no_obstacle_names_a_failback():
    for mode in Mode:
        for link in (LINK, replace(LINK, filter="m:f")):
            seen = a_world(link=link, direction=Direction.SEALED, source_reachable=True)
            remedies = [each.remedy for each in a_plan(with_a_backlog(seen), mode=mode).obstacles]
            assert any("drkit failback --to primary" in each for each in remedies) is not link.alters
            assert any(LIFT in each for each in remedies) is link.alters


def with_a_backlog(seen):
    """The same, with records on the source that the target lacks."""
    log = Log("rrrrrr", through=4)
    return replace(seen, partitions={tp: replace(v, source_end=log.source_end) for tp, v in seen.partitions.items()})


def without_coordinators(**options):
    """A source whose log answers, its group coordinators don't."""
    seen = a_world(source_reachable=True, positions_live=False, **options)
    log = Log("rrrrrr", through=4)
    views = {tp: replace(view, source_end=log.source_end) for tp, view in seen.partitions.items()}
    return replace(seen, partitions=views, unread_reason="part of the group coordinators is down")


def test_the_logs_of_a_source_without_coordinators_count():
    """They were taken for unknown: a loss of "0 or more", accepted, of a source that held more and answered."""
    waits = a_plan(without_coordinators(), catch_up=True)
    assert [o.what for o in waits.obstacles if o.waived_by == ACCEPT_LOSS] == [
        "2 records of primary would be lost although it answers: not on dr yet, and no mirror runs"
    ]
    unplanned = a_plan(without_coordinators())
    assert (unplanned.loss.records, unplanned.loss.lower_bound, hard(unplanned)) == (2, False, [])
    (found,) = unplanned.positions
    assert found.reread_at_most == 1
    assert "since its position was captured" in found.reason


def test_a_planned_move_needs_all_group_coordinators():
    (told,) = hard(a_plan(without_coordinators(mirror="a worker"), mode=Mode.PLANNED))
    assert told.what == "groups of primary can't all be read: part of the group coordinators is down"
    assert "--unplanned" in told.remedy


def with_a_silent_partition(**options):
    """A source that answers, but for one partition whose broker is dead."""
    log = Log("rrrrrr", through=4)
    lagging = replace(log.view(), source_start=0, source_end=log.source_end)
    silent = replace(Log("rrrr").view(), partition=1, silent="it has no leader: broker 2 is down")
    return world([lagging, silent], [position(3)], source_reachable=True, **options)


def test_no_planned_move_is_made_over_a_partition_without_a_leader():
    """A dry run accepted it; the run itself was then cancelled because a source that answers "did not answer"."""
    (told,) = hard(a_plan(with_a_silent_partition(mirror="a worker"), mode=Mode.PLANNED))
    assert told.what == "1 partition of primary can't be read: t:1 (it has no leader: broker 2 is down)"
    assert "Bring up the brokers of primary that lead t:1" in told.remedy
    assert "--unplanned" in told.remedy


def test_nor_does_a_move_wait_for_it_without_consent():
    waits = a_plan(with_a_silent_partition(mirror="a worker"), catch_up=True)
    (told,) = (each for each in waits.obstacles if each.waived_by == ACCEPT_LOSS)
    assert told.what.startswith("2 records or more of primary would be lost although it answers: ")
    assert "t:1 (it has no leader: broker 2 is down)" in told.what
    assert f"{ACCEPT_LOSS} unknown" in told.remedy
    for consent in ({"catch_up": True, "accept_loss": "unknown"}, {}):
        agreed = a_plan(with_a_silent_partition(mirror="a worker"), **consent)
        assert not [each for each in agreed.obstacles if each.waived_by != ACCEPT_UNFENCED]
        assert (agreed.loss.records, agreed.loss.lower_bound) == (2, True)
    few = a_plan(with_a_silent_partition(mirror="a worker"), catch_up=True, accept_loss=1_000)
    assert [each for each in few.obstacles if each.waived_by == ACCEPT_LOSS], "no number bounds what isn't known"


def with_an_open_question():
    """Both sides answer, and nobody can say whether the source was set back."""
    view = replace(Log("rrrr").view(), source_start=0, source_end=4)
    doubts = Doubts(unjudged="was it set back?", unsure="was it set back?")
    return world([replace(view, doubts=doubts)], [position(3)], source_reachable=True, mirror="a worker")


def test_no_move_takes_for_granted_that_both_sides_still_hold_what_was_mirrored():
    (told,) = hard(a_plan(with_an_open_question(), mode=Mode.PLANNED))
    assert told.what == "what is missing of 1 partition isn't known: was it set back?"
    assert "--unplanned" in told.remedy
    waits = a_plan(with_an_open_question(), catch_up=True)
    (told,) = (each for each in waits.obstacles if each.waived_by == ACCEPT_LOSS)
    assert told.what.startswith("0 records or more of primary would be lost although it answers: ")
    assert f"{ACCEPT_LOSS} unknown" in told.remedy
    agreed = a_plan(with_an_open_question(), catch_up=True, accept_loss="unknown")
    (placed,) = agreed.placed
    assert (placed.translation, placed.target_offset, placed.reason) == ("conservative", 3, "was it set back?")


def test_what_the_drain_leaves_behind_is_so_much_or_more_where_a_partition_is_silent():
    assert _drained(with_a_silent_partition(), 0) == "no mirror is running; 2 records or more not on dr"
    assert _drained(without_coordinators(), 0) == "no mirror is running; 2 records not on dr"


# -- the frozen plan -------------------------------------------------------------------------------


def test_the_same_world_gives_the_same_digest_whenever_it_is_looked_at():
    later = replace(a_world(), observed_at=AT + timedelta(minutes=5))
    assert a_plan().digest == a_plan(later).digest
    assert len(a_plan().digest) == 64


@pytest.mark.parametrize(
    "other",
    [
        a_plan(a_world(offset=2)),
        a_plan(mode=Mode.PLANNED),
        a_plan(selection=Selection(groups=("billing",))),
        a_plan(a_world(source_reachable=True)),
        a_plan(a_world(direction=Direction.PAUSED)),
        a_plan(at=moment(5)),
    ],
)
def test_another_decision_has_another_digest(other):
    assert other.digest != a_plan().digest
    assert what_moved(a_plan(), other)


def test_the_plan_shows_the_stages_that_the_runner_carries_out():
    plan = a_plan()
    stages = failover_stages(plan)
    assert [s.name for s in stages] == [s.name for s in plan.stages] == [s.stage for s in PATHS[Kind.FAILOVER]]
    assert [s.explain() for s in stages] == [s.explanation for s in plan.stages]


def test_a_plan_survives_its_file(tmp_path):
    plan = a_plan(at=moment(5), selection=Selection(groups=("billing",)))
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan
    assert plan_from_json(plan_json(plan)) == plan


def test_a_plan_that_was_edited_is_not_applied(tmp_path):
    file = tmp_path / "plan.json"
    write_plan(a_plan(), file)
    body = json.loads(file.read_text())
    body["plan"]["positions"][0]["target_offset"] = 0
    file.write_text(json.dumps(body))
    with pytest.raises(ConfigError, match="changed after it was written"):
        read_plan(file)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "drkit-failover-plan/1", "plan": {}}', "\0"])
def test_what_is_no_plan_is_refused(tmp_path, text):
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(ConfigError):
        read_plan(file)


def test_a_plan_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="can't be read"):
        read_plan(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="can't be written"):
        write_plan(a_plan(), tmp_path / "no" / "folder.json")


def test_what_moved_is_said_for_each_thing():
    before = a_plan(a_world(source_reachable=True))
    seen = world(
        [Log("rrrrrr", through=4).view()],
        [position(2), position(1, group="new")],
        direction=Direction.SEALED,
        source_reachable=False,
    )
    moved = " / ".join(what_moved(before, a_plan(seen)))
    assert "the source primary is now unreachable" in moved
    assert "was active and is sealed" in moved
    assert "billing on t:0 would now go to 2, not 3" in moved
    assert "new now has a position on t:0" in moved
    gone = what_moved(before, a_plan(world([Log("rr").view()], [], source_reachable=True)))
    assert any("billing has no position on t:0 any more" in sentence for sentence in gone)
    assert what_moved(before, before) == []


# -- what can't be planned -------------------------------------------------------------------------


def test_without_a_target_there_is_nothing_to_fail_over_to():
    with pytest.raises(Refused, match="dr does not answer"):
        a_plan(a_world(target_reachable=False))


def test_without_a_record_of_the_link_nothing_is_known():
    with pytest.raises(Refused, match="the store holds nothing about primary->dr") as caught:
        a_plan(world([], []))
    assert "drkit mirror" in caught.value.remedy


# -- preconditions ---------------------------------------------------------------------------------


def test_an_unfenced_primary_needs_the_flag_and_nothing_else_stands_in_the_way():
    plan = a_plan()
    assert [obstacle.waived_by for obstacle in plan.obstacles] == [ACCEPT_UNFENCED]
    assert "does not answer" in plan.obstacles[0].what
    assert "UNFENCED" in plan.obstacles[0].meaning


def test_a_group_that_is_active_on_the_target_is_refused_by_name():
    (obstacle,) = hard(a_plan(a_world(members={"billing": 2, "bystander": 1})))
    assert "billing is active on dr" in obstacle.what
    assert "bystander" not in obstacle.what
    assert "Stop these consumers" in obstacle.remedy


def test_a_rewind_is_refused_unless_told_so():
    seen = a_world(committed={("billing", TP): 4})
    rewind = [o for o in a_plan(seen).obstacles if o.waived_by == ALLOW_REWIND]
    assert "from 4 to 3" in rewind[0].what
    assert not [o for o in a_plan(seen, allow_rewind=True).obstacles if o.waived_by == ALLOW_REWIND]


@pytest.mark.parametrize("existing", [0, 3])
def test_an_existing_position_that_is_not_ahead_is_no_rewind(existing):
    seen = a_world(committed={("billing", TP): existing})
    assert not [o for o in a_plan(seen).obstacles if o.waived_by == ALLOW_REWIND]


def test_a_link_that_is_sealed_was_failed_over_already():
    (obstacle,) = hard(a_plan(a_world(direction=Direction.SEALED)))
    assert "failed over already by run 01JTHEOTHERRUN" in obstacle.what
    named = a_plan(a_world(direction=Direction.SEALED), selection=Selection(groups=("billing",)))
    assert hard(named) == []


def test_a_planned_move_over_a_link_that_is_sealed_is_refused_with_what_moves_the_groups():
    sealed = a_world(direction=Direction.SEALED, source_reachable=True)
    (obstacle, *_) = hard(a_plan(sealed, mode=Mode.PLANNED, selection=Selection(groups=("billing",))))
    assert obstacle.what == "the link primary->dr is sealed by run 01JTHEOTHERRUN000000000000"
    assert obstacle.remedy.endswith("drkit failover --to dr --link 'primary->dr' --group billing")


def test_a_link_that_is_turned_round_is_refused():
    (obstacle,) = hard(a_plan(a_world(direction=Direction.REVERSED)))
    assert "is reversed" in obstacle.what
    assert 'source = "dr" and target = "primary"' in obstacle.remedy, "a reprotect leaves it so"


def test_a_planned_move_needs_the_source():
    (obstacle,) = hard(a_plan(mode=Mode.PLANNED))
    assert "primary does not answer" in obstacle.what
    assert "--unplanned" in obstacle.remedy


def test_a_planned_move_that_lags_needs_a_mirror():
    assert "no mirror runs" in hard(a_plan(a_world(source_reachable=True), mode=Mode.PLANNED))[0].what
    running = a_world(source_reachable=True, mirror="worker-1")
    assert hard(a_plan(running, mode=Mode.PLANNED)) == []
    drained = a_world(Log("rrrr"), source_reachable=True)
    assert hard(a_plan(drained, mode=Mode.PLANNED)) == []


def test_a_halted_partition_never_drains():
    halted = Problem("retention_gap", "t", 0, "records are gone", "re-seed it", halted=True, since=AT)
    seen = replace(a_world(source_reachable=True, mirror="worker-1"), problems=(halted,))
    assert hard(a_plan(seen, mode=Mode.PLANNED))[0].remedy == "re-seed it"
    assert any("records are gone" in warning for warning in a_plan(seen).warnings)


def test_the_plan_warns_of_what_it_leaves_out():
    views = [Log("rr").view(), replace(Log("rr").view(), partition=1)]
    warnings = " / ".join(a_plan(world(views, [position(1)])).warnings)
    assert "billing never committed on t:1: its auto.offset.reset decides there" in warnings
    before = replace(world(views, [position(1)]), committed={("billing", TopicPartition("t", 1)): 300})
    warnings = " / ".join(a_plan(before).warnings)
    assert "auto.offset.reset" not in warnings
    assert "billing never committed on t:1 of primary, and dr has an offset of it from before: it begins" in warnings
    assert "--group billing --topic t:1 --reset-offsets --to-earliest --execute makes it read all" in warnings
    partial = " / ".join(a_plan(selection=Selection(groups=("billing",))).warnings)
    assert "only part of the groups and topics is moved" in partial


# -- loss and objectives ---------------------------------------------------------------------------


def test_the_expected_loss_is_what_was_seen_and_not_mirrored():
    loss = a_plan().loss
    assert (loss.records, loss.seconds, loss.observed_at) == (2, 4.0, AT)
    assert [(topic.topic, topic.records) for topic in loss.by_topic] == [("t", 2)]


def test_a_caught_up_link_loses_nothing():
    loss = a_plan(a_world(Log("rrrr"))).loss
    assert (loss.records, loss.seconds) == (0, 0.0)


def test_what_was_never_recorded_makes_the_loss_unknown_not_zero():
    unrecorded = replace(Log("rr").view(), topic="u", target_topic="u", watermark=None)
    loss = loss_at([Log("rrrr").view(), unrecorded], AT)
    assert (loss.records, loss.seconds) == (None, None)
    assert "u" in loss.reason
    assert loss_at([], AT).records is None


def test_where_the_clock_went_back_since_the_last_look_the_loss_has_no_known_age():
    """Nobody has looked at a source that is gone for who knows how long: that is no loss of 0.0 s."""
    loss = loss_at([Log("rrrr").view()], AT - timedelta(hours=1))
    assert (loss.records, loss.seconds, loss.lower_bound) == (0, None, True)
    assert "last looked at 3,600.0 s after the fence, by a clock that is ahead" in loss.reason


def test_a_live_source_counts_what_came_since_the_mirror_looked():
    view = replace(Log("rrrr").view(), source_start=0, source_end=9)
    loss = loss_at([view], AT + timedelta(seconds=7))
    assert (loss.records, loss.seconds) == (5, 7.0)  # it was caught up at AT: the oldest is no older than that
    assert loss.observed_at == AT + timedelta(seconds=7)


def test_a_source_topic_that_was_never_mirrored_is_lost_whole():
    view = replace(Log("rr").view(), watermark=None, source_start=10, source_end=15)
    loss = loss_at([view], AT)
    assert (loss.records, loss.seconds) == (5, None)


def of(view, **said):
    """A problem of the view's partition."""
    problem = Problem(said.pop("kind"), "t", 0, "why", "do this", halted=True, since=AT - timedelta(seconds=60))
    return replace(view, problems=(replace(problem, **said),))


@pytest.mark.parametrize("end", [None, 10])
def test_what_problems_name_as_missing_is_lost(end):
    """Whether the source answers, or is gone and only what is on record tells."""
    whole = replace(Log("r" * 10).view(), source_start=None if end is None else 0, source_end=end)
    cut = of(whole, kind="source_truncated", unsure_from=7)
    purged = of(whole, kind="target_purged", halted=False, unsure_from=0, unsure_until=4)
    lost = of(whole, kind="target_recreated")
    assert [loss_at([view], AT).records for view in (whole, cut, purged, lost)] == [0, 3, 4, 10]
    assert [loss_at([view], AT).seconds for view in (cut, purged)] == [60.0, 60.0]


def test_what_could_not_be_judged_makes_the_loss_a_lower_bound_for_good():
    view = replace(Log("r" * 10).view(), source_start=0, source_end=12, doubts=Doubts(unjudged="who purged it?"))
    loss = loss_at([view], AT)
    assert (loss.records, loss.lower_bound, loss.reason) == (2, True, "who purged it?")
    assert loss.unjudged == ("who purged it?",)


def test_a_partition_whose_lag_is_not_known_says_why():
    recovered = of(Log("r" * 10).view(), kind="store_recovered", unsure_from=4)
    assert loss_at([recovered], AT).records is None
    assert "t:0: the store was lost and recovered" in loss_at([recovered], AT).reason


def test_what_was_removed_from_the_target_stands_in_the_way_until_it_is_accepted():
    """No mirror brings it back: a planned move would lose it, and so would one that only waits for the backlog."""
    whole = replace(Log("r" * 10).view(), source_start=0, source_end=10)
    purged = of(whole, kind="target_purged", halted=False, unsure_from=0, unsure_until=4)
    seen = world([purged], [position(3)], source_reachable=True, mirror="a worker")
    (obstacle,) = [each for each in hard(a_plan(seen, mode=Mode.PLANNED)) if "no mirror brings back" in each.what]
    assert obstacle.remedy == "do this"
    waits = a_plan(seen, catch_up=True)
    (backlog,) = [each for each in waits.obstacles if each.waived_by == ACCEPT_LOSS]
    assert backlog.what.startswith("4 records of primary would be lost")
    assert not [e for e in a_plan(seen, catch_up=True, accept_loss=4).obstacles if e.waived_by == ACCEPT_LOSS]


def test_evidence_keeps_what_is_not_known_null():
    evidence = evidence_of(Facts(mode=Mode.UNPLANNED), AT)
    assert (evidence.rpo_records, evidence.rpo_seconds, evidence.rto_seconds, evidence.fenced) == (None,) * 4
    assert evidence.rpo_basis == "observed"


def test_objectives_are_judged_by_what_is_known():
    facts = Facts(mode=Mode.UNPLANNED, loss=Loss(2, 4.0, AT), verified_at=AT + timedelta(seconds=61), fenced=False)
    evidence = evidence_of(facts, AT)
    assert evidence.rto_seconds == 61.0
    missed = missed_objectives(evidence, Objectives(rpo_records=1, rpo_seconds=5, rto_seconds=60))
    assert missed == ["RPO 2 records, objective 1", "RTO 61.0 seconds, objective 60.0"]
    assert missed_objectives(evidence, Objectives()) == []
    unknown = evidence_of(Facts(mode=Mode.UNPLANNED), AT)
    assert missed_objectives(unknown, Objectives(rpo_records=0)) == []
    assert unproven_objectives(unknown, Objectives(rpo_records=0)) == [
        "RPO in records is not known: nothing was recorded"
    ]


def without_its_commit(read=(), **options):
    """A source that answers for all groups, and has no commit of `billing` any more; the store has one."""
    seen = a_world(Log("rrrrrr"), source_reachable=True, mirror="a worker", **options)
    return replace(seen, lacking=frozenset({("billing", TP)}), read_groups=frozenset(read))


def test_a_position_that_only_the_store_has_is_as_captured_and_no_planned_move_takes_it():
    """It was exact, with nothing read again: its group, deleted or lost on the source, counted as read there."""
    assert not without_its_commit().is_live("billing", TP)
    (found,) = a_plan(without_its_commit()).positions
    assert (found.translation, found.reread, found.reread_at_most) == (Certainty.CONSERVATIVE, None, 3)
    assert "primary has no commit of it there any more" in found.reason
    (told,) = hard(a_plan(without_its_commit(), mode=Mode.PLANNED))
    assert told.what == "primary has no committed offset any more of billing: deleted, expired or lost there"
    assert "--unplanned" in told.remedy
    assert "drkit mirror" in told.remedy


def test_a_group_that_lacks_one_offset_moves_and_the_plan_says_so():
    plan = a_plan(without_its_commit(read=["billing"]), mode=Mode.PLANNED)
    assert hard(plan) == []
    assert plan.positions[0].translation is Certainty.CONSERVATIVE
    assert [each for each in plan.warnings if "lacks committed offsets of billing" in each]


def test_a_source_that_did_not_answer_for_its_groups_lacks_none_of_their_commits():
    unread = replace(without_its_commit(), positions_live=False, unread_reason="primary did not answer in time")
    plan = a_plan(unread)
    assert plan.positions[0].translation is not Certainty.UNAVAILABLE
    assert not [each for each in plan.warnings if "lacks committed offsets" in each]


def test_behind_the_fence_such_a_position_is_as_captured_too():
    (found,) = choose_positions(without_its_commit(), Selection(), None, final=True)
    assert (found.translation, found.reread_at_most) == (Certainty.CONSERVATIVE, 3)
