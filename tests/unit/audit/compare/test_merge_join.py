"""Both sides of a partition read abreast, against a join of all records that knows nothing of batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drkit.audit.compare import merge_join
from drkit.audit.compare.first_pass import cut_up
from drkit.audit.compare.merge_join import PieceComparison, compare_piece, content_digest, gathered
from drkit.audit.compare.offset_zones import Zone, nominal, zones
from drkit.audit.compare.scope import PartitionScope
from drkit.kafka.protocol.record_batch import parse
from drkit.kafka.protocol.record_columns import RecordColumns
from drkit.model.audit.audit_result import PlacementBasis
from drkit.model.offsets import OffsetMapping
from tests.support.links.batches import Plain, batch_bytes

SHIFT = 3


@dataclass
class Sides:
    """A partition of both sides: batches as (base offset, records), and where records belong."""

    source: list[tuple[int, list[Plain]]]
    target: list[tuple[int, list[Plain]]]
    places: dict[int, int]

    def zones(self) -> tuple[Zone, ...]:
        rows: list[OffsetMapping] = []
        for s, t in sorted(self.places.items()):
            if not rows or rows[-1].delta != t - s:
                rows.append(OffsetMapping("t", 0, 0, s, t))
        return zones(rows) if rows else nominal(0, 0)


def end(batches: list[tuple[int, list[Plain]]]) -> int:
    return max((base + len(rows) for base, rows in batches), default=0)


def by_offset(batches: list[tuple[int, list[Plain]]]) -> dict[int, Plain]:
    return {base + at: row for base, rows in batches for at, row in enumerate(rows)}


def records(rng, count: int, stamp: int) -> list[Plain]:
    return [
        (
            stamp + rng.randrange(-3, 4),
            rng.choice([None, b"", b"k%d" % rng.randrange(9)]),
            rng.choice([None, b"", b"v%d" % rng.randrange(9)]),
            rng.choice([[], [("h", None)], [("h", b"x"), ("g", b"")]]),
        )
        for _ in range(count)
    ]


def altered(row: Plain) -> Plain:
    return row[0], row[1], (row[2] or b"") + b"!", row[3]


@st.composite
def sides(draw) -> Sides:
    """Batches that were forwarded, altered, left out, split or put together; holes on either side."""
    rng = draw(st.randoms(use_true_random=False))
    made = Sides([], [], {})
    s = t = 0
    for number in range(draw(st.integers(0, 9))):
        s += rng.choice([0, 0, 0, 1, 4])
        t += rng.choice([0, 0, 0, 1])
        rows = records(rng, rng.randrange(1, 12), 1_000 + 10 * number)
        made.source.append((s, rows))
        made.places |= {s + at: t + at for at in range(len(rows))}
        fate = rng.choice(["forwarded", "forwarded", "forwarded", "altered", "left out", "split", "joined"])
        there = list(rows)
        if fate == "altered":
            at = rng.randrange(len(there))
            there[at] = altered(there[at])
        if fate == "split" and len(there) > 1:
            at = rng.randrange(1, len(there))
            made.target += [(t, there[:at]), (t + at, there[at:])]
        elif fate == "joined" and made.target and end(made.target) == t:
            base, before = made.target[-1]
            made.target[-1] = base, before + there
        elif fate != "left out":
            made.target.append((t, there))
        s, t = s + len(rows), t + len(rows)
    if rng.random() < 0.3:
        made.target.append((t, records(rng, 3, 1_500)))
    return made


def scope_of(both: Sides, since: int | None, until: int | None) -> SimpleNamespace:
    one = PartitionScope(
        number=0, topic="t", target_topic="t", partition=0,
        source_start=0, source_end=end(both.source), target_start=0, target_end=end(both.target),
        source_from=0, target_from=0, zones=both.zones(), basis=PlacementBasis.MAPPING, first_place=0,
        mirrored_through=None, sealed_at=None, earlier_until=None, source_compacted=False, target_compacted=False,
    )  # fmt: skip
    return SimpleNamespace(partitions=(one,), since_ms=since, until_ms=until)


def read(batches: list[tuple[int, list[Plain]]], first: int, until: int):
    """As `LogReader.read` does: from the batch on that holds `first`, in answers of two."""
    data = [
        next(parse(memoryview(batch_bytes(rows, base_offset=base, codec=base % 2 * 3))))
        for base, rows in batches
        if base + len(rows) > first and base < until
    ]
    for at in range(0, len(data), 2):
        yield data[at : at + 2]


def compared(both: Sides, scope, tasks: int, *, full: bool = False, most: int | None = None) -> list[PieceComparison]:
    found = []
    for piece in (piece for task in cut_up(scope, tasks, SHIFT) for piece in task):
        source = read(both.source, piece.source.first, piece.source.until)
        target = read(both.target, piece.target.first, piece.target.until)
        found.append(gathered(compare_piece(piece, source, target, full=full), most))
    return found


def joined(both: Sides, scope) -> tuple[Counter[tuple[bool, int]], set[int], set[int], dict[int, int]]:
    """Matched records by window and chunk, what is left of each side, and where the matched ones are."""
    source, target = by_offset(both.source), by_offset(both.target)
    since, until = scope.since_ms, scope.until_ms
    matched = {s: t for s, t in both.places.items() if t in target and source[s] == target[t]}
    inside = {s: (since is None or source[s][0] >= since) and (until is None or source[s][0] < until) for s in matched}
    chunks = Counter((inside[s], t >> SHIFT) for s, t in matched.items())
    return chunks, source.keys() - matched.keys(), target.keys() - set(matched.values()), matched


windows = st.sampled_from([(None, None), (1_020, None), (None, 1_040), (1_020, 1_040)])


@pytest.fixture(autouse=True)
def short_tasks(monkeypatch):
    monkeypatch.setattr("drkit.audit.read.offset_ranges._OFFSETS_WORTH_A_TASK", 5)


@settings(deadline=None, max_examples=300)  # a busy machine is no failure
@given(sides(), windows, st.integers(1, 4), st.booleans(), st.sampled_from([(1, 1), (1, 9), (9, 1), (50_000, 5_000)]))
def test_whatever_stands_in_batches_it_finds_what_joining_all_records_finds(both, window, tasks, full, bounds):
    scope = scope_of(both, *window)
    chunks, source_left, target_left, _ = joined(both, scope)

    with bounded(*bounds):
        found = compared(both, scope, tasks, full=full)

    handed: Counter[tuple[bool, int]] = Counter()
    for each in found:
        for row in each.stretches:
            handed[row.inside, row.chunk] += row.n
    assert handed == chunks
    assert [row.s for each in found for row in each.source_left] == sorted(source_left)
    assert sorted(row.t for each in found for row in each.target_left) == sorted(target_left)
    source = by_offset(both.source)
    for row in (row for each in found for row in each.source_left):
        stamp, key, value, headers = source[row.s]
        assert (row.s1, row.s2) == content_digest(key, value, stamp, headers or None)
        assert (row.e, row.placed, row.s_ts, row.s_key) == (both.places[row.s], True, stamp, key)
        assert row.s_null == (value is None)


@contextmanager
def bounded(most_open: int, part: int) -> Iterator[None]:
    """Records that are decoded at a time, and those handed over at a time."""
    before = merge_join.MOST_OPEN, merge_join.A_PART
    merge_join.MOST_OPEN, merge_join.A_PART = most_open, part
    try:
        yield
    finally:
        merge_join.MOST_OPEN, merge_join.A_PART = before


@settings(deadline=None)  # a busy machine is no failure
@given(sides(), windows, st.integers(1, 4), st.integers(0, 20_000))
def test_what_takes_more_memory_than_its_share_stays_and_is_counted(both, window, tasks, most):
    scope = scope_of(both, *window)

    whole, found = compared(both, scope, tasks), compared(both, scope, tasks, most=most)

    for each, other in zip(whole, found, strict=True):
        assert other.stays == (each.size > most)
        assert (other.source_left, other.target_left) == (
            ([], []) if other.stays else (each.source_left, each.target_left)
        )
        assert (other.source_count, other.target_count) == (len(each.source_left), len(each.target_left))
        assert other.source_inside == sum(_inside(window, row.s_ts) for row in each.source_left)
        assert other.stretches == each.stretches


def _inside(window: tuple[int | None, int | None], stamp: int) -> bool:
    since, until = window
    return (since is None or stamp >= since) and (until is None or stamp < until)


def test_batches_that_overlap_without_end_are_joined_as_far_as_both_sides_are_read(monkeypatch):
    monkeypatch.setattr("drkit.audit.read.offset_ranges._OFFSETS_WORTH_A_TASK", 1_000)
    monkeypatch.setattr(merge_join, "MOST_OPEN", 30)
    rows = [(stamp, b"k", b"v%d" % stamp, []) for stamp in range(600)]
    source = [(base, rows[base : base + 20]) for base in range(0, 600, 20)]
    target = [(0, rows[:10]), *((base, rows[base : base + 20]) for base in range(10, 590, 20)), (590, rows[590:])]
    held: list[int] = []
    kept = RecordColumns.add_row
    monkeypatch.setattr(RecordColumns, "add_row", lambda *args: (held.append(1), kept(*args)))

    (found,) = compared(Sides(source, target, {n: n for n in range(600)}), scope_of_all(600), 1)

    assert sum(row.n for row in found.stretches) == 600
    assert (found.source_left, found.target_left) == ([], [])
    assert 0 < len(held) < 600


def scope_of_all(count: int) -> SimpleNamespace:
    rows: list[Plain] = [(0, None, None, [])] * count
    return scope_of(Sides([(0, rows)], [(0, rows)], {n: n for n in range(count)}), None, None)


def test_only_what_differs_is_decoded(monkeypatch):
    monkeypatch.setattr("drkit.audit.read.offset_ranges._OFFSETS_WORTH_A_TASK", 1_000)
    rows = [(stamp, b"k", b"v%d" % stamp, []) for stamp in range(90)]
    batches = [(base, rows[base : base + 30]) for base in (0, 30, 60)]
    both = Sides(batches, [batches[0], (30, [*rows[30:59], altered(rows[59])]), batches[2]], {n: n for n in range(90)})

    (found,) = compared(both, scope_of(both, None, None), 1)

    assert (found.equal, found.different) == (2, 2)
    assert [row.s for row in found.source_left] == [59]
    (left,) = found.target_left
    assert (left.t, left.t_ts, left.needle) == (59, 59, b"v59!")
    assert max(row.newest for row in found.stretches) == 89


def test_a_digest_is_that_of_spark_s_columns():
    # as Spark 4.0 computed them by `reading.digest_columns`
    assert content_digest(b"key", b"value", 1_700_000_000_123, [("h", b"x"), ("g", None)]) == FIRST
    assert content_digest(None, b"", -1, None) == SECOND


FIRST = (-3909808774795333601, -2169577104715057136)
SECOND = (-492369759638350910, 6989193826116157512)
