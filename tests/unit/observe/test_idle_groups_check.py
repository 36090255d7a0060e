"""Groups that nobody reads with: what Kafka and the timeline tell of when their offsets are deleted, and no more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from drkit.kafka.groups.group_admin import GroupInfo
from drkit.model.groups import GroupCommit, GroupState, StatesAround
from drkit.model.offsets import Certainty
from drkit.observe.link_status import GroupStatus
from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.idle_groups import idle_groups, judged_after, judged_before
from tests.support.pages.page import snapshot

AT = datetime(2026, 11, 29, 8, tzinfo=UTC)
DAY, WEEK = timedelta(days=1), timedelta(days=7)


def at_offset(group: str, offset: int, topic: str = "flights", partition: int = 0) -> GroupStatus:
    return GroupStatus(group, topic, partition, offset, offset, Certainty.EXACT, None, AT)


def stood(group: str, offset: int, when: datetime, *, before_history: bool = True) -> StatesAround:
    state = GroupState(group, "flights", when, (GroupCommit(0, offset, ""),), None, None, when + WEEK)
    return StatesAround(group, "flights", state if before_history else None, None if before_history else state)


def listed(*, protocol: str = "", kind: str = "classic", **states: str) -> dict[str, GroupInfo]:
    return {name: GroupInfo(name, state, kind, protocol) for name, state in states.items()}


def test_only_groups_with_positions_and_without_members_are_idle():
    status = snapshot(groups=(at_offset("billing", 1), at_offset("fraud", 1)))
    assert list(idle_groups(status, listed(billing="Empty", fraud="Stable", other="Empty"))) == ["billing"]


def test_before_a_failover_one_that_has_not_moved_is_warned_of_and_one_that_has_is_not():
    status = snapshot(groups=(at_offset("billing", 9), at_offset("monthly", 5)))
    known = [stood("billing", 5, AT - DAY), stood("monthly", 5, AT - DAY / 2, before_history=False)]
    found = judged_before(status, ["billing", "monthly"], WEEK, known, AT)
    assert found.outcome is CheckOutcome.WARN
    assert found.reason == (
        "1 group without members (monthly): primary deletes their offsets 7 days after their last member or commit. "
        "When that was isn't known: Kafka doesn't tell it, and their history, which begins 2026-11-28 20:00 UTC, has "
        "no other offset"
    )
    assert "offsets.retention.minutes on primary and dr" in found.remedy
    moved = judged_before(status, ["billing"], WEEK, known, AT)
    assert (moved.outcome, moved.reason.endswith("all have committed since 2026-11-28 08:00 UTC")) == (
        CheckOutcome.OK,
        True,
    )
    without = judged_before(status, ["billing"], WEEK, [], AT)
    assert (without.outcome, "no history of them is kept" in without.reason) == (CheckOutcome.WARN, True)
    assert judged_before(status, [], WEEK, [], AT).outcome is CheckOutcome.OK


@pytest.mark.parametrize(
    ("retention", "outcome", "says"),
    [
        (2 * DAY, CheckOutcome.OK, "since 2026-11-28 08:00 UTC"),
        (DAY * 1.25, CheckOutcome.WARN, "which alone keeps them for 6 hours more"),
        (DAY, CheckOutcome.WARN, "which alone may not keep them any more"),
    ],
)
def test_before_a_failover_a_commit_keeps_offsets_for_no_longer_than_their_retention(retention, outcome, says):
    status = snapshot(groups=(at_offset("billing", 9),))
    found = judged_before(status, ["billing"], retention, [stood("billing", 5, AT - DAY)], AT)
    assert (found.outcome, found.reason.endswith(says)) == (outcome, True), found.reason
    assert bool(found.remedy) == (outcome is CheckOutcome.WARN)


@pytest.mark.parametrize(
    ("info", "days", "outcome", "says"),
    [
        ({}, 1, CheckOutcome.OK, "keeps their offsets for 6 days more at least, of 7 days"),
        ({"kind": "consumer", "protocol": "consumer"}, 1, CheckOutcome.OK, "for 6 days more at least"),
        ({}, 4, CheckOutcome.WARN, "keeps their offsets for 3 days more at least"),
        ({}, 8, CheckOutcome.WARN, "may delete them now"),
        ({"protocol": "consumer"}, 1, CheckOutcome.WARN, "doesn't tell when that was"),
        ({}, None, CheckOutcome.WARN, "doesn't tell when that was"),
    ],
)
def test_after_a_failover_the_clock_runs_since_then_where_kafka_counts_from_commits(info, days, outcome, says):
    sealed = None if days is None else AT - days * DAY
    found = judged_after("dr", listed(billing="Empty", **info), WEEK, sealed, AT)
    assert (found.outcome, says in found.reason) == (outcome, True), found.reason
    assert bool(found.remedy) == (outcome is CheckOutcome.WARN)
