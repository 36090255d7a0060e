"""Skews the producer's clock."""

from __future__ import annotations

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.waiting import wait_for
from drkit.drill.experiment.faults import SkewClock

_SECONDS = 60.0


def skew_clock(env: DrillEnvironment, fault: SkewClock) -> str:
    """Let the producer on a cluster use a wrong clock for its records; returns once it has sent one.

    Only timestamps are wrong: the producer is stopped in order, and another one with a different clock continues. The
    brokers' clocks are correct.

    Raises:
        Refused: no producer runs there.
        NotInTime: the new one sends nothing.
    """
    producer = env.links[fault.link].clients.restart_producer(fault.cluster, clock_skew_seconds=fault.seconds)
    wait_for(f"a record of {producer.name}", _SECONDS, lambda: producer.ledger.count("attempts") > 0)
    direction = "behind" if fault.seconds < 0 else "ahead"
    return f"the timestamps of {producer.name} on {fault.cluster} are {abs(fault.seconds):g} s {direction}"
