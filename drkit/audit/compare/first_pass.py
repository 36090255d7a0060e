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

Tasks read both sides of a piece together and compare them (`merge_join.py`), batches first: those that a mirror
forwarded unchanged are proven equal without decoding a record; nothing is shuffled. A partition is cut into pieces at
offsets of the source; where each cut is on the target follows from the mapping: places rise with offsets, so everything
that belongs to the source's part stands in the target's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from drkit.audit.compare.merge_join import MatchedRange, Piece, PieceComparison, SourceLeft, TargetLeft
from drkit.audit.compare.merge_join_tasks import compare_pieces, prove_ranges
from drkit.audit.compare.offset_zones import Zone, first_place
from drkit.audit.compare.range_proof import Provable, ProvenRegion, RangeProof, choose, covered, regions, whole
from drkit.audit.compare.record_frames import ScopeReader, in_tasks
from drkit.audit.compare.scope import Scope
from drkit.audit.read.offset_ranges import Span, share_out, shared_whole, wanted_tasks
from drkit.audit.spark.failures import LogMoved
from drkit.model.digests import Coverage, RangeDigest, Uncovered
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
        return self._made(
            source, target._replace(first=first, until=until), _zones_within(zones, source.first, source.until)
        )

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


def _zones_within(cut: tuple[Zone, ...], first: int, until: int) -> tuple[Zone, ...]:
    low = max(0, bisect_right(cut, first, key=lambda zone: zone.first) - 1)
    return cut[low : max(low + 1, bisect_left(cut, until, key=lambda zone: zone.first))]


def compare_batches(reader: ScopeReader, say: Callable[[str], None], *, full: bool = False) -> Comparison:
    """Run the first pass: both sides' batches, and the records of those that differ; of all, where `full`."""
    scope = reader.scope
    shift = chunk_shift(scope)
    proven = prove_by_digest(reader, shift, say) if scope.by_digest else None
    tasks = cut_up(scope, reader.parallel, shift, None if proven is None else proven.regions)
    pieces = [piece for task in tasks for piece in task]
    found = compared_pieces(reader, tasks, full=full, most=MEMORY_BUDGET // 2 // max(1, len(pieces)))
    say(
        f"{sum(each.equal for each in found):,} batches are equal, {sum(each.different for each in found):,} differ or "
        "were rebuilt"
    )
    stay = _brought_in(reader, pieces, found, full=full)
    if stay:
        say(f"{sum(each.source_count + each.target_count for each in found):,} records differ: they stay in Spark")
    stretches: defaultdict[int, list[MatchedRange]] = defaultdict(list)
    for row in () if proven is None else proven.stretches:
        stretches[row.p].append(row)
    in_hand: defaultdict[int, PartitionResiduals] = defaultdict(lambda: PartitionResiduals([], []))
    for each in found:
        stretches[each.number] += each.stretches
        if (each.source_left or each.target_left) and each.number not in stay:
            in_hand[each.number].source_left.extend(each.source_left)
            in_hand[each.number].target_left.extend(each.target_left)
    return Comparison(
        tallies=tallied(scope, found, stretches),
        shift=shift,
        stretches=stretches,
        pieces=_by_partition(pieces),
        in_hand=dict(in_hand),
        in_tasks=frozenset(stay),
        full=full,
        coverage=None if proven is None else proven.coverage,
        source_unreadable=by_partition((each.number, *ends) for each in found for ends in each.source_unreadable),
        target_unreadable=by_partition((each.number, *ends) for each in found for ends in each.target_unreadable),
    )


def _by_partition(pieces: Sequence[Piece]) -> dict[int, list[Piece]]:
    found: defaultdict[int, list[Piece]] = defaultdict(list)
    for each in pieces:
        found[each.source.number].append(each)
    return dict(found)


def compared_pieces(
    reader: ScopeReader, tasks: Sequence[Sequence[Piece]], *, full: bool, most: int | None = None
) -> list[PieceComparison]:
    """The outcome of each piece, in their order."""
    scope = reader.scope
    work = partial(
        compare_pieces,
        scope.source_reached(),
        scope.target_reached(),
        full=full,
        most=most,
    )
    found: list[PieceComparison] = in_tasks(reader.spark, work, tasks)
    return found


def _brought_in(reader: ScopeReader, pieces: Sequence[Piece], found: list[PieceComparison], *, full: bool) -> set[int]:
    """Fetch residuals that stayed in tasks, as far as the driver has room for whole partitions of them.

    Each task knows its share of the budget only, so much damage in one place stays although there would be room.

    Returns:
        the numbers of the partitions that stay in tasks.
    """
    stay = {each.number for each in found if each.stays}
    if not stay:
        return stay
    sizes: defaultdict[int, int] = defaultdict(int)
    for each in found:
        sizes[each.number] += each.size
    room = MEMORY_BUDGET - sum(size for number, size in sizes.items() if number not in stay)
    fetched: set[int] = set()
    for number in sorted(stay, key=lambda each: (sizes[each], each)):
        room -= sizes[number]
        if room < 0:
            break
        fetched.add(number)
    again = [at for at, each in enumerate(found) if each.stays and each.number in fetched]
    for at, each in zip(again, compared_pieces(reader, [[pieces[at]] for at in again], full=full), strict=True):
        if (each.source_count, each.target_count) != (found[at].source_count, found[at].target_count):
            raise LogMoved("records were removed during the comparison", remedy="Run it again")
        found[at] = each
    return stay - fetched


def tallied(
    scope: Scope, found: Sequence[PieceComparison], stretches: defaultdict[int, list[MatchedRange]]
) -> dict[int, PartitionTally]:
    """The first pass in figures, by partition."""
    outcomes: defaultdict[int, list[PieceComparison]] = defaultdict(list)
    for each in found:
        outcomes[each.number].append(each)
    return {
        each.number: PartitionTally(
            matched=sum(row.n for row in stretches[each.number]),
            matched_inside=sum(row.n for row in stretches[each.number] if row.inside),
            source_left=sum(one.source_count for one in outcomes[each.number]),
            target_left=sum(one.target_count for one in outcomes[each.number]),
            source_left_inside=sum(one.source_inside for one in outcomes[each.number]),
            last_source=max((row.s_hi for row in stretches[each.number]), default=None),
            last_target=max((row.t_hi for row in stretches[each.number]), default=None),
        )
        for each in scope.partitions
    }


@dataclass(frozen=True, slots=True)
class Proven:
    """What digests proved of a scope, and what is left."""

    ranges: tuple[tuple[Provable, RangeProof], ...]
    left: tuple[tuple[int, RangeDigest, Uncovered], ...]
    regions: tuple[ProvenRegion, ...]

    @property
    def stretches(self) -> Iterator[MatchedRange]:
        """The records proven."""
        return (row for _, proof in self.ranges for row in proof.stretches)

    @property
    def coverage(self) -> Coverage:
        """In figures."""
        return covered(self.ranges, self.left, self.regions)


def prove_by_digest(reader: ScopeReader, shift: int, say: Callable[[str], None]) -> Proven:
    """Read the target where digests were kept, and compare it with them."""
    scope = reader.scope
    claims: list[Provable] = []
    left: list[tuple[int, RangeDigest, Uncovered]] = []
    for each in scope.partitions:
        usable, others = choose(each)
        claims += usable
        left += ((each.number, row, reason) for row, reason in others)
    spans = [Span(at, "", 0, 0, claim.digest.records, claim.digest.records) for at, claim in enumerate(claims)]
    shared = shared_whole(spans, wanted_tasks(spans, reader.parallel))
    tasks = [[claims[span.number] for span in task] for task in shared]
    say(f"reading {sum(claim.digest.records for claim in claims):,} records of the target, of which digests are kept")
    work = partial(prove_ranges, scope.target_reached(), shift)
    proofs: list[RangeProof] = in_tasks(reader.spark, work, tasks)
    ranges = []
    for claim, proof in zip((claim for task in tasks for claim in task), proofs, strict=True):
        if proof.holds:
            ranges.append((claim, proof))
        else:
            left.append((claim.number, claim.digest, Uncovered.DIFFERS))
    say(f"{sum(row.n for _, proof in ranges for row in proof.stretches):,} records are proven by digest")
    by_partition: defaultdict[int, list[Provable]] = defaultdict(list)
    for claim, _ in ranges:
        by_partition[claim.number].append(claim)
    rest = [region for each in scope.partitions for region in regions(each, by_partition[each.number])]
    return Proven(tuple(ranges), tuple(left), tuple(rest))
