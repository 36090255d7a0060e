"""A partition is stuck when it could move and doesn't; an outage, an order or a told problem is none of that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.mirror.health.watchdog import PartitionObservation, Watchdog
from drkit.mirror.runtime.reporting import turn_seconds
from drkit.model.errors import ExitCode
from drkit.model.statistics import EngineStatistics
from drkit.model.topology import LinkId, TopicPartition

TP = TopicPartition("flights", 3)
WAITING = PartitionObservation(TP, 100, 250, fresh=True, held=False)


class Clock:
    at = 0.0

    def __call__(self) -> float:
        return self.at


def looks(*observations: tuple[float, PartitionObservation, bool]) -> list[bool]:
    clock = Clock()
    watchdog = Watchdog(30, clock)
    found = []
    for at, observation, healthy in observations:
        clock.at = at
        found.append(bool(watchdog.check([observation], healthy=healthy)))
    return found


def test_it_is_stuck_after_its_patience_and_not_before() -> None:
    assert looks((0, WAITING, True), (29.9, WAITING, True), (30, WAITING, True)) == [False, False, True]


def test_where_thousands_of_partitions_take_turns_each_has_the_time_of_all_others() -> None:
    statistics = EngineStatistics(partitions_behind=5_000, catch_up_bytes_per_second=4 << 20)
    assert turn_seconds(statistics) == pytest.approx(5_000 * 128 / 4096)
    assert turn_seconds(EngineStatistics(partitions_behind=5_000)) == 0, "at full speed"
    patient = replace(WAITING, turn_seconds=40.0)
    assert looks((0, patient, True), (69.9, patient, True), (70, patient, True)) == [False, False, True]


@pytest.mark.parametrize(
    "between",
    [
        (20, replace(WAITING, mirrored_through=101), True),
        (20, replace(WAITING, mirrored_through=250), True),
        (20, replace(WAITING, held=True), True),
        (20, replace(WAITING, fresh=False), True),
        (20, WAITING, False),
    ],
    ids=["moved", "caught up", "held", "source not seen", "an outage"],
)
def test_anything_else_begins_the_clock_anew(between: tuple[float, PartitionObservation, bool]) -> None:
    after = replace(between[1], held=False, fresh=True, source_end=300)
    assert looks((0, WAITING, True), between, (35, after, True), (49, after, True)) == [False] * 4
    assert looks((0, WAITING, True), between, (35, after, True), (65.1, after, True))[-1]


def test_a_growing_source_is_no_progress() -> None:
    grown = [(float(at), replace(WAITING, source_end=250 + at), True) for at in range(0, 40, 5)]
    assert looks(*grown)[-2:] == [True, True]


def test_the_longest_comes_first_and_a_partition_that_left_is_forgotten() -> None:
    clock = Clock()
    watchdog = Watchdog(10, clock)
    other = replace(WAITING, tp=TopicPartition("flights", 4))
    watchdog.check([WAITING], healthy=True)
    clock.at = 5
    watchdog.check([WAITING, other], healthy=True)
    clock.at = 16
    assert [stuck.tp.partition for stuck in watchdog.check([other, WAITING], healthy=True)] == [3, 4]
    watchdog.check([], healthy=True)
    assert watchdog.check([WAITING], healthy=True) == []


def test_the_error_names_partition_offsets_and_what_is_waited_for() -> None:
    clock = Clock()
    watchdog = Watchdog(10, clock)
    watchdog.check([WAITING], healthy=True)
    clock.at = 12
    (stuck,) = watchdog.check([WAITING], healthy=True)
    error = stuck.error(LinkId("a", "b"), "the target's acknowledgement of target offset 7", others=2)
    assert error.exit_code is ExitCode.FAILED
    for part in ("flights:3", "a->b", "source offset 100 of 250", "12 s", "target offset 7", "2 more"):
        assert part in str(error)


@given(st.lists(st.tuples(st.floats(0, 5), st.booleans(), st.booleans(), st.integers(0, 3)), max_size=40))
def test_nothing_is_stuck_that_has_not_waited_without_a_break(
    steps: list[tuple[float, bool, bool, int]],
) -> None:
    clock = Clock()
    watchdog = Watchdog(10, clock)
    history: list[tuple[float, bool, int]] = []
    for pause, healthy, held, through in steps:
        clock.at += pause
        observation = replace(WAITING, held=held, mirrored_through=through)
        history.append((clock.at, healthy and not held, through))
        unbroken = []
        for at, good, was in reversed(history):
            if not good or was != through:
                break
            unbroken.append(at)
        expected = bool(unbroken) and clock.at - unbroken[-1] >= 10
        assert bool(watchdog.check([observation], healthy=healthy)) == expected
