"""A partition is stuck when it could move and doesn't, whatever passes in between; a long outage, an order or a told
problem is none of that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.mirror.health.watchdog import PartitionObservation, Watchdog
from drkit.model.errors import ExitCode
from drkit.model.topology import LinkId, TopicPartition

TP = TopicPartition("flights", 3)
WAITING = PartitionObservation(TP, 100, 250, fresh=True, held=False)


class Clock:
    at = 0.0

    def __call__(self) -> float:
        return self.at


class World:
    """A worker that is checked once a second. `every`: or as seldom as that."""

    def __init__(self, patience: float = 30, *, every: float = 1.0, answering_only: bool = False) -> None:
        self.clock, self.every = Clock(), every
        self.watchdog = Watchdog(patience, self.clock, answering_only=answering_only)
        self.check()

    def check(self, *observations: PartitionObservation, healthy: bool = True) -> list[int]:
        return [stuck.tp.partition for stuck in self.watchdog.check(observations or [WAITING], healthy=healthy)]

    def pass_by(self, seconds: float, *observations: PartitionObservation, healthy: bool = True) -> bool:
        """Whether something is stuck by then."""
        found: list[int] = []
        for _ in range(round(seconds / self.every)):
            self.clock.at += self.every
            found = self.check(*observations, healthy=healthy)
        return bool(found)


def test_it_is_stuck_after_its_patience_and_not_before() -> None:
    world = World()
    world.pass_by(1)
    assert not world.pass_by(29)
    assert world.pass_by(1)


@pytest.mark.parametrize(
    "between",
    [
        replace(WAITING, mirrored_through=101),
        replace(WAITING, mirrored_through=250),
        replace(WAITING, held=True),
        replace(WAITING, target_end=7),
    ],
    ids=["moved", "caught up", "held", "its offsets are aligned"],
)
def test_what_moves_or_is_not_to_move_has_all_of_its_time_again(between: PartitionObservation) -> None:
    world = World()
    world.pass_by(25)
    world.pass_by(1, between)
    after = replace(between, held=False, source_end=300)
    assert not world.pass_by(29, after)
    assert world.pass_by(3, after)


@pytest.mark.parametrize("every", [1.0, 12.0])
def test_no_failure_that_passes_hides_one_that_stands_however_often_it_comes(every: float) -> None:
    """One turn of a thread in 24 s fails, say: each of them set the clock back, and it was never told."""
    world = World(every=every)
    told = False
    for _ in range(6):
        told = told or world.pass_by(24 - every)
        assert not world.pass_by(every, healthy=False), "nobody restarts it then"
        told = told or world.pass_by(every)
    assert told


@pytest.mark.parametrize("patience", [30.0, 300.0])
def test_after_a_long_outage_each_has_all_of_its_time_again(patience: float) -> None:
    """What stood before it was told was a part of it, and the first reads after it take their time."""
    world = World(patience)
    world.pass_by(patience - 5)
    assert not world.pass_by(patience + 5, healthy=False)
    assert not world.pass_by(patience - 2)
    assert world.pass_by(5)


@pytest.mark.parametrize("seconds", [8.0, 600.0])
def test_the_time_in_which_the_process_was_stopped_is_nobodys(seconds: float) -> None:
    world = World()
    world.pass_by(20)
    world.clock.at += seconds
    assert world.check() == []
    assert not world.pass_by(5)


def test_what_is_not_seen_is_told_and_no_reason_for_a_restart() -> None:
    """The broker that leads it doesn't answer, while others do."""
    unseen = replace(WAITING, fresh=False)
    assert World().pass_by(32, unseen)
    assert not World(answering_only=True).pass_by(300, unseen)


def test_what_is_seen_now_and_then_only_ends_the_run_all_the_same() -> None:
    """A look at ten thousand partitions takes long: one in ten is seen for so short a time that it isn't fresh."""
    world = World(answering_only=True)
    for _ in range(7):
        stuck = world.pass_by(5, replace(WAITING, fresh=False)) or world.pass_by(5)
    assert stuck


def test_a_growing_source_is_no_progress() -> None:
    world = World()
    assert [world.pass_by(1, replace(WAITING, source_end=250 + at)) for at in range(40)][-9:] == [True] * 9


def test_the_longest_comes_first_and_a_partition_that_left_is_forgotten() -> None:
    world = World(10)
    other = replace(WAITING, tp=TopicPartition("flights", 4))
    world.pass_by(5)
    world.pass_by(12, WAITING, other)
    assert world.check(other, WAITING) == [3, 4]
    world.watchdog.check([], healthy=True)
    assert world.check() == []


def test_the_error_names_partition_offsets_and_what_is_waited_for() -> None:
    world = World(10)
    world.pass_by(13)
    (stuck,) = world.watchdog.check([WAITING], healthy=True)
    error = stuck.error(LinkId("a", "b"), "the target's acknowledgement of target offset 7", others=2)
    assert error.exit_code is ExitCode.FAILED
    for part in ("flights:3", "a->b", "source offset 100 of 250", "12 s", "target offset 7", "2 more"):
        assert part in str(error)


@given(st.lists(st.tuples(st.floats(0, 5), st.booleans(), st.booleans(), st.integers(0, 3)), max_size=60))
def test_nothing_is_stuck_that_has_not_waited_as_long_while_everything_answered(
    steps: list[tuple[float, bool, bool, int]],
) -> None:
    clock = Clock()
    watchdog = Watchdog(10, clock)
    waited, before = 0.0, None
    for pause, healthy, held, through in steps:
        clock.at += pause
        observation = replace(WAITING, held=held, mirrored_through=through)
        waited = waited + pause * healthy if before == through and not held else 0.0
        before = None if held else through
        if watchdog.check([observation], healthy=healthy):
            assert waited >= 10


@given(st.lists(st.tuples(st.floats(1, 12), st.booleans()), min_size=80, max_size=80))
def test_one_that_never_moves_is_told_where_no_two_checks_in_a_row_fail(steps: list[tuple[float, bool]]) -> None:
    world = World()
    told, healthy = False, True
    for pause, answers in steps:
        healthy = answers or not healthy
        world.clock.at += pause
        told = told or bool(world.check(healthy=healthy))
    assert told
