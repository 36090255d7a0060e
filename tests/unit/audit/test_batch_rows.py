"""Rows of batches and the tasks that read them."""

from __future__ import annotations

import gc
import sys
from itertools import pairwise
from pathlib import Path
from zipimport import zipimporter

import pyspark
from hypothesis import given, settings
from hypothesis import strategies as st

from drkit.audit.batch_rows import BatchRows, holds_any
from drkit.audit.log_tasks import settle
from drkit.audit.reading import merged
from drkit.audit.spans import Span, share_out
from drkit.kafka.batch import parse
from tests.support.batches import batch_bytes, retouched, thinned

HEADERS: list[tuple[str, bytes | None]] = []


def rows_of(*batches: bytes, first: int = 0, until: int = 10_000, end: int | None = None, begins: bool = True):
    rows = BatchRows()
    rows.begin(Span(3, "t", 0, first, until, until if end is None else end, begins))
    rows.add(list(parse(memoryview(b"".join(batches)))))
    rows.end()
    return rows.take().to_pylist()


def plain(count: int, base: int, *, stamp: int = 5, value: bytes = b"v", codec: int = 0) -> bytes:
    rows = [(stamp + n, b"k%d" % n, value, HEADERS) for n in range(count)]
    return batch_bytes(rows, base_offset=base, codec=codec)


def digest(row: dict[str, int]) -> tuple[int, int]:
    return row["h1"], row["h2"]


def test_what_a_mirror_rewrites_is_not_in_the_digest_and_all_else_is():
    original = plain(10, 100)
    (one,) = rows_of(original)
    (forwarded,) = rows_of(retouched(plain(10, 700), attributes=0x10, producer_id=77))

    assert (one["p"], one["start"], one["stop"], one["n"], one["newest"]) == (3, 100, 110, 10, 14)
    assert digest(forwarded) == digest(one)
    for other in (
        plain(10, 100, stamp=6),
        plain(10, 100, value=b"w"),
        plain(9, 100),
        plain(10, 100, codec=3),
        retouched(original, attributes=0x08, max_timestamp=14),
    ):
        (row,) = rows_of(other)
        assert row["h1"] is not None
        assert digest(row) != digest(one)


def test_a_broker_s_stamp_counts_where_it_is_what_consumers_see():
    stamped = [rows_of(retouched(plain(10, 0), attributes=0x08, max_timestamp=stamp))[0] for stamp in (50, 51)]
    unseen = [rows_of(retouched(plain(10, 0), max_timestamp=stamp))[0] for stamp in (50, 51)]

    assert digest(stamped[0]) != digest(stamped[1])
    assert digest(unseen[0]) == digest(unseen[1])


def test_what_proves_nothing_has_no_digest():
    assert rows_of(thinned([1, 2, 5, 9]))[0]["h1"] is None  # offsets missing inside
    (before,) = rows_of(plain(10, 95), first=100)
    assert (before["start"], before["stop"], before["h1"]) == (100, 105, None)
    (beyond,) = rows_of(plain(10, 95), until=100)
    assert (beyond["start"], beyond["stop"], beyond["h1"]) == (95, 100, None)
    old = batch_bytes([(5, b"k", b"v", HEADERS)] * 3, magic=1, codec=1)
    assert [(row["start"], row["stop"], row["n"], row["h1"]) for row in rows_of(old)] == [(0, 3, 3, None)]


def test_small_batches_in_a_row_are_one_row():
    batches = [plain(1, 0), plain(2, 1), plain(1, 3), plain(5, 4), plain(1, 20)]

    found = rows_of(*batches)

    assert [(row["start"], row["stop"], row["n"], row["h1"] is None) for row in found] == [
        (0, 4, 4, True),
        (4, 9, 5, False),
        (20, 21, 1, True),
    ]


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 5000)), max_size=8),
    st.integers(1, 9),
)
def test_every_offset_is_read_by_one_task(gaps, tasks):
    spans, at = [], 0
    for gap, size in gaps:
        spans.append(Span(0, "t", 0, at + gap, at + gap + size, at + gap + size))
        at += gap + size

    shared = share_out(spans, tasks)

    pieces = [piece for task in shared for piece in task]
    assert [offset for piece in pieces for offset in (piece.first, piece.until)] == sorted(
        offset for piece in pieces for offset in (piece.first, piece.until)
    )
    assert sum(piece.until - piece.first for piece in pieces) == sum(size for _, size in gaps)
    assert len(shared) <= tasks


@settings(deadline=None)  # a busy machine is no failure
@given(st.integers(0, 50), st.integers(1, 3000), st.integers(1, 9), st.lists(st.integers(1, 400), max_size=30))
def test_a_batch_is_the_task_s_in_whose_offsets_it_begins(before, size, tasks, sizes):
    span = Span(0, "t", 0, before, before + size, before + size)
    pieces = [piece for task in share_out([span], tasks) for piece in task]
    base = 0

    for count in sizes:
        takers = [
            piece
            for piece in pieces
            if rows_of(plain(count, base), first=piece.first, until=piece.until, end=piece.end, begins=piece.begins)
        ]
        assert len(takers) == (1 if base < span.until and base + count > span.first else 0)
        base += count


def test_a_needle_is_found_in_whatever_a_batch_is_compressed_by():
    for codec in range(5):
        (batch,) = parse(memoryview(plain(10, 0, value=b"the value", codec=codec)))
        assert holds_any(batch, [b"another", b"the value"])
        assert not holds_any(batch, [b"the values", b"another"])
    (old,) = parse(memoryview(batch_bytes([(5, b"k", b"v", HEADERS)], magic=0)))
    assert holds_any(old, [b"another"])  # only decoding tells


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=20))
def test_merged_ranges_cover_the_same_offsets_once(sizes):
    ranges = [(first, first + size) for first, size in sizes]

    found = merged({7: ranges})[7]

    covered = [offset for first, until in found for offset in range(first, until)]
    assert covered == sorted({offset for first, until in ranges for offset in range(first, until)})
    assert all(after[0] > before[1] for before, after in pairwise(found))


def test_a_worker_keeps_what_it_imported_and_the_directories_of_archives():
    archive = str(next(Path(pyspark.__file__).parent.glob("python/lib/py4j-*.zip")))
    sys.path_importer_cache[archive] = zipimporter(archive)
    try:
        settle()

        assert gc.get_freeze_count() > 0
        assert not any(isinstance(each, zipimporter) for each in sys.path_importer_cache.values())
    finally:
        gc.unfreeze()
