"""SIGCONT."""

from __future__ import annotations

import signal

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.faults import Resume


def resume(env: DrillEnvironment, fault: Resume) -> str:
    """SIGCONT a paused node; no effect on others."""
    if fault.node == "mirror":
        mirror = env.the_mirror()
        mirror.send(signal.SIGCONT)
        return f"the mirror (pid {mirror.pid}) continues"
    return f"resumed {', '.join(env.lab.resume(fault.node))}"
