"""A clock that is wrong."""

from __future__ import annotations

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.waiting import wait_for
from drkit.drill.experiment.faults import SkewClock

_SECONDS = 60.0


def skew_clock(env: DrillEnvironment, fault: SkewClock) -> str:
    """Have the producer on a cluster stamp its records by a clock that is wrong; returns once it has sent one.

    Only stamps are wrong: the producer is stopped in order, and another one continues whose clock differs. The brokers'
    clocks are right.

    Raises:
        Refused: no producer runs there.
        NotInTime: the new one sends nothing.
    """
    producer = env.clients.restart_producer(fault.cluster, clock_skew_seconds=fault.seconds)
    wait_for(f"a record of {producer.name}", _SECONDS, lambda: producer.ledger.count("attempts") > 0)
    direction = "behind" if fault.seconds < 0 else "ahead"
    return f"{producer.name} on {fault.cluster} stamps its records {abs(fault.seconds):g} s {direction}"
