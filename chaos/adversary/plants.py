"""Defects put back on purpose, as small patches of drkit: the adversary must find each."""

from __future__ import annotations

from collections.abc import Callable

PLANTS: dict[str, Callable[[], None]] = {}
"""By name: what patches the defect into this process."""


def plant(names: str) -> None:
    """Put defects (names with commas) into this process; "-": none."""
    for name in names.split(",") if names != "-" else ():
        PLANTS[name]()
