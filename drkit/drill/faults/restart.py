"""Restart: stopped in order where it runs, then started on the same ports and data."""

from __future__ import annotations

from drkit.drill.rig import Rig


def inject(rig: Rig, node: str) -> str:
    """Restart a node; a dead one is just started. Returns when it answers."""
    if node == "mirror":
        mirror = rig.the_mirror()
        mirror.restart()
        return f"the mirror runs again (pid {mirror.pid})"
    return f"restarted {', '.join(rig.lab.restart(node, say=rig.say))}"
