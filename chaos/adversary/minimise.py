"""Delta debugging (Zeller and Hildebrandt, 2002): the fewest actions that still fail. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def minimise(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """A subsequence that still fails, and doesn't without any one of its items.

    Args:
        items: a failing sequence.
        fails: whether a subsequence fails.
    """
    kept = list(items)
    parts = 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        for at in range(0, len(kept), size):
            rest = kept[:at] + kept[at + size :]
            if fails(rest):
                kept, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(kept), parts * 2)
    return kept
