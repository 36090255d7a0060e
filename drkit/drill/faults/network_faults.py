"""Faults of the line between drkit and the primary."""

from __future__ import annotations

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.environment.wan_proxy import Direction
from drkit.drill.experiment.faults import DegradeNetwork, HealNetwork, PartitionNetwork, ResetNetwork


def degrade_network(env: DrillEnvironment, fault: DegradeNetwork) -> str:
    """Make the line between drkit and the primary slow: delay, jitter, loss, bandwidth. It stays so until it is healed.

    Raises:
        Refused: the lab has none.
    """
    env.the_wan().change(
        delay_ms=fault.delay_ms,
        jitter_ms=fault.jitter_ms,
        loss=fault.loss,
        kilobytes_per_second=fault.kilobytes_per_second or 0.0,
    )
    width = "" if fault.kilobytes_per_second is None else f", {fault.kilobytes_per_second:g} kB/s"
    delay = f"{fault.delay_ms:g} ms more each way, give or take {fault.jitter_ms:g}"
    return f"the line to {fault.cluster}: {delay}; {fault.loss:.1%} of packets are lost{width}"


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


def reset_network(env: DrillEnvironment, fault: ResetNetwork) -> str:
    """Reset every connection between drkit and the primary: both ends get an RST.

    Raises:
        Refused: the lab has no line.
    """
    wan = env.the_wan()
    wan.change(resets=wan.state.resets + 1)
    return f"every connection between drkit and {fault.cluster} is reset"


def heal_network(env: DrillEnvironment, fault: HealNetwork) -> str:
    """End what disturbs the line between drkit and the primary.

    Raises:
        Refused: the lab has none.
    """
    env.the_wan().heal()
    return f"the line to {fault.cluster} passes everything at once again"
