"""Rates over the last seconds; quantiles by nearest rank; what isn't known is null."""

from __future__ import annotations

import pytest

from drkit.mirror.runtime.reporting import Rates
from drkit.model.statistics import EngineStatistics, Latency, quantile


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def test_a_rate_is_over_the_window_and_forgets_what_is_older() -> None:
    clock = Clock()
    rates = Rates(clock, window_seconds=5)
    records = 0
    for _ in range(10):
        clock.at += 1
        records += 50
        last = rates.note(EngineStatistics(records=records, bytes=records * 10))
    assert last == (50.0, 500.0)
    for _ in range(4):
        clock.at += 1
        last = rates.note(EngineStatistics(records=records, bytes=records * 10))
    assert last == (10.0, 100.0)  # of the five seconds, one had records
    clock.at += 1
    assert rates.note(EngineStatistics(records=records, bytes=records * 10)) == (0.0, 0.0)


def test_a_first_look_counts_from_the_beginning() -> None:
    clock = Clock()
    rates = Rates(clock)
    clock.at += 2
    assert rates.note(EngineStatistics(records=10, bytes=4)) == (5.0, 2.0)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, None), ([7.0], 0.99, 7.0), ([1.0, 2.0, 3.0], 0.5, 2.0), ([float(n) for n in range(1, 101)], 0.99, 99.0)],
)
def test_quantiles_are_values_that_were_seen(values: list[float], share: float, expected: float | None) -> None:
    assert quantile(values, share) == expected


def test_what_is_not_known_is_null() -> None:
    document = EngineStatistics(batches_rebuilt={"compacted": 2}).document()
    assert document["in_flight_bytes"] is None
    assert document["batches_rebuilt"] == {"compacted": 2}
    assert Latency(None, None, 0, 300.0, 2.5).document()["p99_seconds"] is None
