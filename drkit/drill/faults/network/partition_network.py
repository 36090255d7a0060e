"""Partitions the network."""

from __future__ import annotations

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.wan_proxy import Direction
from drkit.drill.experiment.faults import PartitionNetwork


def partition_network(env: DrillEnvironment, fault: PartitionNetwork) -> str:
    """Block traffic between drkit and the primary, both ways or one way, until the network is healed.

    Raises:
        Refused: the lab has no such network.
    """
    both: tuple[Direction, ...] = ("to_primary", "from_primary")
    blocked = both if fault.direction == "both" else (fault.direction,)
    env.the_wan().change(blocked=blocked, forgets=fault.forgets)
    kept = "stay silent forever" if fault.forgets else "continue once it is healed"
    ways = " and ".join(each.replace("_", " ") for each in blocked)
    return f"nothing passes between drkit and {fault.cluster} ({ways}); connections {kept}"
