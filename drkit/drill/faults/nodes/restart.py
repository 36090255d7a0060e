"""Stops and starts a node."""

from __future__ import annotations

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.faults import Restart


def restart(env: DrillEnvironment, fault: Restart) -> str:
    """Stop a node in order if it runs, and start it on the same ports and data. Returns when it answers."""
    if fault.node == "mirror":
        mirror = env.the_mirror()
        mirror.restart()
        return f"the mirror runs again (pid {mirror.pid})"
    return f"restarted {', '.join(env.lab.restart(fault.node, say=env.say))}"
