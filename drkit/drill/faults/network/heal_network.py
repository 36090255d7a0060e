"""Heals the network."""

from __future__ import annotations

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.faults import HealNetwork


def heal_network(env: DrillEnvironment, fault: HealNetwork) -> str:
    """End all disturbances of the network between drkit and the primary.

    Raises:
        Refused: the lab has no such network.
    """
    env.the_wan().heal()
    return f"the network to {fault.cluster} is undisturbed again"
