"""Decides which residuals are explained by compaction, which is no anomaly of the mirror. Pure.

Compaction removes a record once a later record of its key exists, and leaves its offset empty. So a record that is
missing on a compacted side is explained only if

- its place there is empty: nothing else is there, and the records around it are no closer together than on the other
  side (a record that was never written leaves no gap), each empty offset explaining one record; and
- a later record of its key is there, whoever wrote it, even after the audit began (a cleaner considers everything that
  its log holds when it runs); or it is a tombstone, or older than one that is missing, too, and nothing as old of its
  key is left, because tombstones are removed after `delete.retention.ms`; or it has no key (it is older than the
  topic's compaction); or, on a source whose link mirrors records of aborted transactions, it may have been one of
  these, which the cleaner always removes.

The newest value of a key is never explained by compaction.

A tombstone above the highest mirrored position may have been copied by a mirror that was killed before it recorded so,
and may have been removed since. Nothing shows that: the empty offset may have held somebody else's record. A record
that only such a tombstone would explain is neither retired nor lost, but unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from drkit.audit.classify.ordering import AdjacentLines
from drkit.audit.compare.merge_join import SourceLeft, TargetLeft
from drkit.audit.compare.offset_zones import Zone


class CompactedResiduals(NamedTuple):
    """Source residuals, by offset: what the target's cleaner took, and what it may have taken, which nothing shows."""

    taken: set[int]
    perhaps: set[int]


def compacted_on_target(
    missing: Sequence[tuple[SourceLeft, AdjacentLines]],
    newest_there: Mapping[bytes, int],
    strangers: Mapping[bytes, int],
    written_since: Collection[bytes],
    occupied: Collection[int],
    log: tuple[int, int],
    *,
    unrecorded: Iterable[tuple[SourceLeft, AdjacentLines]] = (),
) -> CompactedResiduals:
    """Which source residuals the target's compaction explains.

    Args:
        missing: the residuals in question.
        newest_there: by key, the highest source offset of a record that is on the target.
        strangers: keys of target records without an equal one on the source, each with the highest of their offsets.
        written_since: keys of records behind all that is compared: what came since, and what the target's own producers
            wrote after a failover.
        occupied: target offsets that hold a residual.
        log: the target's log [first, until).
        unrecorded: tombstones above the highest mirrored position. One whose place is empty and before the log's end
            may have stood there all the same: a mirror that was killed recorded less than it had copied.
    """
    copied = highest_of_keys(
        (row.s_key, row.s)
        for row, beside in unrecorded
        if row.placed and _is_free(row.e + beside.displaced_before, occupied, log)
    )
    tombstones = highest_of_keys((row.s_key, row.s) for row, _ in missing if row.s_null)
    tried = []
    perhaps: set[int] = set()
    for row, beside in missing:
        key = row.s_key
        if not row.placed:
            continue
        places = (row.e + beside.displaced_before, row.e + beside.displaced_after)
        if key is None:
            explained = True
        else:
            newest = newest_there.get(key)
            superseded = (
                key in written_since or (newest is not None and row.s < newest) or strangers.get(key, -1) > max(places)
            )
            gone = newest is None and key not in strangers
            explained = superseded or (gone and tombstones.get(key, -1) >= row.s)
            if not explained and gone and copied.get(key, -1) >= row.s:
                perhaps.add(row.s)
        if explained or row.s in perhaps:
            above = None if beside.before is None else beside.before.t_hi
            below = None if beside.after is None else beside.after.t_lo
            tried.append(_Tried(row.s, places, above, below, beside.within))
    found = _one_each(tried, occupied, log, perhaps)
    return CompactedResiduals(found - perhaps, found & perhaps)


def compacted_on_source(
    left: Sequence[tuple[TargetLeft, AdjacentLines]],
    newest: Mapping[bytes, int],
    zones: Sequence[Zone],
    occupied: Collection[int],
    log: tuple[int, int],
    *,
    aborted: bool = False,
) -> set[int]:
    """Which target residuals the source's compaction explains; their offsets.

    Args:
        left: the residuals in question.
        newest: by key, the highest source offset of a record, or one behind all that is compared.
        zones: of the partition.
        occupied: source offsets that hold a residual.
        log: the source's log [first, until), as far as it may be mirrored.
        aborted: records of aborted transactions are mirrored, too: the source's cleaner takes these whatever their key.
    """
    tombstones = highest_of_keys((row.t_key, row.t) for row, _ in left if row.t_null)
    lookup = PlaceOwners(zones)
    tried = []
    for row, beside in left:
        key = row.t_key
        stood_before = lookup.source_of(row.t - beside.displaced_before)
        stood_after = lookup.source_of(row.t - beside.displaced_after)
        stood = stood_after if stood_before is None else stood_before
        superseded = key is not None and (
            (stood is not None and newest.get(key, -1) > stood) or tombstones.get(key, -1) > row.t
        )
        if superseded or key is None or row.t_null or aborted:
            above = None if beside.before is None else beside.before.s_hi
            below = None if beside.after is None else beside.after.s_lo
            tried.append(_Tried(row.t, (stood_before, stood_after), above, below, beside.within))
    return _one_each(tried, occupied, log)


def highest_of_keys(rows: Iterable[tuple[bytes | None, int]]) -> dict[bytes, int]:
    """The highest offset of each key, of (key, offset); records without a key are left out."""
    found: dict[bytes, int] = {}
    for key, offset in rows:
        if key is not None:
            found[key] = max(offset, found.get(key, offset))
    return found


def _is_free(offset: int, occupied: Collection[int], log: tuple[int, int]) -> bool:
    return log[0] <= offset < log[1] and offset not in occupied


class _Tried(NamedTuple):
    """A row at `at`, where it would stand going by what is before it and by what is after it, and the offsets that it
    must lie between, unless it is `within` a line."""

    at: int
    places: tuple[int | None, int | None]
    above: int | None
    below: int | None
    within: bool


def _one_each(
    tried: Iterable[_Tried], occupied: Collection[int], log: tuple[int, int], last: Collection[int] = ()
) -> set[int]:
    """Of the rows between the same two records, the first ones, as many as there are empty offsets for them; those of
    `last` have what is left.
    """
    rows: defaultdict[tuple[int | None, int | None], list[int]] = defaultdict(list)
    room: defaultdict[tuple[int | None, int | None], set[int]] = defaultdict(set)
    for each in tried:
        first, second = each.places
        if not each.within and first is not None and each.below is not None and first >= each.below:
            first = None
        if not each.within and second is not None and each.above is not None and second <= each.above:
            second = None
        empty = {offset for offset in (first, second) if offset is not None and _is_free(offset, occupied, log)}
        if empty:
            gap = (each.above, each.below)
            rows[gap].append(each.at)
            room[gap] |= empty
    return {
        at
        for gap, members in rows.items()
        for at in sorted(members, key=lambda each: (each in last, each))[: len(room[gap])]
    }


class PlaceOwners:
    """Finds whose place a target offset is."""

    def __init__(self, zones: Sequence[Zone]) -> None:
        self._zones = zones
        self._first = [zone.valid_from + zone.delta for zone in zones]

    def source_of(self, target_offset: int) -> int | None:
        """The source offset; None where it is nobody's."""
        at = bisect_right(self._first, target_offset) - 1
        if at < 0:
            return None
        zone = self._zones[at]
        offset = target_offset - zone.delta
        return offset if offset < zone.valid_until else None
