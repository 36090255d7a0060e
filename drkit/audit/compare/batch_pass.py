"""The first pass in Spark's tasks: proves batches equal that a mirror forwarded unchanged, without decoding a record.

Tasks read both sides of a partition together and compare them (`merge_join.py`); nothing is shuffled. Their results are
small: ranges of matched records, and the few records without an equal one at their place. If there are many, they stay
in tasks (`compare.MEMORY_BUDGET`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from drkit.audit.compare.merge_join import MatchedRange, Piece, PieceComparison
from drkit.audit.compare.merge_join_tasks import compare_pieces, prove_ranges
from drkit.audit.compare.range_proof import Provable, ProvenRegion, RangeProof, choose, covered, regions
from drkit.audit.compare.record_pass import (
    MEMORY_BUDGET,
    Comparison,
    PartitionResiduals,
    PartitionTally,
    by_partition,
    chunk_shift,
)
from drkit.audit.compare.scope import Scope
from drkit.audit.read.offset_ranges import Span, shared_whole, wanted_tasks
from drkit.audit.read.record_frames import ScopeReader, in_tasks
from drkit.audit.read.task_ranges import cut_up
from drkit.audit.spark.failures import LogMoved
from drkit.model.digests import Coverage, RangeDigest, Uncovered


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
