"""Faults, one file each: `inject(rig, node)` does it and returns what was done, in words.

A node is one of the lab's (an alias means all its nodes), or `mirror`, the mirror's process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from drkit.drill.faults import kill, pause, restart, resume
from drkit.drill.rig import Rig

FAULTS: Final[dict[str, Callable[[Rig, str], str]]] = {
    "kill": kill.inject,
    "pause": pause.inject,
    "resume": resume.inject,
    "restart": restart.inject,
}
