"""Where each source record belongs on the target, from mapping rows. Pure.

A mapping row opens a segment: from its source offset on, the place of a record is offset + delta.
Rows don't say where a segment's last record is, but they bound it:

    rows     100 -> 100        200 -> 190
    source   100 … 189         (190 … 199: a hole)   200 …
    places   100 … 189                               190 …

A place at or beyond a later row's target offset belongs to that row, so 190 … 199 have no place of
their own. `Zone`s cut the offsets of a partition into ranges of one delta; in each, the offsets in
[valid_from, valid_until) have a place, and no two offsets of a partition share one. The others get
the nearest place below (`Zone.place`), which keeps places in the order of offsets; it says where such a
record would be, not that it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drkit.model.offsets import OffsetMapping

FOREVER = 1 << 62
"""Beyond every offset."""


@dataclass(frozen=True, slots=True)
class Zone:
    """Source offsets [first, until) of one delta; those in [valid_from, valid_until) have a place."""

    first: int
    until: int
    delta: int
    valid_from: int
    valid_until: int

    @property
    def cap(self) -> int:
        """The last place of the zone: what lies beyond belongs to a later row."""
        return self.valid_until - 1 + self.delta

    def place(self, offset: int) -> int:
        """The place of a source offset of this zone, or the nearest below."""
        return min(offset + self.delta, self.cap)


def zones(rows: Sequence[OffsetMapping]) -> tuple[Zone, ...]:
    """The zones of a partition: from 0 on, without gaps.

    Args:
        rows: all mapping rows of a partition in one epoch, ascending by source offset; not empty.
    """
    cut: list[Zone] = []
    bounds = _later_targets(rows)
    for index, row in enumerate(rows):
        until = rows[index + 1].source_offset if index + 1 < len(rows) else FOREVER
        valid_until = min(until, bounds[index] - row.delta)
        if valid_until > row.source_offset:
            cut.append(Zone(row.source_offset, until, row.delta, row.source_offset, valid_until))
        elif cut:  # every place belongs to a later row: such a row was never produced by
            last = cut[-1]
            cut[-1] = Zone(last.first, until, last.delta, last.valid_from, last.valid_until)
    if cut[0].first > 0:
        head = cut[0]
        cut.insert(0, Zone(0, head.first, head.delta, head.first, head.first))
    return tuple(cut)


def nominal(source_start: int, target_start: int) -> tuple[Zone, ...]:
    """The one zone of a partition of which nothing is recorded: both logs laid side by side at their starts."""
    return (Zone(0, FOREVER, target_start - source_start, 0, FOREVER),)


def place(cut: Iterable[Zone], offset: int) -> int:
    """The place of a source offset, or the nearest below."""
    return next(zone.place(offset) for zone in cut if zone.first <= offset < zone.until)


def first_place(cut: Iterable[Zone], offset: int) -> int:
    """The first place of a source offset at or above this one; FOREVER where there is none."""
    found = (
        max(offset, zone.valid_from) + zone.delta for zone in cut if zone.valid_until > max(offset, zone.valid_from)
    )
    return next(found, FOREVER)


def source_of(cut: Iterable[Zone], target_offset: int) -> int | None:
    """The source offset whose place this is, or None where it is nobody's."""
    for zone in cut:
        if zone.valid_from <= target_offset - zone.delta < zone.valid_until:
            return target_offset - zone.delta
    return None


def _later_targets(rows: Sequence[OffsetMapping]) -> list[int]:
    """For each row the least target offset of the rows after it."""
    least = FOREVER
    bounds = []
    for row in reversed(rows):
        bounds.append(least)
        least = min(least, row.target_offset)
    return bounds[::-1]
