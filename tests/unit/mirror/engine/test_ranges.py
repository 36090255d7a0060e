"""Range digests: what they cover, when they end, how few of them there are."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.mirror.engine.range_digests import _CREDIT, _ROW_RECORDS, MOST_BYTES, MOST_RECORDS, RangeDigests
from drkit.model.digests import DIGEST_MASK, RangeDigest
from drkit.model.offsets import SourceBatch
from drkit.model.topology import TopicPartition

TP = TopicPartition("flights", 3)


@pytest.fixture
def ended() -> deque[RangeDigest]:
    return deque()


@pytest.fixture
def ranges(ended: deque[RangeDigest]) -> RangeDigests:
    return RangeDigests(TP, 2, ended)


def test_batches_that_follow_each_other_are_one_range(ranges, ended) -> None:
    ranges.take(10, 110, 5, 100, DIGEST_MASK, 71)
    ranges.take(15, 115, 1, 100, 3, 72)
    assert ranges.opened() == RangeDigest("flights", 3, 2, 110, 116, 10, 2, 6, 2, 72)
    assert ranges.opened().source_batch == SourceBatch(15, 72)
    assert not ended


def test_markers_between_two_batches_are_within_a_range(ranges, ended) -> None:
    ranges.take(10, 10, 5, 100, 1, 7)
    ranges.take(16, 16, 5, 100, 2, 7)  # a hole of the source, matched by a marker
    row = ranges.opened()
    assert (row.target_start, row.target_end, row.source_end, row.records) == (10, 21, 21, 10)
    assert not ended


@pytest.mark.parametrize(
    ("source", "target"), [(16, 15), (15, 16), (15, 14)], ids=["hole not matched", "ahead", "again"]
)
def test_another_delta_begins_another_range(ranges, ended, source, target) -> None:
    ranges.take(10, 10, 5, 100, 1, 71)
    ranges.take(source, target, 5, 100, 2, 72)
    assert list(ended) == [RangeDigest("flights", 3, 2, 10, 15, 10, 1, 5, 1, 71)]
    assert ranges.opened() == RangeDigest("flights", 3, 2, target, target + 5, source, 1, 5, 2, 72)


def test_what_was_put_together_anew_is_in_no_range(ranges, ended) -> None:
    ranges.take(0, 0, 5, 100, 1, 71)
    ranges.take(5, 5, 5, 100, None, 0)
    assert ranges.opened() is None
    ranges.take(10, 10, 5, 100, 4, 72)
    assert [(row.target_start, row.target_end, row.source_batch) for row in ended] == [(0, 5, (4, 71))]
    assert ranges.opened() == RangeDigest("flights", 3, 2, 10, 15, 10, 1, 5, 4, 72)


@pytest.mark.parametrize(("count", "size"), [(MOST_RECORDS, 100), (5, MOST_BYTES)])
def test_a_large_range_ends(ranges, ended, count, size) -> None:
    ranges.take(0, 0, count, size, 1, 7)
    ranges.take(count, count, 1, 100, 1, 7)
    assert [row.target_end for row in ended] == [count]


def test_what_ends_early_over_and_over_makes_few_rows(ranges, ended) -> None:
    """A rebuilt batch after every second forwarded one, for a long time."""
    forwarded = at = 0
    while forwarded < 40 * _ROW_RECORDS:
        ranges.take(at, at, 50, 5_000, 1, 7)
        ranges.take(at + 50, at + 50, 5, 500, None, 7)
        forwarded += 50
        at += 55
    assert _CREDIT < len(ended) <= _CREDIT + 41


def test_a_range_that_grows_long_is_kept_whatever_came_before(ranges, ended) -> None:
    for number in range(100):
        ranges.take(10 * number, 10 * number, 1, 100, 1, 7)
        ranges.take(10 * number + 1, 10 * number + 1, 1, 100, None, 7)
    ended.clear()
    for number in range(_ROW_RECORDS // 100 + 1):
        assert (ranges.opened() is None) == (number * 100 < _ROW_RECORDS)
        ranges.take(10_000 + 100 * number, 10_000 + 100 * number, 100, 1_000, 1, 7)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 50),  # records
            st.integers(0, 2),  # offsets of a hole before them
            st.booleans(),  # whether it is matched by markers
            st.one_of(st.none(), st.integers(0, DIGEST_MASK)),
        ),
        max_size=60,
    )
)
def test_every_range_sums_up_exactly_the_batches_between_its_ends(steps) -> None:
    ended: deque[RangeDigest] = deque()
    ranges = RangeDigests(TP, 0, ended)
    source = target = 0
    appended: list[tuple[int, int, int, int | None]] = []
    for count, hole, matched, digest in steps:
        source += hole
        target += hole if matched else 0
        appended.append((source, target, count, digest))
        ranges.take(source, target, count, 100 * count, digest, source)
        source += count
        target += count
    last = ranges.opened()
    found = [*ended, *([last] if last is not None else [])]
    for one, other in pairwise(found):
        assert one.target_end <= other.target_start
    for row in found:
        inside = [each for each in appended if row.target_start <= each[1] < row.target_end]
        assert (inside[0][:2], inside[-1][1] + inside[-1][2]) == ((row.source_start, row.target_start), row.target_end)
        assert (row.batches, row.records) == (len(inside), sum(each[2] for each in inside))
        assert all(each[1] - each[0] == row.delta for each in inside)
        assert row.source_batch == (inside[-1][0] + inside[-1][2] - 1, inside[-1][0])
        assert row.digest == sum(each[3] for each in inside) & DIGEST_MASK
