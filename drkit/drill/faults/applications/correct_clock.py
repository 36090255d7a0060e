"""Corrects the producer's clock."""

from __future__ import annotations

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.faults import CorrectClock


def correct_clock(env: DrillEnvironment, fault: CorrectClock) -> str:
    """Let the producer on a cluster use the correct time for its records again.

    Raises:
        Refused: no producer runs there.
    """
    producer = env.links[fault.link].clients.restart_producer(fault.cluster, clock_skew_seconds=0.0)
    return f"the timestamps of {producer.name} on {fault.cluster} are correct again"
