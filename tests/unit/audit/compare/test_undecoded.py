"""Digests of batches, bytes in them, and how what is read is shared out."""

from __future__ import annotations

import gc
import sys
from itertools import pairwise
from pathlib import Path
from zipimport import zipimporter

import pyspark
from hypothesis import given, settings
from hypothesis import strategies as st

from drkit.audit.compare.undecoded_batches import digest, holds_any
from drkit.audit.read.log_tasks import settle
from drkit.audit.read.offset_ranges import Span, share_out
from drkit.kafka.protocol.record_batch import parse
from drkit.model.offsets import merged_ranges, without_ranges
from tests.support.links.batches import batch_bytes, retouched

HEADERS: list[tuple[str, bytes | None]] = []


def digest_of(data: bytes) -> tuple[int, int]:
    return digest(next(parse(memoryview(data))))


def plain(count: int, base: int, *, stamp: int = 5, value: bytes = b"v", codec: int = 0) -> bytes:
    rows = [(stamp + n, b"k%d" % n, value, HEADERS) for n in range(count)]
    return batch_bytes(rows, base_offset=base, codec=codec)


def test_what_a_mirror_rewrites_is_not_in_the_digest_and_all_else_is():
    original = plain(10, 100)

    assert digest_of(retouched(plain(10, 700), attributes=0x10, producer_id=77)) == digest_of(original)
    for other in (
        plain(10, 100, stamp=6),
        plain(10, 100, value=b"w"),
        plain(9, 100),
        plain(10, 100, codec=3),
        retouched(original, attributes=0x08, max_timestamp=14),
    ):
        assert digest_of(other) != digest_of(original)


def test_a_broker_s_stamp_counts_where_it_is_what_consumers_see():
    stamped = [digest_of(retouched(plain(10, 0), attributes=0x08, max_timestamp=stamp)) for stamp in (50, 51)]
    unseen = [digest_of(retouched(plain(10, 0), max_timestamp=stamp)) for stamp in (50, 51)]

    assert stamped[0] != stamped[1]
    assert unseen[0] == unseen[1]


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

    found = merged_ranges(ranges)

    covered = [offset for first, until in found for offset in range(first, until)]
    assert covered == sorted({offset for first, until in ranges for offset in range(first, until)})
    assert all(after[0] > before[1] for before, after in pairwise(found))


@settings(deadline=None)
@given(*[st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=9)] * 2)
def test_ranges_without_others_cover_what_these_leave(sizes, taken):
    ranges, holes = ([(first, first + size) for first, size in each] for each in (sizes, taken))

    found = without_ranges(ranges, holes)

    offsets, gone = ({at for first, until in each for at in range(first, until)} for each in (ranges, holes))
    assert [at for first, until in found for at in range(first, until)] == sorted(offsets - gone)


def test_a_worker_keeps_what_it_imported_and_the_directories_of_archives():
    archive = str(next(Path(pyspark.__file__).parent.glob("python/lib/py4j-*.zip")))
    sys.path_importer_cache[archive] = zipimporter(archive)
    try:
        settle()

        assert gc.get_freeze_count() > 0
        assert not any(isinstance(each, zipimporter) for each in sys.path_importer_cache.values())
    finally:
        gc.unfreeze()
