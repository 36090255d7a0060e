"""The bandwidth limit, by a clock of the test's own."""

from __future__ import annotations

import random

import pytest

from drkit.mirror.engine.pacing.throttle import Throttle


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def test_without_a_limit_nothing_waits() -> None:
    throttle = Throttle(None, Clock())
    assert not throttle.limits
    assert [throttle.take(10**12) for _ in range(3)] == [0.0, 0.0, 0.0]


def test_a_second_s_worth_goes_at_once_and_the_rest_waits_for_its_time() -> None:
    throttle = Throttle(1_000, Clock())
    assert throttle.take(1_000) == 0.0
    assert throttle.take(500) == pytest.approx(0.5)
    assert throttle.take(500) == pytest.approx(1.0), "debts add up"


def test_a_pause_earns_no_more_than_one_second_s_worth() -> None:
    clock = Clock()
    throttle = Throttle(1_000, clock)
    throttle.take(1_000)
    clock.at += 3_600
    assert throttle.take(1_000) == 0.0
    assert throttle.take(1) == pytest.approx(0.001)


def test_something_larger_than_the_bucket_passes_and_is_paid_for() -> None:
    clock = Clock()
    throttle = Throttle(1_000, clock)
    wait = throttle.take(5_000)
    assert wait == pytest.approx(4.0)
    clock.at += wait
    assert throttle.take(100) == pytest.approx(0.1)


def test_over_any_length_of_time_the_limit_holds() -> None:
    clock, sizes = Clock(), random.Random(7)  # noqa: S311 - sizes, no secrets
    throttle = Throttle(10_000, clock)
    sent, began, largest = 0, clock.at, 0
    for _ in range(2_000):
        size = sizes.randrange(1, 4_000)
        clock.at += throttle.take(size) + sizes.choice([0.0, 0.0, 0.3])
        sent, largest = sent + size, max(largest, size)
        assert sent <= 10_000 * (clock.at - began + 1) + largest


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_lets_nothing_through_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="lets nothing through"):
        Throttle(limit)


def test_the_limit_can_be_changed_and_the_bucket_can_begin_empty() -> None:
    clock = Clock()
    throttle = Throttle(1_000, clock, filled=False)
    assert throttle.take(500) == pytest.approx(0.5)
    throttle.limit(250)
    assert throttle.take(0) == pytest.approx(2.0)
    clock.at += 2.0
    assert throttle.take(250) == pytest.approx(1.0)
