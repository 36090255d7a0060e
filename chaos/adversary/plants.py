"""Defects put back on purpose, as small patches of drkit: the adversary must find each."""

from __future__ import annotations

from collections.abc import Callable

PLANTS: dict[str, Callable[[], None]] = {}
"""By name: what patches the defect into this process."""


def plant(name: str) -> None:
    """Put a defect into this process; "-": none."""
    if name != "-":
        PLANTS[name]()
