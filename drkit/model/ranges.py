"""Ranges [first, until) of offsets. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def merged_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that touch put together; empty ones left out."""
    found: list[tuple[int, int]] = []
    for first, until in sorted(ranges):
        if first >= until:
            continue
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(until, found[-1][1]))
        else:
            found.append((first, until))
    return found
