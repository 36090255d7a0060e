"""The first pass, batches first: what a mirror forwarded untouched is proven equal without decoding a record.

Tasks read both sides' parts of a partition abreast and compare them (`abreast.py`); nothing is shuffled. What they
hand over is small: stretches of matched records, and the few that have no equal one at their place. Where that would
be much, a task leaves the rest of its piece, and Spark joins it record by record; a partition of which most is left so
is joined whole. Places are nobody else's, so what the tasks matched and what is joined have nothing to do with each
other, and both together find exactly what joining everything would.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from drkit.audit.abreast import Compared, Piece, SourceLeft, Stretch, TargetLeft
from drkit.audit.abreast_tasks import compare_pieces, prove_ranges
from drkit.audit.by_digest import Proof, Provable, Region, choose, covered, regions
from drkit.audit.compare import (
    RESIDUAL_ARROW,
    SOURCE_FIELDS,
    STRETCH_FIELDS,
    TARGET_FIELDS,
    UNREADABLE_FIELDS,
    Comparison,
    InHand,
    Tally,
    by_partition,
    chunk_shift,
    compared,
    joined_records,
)
from drkit.audit.log_source import reached
from drkit.audit.pieces import cut_up
from drkit.audit.reading import Pieces, Reader, in_tasks, keep, merged, ranges_of
from drkit.audit.scope import PartitionScope, Scope
from drkit.audit.spans import Span, shared_whole, wanted_tasks
from drkit.model.digests import Coverage, RangeDigest, Uncovered

_Row = TypeVar("_Row", Stretch, SourceLeft, TargetLeft)

_ROW = {"p": pa.int32(), "inside": pa.bool_()} | dict.fromkeys(STRETCH_FIELDS[2:], pa.int64()) | RESIDUAL_ARROW
_ROW |= dict.fromkeys(UNREADABLE_FIELDS, pa.int64())
"""The columns of a comparison's rows."""


@dataclass(frozen=True, slots=True)
class LeftOver:
    """What tasks left: ranges on both sides, and partitions that are read whole."""

    source: Pieces
    target: Pieces
    whole: tuple[PartitionScope, ...]

    def __bool__(self) -> bool:
        return bool(self.source or self.target or self.whole)


def compare_batches(reader: Reader, say: Callable[[str], None]) -> Comparison:
    """Run the first pass: both sides' batches, and the records of those that differ."""
    scope, spark = reader.scope, reader.spark
    shift = chunk_shift(scope)
    proven = prove_by_digest(reader, shift, say) if scope.by_digest else None
    tasks = cut_up(scope, reader.parallel, shift, None if proven is None else proven.regions)
    work = partial(
        compare_pieces,
        reached(scope.link.id.source, scope.source_cluster, committed=scope.source_committed),
        reached(scope.link.id.target, scope.target_cluster),
    )
    found: list[Compared] = in_tasks(spark, work, tasks)
    say(
        f"{sum(each.equal for each in found):,} batches are equal, {sum(each.different for each in found):,} differ or "
        "were rebuilt"
    )
    rest = left_over(scope, [piece for task in tasks for piece in task], found)
    whole = {each.number for each in rest.whole}
    coverage = None if proven is None else proven.coverage(scope, whole)
    stretches = [*(() if proven is None else proven.stretches), *(row for each in found for row in each.stretches)]
    in_hand = InHand(
        tuple(row for row in stretches if row.p not in whole),
        tuple(row for each in found if each.number not in whole for row in each.source_left),
        tuple(row for each in found if each.number not in whole for row in each.target_left),
    )
    on_source = [(each.number, *ends) for each in found if each.number not in whole for ends in each.source_unreadable]
    on_target = [(each.number, *ends) for each in found if each.number not in whole for ends in each.target_unreadable]
    if not rest:
        return Comparison(
            lambda: _frame(reader, in_hand),
            _tallies(scope, in_hand),
            shift,
            in_hand,
            coverage,
            by_partition(on_source),
            by_partition(on_target),
        )
    say("much differs: joining what is left record by record")
    rows = _frame(reader, in_hand)
    if rest.source or rest.target:
        sides = (
            reader.source_pieces(rest.source, unreadable=True),
            reader.target_pieces(rest.target, unreadable=True),
        )
        rows = rows.unionByName(joined_records(scope, *sides, shift))
    if rest.whole:
        all_of_target = {each.number: (each.target_from, each.target_end) for each in rest.whole}
        sides = (
            reader.source(ranges_of(rest.whole), unreadable=True),
            reader.target(all_of_target, unreadable=True),
        )
        rows = rows.unionByName(joined_records(scope, *sides, shift))
    return compared(
        scope, keep(rows), shift, coverage=coverage, source_unreadable=on_source, target_unreadable=on_target
    )


@dataclass(frozen=True, slots=True)
class Proven:
    """What digests proved of a scope, and what is left."""

    ranges: tuple[tuple[Provable, Proof], ...]
    left: tuple[tuple[int, RangeDigest, Uncovered], ...]
    regions: tuple[Region, ...]

    @property
    def stretches(self) -> Iterator[Stretch]:
        """The records proven."""
        return (row for _, proof in self.ranges for row in proof.stretches)

    def coverage(self, scope: Scope, joined: Collection[int]) -> Coverage:
        """In figures; `joined`: partitions that were compared as a whole after all."""
        return covered(scope.partitions, self.ranges, self.left, self.regions, joined)


def prove_by_digest(reader: Reader, shift: int, say: Callable[[str], None]) -> Proven:
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
    work = partial(prove_ranges, reached(scope.link.id.target, scope.target_cluster), shift)
    proofs: list[Proof] = in_tasks(reader.spark, work, tasks)
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


def left_over(scope: Scope, pieces: Sequence[Piece], found: Sequence[Compared]) -> LeftOver:
    """What tasks left of their pieces."""
    source: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    target: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for piece, each in zip(pieces, found, strict=True):
        if each.rest is not None:
            source[each.number].append((each.rest[0], piece.source.until))
            target[each.number].append((each.rest[1], piece.target.until))
    whole = []
    for number in source.keys() | target.keys():
        each_scope = scope.partitions[number]
        left = sum(until - first for first, until in (*source[number], *target[number]))
        all_there = each_scope.source_end - each_scope.source_from + each_scope.target_end - each_scope.target_from
        if 2 * left > all_there:
            whole.append(each_scope)
            del source[number], target[number]
    return LeftOver(_some(source), _some(target), tuple(whole))


def _some(ranges: Mapping[int, Sequence[tuple[int, int]]]) -> Pieces:
    held = {number: [each for each in found if each[0] < each[1]] for number, found in ranges.items()}
    return merged({number: found for number, found in held.items() if found})


def _tallies(scope: Scope, in_hand: InHand) -> dict[int, Tally]:
    """As `compare.tallies` has them."""
    stretches = _by_partition(in_hand.stretches)
    source, target = _by_partition(in_hand.source_left), _by_partition(in_hand.target_left)
    return {
        each.number: Tally(
            matched=sum(row.n for row in stretches[each.number]),
            matched_inside=sum(row.n for row in stretches[each.number] if row.inside),
            source_left=len(source[each.number]),
            target_left=len(target[each.number]),
            source_left_inside=sum(scope.within(row.s_ts) for row in source[each.number]),
            target_left_inside=sum(scope.within(row.t_ts) for row in target[each.number]),
            last_source=max((row.s_hi for row in stretches[each.number]), default=None),
            last_target=max((row.t_hi for row in stretches[each.number]), default=None),
        )
        for each in scope.partitions
    }


def _by_partition(rows: Iterable[_Row]) -> defaultdict[int, list[_Row]]:
    found: defaultdict[int, list[_Row]] = defaultdict(list)
    for row in rows:
        found[row.p].append(row)
    return found


def _frame(reader: Reader, in_hand: InHand) -> DataFrame:
    """What is in hand as the rows of a comparison."""
    width, at = len(_ROW), {name: position for position, name in enumerate(_ROW)}
    rows: list[list[object]] = []
    shapes = (
        (in_hand.stretches, STRETCH_FIELDS),
        (in_hand.source_left, ("p", *SOURCE_FIELDS)),
        (in_hand.target_left, ("p", *TARGET_FIELDS)),
    )
    for members, names in shapes:
        for member in members:
            row: list[object] = [None] * width
            for name, value in zip(names, member, strict=False):  # a field more at the end is no column
                row[at[name]] = value
            rows.append(row)
    return reader.frame(_ROW, rows)
