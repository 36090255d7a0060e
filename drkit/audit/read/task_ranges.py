"""Cuts a scope into pieces, each of which a task reads on both sides. Pure.

A partition is cut at offsets of the source; where each cut is on the target follows from the mapping: places rise with
offsets, so everything that belongs to the source's part stands in the target's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from drkit.audit.compare.merge_join import Piece
from drkit.audit.compare.offset_zones import Zone, first_place
from drkit.audit.compare.range_proof import ProvenRegion, whole
from drkit.audit.compare.scope import Scope
from drkit.audit.read.offset_ranges import Span, share_out, wanted_tasks


def cut_up(scope: Scope, parallel: int, shift: int, regions: Sequence[ProvenRegion] | None = None) -> list[list[Piece]]:
    """The pieces of each task.

    Args:
        scope: what is compared.
        parallel: tasks that run at a time.
        shift: of chunks.
        regions: what of it; all, where none are given.
    """
    cutter = _Cutter(scope, shift, [whole(each) for each in scope.partitions] if regions is None else regions)
    return cutter.cut(parallel)


class _Cutter:
    """Cuts regions; while spans are shared out, their number is that of the region."""

    def __init__(self, scope: Scope, shift: int, regions: Sequence[ProvenRegion]) -> None:
        self._scope = scope
        self._shift = shift
        self._regions = regions

    def cut(self, parallel: int) -> list[list[Piece]]:
        source = [self._source(at) for at, each in enumerate(self._regions) if each.source_from < each.source_until]
        alone = [self._target(at) for at, each in enumerate(self._regions) if each.source_from >= each.source_until]
        tasks = [[self._piece(span) for span in spans] for spans in share_out(source, wanted_tasks(source, parallel))]
        return tasks + [
            [self._target_alone(span) for span in spans] for spans in share_out(alone, wanted_tasks(alone, parallel))
        ]

    def _source(self, at: int) -> Span:
        region = self._regions[at]
        each = self._scope.partitions[region.number]
        return Span(at, each.topic, each.partition, region.source_from, region.source_until, region.source_until)

    def _target(self, at: int) -> Span:
        region = self._regions[at]
        each = self._scope.partitions[region.number]
        return Span(at, each.target_topic, each.partition, region.target_from, region.target_until, region.target_until)

    def _piece(self, source: Span) -> Piece:
        region, target = self._regions[source.number], self._target(source.number)
        zones = self._scope.partitions[region.number].zones
        first = target.first if source.begins else _cut(region, zones, source.first)
        until = target.until if source.until == source.end else _cut(region, zones, source.until)
        return self._made(source, target._replace(first=first, until=until), _zones(zones, source.first, source.until))

    def _target_alone(self, target: Span) -> Piece:
        region, source = self._regions[target.number], self._source(target.number)
        nothing = source._replace(until=region.source_from, end=region.source_from)
        return self._made(nothing, target, self._scope.partitions[region.number].zones[:1])

    def _made(self, source: Span, target: Span, zones: tuple[Zone, ...]) -> Piece:
        number, scope = self._regions[source.number].number, self._scope
        source, target = source._replace(number=number), target._replace(number=number)
        return Piece(source, target, zones, self._shift, scope.since_ms, scope.until_ms)


def _cut(region: ProvenRegion, zones: tuple[Zone, ...], offset: int) -> int:
    """Where the target is cut if the source is cut here: what has its place below comes from below."""
    return min(max(first_place(zones, offset), region.target_from), region.target_until)


def _zones(cut: tuple[Zone, ...], first: int, until: int) -> tuple[Zone, ...]:
    low = max(0, bisect_right(cut, first, key=lambda zone: zone.first) - 1)
    return cut[low : max(low + 1, bisect_left(cut, until, key=lambda zone: zone.first))]
