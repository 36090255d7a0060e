"""What a run would lose and did lose, how long it took, and what that is held to; its way back, and given up."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from drkit.config import Objectives
from drkit.failover.context.evidence import evidence_of, expected_evidence, missed_objectives, unproven_objectives
from drkit.failover.context.state_machine import (
    PATHS,
    Facts,
    InvariantBroken,
    Kind,
    Loss,
    Mode,
    PlacesSeen,
    Run,
    StageOutcome,
    State,
    TopicLoss,
    abandon,
    advance,
    back_before_fence,
    before_fence,
    next_step,
)
from drkit.failover.plan.loss import loss_at
from drkit.lag.partition_lag import Doubts
from drkit.model.errors import DrkitError
from drkit.model.link_state import SOURCE_TOPIC_DELETED, Problem
from tests.unit.failover.plan.worlds import AT, Log

LATER = AT + timedelta(seconds=9)


def live(log, **more):
    """A partition whose source answers with what it held when the mirror looked."""
    return replace(Log(log).view(), **({"source_start": 0, "source_end": len(log)} | more))


def parted(view, kept):
    """The view's source lost what it had from there on, a while before a mirror last looked at it."""
    since = AT - timedelta(seconds=60)
    return replace(
        view, problems=(Problem("source_truncated", "t", 0, "parted", "", halted=True, since=since, unsure_from=kept),)
    )


def unrecorded(topic="u", **more):
    return replace(Log("rr").view(), topic=topic, target_topic=topic, watermark=None, **more)


def test_a_source_that_lost_its_tail_and_is_gone_may_hold_more_or_less_than_was_seen():
    """So far as it had grown again; and it doesn't count as lost what it had lost itself."""
    seen = replace(Log("r" * 10).view(), watermark=replace(Log("r" * 10).watermark(), source_end=8))
    found = loss_at([parted(seen, 5)], LATER)
    assert (found.records, found.lower_bound, found.upper_bound) == (3, True, True)
    assert "both sides hold other records of t: what the source held beyond may be gone" in found.reason
    least = loss_at([parted(seen, 8)], LATER)
    assert (least.records, least.lower_bound, least.upper_bound) == (0, True, False), "no less than nothing is missing"
    answers = loss_at([replace(parted(seen, 5), source_start=0, source_end=8)], LATER)
    assert (answers.records, answers.lower_bound, answers.upper_bound) == (3, False, False)


# -- loss ------------------------------------------------------------------------------------------


def test_a_loss_is_told_topic_by_topic_in_order_over_their_partitions():
    views = [
        live("rrrr", topic="b", target_topic="b", source_end=9),
        live("rrrr", topic="a", target_topic="a", source_end=5),
        live("rrrr", topic="a", target_topic="a", partition=1, source_end=6),
        live("rrrr", topic="c", target_topic="c"),
    ]
    found = loss_at(views, LATER)
    assert found.by_topic == (TopicLoss("a", 3, 9.0), TopicLoss("b", 5, 9.0), TopicLoss("c", 0, 0.0))
    assert (found.records, found.seconds, found.lower_bound, found.reason) == (8, 9.0, False, None)
    assert (found.observed_at, found.unjudged, found.basis) == (LATER, (), "observed")


def test_what_a_source_that_is_gone_got_since_it_was_looked_at_is_not_counted():
    gone = Log("rrrrrr", through=4).view()
    other = replace(Log("rrrr").view(), partition=1)
    other = replace(other, watermark=replace(other.watermark, observed_at=AT - timedelta(seconds=3)))
    found = loss_at([gone, other, live("rr", topic="l", target_topic="l")], LATER)
    assert found.lower_bound
    assert found.observed_at == AT - timedelta(seconds=3)
    assert found.reason == (
        "the source does not answer for 2 partitions, last looked at 12.0 s before: what came since isn't counted"
    )
    assert found.by_topic == (TopicLoss("l", 0, 0.0), TopicLoss("t", 2, 13.0))


def test_why_a_partition_of_a_source_that_answers_is_silent_is_told():
    silent = replace(Log("rrrr").view(), partition=1, silent="it has no leader: broker 2 is down")
    assert loss_at([live("rrrr"), silent], LATER).reason == (
        "the source does not answer for 1 partition (t:1: it has no leader: broker 2 is down), last looked at 9.0 s "
        "before: what came since isn't counted"
    )


def test_a_topic_that_the_source_has_deleted_is_not_silence():
    deleted = Problem(SOURCE_TOPIC_DELETED, "t", None, "it was deleted", "", halted=False, since=AT)
    found = loss_at([replace(Log("rrrr").view(), problems=(deleted,)), live("rr", topic="l", target_topic="l")], LATER)
    assert (found.records, found.lower_bound) == (0, True)
    assert found.reason == "the source has deleted t, last looked at 9.0 s before: what came there since isn't counted"


def test_a_caught_up_partition_of_a_source_that_is_gone_may_have_lost_what_came_since():
    found = loss_at([Log("rrrr").view()], LATER)
    assert (found.records, found.seconds, found.lower_bound) == (0, 9.0, True)


def test_one_that_was_never_looked_at_says_so():
    found = loss_at([unrecorded(source_start=0, source_end=None, problems=())], LATER)
    assert (found.records, found.seconds, found.observed_at) == (None, None, None)
    assert found.reason.startswith("how much is missing isn't known of u:0")


@pytest.mark.parametrize(("held", "count"), [(1, "1 offset of them stands"), (2, "2 offsets of them stand")])
def test_what_open_transactions_hold_back_counts_and_is_said(held, count):
    found = loss_at([live("rrrr", source_high=4 + held)], LATER)
    assert (found.records, found.lower_bound) == (held, False)
    assert found.reason == f"{count} behind open transactions on the source: what these abort is no loss"
    both = loss_at([live("rrrr", source_high=4 + held), replace(Log("rr").view(), partition=1)], LATER)
    assert both.reason.startswith("the source does not answer for 1 partition, last looked at 9.0 s before: ")
    assert both.reason.endswith(f"; {found.reason}")


def test_what_could_not_be_judged_is_a_lower_bound_among_what_was():
    doubtful = live("rrrr", source_end=6, doubts=Doubts(unjudged="who purged it?"))
    found = loss_at([doubtful, live("rr", partition=1, source_end=3)], LATER)
    assert (found.records, found.lower_bound, found.unjudged) == (3, True, ("who purged it?",))


@pytest.mark.parametrize(
    ("former", "upper"), [((), False), (((0, 4),), False), (((0, 5),), True), (((0, 2), (6, 9)), False)]
)
def test_what_the_target_may_have_from_before_its_topic_was_accepted_makes_it_an_upper_bound(former, upper):
    found = loss_at([live("rrrr", source_end=6, former=former)], LATER)
    assert (found.records, found.lower_bound, found.upper_bound) == (2, False, upper)
    said = (
        "t was accepted as a new topic and is not all mirrored since: what the target has from before is counted, too"
    )
    assert found.reason == (said if upper else None)
    assert not loss_at([live("rrrr", former=former)], LATER).upper_bound, "nothing is missing"


def test_what_is_counted_in_full_is_an_upper_bound_with_the_reason():
    cut = Problem("foreign_writer", "t", 0, "somebody wrote there", "Look", halted=True, since=AT, unsure_from=0)
    found = loss_at([live("rrrr", problems=(cut,))], LATER)
    assert (found.records, found.lower_bound, found.upper_bound, found.unjudged) == (4, False, True, ())
    assert found.reason == "all that the source holds counts: somebody wrote there"


def test_what_no_mirror_has_recorded_has_no_age_and_a_reason():
    found = loss_at([live("rrrr"), unrecorded("u", source_start=0, source_end=2)], LATER)
    assert (found.records, found.seconds, found.lower_bound) == (2, None, False)
    assert found.reason == "since when u waits isn't known: no mirror has recorded anything about it yet"


def test_where_it_is_unknown_of_some_all_is_unknown_and_the_first_says_why():
    found = loss_at([live("rrrr"), unrecorded("u"), unrecorded("v")], LATER)
    assert (found.records, found.seconds) == (None, None)
    assert found.by_topic[1:] == (TopicLoss("u", None, None), TopicLoss("v", None, None))
    assert found.reason.startswith("how much is missing isn't known of u:0, v:0: ")


def test_a_link_without_partitions_has_lost_nobody_knows_what():
    found = loss_at([], LATER)
    assert (found.records, found.seconds, found.observed_at, found.by_topic) == (None, None, None, ())
    assert (found.reason, found.lower_bound) == ("the link has no partitions yet", False)


def test_an_age_is_the_oldest_of_what_is_known_and_never_negative():
    behind = Log("rrrrrr", through=4).view()  # behind since four seconds before it was looked at
    assert loss_at([behind], LATER).seconds == 13.0
    assert loss_at([replace(behind, source_start=0, source_end=6)], LATER).seconds == 13.0
    early = AT - timedelta(seconds=60)  # by a clock that was set back since
    assert loss_at([replace(behind, source_start=0, source_end=6)], early).seconds == 0.0
    assert loss_at([behind], early).seconds is None


# -- evidence and objectives -----------------------------------------------------------------------

KNOWN = Loss(2, 4.0, AT, reason="why")


def test_the_evidence_of_a_run_is_its_loss_and_its_time():
    facts = Facts(
        Mode.UNPLANNED, loss=replace(KNOWN, basis="audited", lower_bound=True), fenced=True, verified_at=LATER
    )
    found = evidence_of(facts, AT)
    assert (found.rpo_records, found.rpo_seconds, found.rpo_basis) == (2, 4.0, "audited")
    assert (found.rto_seconds, found.fenced, found.observed_at) == (9.0, True, AT)
    assert (found.rpo_lower_bound, found.rpo_reason) == (True, "why")


@pytest.mark.parametrize(
    ("verified", "since", "seconds"),
    [(LATER, AT, 9.0), (AT, AT, 0.0), (AT, LATER, None), (None, AT, None), (LATER, None, None)],
)
def test_a_time_is_known_where_it_began_and_ended_and_no_clock_went_back(verified, since, seconds):
    assert evidence_of(Facts(Mode.UNPLANNED, verified_at=verified), since).rto_seconds == seconds


def test_what_is_expected_has_no_time_and_no_fence_yet():
    found = expected_evidence(KNOWN)
    assert (found.rpo_records, found.rto_seconds, found.fenced) == (2, None, None)
    assert expected_evidence(None).rpo_basis == "observed"
    assert not expected_evidence(None).rpo_lower_bound


@pytest.mark.parametrize(
    ("objectives", "missed"),
    [
        ({"rpo_records": 2, "rpo_seconds": 4, "rto_seconds": 9}, []),
        ({"rpo_records": 1}, ["RPO 2 records, objective 1"]),
        ({"rpo_seconds": 3.9}, ["RPO 4.0 seconds, objective 3.9"]),
        ({"rto_seconds": 8}, ["RTO 9.0 seconds, objective 8.0"]),
        ({"rpo_records": 0, "rto_seconds": 0}, ["RPO 2 records, objective 0", "RTO 9.0 seconds, objective 0.0"]),
    ],
)
def test_an_objective_is_missed_beyond_its_limit(objectives, missed):
    evidence = evidence_of(Facts(Mode.UNPLANNED, loss=KNOWN, verified_at=LATER), AT)
    assert missed_objectives(evidence, Objectives(**objectives)) == missed
    assert unproven_objectives(evidence, Objectives(**objectives)) == []


def test_thousands_are_told_apart():
    evidence = expected_evidence(Loss(12_345, 0.0, AT))
    assert missed_objectives(evidence, Objectives(rpo_records=1_000)) == ["RPO 12,345 records, objective 1,000"]


ALL = Objectives(rpo_records=2, rpo_seconds=5, rto_seconds=60)


def test_what_is_not_known_is_not_met():
    unknown = expected_evidence(Loss(None, None, None, reason="no mapping"))
    assert unproven_objectives(unknown, ALL) == [
        "RPO in records is not known: no mapping",
        "RPO in seconds is not known: no mapping",
        "RTO in seconds is not known",
    ]
    assert unproven_objectives(unknown, Objectives()) == []
    assert unproven_objectives(expected_evidence(None), ALL)[0] == "RPO in records is not known: nothing was recorded"


@pytest.mark.parametrize(("records", "unproven"), [(1, True), (2, True), (3, False)])
def test_a_lower_bound_within_its_objective_proves_nothing(records, unproven):
    evidence = expected_evidence(Loss(records, 1.0, AT, reason="it is gone", lower_bound=True))
    found = unproven_objectives(evidence, Objectives(rpo_records=2))
    assert found == [f"RPO in records is only known to be {records} or more: it is gone"] * unproven


@pytest.mark.parametrize(
    ("records", "lower", "known"),
    [(2, False, None), (3, False, "3 or fewer"), (2, True, "2, more or fewer"), (3, True, "3, more or fewer")],
)
def test_an_upper_bound_beyond_its_objective_proves_no_miss(records, lower, known):
    loss = Loss(records, 1.0, AT, reason="of before", lower_bound=lower, upper_bound=True)
    evidence, objectives = expected_evidence(loss), Objectives(rpo_records=2)
    assert missed_objectives(evidence, objectives) == []
    found = unproven_objectives(evidence, objectives)
    assert found == ([] if known is None else [f"RPO in records is only known to be {known}: of before"])


def test_places_seen_are_counted_in_words():
    assert str(PlacesSeen()) == "of 0 places none"
    assert str(PlacesSeen(same=2, unknown=1)) == "of 3 places 2 hold the record planned, 1 could not be compared"
    every = str(PlacesSeen(same=1, end=2, new=3, gone=4, different=5, unknown=6))
    assert every.startswith("of 21 places 1 hold the record planned, 2 are at the log's end, 3 were at the log's end")
    assert "4 lost their record to retention or compaction since, 6 could not be compared" in every


# -- back before the fence, and given up -----------------------------------------------------------

BEHIND = {State.FENCED, State.DRAINED, State.TRANSLATED, State.COMMITTED}
FULL = Facts(
    Mode.UNPLANNED, unfenced_accepted=True, sealed=True, fenced=True, fence_reason="r", fence_epoch=4, fenced_at=AT,
    captured_at=AT, mirror_stopped=True, lag=0, ends={"t:0": 4}, loss=KNOWN, placed=3, committed=3, salvaged=1,
    cluster_confirmed="id", scrubbed={}, reversed=True, audit="clean",
)  # fmt: skip


@pytest.mark.parametrize("kind", [Kind.FAILOVER, Kind.FAILBACK])
def test_only_what_rests_on_a_fence_goes_back_before_it(kind):
    first = before_fence(kind)
    assert first is (State.AUDITED if kind is Kind.FAILBACK else State.PLANNED)
    for state in (State.PLANNED, *(step.reaches for step in PATHS[kind])):
        run = Run(kind, state, FULL)
        if state not in BEHIND | {first}:
            with pytest.raises(InvariantBroken, match=f"I10: a run that is {state} can't go back"):
                back_before_fence(run, "it was opened")
            continue
        before = back_before_fence(run, "it was opened")
        assert before.state is first
        assert next_step(before)[0].stage == "fence"


def test_before_a_fence_nothing_that_was_found_behind_it_counts():
    facts = back_before_fence(Run(Kind.FAILOVER, State.COMMITTED, FULL), "it was opened").facts
    assert facts == replace(
        FULL, fenced=None, fence_reason="it was opened", fence_epoch=None, fenced_at=None, captured_at=None,
        mirror_stopped=False, lag=None, ends={}, loss=None, placed=None, committed=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "sealed", "stays"),
    [(Mode.UNPLANNED, True, True), (Mode.UNPLANNED, False, False), (Mode.PLANNED, True, False)],
)
def test_an_unplanned_move_keeps_its_link_sealed(mode, sealed, stays):
    run = Run(Kind.FAILOVER, State.DRAINED, replace(FULL, mode=mode, sealed=sealed))
    assert back_before_fence(run, "why").facts.sealed is stays


@pytest.mark.parametrize("state", [State.PLANNED, State.SCRUBBED, State.SWITCHED])
def test_a_run_that_is_not_over_can_be_abandoned_where_it_stands(state):
    run = Run(Kind.FAILBACK, state, FULL)
    abandoned = abandon(run)
    assert (abandoned.state, abandoned.facts) == (State.ABANDONED, FULL)
    assert abandoned.finished


@pytest.mark.parametrize("state", [State.CLOSED, State.CANCELLED, State.ABANDONED])
def test_what_is_over_is_over(state):
    run = Run(Kind.FAILOVER, state, FULL)
    assert run.finished
    with pytest.raises(InvariantBroken, match=f"I9: the run is {state}"):
        abandon(run)
    assert next_step(run) == (None, f"the run is {state}: nothing is left to do")


def test_what_is_next_is_said():
    step, why = next_step(Run(Kind.FAILOVER, State.FENCED, FULL))
    assert step.stage == "drain"
    assert why == "fenced: next stage of this unplanned failover: drain"
    assert advance(Run(Kind.FAILOVER, State.FENCED, FULL), "drain", StageOutcome.SKIPPED, FULL).state is State.DRAINED
    failed = advance(Run(Kind.FAILOVER, State.FENCED, FULL), "drain", StageOutcome.UNKNOWN, replace(FULL, lag=7))
    assert (failed.state, failed.facts.lag) == (State.FENCED, 7)


def test_a_broken_invariant_is_an_error_that_says_which():
    with pytest.raises(DrkitError, match="I1: stage drain reported in state planned"):
        advance(Run(Kind.FAILOVER, State.PLANNED, FULL), "drain", StageOutcome.OK, FULL)
    wrong = replace(FULL, placed=3)
    with pytest.raises(InvariantBroken, match="I5: a failover must not be committed: 1 of 3 positions are committed"):
        advance(Run(Kind.FAILOVER, State.TRANSLATED, wrong), "commit", StageOutcome.OK, replace(wrong, committed=1))


def test_reprotecting_ends_without_moving_groups():
    assert [step.stage for step in PATHS[Kind.REPROTECT]] == ["salvage", "scrub", "reverse", "reseed", "audit", "close"]
    assert advance(Run(Kind.REPROTECT, State.AUDITED, FULL), "close", StageOutcome.OK, FULL).state is State.CLOSED
