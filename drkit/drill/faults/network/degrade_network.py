"""Slows down the network."""

from __future__ import annotations

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.faults import DegradeNetwork


def degrade_network(env: DrillEnvironment, fault: DegradeNetwork) -> str:
    """Slow down the network between drkit and the primary (delay, jitter, loss, bandwidth) until it is healed.

    Raises:
        Refused: the lab has no such network.
    """
    env.the_wan().change(
        delay_ms=fault.delay_ms,
        jitter_ms=fault.jitter_ms,
        loss=fault.loss,
        kilobytes_per_second=fault.kilobytes_per_second or 0.0,
    )
    width = "" if fault.kilobytes_per_second is None else f", {fault.kilobytes_per_second:g} kB/s"
    delay = f"{fault.delay_ms:g} ms more each way, plus or minus {fault.jitter_ms:g}"
    return f"the network to {fault.cluster}: {delay}; {fault.loss:.1%} of packets are lost{width}"
