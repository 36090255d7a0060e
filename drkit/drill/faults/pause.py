"""SIGSTOP: the node hangs; its connections stay open and nothing answers."""

from __future__ import annotations

import signal

from drkit.drill.rig import Rig


def inject(rig: Rig, node: str) -> str:
    """Pause a node."""
    if node == "mirror":
        mirror = rig.the_mirror()
        mirror.send(signal.SIGSTOP)
        return f"the mirror (pid {mirror.pid}) is paused"
    return f"paused {', '.join(rig.lab.pause(node))}"
