"""What range digests can prove of a partition, and what is left to be compared on both sides. Pure.

    range digests   [100 ……… 200)          [230 …… 300)
    regions        …100)         [200 … 230)            [300 …

A mirror's range digest sums up the batches that it appended. If the target's batches have the same sum, every record
that the mirror read in the range is at its place, unaltered and alone; so it counts as matched, and the source isn't
read for it. Between such ranges are regions of both sides that belong together: places rise with offsets and are
unique, so records with a place in a range have nothing to do with those in a region.

The source must still hold what was read: the batch that ends the range, or one above (`PartitionScope.source_held`).
A range is read completely or not at all. If the source's retention has removed its beginning meanwhile, the rest of it
is still proven; what the target has of the beginning belongs to a region.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from drkit.audit.compare.merge_join import MatchedRange
from drkit.kafka.protocol.record_batch import MAGIC, Batch, placed_digest
from drkit.model.audit.audit_result import PlacementBasis
from drkit.model.digests import DIGEST_MASK, Coverage, NotCovered, RangeDigest, Uncovered

if TYPE_CHECKING:
    from drkit.audit.compare.scope import PartitionScope  # Spark's workers need not load what observes clusters


class Provable(NamedTuple):
    """A range to be proven: its digest and, on the target, the first offset of it that counts. `number`, `topic` and
    `partition` are those of the target's in the scope."""

    number: int
    topic: str
    partition: int
    digest: RangeDigest
    first: int


class RangeProof(NamedTuple):
    """Whether the target holds what the digest says; then its records as stretches."""

    number: int
    holds: bool
    stretches: tuple[MatchedRange, ...]


class ProvenRegion(NamedTuple):
    """Offsets of a partition that are compared on both sides: [source_from, source_until) with what stands in
    [target_from, target_until)."""

    number: int
    source_from: int
    source_until: int
    target_from: int
    target_until: int


def whole(each: PartitionScope) -> ProvenRegion:
    """All of a partition."""
    return ProvenRegion(each.number, each.source_from, each.source_end, each.target_from, each.target_end)


def choose(each: PartitionScope) -> tuple[list[Provable], list[tuple[RangeDigest, Uncovered]]]:
    """The ranges of a partition that can be proven, ascending and apart, and the others with the reason.

    Where ranges overlap (a target that lost records was written again, a worker that was late) a newer generation's
    is taken, else the one that begins first.
    """
    taken: list[RangeDigest] = []
    left: list[tuple[RangeDigest, Uncovered]] = []
    begun = (row for row in each.digests if row.source_end > each.source_start)  # retention has taken all of the others
    for row in sorted(begun, key=lambda one: (-one.generation, one.target_start)):
        reason = _hindrance(each, row)
        if reason is not None:
            left.append((row, reason))
            continue
        at = bisect_right(taken, row.target_start, key=lambda one: one.target_start)
        free = (at == 0 or taken[at - 1].target_end <= row.target_start) and (
            at == len(taken) or row.target_end <= taken[at].target_start
        )
        if free:
            taken.insert(at, row)
    return [
        Provable(
            each.number,
            each.target_topic,
            each.partition,
            row,
            max(row.target_start, each.source_start + row.delta),
        )
        for row in taken
    ], left


def _hindrance(each: PartitionScope, row: RangeDigest) -> Uncovered | None:
    """Why a range isn't proven by its digest; None where it can be."""
    if each.source_compacted or each.target_compacted:
        return Uncovered.COMPACTED
    if each.basis is not PlacementBasis.MAPPING or not _placed(each, row):
        return Uncovered.MAPPING
    if row.source_end > each.source_held:
        return Uncovered.SOURCE_DIVERGED
    if row.target_start < each.target_start:
        return Uncovered.TARGET_RETIRED
    if row.target_end > each.target_end or row.source_end > each.source_end:
        return Uncovered.BEYOND_END
    return None


def _placed(each: PartitionScope, row: RangeDigest) -> bool:
    """Whether the mapping says of the whole range what its digest says."""
    zone = each.zones[bisect_right(each.zones, row.source_start, key=lambda one: one.first) - 1]
    return zone.delta == row.delta and zone.valid_from <= row.source_start and row.source_end <= zone.valid_until


def prove(claim: Provable, answers: Iterable[list[Batch]], shift: int) -> RangeProof:
    """Whether the target's batches sum up to the digest.

    Args:
        claim: the range.
        answers: the target's committed batches, as `LogReader.read` gives them for it.
        shift: of chunks.
    """
    row = claim.digest
    back = row.delta
    total = batches = records = 0
    sums: dict[int, list[int]] = {}
    for found in answers:
        for batch in found:
            start, stop = batch.base_offset, batch.last_offset + 1
            within = row.target_start <= start and stop <= row.target_end
            if batch.magic < MAGIC or not within or batch.records_count != stop - start or not batch.intact():
                return RangeProof(claim.number, False, ())
            total += placed_digest(start, batch.whole, batch.records)
            batches += 1
            records += batch.records_count
            low = max(start, claim.first)
            while low < stop:
                chunk = low >> shift
                high = min(stop, (chunk + 1) << shift)
                known = sums.get(chunk)
                if known is None:
                    sums[chunk] = [high - low, low - back, high - 1 - back, low, high - 1, batch.max_timestamp]
                else:
                    known[0] += high - low
                    known[2] = high - 1 - back
                    known[4] = high - 1
                    known[5] = max(known[5], batch.max_timestamp)
                low = high
    holds = (total & DIGEST_MASK, batches, records) == (row.digest, row.batches, row.records)
    number = claim.number
    stretches = tuple(MatchedRange(number, True, chunk, *known) for chunk, known in sums.items()) if holds else ()
    return RangeProof(number, holds, stretches)


def regions(each: PartitionScope, proven: Iterable[Provable]) -> Iterator[ProvenRegion]:
    """What of a partition lies between proven ranges, ascending."""
    source, target = each.source_from, each.target_from
    for claim in proven:
        first, delta = claim.first, claim.digest.delta
        if source < first - delta or target < first:
            yield ProvenRegion(each.number, source, first - delta, target, first)
        source, target = claim.digest.source_end, claim.digest.target_end
    if source < each.source_end or target < each.target_end:
        yield ProvenRegion(each.number, source, each.source_end, target, each.target_end)


def covered(
    proven: Iterable[tuple[Provable, RangeProof]],
    left: Iterable[tuple[int, RangeDigest, Uncovered]],
    open_regions: Iterable[ProvenRegion],
) -> Coverage:
    """Sum up what was proven and, by reason, what wasn't.

    Args:
        proven: ranges that hold.
        left: ranges that were not proven, with their partition's number and why.
        open_regions: what was compared on both sides.
    """
    records = ranges = 0
    for _, proof in proven:
        records += sum(each.n for each in proof.stretches)
        ranges += 1
    reasons: defaultdict[int, list[tuple[int, int, Uncovered]]] = defaultdict(list)
    for number, row, reason in left:
        reasons[number].append((row.source_start, row.source_end, reason))
    found: defaultdict[Uncovered, list[int]] = defaultdict(lambda: [0, 0])

    def count(reason: Uncovered, offsets: int) -> None:
        if offsets > 0:
            found[reason][0] += 1
            found[reason][1] += offsets

    for region in open_regions:
        at = region.source_from
        for first, until, reason in sorted(reasons[region.number]):
            low, high = max(first, at), min(until, region.source_until)
            if low < high:
                count(Uncovered.NO_DIGEST, low - at)
                count(reason, high - low)
                at = high
        count(Uncovered.NO_DIGEST, region.source_until - at)
    order = list(Uncovered)
    not_covered = sorted(
        (NotCovered(reason, *counts) for reason, counts in found.items()), key=lambda one: order.index(one.reason)
    )
    return Coverage(records, ranges, tuple(not_covered))
