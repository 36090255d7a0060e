"""A line that is as it was."""

from __future__ import annotations

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.faults import HealNetwork


def heal_network(env: DrillEnvironment, fault: HealNetwork) -> str:
    """End what disturbs the line between drkit and the primary.

    Raises:
        Refused: the lab has none.
    """
    env.the_wan().heal()
    return f"the line to {fault.cluster} passes everything at once again"
