"""SIGSTOP."""

from __future__ import annotations

import signal

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.faults import Pause


def pause(env: DrillEnvironment, fault: Pause) -> str:
    """SIGSTOP a node: it hangs; its connections stay open and nothing answers."""
    if fault.node == "mirror":
        mirror = env.the_mirror()
        mirror.send(signal.SIGSTOP)
        return f"the mirror (pid {mirror.pid}) is paused"
    return f"paused {', '.join(env.lab.pause(fault.node))}"
