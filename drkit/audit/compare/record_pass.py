"""The first pass: compares every record of both sides with the one at its place; equal ones are counted, the rest is
kept.

    source   s  ──place──▶  e ═══ t   target
                            │
              equal:          matched at its place     → summed up (a range)
              anything else:  a residual               → kept, with both sides' fields

A range sums up the records that matched within one chunk of target offsets, so that later steps know their offsets
without reading them again. Without damage only ranges are left. The driver holds the residuals of as many partitions as
fit into its budget (`MEMORY_BUDGET`, over all partitions); the others are compared again in the tasks that classify
them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from drkit.audit.compare.merge_join import MatchedRange, Piece, SourceLeft, TargetLeft
from drkit.audit.compare.scope import Scope
from drkit.model.digests import Coverage
from drkit.model.offsets import merged_ranges

MEMORY_BUDGET = 256 << 20
"""Bytes of residuals that the driver holds in all, about."""

_STRETCHES = 20_000
"""About how many chunks there are over all partitions."""


@dataclass(frozen=True, slots=True)
class PartitionTally:
    """What the first pass found of one partition.

    `matched` counts all matched records, `matched_inside` those within the time window; `source_left`
    and `target_left` the residuals. `last_source`, `last_target`: the highest matched offsets.
    """

    matched: int = 0
    matched_inside: int = 0
    source_left: int = 0
    target_left: int = 0
    source_left_inside: int = 0
    last_source: int | None = None
    last_target: int | None = None


Unreadable = Mapping[int, tuple[tuple[int, int], ...]]
"""Offsets [first, until) by the number of a partition, ascending and apart."""


class PartitionResiduals(NamedTuple):
    """The residuals of one partition, by offset."""

    source_left: list[SourceLeft]
    target_left: list[TargetLeft]


@dataclass(frozen=True)
class Comparison:
    """The first pass.

    `tallies`, `stretches` and `pieces`, as which it was compared, by partition; `in_hand`: the residuals of the
    partitions that have any and that the driver holds; `in_tasks`: the partitions whose residuals it doesn't. `full`:
    every record is decoded. `coverage`: what was proven by digest. `source_unreadable`, `target_unreadable`: offsets
    that can't be read, of which there are no residuals.
    """

    tallies: Mapping[int, PartitionTally]
    shift: int
    stretches: Mapping[int, list[MatchedRange]]
    pieces: Mapping[int, list[Piece]]
    in_hand: Mapping[int, PartitionResiduals]
    in_tasks: frozenset[int] = frozenset()
    full: bool = False
    coverage: Coverage | None = None
    source_unreadable: Unreadable = field(default_factory=dict)
    target_unreadable: Unreadable = field(default_factory=dict)


def by_partition(ranges: Iterable[tuple[int, int, int]]) -> Unreadable:
    """Ranges (partition's number, first, until) put together."""
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, first, until in ranges:
        found[number].append((first, until))
    return {number: tuple(merged_ranges(members)) for number, members in found.items()}


def chunk_shift(scope: Scope) -> int:
    """How wide chunks are (2**shift target offsets): wider where there is more to read."""
    offsets = sum(each.target_end - each.target_from for each in scope.partitions)
    return max(10, (offsets // _STRETCHES).bit_length())


def within(scope: Scope, stamp: Column) -> Column:
    """Whether a timestamp (ms) is in the scope's time window."""
    inside = F.lit(True)
    if scope.since_ms is not None:
        inside = inside & (stamp >= F.lit(scope.since_ms))
    if scope.until_ms is not None:
        inside = inside & (stamp < F.lit(scope.until_ms))
    return inside
