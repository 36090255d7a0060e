"""A line on which nothing passes."""

from __future__ import annotations

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.wan_proxy import Direction
from drkit.drill.experiment.faults import PartitionNetwork


def partition_network(env: DrillEnvironment, fault: PartitionNetwork) -> str:
    """Have nothing pass between drkit and the primary, both ways or one way, until the line is healed.

    Raises:
        Refused: the lab has none.
    """
    both: tuple[Direction, ...] = ("to_primary", "from_primary")
    blocked = both if fault.direction == "both" else (fault.direction,)
    env.the_wan().change(blocked=blocked, forgets=fault.forgets)
    kept = "stay silent for ever" if fault.forgets else "continue once it is healed"
    ways = " and ".join(each.replace("_", " ") for each in blocked)
    return f"nothing passes between drkit and {fault.cluster} ({ways}); connections {kept}"
