"""`--committed-at`: each group goes where it had committed then, translated; what isn't known isn't placed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.cli.wiring.selection import either_moment
from drkit.failover.planning.failover_planner import PlanRequest, plan_for
from drkit.failover.positions.positions import PlannedPosition, Strategy, choose_positions
from drkit.failover.snapshot.past_positions import PastPosition
from drkit.failover.snapshot.point_in_time import Moment, TimeBasis
from drkit.failover.snapshot.selection import Selection
from drkit.model.errors import ConfigError
from drkit.model.offsets import Certainty
from drkit.model.topology import TopicPartition
from tests.unit.failover.plan.worlds import AT, Log, moment, position, world

THEN: Moment = replace(moment(1_700_000_000_000), basis=TimeBasis.COMMITS)
PLACE = TopicPartition("t", 0)


def past(offset: int | None, certainty: Certainty = Certainty.EXACT, reason: str | None = None) -> PastPosition:
    return PastPosition(offset, "noted then", certainty, reason, AT - timedelta(minutes=3))


def placed(log: Log, present: int | None, then: PastPosition | None, **options) -> tuple[PlannedPosition, ...]:
    positions = [] if present is None else [position(present)]
    seen = world([log.view(**options)], positions)
    seen = replace(seen, past={} if then is None else {("billing", PLACE): then})
    return choose_positions(seen, Selection(), THEN)


def test_a_group_goes_back_to_where_it_had_committed() -> None:
    (found,) = placed(Log("rrrhrrrr", target_base=10), 7, past(2))
    assert (found.source_offset, found.target_offset, found.metadata) == (2, 12, "noted then")
    assert (found.strategy, found.translation) == (Strategy.MAPPING, Certainty.EXACT)
    assert (found.reread, found.skipped, found.lost) == (4, 0, 0)  # records 2, 4, 5, 6
    assert found.reason == f"where billing had committed at {THEN.local}: source offset 2"
    assert found.captured_at == AT - timedelta(minutes=3)


def test_equal_offsets_too_are_by_mapping_for_a_moment() -> None:
    (found,) = placed(Log("rrrrr"), 4, past(2))
    assert (found.target_offset, found.strategy, found.reread) == (2, Strategy.MAPPING, 2)


def test_what_is_not_known_of_then_is_not_placed_and_says_why() -> None:
    (found,) = placed(Log("rrrrr"), 4, past(None, Certainty.UNAVAILABLE, "the timeline begins later"))
    assert (found.target_offset, found.source_offset, found.strategy) == (None, None, None)
    assert found.translation is Certainty.UNAVAILABLE
    assert found.reason == "the timeline begins later"
    (unknown,) = placed(Log("rrrrr"), 4, None)
    assert unknown.target_offset is None
    assert unknown.reason == "where it had committed then is not known"


def test_a_doubt_of_the_timeline_makes_it_conservative() -> None:
    (found,) = placed(Log("rrrrr"), 4, past(2, Certainty.CONSERVATIVE, "it committed between two looks"))
    assert (found.target_offset, found.translation) == (2, Certainty.CONSERVATIVE)
    assert "source offset 2; it committed between two looks" in str(found.reason)


def test_a_doubt_of_the_mapping_stays() -> None:
    (found,) = placed(Log("rrrrrrrr"), 7, past(2), target_start=5)
    assert (found.target_offset, found.translation) == (5, Certainty.CONSERVATIVE)
    assert "retention or DeleteRecords" in str(found.reason)
    assert "had committed at" in str(found.reason)


def test_a_group_that_is_gone_since_is_restored_too() -> None:
    (found,) = placed(Log("rrrrr"), None, past(3))
    assert (found.target_offset, found.reread) == (3, None)


def test_a_group_put_back_since_skips_what_it_had_read_then() -> None:
    (found,) = placed(Log("rrrrr"), 1, past(4))
    assert (found.target_offset, found.reread, found.skipped) == (4, 0, 3)


@given(st.text("rrrhb", min_size=1, max_size=30), st.data())
def test_the_place_is_that_of_a_group_standing_there_now(events: str, data: st.DataObject) -> None:
    log = Log(events, target_base=data.draw(st.integers(0, 9)))
    then = data.draw(st.integers(0, log.source_end))
    present = data.draw(st.integers(then, log.source_end))
    (found,) = placed(log, present, past(then))
    (there,) = choose_positions(world([log.view()], [position(then)]), Selection(), None)
    assert (found.target_offset, found.translation, found.lost) == (there.target_offset, there.translation, there.lost)
    assert found.target_offset is not None
    # what is read again is exactly what of the target lies between
    (here,) = choose_positions(world([log.view()], [position(present)]), Selection(), None)
    assert here.target_offset is not None
    assert found.reread == here.target_offset - found.target_offset


def test_the_plan_differs_from_one_by_stamps_and_says_how() -> None:
    seen = replace(world([Log("rrrrr").view()], [position(4)]), past={("billing", PLACE): past(2)})
    by_commits = plan_for(seen, PlanRequest("dr", at=THEN), endpoint="dr:9092")
    by_stamps = plan_for(seen, PlanRequest("dr", at=replace(THEN, basis=TimeBasis.STAMPS)), endpoint="dr:9092")
    assert by_commits.digest != by_stamps.digest
    explained = {stage.name: stage.explanation for stage in by_commits.stages}
    assert "from where each group had committed at" in explained["translate"]


def test_both_options_at_once_are_refused() -> None:
    assert either_moment(None, None, None) is None
    at = either_moment("-2m", None, "UTC")
    assert at is not None
    assert at.basis is TimeBasis.STAMPS
    then = either_moment(None, "-2m", "UTC")
    assert then is not None
    assert then.by_commits
    with pytest.raises(ConfigError, match="exclude each other"):
        either_moment("-2m", "-2m", None)
    with pytest.raises(ConfigError, match=r"--committed-at .tomorrow. is not a time"):
        either_moment(None, "tomorrow", None)
