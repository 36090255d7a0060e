"""What digests prove, against comparing both sides of everything: the same matches, the same left over."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drkit.audit.compare.first_pass import cut_up
from drkit.audit.compare.merge_join import MatchedRange, PieceComparison, compare_piece, gathered
from drkit.audit.compare.offset_zones import zones
from drkit.audit.compare.range_proof import choose, covered, prove, regions
from drkit.audit.compare.scope import PartitionScope
from drkit.audit.read.offset_ranges import Span, shared_whole
from drkit.kafka.protocol.record_batch import Batch, parse, placed_digest
from drkit.mirror.engine.range_digests import RangeDigests
from drkit.model.audit.audit_result import PlacementBasis
from drkit.model.digests import RangeDigest, Uncovered
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import TopicPartition
from tests.support.links.batches import Plain, batch_bytes

SHIFT = 3
TP = TopicPartition("t", 0)

Log = list[tuple[int, list[Plain]]]


def as_batch(base: int, rows: list[Plain]) -> Batch:
    (batch,) = parse(memoryview(batch_bytes(rows, base_offset=base)))
    return batch


def read(log: Log, first: int, until: int) -> Iterator[list[Batch]]:
    """As `LogReader.read`, in answers of two batches."""
    found = [as_batch(base, rows) for base, rows in log if base + len(rows) > first and base < until]
    for at in range(0, len(found), 2):
        yield found[at : at + 2]


class Mirror:
    """Forwards batches, as the engine does: places, mapping rows, digests."""

    def __init__(self) -> None:
        self.source: Log = []
        self.target: Log = []
        self.rows: list[OffsetMapping] = []
        self.ended: deque[RangeDigest] = deque()
        self.ranges = RangeDigests(TP, 0, self.ended)
        self.s = self.t = 0

    def hole(self, size: int, *, matched: bool) -> None:
        self.s += size
        self.t += size if matched else 0

    def forward(self, rows: list[Plain], *, rebuilt: bool = False) -> None:
        if not self.rows or self.rows[-1].delta != self.t - self.s:
            self.rows.append(OffsetMapping("t", 0, 0, self.s, self.t))
        self.source.append((self.s, rows))
        cut = len(rows) // 2 if rebuilt else 0
        for part in (rows[:cut], rows[cut:]):
            if part:
                batch = as_batch(self.t, part)
                digest = None if rebuilt else placed_digest(self.t, batch.whole, batch.records)
                self.ranges.take(self.s, self.t, len(part), len(batch.whole), digest, batch.crc)
                self.target.append((self.t, part))
                self.s += len(part)
                self.t += len(part)

    def restart(self) -> None:
        """Killed: what was open stays as it was last kept."""
        self.digests()
        self.ranges = RangeDigests(TP, 0, self.ended)

    def digests(self) -> tuple[RangeDigest, ...]:
        last = self.ranges.opened()
        if last is not None:
            self.ended.append(last)
        return tuple({each.target_start: each for each in self.ended}.values())

    def scope(self, **changed) -> PartitionScope:
        target_end = max((base + len(rows) for base, rows in self.target), default=0)
        one = PartitionScope(
            number=0, topic="t", target_topic="t", partition=0, source_start=0, source_end=self.s,
            target_start=0, target_end=target_end, source_from=0, target_from=0,
            zones=zones(self.rows or [OffsetMapping("t", 0, 0, 0, 0)]), basis=PlacementBasis.MAPPING, first_place=0,
            mirrored_through=None, sealed_at=None, earlier_until=None, source_compacted=False,
            target_compacted=False, digests=self.digests(), source_held=self.s,
        )  # fmt: skip
        return replace(one, **changed)


def records(rng, count: int, stamp: int) -> list[Plain]:
    return [(stamp + at, b"k%d" % rng.randrange(9), b"v%d" % rng.randrange(10**6), []) for at in range(count)]


def shifted(log: Log, after: int, by: int) -> Log:
    return [(base + by if base >= after else base, rows) for base, rows in log]


def damaged(log: Log, rng) -> Log:
    """One act of damage, as it would be in a log: what comes behind moves."""
    log = [(base, list(rows)) for base, rows in log]
    at = rng.randrange(len(log))
    base, rows = log[at]
    act = rng.choice(["altered", "dropped", "left out", "tail", "doubled", "swapped", "split"])
    if act == "altered":
        which = rng.randrange(len(rows))
        rows[which] = (*rows[which][:2], b"!", rows[which][3])
    elif act == "dropped":
        del log[at]  # a gap stays
    elif act == "left out":
        log = shifted(log[:at] + log[at + 1 :], base, -len(rows))
    elif act == "tail":
        log = log[:at]
    elif act == "doubled":
        log = [*log[: at + 1], (base + len(rows), rows), *shifted(log[at + 1 :], base, len(rows))]
    elif act == "swapped" and at + 1 < len(log) and log[at + 1][0] == base + len(rows):
        other = log[at + 1][1]
        log[at : at + 2] = [(base, other), (base + len(other), rows)]
    elif act == "split" and len(rows) > 1:
        log[at : at + 1] = [(base, rows[:1]), (base + 1, rows[1:])]
    return log


@st.composite
def mirrored(draw) -> tuple[Mirror, int]:
    """A mirror's work, perhaps damaged afterwards; and where the source's log starts by now."""
    rng = draw(st.randoms(use_true_random=False))
    mirror = Mirror()
    for number in range(draw(st.integers(1, 12))):
        if rng.random() < 0.3:
            mirror.hole(rng.randrange(1, 4), matched=rng.random() < 0.7)
        mirror.forward(records(rng, rng.randrange(1, 12), 1_000 + 20 * number), rebuilt=rng.random() < 0.2)
        if rng.random() < 0.1:
            mirror.restart()
    mirror.digests()
    for _ in range(draw(st.integers(0, 2))):
        if mirror.target:
            mirror.target = damaged(mirror.target, rng)
    return mirror, rng.choice([0, 0, rng.randrange(mirror.s)])


def both_sides(mirror: Mirror, scope: SimpleNamespace, only=None) -> list[PieceComparison]:
    return [
        gathered(
            compare_piece(
                piece,
                read(mirror.source, piece.source.first, piece.source.until),
                read(mirror.target, piece.target.first, piece.target.until),
            )
        )
        for task in cut_up(scope, 2, SHIFT, only)
        for piece in task
    ]


def summed(stretches: Iterable[MatchedRange]) -> dict[int, tuple[int, int, int, int, int]]:
    """By chunk: matched records, and the ends on both sides."""
    sums: dict[int, tuple[int, int, int, int, int]] = {}
    for each in stretches:
        assert each.inside
        n, s_lo, s_hi, t_lo, t_hi = sums.get(each.chunk, (0, *each[4:8]))
        sums[each.chunk] = (
            n + each.n, min(s_lo, each.s_lo), max(s_hi, each.s_hi), min(t_lo, each.t_lo), max(t_hi, each.t_hi),
        )  # fmt: skip
    return sums


@settings(max_examples=100, deadline=None)
@given(mirrored())
def test_digests_and_the_rest_find_what_comparing_everything_finds(made) -> None:
    mirror, source_start = made
    one = mirror.scope(source_start=source_start, source_from=source_start)
    scope = SimpleNamespace(partitions=(one,), since_ms=None, until_ms=None)
    mirror.source = [each for each in mirror.source if each[0] + len(each[1]) > source_start]

    claims, left = choose(one)
    proofs = [
        (each, prove(each, read(mirror.target, each.digest.target_start, each.digest.target_end), SHIFT))
        for each in claims
    ]
    holding = [(claim, proof) for claim, proof in proofs if proof.holds]
    rest = list(regions(one, [claim for claim, _ in holding]))
    compared = both_sides(mirror, scope, rest)
    everything = both_sides(mirror, scope)

    stretches = [row for _, proof in holding for row in proof.stretches]
    found = summed([*stretches, *(row for each in compared for row in each.stretches)])
    assert found == summed(row for each in everything for row in each.stretches)
    for side in ("source_left", "target_left"):
        mine, theirs = ([row for each in part for row in getattr(each, side)] for part in (compared, everything))
        assert sorted(mine, key=str) == sorted(theirs, key=str)
    failed = [(0, claim.digest, Uncovered.DIFFERS) for claim, proof in proofs if not proof.holds]
    coverage = covered(holding, [*((0, *each) for each in left), *failed], rest)
    assert coverage.proven == sum(row.n for row in stretches)
    assert sum(each.offsets for each in coverage.not_covered) == sum(r.source_until - r.source_from for r in rest)


def test_what_was_forwarded_untouched_is_all_proven() -> None:
    mirror = Mirror()
    for number in range(5):
        mirror.forward([(10 * number, b"k", b"v", [])] * 4)
        mirror.hole(1, matched=True)
    one = mirror.scope()
    (claim,), left = choose(one)
    proof = prove(claim, read(mirror.target, 0, 100), SHIFT)
    assert (proof.holds, sum(each.n for each in proof.stretches)) == (True, 20)
    (tail,) = regions(one, [claim])  # the last hole
    assert (tail.source_from, tail.source_until, tail.target_from, tail.target_until) == (24, 25, 24, 24)
    assert not left


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"source_compacted": True}, Uncovered.COMPACTED),
        ({"target_compacted": True}, Uncovered.COMPACTED),
        ({"basis": PlacementBasis.CONTENT}, Uncovered.MAPPING),
        ({"zones": zones([OffsetMapping("t", 0, 0, 0, 3)])}, Uncovered.MAPPING),
        ({"zones": zones([OffsetMapping("t", 0, 0, 0, 0), OffsetMapping("t", 0, 0, 6, 5)])}, Uncovered.MAPPING),
        ({"target_start": 1}, Uncovered.TARGET_RETIRED),
        ({"target_end": 7}, Uncovered.BEYOND_END),
        ({"source_end": 7}, Uncovered.BEYOND_END),
        ({"source_held": 7}, Uncovered.SOURCE_DIVERGED),
    ],
)
def test_ranges_that_can_not_be_proven_are_left_with_the_reason(changed, reason) -> None:
    mirror = Mirror()
    mirror.forward([(1, b"k", b"v", [])] * 8)
    claims, left = choose(mirror.scope(**changed))
    assert claims == []
    assert [why for _, why in left] == [reason]


def test_below_what_the_source_lost_ranges_are_proven_as_ever() -> None:
    mirror = Mirror()
    for number in range(2):
        mirror.forward([(number, b"k", b"v", [])] * 8)
        mirror.restart()
    claims, left = choose(mirror.scope(source_held=8))
    assert [(each.digest.source_start, each.digest.source_end) for each in claims] == [(0, 8)]
    assert [(row.source_start, why) for row, why in left] == [(8, Uncovered.SOURCE_DIVERGED)]


def test_of_ranges_that_overlap_the_newer_generations_is_taken() -> None:
    mirror = Mirror()
    mirror.forward([(1, b"k", b"v", [])] * 30)
    (whole,) = mirror.digests()
    late = replace(whole, target_start=5, source_start=5, target_end=15, generation=1)
    first, second = (replace(whole, target_start=at, source_start=at, target_end=at + 10) for at in (0, 10))
    newer = [replace(each, generation=2) for each in (first, second)]
    claims, left = choose(mirror.scope(digests=(late, *newer)))
    assert [each.digest for each in claims] == newer
    claims, left = choose(mirror.scope(digests=(newer[0], replace(late, generation=3), newer[1])))
    assert [each.digest.target_start for each in claims] == [5]
    assert not left


def test_what_the_sources_retention_took_is_not_counted_but_proven_with_the_rest() -> None:
    mirror = Mirror()
    for number in range(4):
        mirror.forward([(number, b"k", b"v%d" % number, [])] * 5)
    one = mirror.scope(source_start=7, source_from=7)
    (claim,), _ = choose(one)
    proof = prove(claim, read(mirror.target, 0, 100), SHIFT)
    assert sum(each.n for each in proof.stretches) == 13
    assert min(each.s_lo for each in proof.stretches) == min(each.t_lo for each in proof.stretches) == 7
    (before,) = regions(one, [claim])
    assert before == (0, 7, 7, 0, 7)
    assert choose(mirror.scope(source_start=20, source_from=20)) == ([], [])


def test_ranges_are_shared_out_whole() -> None:
    spans = [Span(number, "", 0, 0, size, size) for number, size in enumerate([10, 1, 1, 30, 5])]
    tasks = shared_whole(spans, 3)
    assert [each.number for task in tasks for each in task] == [0, 1, 2, 3, 4]
    assert 2 <= len(tasks) <= 3
    assert shared_whole([], 3) == []
