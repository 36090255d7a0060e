"""Latencies of what arrived, the age of what has not, whatever the order in which things happen."""

from __future__ import annotations

from drkit.mirror.runtime.canary import Arrivals


def test_latencies_are_of_the_window_and_counted_for_ever() -> None:
    arrivals = Arrivals(window_seconds=10)
    for number in range(20):
        arrivals.sent(number, float(number))
        arrivals.arrived(number, number + 0.1 * (number % 5 + 1))
    latency = arrivals.latency(20.0)
    assert latency.samples == 10
    assert latency.arrived == 20
    assert latency.p50 is not None
    assert latency.p99 is not None
    assert round(latency.p50, 6) == 0.3
    assert round(latency.p99, 6) == 0.5
    assert round(latency.seconds, 6) == 6.0
    assert latency.waiting_seconds == 0
    later = arrivals.latency(100.0)
    assert (later.p50, later.samples, later.arrived) == (None, 0, 20)


def test_what_has_not_arrived_is_told_by_its_age() -> None:
    arrivals = Arrivals()
    arrivals.sent(1, 10.0)
    arrivals.sent(2, 11.0)
    assert arrivals.latency(14.0).waiting_seconds == 4.0
    arrivals.failed(1)
    assert arrivals.latency(14.0).waiting_seconds == 3.0
    arrivals.arrived(2, 14.5)
    latency = arrivals.latency(15.0)
    assert (latency.waiting_seconds, latency.p50, latency.samples) == (0.0, 3.5, 1)


def test_a_record_read_twice_counts_once_and_one_that_was_overtaken_is_gone() -> None:
    arrivals = Arrivals()
    for number in (1, 2, 3):
        arrivals.sent(number, float(number))
    arrivals.arrived(2, 4.0)
    arrivals.arrived(2, 9.0)
    latency = arrivals.latency(10.0)
    assert (latency.samples, latency.p50, latency.waiting_seconds) == (1, 2.0, 7.0)


def test_what_this_run_did_not_send_is_nothing() -> None:
    arrivals = Arrivals()
    arrivals.arrived(7, 4.0)
    arrivals.failed(8)
    assert arrivals.latency(5.0).samples == 0
