"""Recognises a tail as the mirror's own although its offsets are not the expected ones. Pure.

A marker has no sequence number. A dead worker's marker may arrive late, at the offset of a record; an expected one may
be missing. Then the offsets of the records after it are shifted by one:

    expected  8820 8821 | marker 8822 | 8823 8824          found    8820 8821 8822 8823

The mirror's records are still there, byte for byte and in order. So the target's tail is compared with the source's
records one by one, regardless of offsets, and rows record where each really is. A tail that differs in anything, lacks
a record or has one twice isn't the mirror's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


class ShiftedTail(Protocol):
    """A record as a consumer returns it."""

    def offset(self) -> int | None:
        """Where it is."""


@dataclass(frozen=True, slots=True)
class Realigned:
    """Where a partition continues: `source_offset` gets the target's end. `rows`: (source, target) offsets, ascending,
    that open the segments of the tail.
    """

    source_offset: int
    rows: tuple[tuple[int, int], ...]


def realign(
    pairs: Iterator[tuple[ShiftedTail | None, ShiftedTail | None, bool]],
    *,
    source_offset: int,
    source_end: int,
    target_end: int,
    delta: int | None,
) -> Realigned | None:
    """Compare both sides' records in step.

    Args:
        pairs: the target's next record, the source's next one, whether they are equal; where the target has no
            more, (None, the source's next record or None, True), once.
        source_offset: the first expected source offset.
        source_end: the source's end: a record below it that wasn't read doesn't exist.
        target_end: the target's end.
        delta: in force before the tail, or None.

    Returns:
        None where the tail isn't the source's records in order.
    """
    rows: list[tuple[int, int]] = []

    def place(source: int, target: int) -> None:
        nonlocal delta
        if target - source != delta:
            delta = target - source
            rows.append((source, target))

    for ours, theirs, same in pairs:
        if ours is None:
            # markers at the end correspond to source holes, as far as these go
            limit = source_end if theirs is None else int(theirs.offset() or 0)
            meant = source_offset if delta is None else target_end - delta
            if source_offset <= meant <= limit:
                source_offset = meant
            place(source_offset, target_end)
            return Realigned(source_offset, tuple(rows))
        if theirs is None or not same:
            return None
        place(int(theirs.offset() or 0), int(ours.offset() or 0))
        source_offset = int(theirs.offset() or 0) + 1
    return None
