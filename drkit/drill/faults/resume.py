"""SIGCONT: a paused node goes on, believing that no time has passed."""

from __future__ import annotations

import signal

from drkit.drill.rig import Rig


def inject(rig: Rig, node: str) -> str:
    """Resume a node; one that isn't paused is left as it is."""
    if node == "mirror":
        mirror = rig.the_mirror()
        mirror.send(signal.SIGCONT)
        return f"the mirror (pid {mirror.pid}) goes on"
    return f"resumed {', '.join(rig.lab.resume(node))}"
