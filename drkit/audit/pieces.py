"""How a scope is cut into pieces that tasks read abreast. Pure.

A partition is cut at offsets of the source; where each cut is on the target follows from the mapping: places rise with
offsets, so everything that belongs to the source's part stands in the target's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from drkit.audit.abreast import Piece
from drkit.audit.places import Zone, first_place
from drkit.audit.scope import PartitionScope, Scope
from drkit.audit.spans import Span, share_out, wanted_tasks


def cut_up(scope: Scope, parallel: int, shift: int) -> list[list[Piece]]:
    """The pieces of each task.

    Args:
        scope: what is compared.
        parallel: tasks that run at a time.
        shift: of chunks.
    """
    source = [_source(each) for each in scope.partitions if each.source_from < each.source_end]
    alone = [_target(each) for each in scope.partitions if each.source_from >= each.source_end]
    tasks = [
        [_piece(scope, span, shift) for span in spans] for spans in share_out(source, wanted_tasks(source, parallel))
    ]
    return tasks + [
        [_target_alone(scope, span, shift) for span in spans]
        for spans in share_out(alone, wanted_tasks(alone, parallel))
    ]


def _source(each: PartitionScope) -> Span:
    return Span(each.number, each.topic, each.partition, each.source_from, each.source_end, each.source_end)


def _target(each: PartitionScope) -> Span:
    return Span(each.number, each.target_topic, each.partition, each.target_from, each.target_end, each.target_end)


def _piece(scope: Scope, source: Span, shift: int) -> Piece:
    each = scope.partitions[source.number]
    target = _target(each)
    first = target.first if source.begins else _cut(each, source.first)
    until = target.until if source.until == source.end else _cut(each, source.until)
    cut = _zones(each.zones, source.first, source.until)
    return Piece(source, target._replace(first=first, until=until), cut, shift, scope.since_ms, scope.until_ms)


def _target_alone(scope: Scope, target: Span, shift: int) -> Piece:
    each = scope.partitions[target.number]
    nothing = _source(each)._replace(until=each.source_from, end=each.source_from)
    return Piece(nothing, target, each.zones[:1], shift, scope.since_ms, scope.until_ms)


def _cut(each: PartitionScope, offset: int) -> int:
    """Where the target is cut if the source is cut here: what has its place below comes from below."""
    return min(max(first_place(each.zones, offset), each.target_from), each.target_end)


def _zones(cut: tuple[Zone, ...], first: int, until: int) -> tuple[Zone, ...]:
    low = max(0, bisect_right(cut, first, key=lambda zone: zone.first) - 1)
    return cut[low : max(low + 1, bisect_left(cut, until, key=lambda zone: zone.first))]
