"""Look-ups in the mapping rows of one partition and epoch, ascending by source offset."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from drkit.model.offsets import OffsetMapping, merged_ranges
from drkit.model.topology import TopicPartition

Ranges = tuple[tuple[int, int], ...]
"""Source offsets: ranges [first, end), ascending and apart."""
LostRows = Mapping[TopicPartition, Sequence[OffsetMapping]]
"""By partition, the rows that a store has lost, and its copy on the target has."""


def around(rows: Sequence[OffsetMapping], source_offset: int) -> tuple[OffsetMapping | None, OffsetMapping | None]:
    """The row in force at `source_offset` (the newest at or below it) and the first row above it, or None for each."""
    above = bisect_right(rows, source_offset, key=lambda row: row.source_offset)
    return rows[above - 1] if above else None, rows[above] if above < len(rows) else None


def floor(rows: Sequence[OffsetMapping], source_offset: int) -> OffsetMapping | None:
    """The row in force at `source_offset` (the newest at or below it), or None."""
    return around(rows, source_offset)[0]


def following(rows: Sequence[OffsetMapping], source_offset: int) -> OffsetMapping | None:
    """The first row strictly above `source_offset`, or None."""
    return around(rows, source_offset)[1]


def last_valid(rows: Sequence[OffsetMapping], target_end: int) -> OffsetMapping | None:
    """The last row whose `target_offset` is at most `target_end`, or None."""
    above = bisect_right(rows, target_end, key=lambda row: row.target_offset)
    return rows[above - 1] if above else None


def source_at(rows: Sequence[OffsetMapping], target_offset: int) -> int:
    """The source offset of the record at `target_offset`, or of the first record after it. Needs at least one row."""
    above = bisect_right(rows, target_offset, key=lambda row: row.target_offset)
    if above == 0:
        return rows[0].source_offset
    row = rows[above - 1]
    found = row.source_offset + (target_offset - row.target_offset)
    return found if above == len(rows) else min(found, rows[above].source_offset)


def former_ranges(
    rows: Sequence[OffsetMapping],
    epoch: int,
    log: tuple[int, int],
    rows_of: Callable[[int], Sequence[OffsetMapping]],
) -> Ranges:
    """The source offsets of which the target may hold what was mirrored in the topic's former epochs, below the first
    of these rows, which are of `epoch`, and below the end of the target's `log` ([start, end)).

    Between two acceptances a topic may have been mirrored in part, or not at all, so all former epochs count.

    `rows_of`: the rows of an epoch, ascending; not called where the target holds nothing below the first row.
    """
    found: list[tuple[int, int]] = []
    start = log[0]
    above = min(rows[0].target_offset, log[1]) if rows else log[1]
    for former in range(epoch - 1, 0, -1):
        if above <= start:
            break
        earlier = rows_of(former)
        if earlier and earlier[0].target_offset < above:  # others were written ahead, and never landed
            first = earlier[0].target_offset
            found.append((source_at(earlier, max(first, start)), source_at(earlier, above)))
            above = first
    return tuple(merged_ranges(found))


def conflict(rows: Sequence[OffsetMapping]) -> str | None:
    """Why rows (ascending by source offset) can't come from one mirror, or None where they can.

    Target offsets never fall as source offsets grow. A row that breaks this belongs to a segment that was never
    produced; the mirror removes such rows when it resumes.
    """
    for lower, upper in pairwise(rows):
        found = _pair_conflict(lower, upper)
        if found:
            return found
    return None


def ordered(*rows: OffsetMapping | None) -> str | None:
    """Like `conflict`, for the few rows of a single look-up; None stands for a row that doesn't exist."""
    present = [row for row in rows if row is not None]
    for lower, upper in pairwise(present):
        found = None if lower == upper else _pair_conflict(lower, upper)
        if found:
            return found
    return None


def _pair_conflict(lower: OffsetMapping, upper: OffsetMapping) -> str | None:
    if lower.tp != upper.tp or lower.epoch != upper.epoch:
        return f"rows of {lower.tp} epoch {lower.epoch} and {upper.tp} epoch {upper.epoch} are mixed"
    if upper.source_offset > lower.source_offset and upper.target_offset >= lower.target_offset:
        return None
    return (
        f"the mapping rows of {lower.tp} conflict: source {lower.source_offset} -> target {lower.target_offset}, "
        f"but source {upper.source_offset} -> target {upper.target_offset}"
    )
