"""Resets connections."""

from __future__ import annotations

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.faults import ResetNetwork


def reset_network(env: DrillEnvironment, fault: ResetNetwork) -> str:
    """Reset every connection between drkit and the primary: both ends get an RST.

    Raises:
        Refused: the lab has no such network.
    """
    wan = env.the_wan()
    wan.change(resets=wan.state.resets + 1)
    return f"every connection between drkit and {fault.cluster} is reset"
