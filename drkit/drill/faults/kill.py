"""SIGKILL: the node is gone at once, with whatever it had not written."""

from __future__ import annotations

from drkit.drill.rig import Rig
from drkit.model.errors import Refused


def inject(rig: Rig, node: str) -> str:
    """Kill a node.

    Raises:
        Refused: none of it was running.
    """
    if node == "mirror":
        mirror = rig.the_mirror()
        mirror.kill()
        return f"the mirror (pid {mirror.pid}) is killed"
    killed = rig.lab.kill(node)
    if not killed:
        raise Refused(f"{node} was not running, so it can't be killed", remedy="Look at the steps before this one")
    return f"killed {', '.join(killed)}"
