"""How many partitions are created in a look, by how long the last ones took."""

from __future__ import annotations

import pytest

from drkit.mirror.topics.topic_sync import FIRST_PARTITIONS, LEAST_PARTITIONS, MOST_PARTITIONS, CreationPace
from drkit.model.errors import Unreachable


class Time:
    """A clock that a test moves."""

    at = 0.0

    def __call__(self) -> float:
        return self.at


def creates(pace: CreationPace, time: Time, seconds: float, asked: int | None = None) -> None:
    """As many as it says, or so many, are created in so many seconds."""
    with pace.measured(pace.partitions if asked is None else asked):
        time.at += seconds


def test_a_brisk_broker_is_asked_for_more_each_time_and_a_slow_one_for_fewer() -> None:
    pace = CreationPace(time := Time())
    creates(pace, time, 0.5)
    assert pace.partitions == 2 * FIRST_PARTITIONS
    creates(pace, time, 1.5)
    assert pace.partitions == 2 * FIRST_PARTITIONS
    creates(pace, time, 4.0)
    assert pace.partitions == FIRST_PARTITIONS
    for _ in range(20):
        creates(pace, time, 0.1)
    assert pace.partitions == MOST_PARTITIONS
    for _ in range(20):
        creates(pace, time, 9.0)
    assert pace.partitions == LEAST_PARTITIONS


def test_a_few_that_are_soon_there_say_nothing_of_many() -> None:
    pace = CreationPace(time := Time())
    creates(pace, time, 0.1, asked=1)
    assert pace.partitions == FIRST_PARTITIONS


def test_what_was_not_there_in_time_is_asked_for_in_much_smaller_portions() -> None:
    pace = CreationPace(Time())
    with pytest.raises(Unreachable), pace.measured(FIRST_PARTITIONS):
        raise Unreachable("not there yet")
    assert pace.partitions == FIRST_PARTITIONS // 4
