"""Batches of a link that alters records: every record asked about once and in order, what is left out is a hole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from drkit.kafka.protocol.coalescing import scan
from drkit.kafka.protocol.record_batch import Batch
from drkit.kafka.protocol.records import Damaged, RawRecord, decompress, read_plain
from drkit.kafka.transform.record_transform import AlterationFailed
from drkit.mirror.engine.batch_splitter import Hole, Piece, RecordRun, Rules, SourceGap, TooLarge
from drkit.mirror.transform.batch_rebuilder import altered_pieces
from tests.support.links.batches import CODECS, batch_bytes, control_bytes, retouched

RULES = Rules(committed=True, limit=1_000_000, keeps_apart=lambda _: False)


def batches(*parts: bytes) -> list:
    return scan(memoryview(b"".join(parts)))[0]


def rows(first: int, count: int, size: int = 1) -> list:
    return [(1_000 + number, b"k", b"%d" % number * size, []) for number in range(first, first + count)]


def keep_all(records: Iterable[RawRecord]) -> Iterator[RawRecord]:
    yield from records


def without(*offsets: int):
    def alter(records: Iterable[RawRecord]) -> Iterator[RawRecord]:
        return (record for record in records if record.offset not in offsets)

    return alter


def sources(found: Iterable[Piece]) -> list[int]:
    """Source offsets of the records in what is to be appended, by the gaps that the runs name."""
    offsets: list[int] = []
    for piece in found:
        if isinstance(piece, RecordRun):
            gaps = dict(piece.gaps)
            offset = piece.source_first
            for index in range(piece.records_count):
                offset = gaps.get(index, offset)
                offsets.append(offset)
                offset += 1
    return offsets


@pytest.mark.parametrize("codec", CODECS)
def test_kept_records_keep_codec_stamp_and_order(codec: int) -> None:
    data = [batch_bytes(rows(base, 10), base_offset=base, codec=codec) for base in (0, 10, 20)]
    (run, *holes) = altered_pieces(batches(*data), (), 0, RULES, without(0, 4, 5, 29))
    assert isinstance(holes[0], RecordRun) or run == Hole(1)
    runs = [piece for piece in (run, *holes) if isinstance(piece, RecordRun)]
    assert sources(runs) == [n for n in range(30) if n not in {0, 4, 5, 29}]
    assert {each.attributes for each in runs} == {codec}
    assert {each.reason for each in runs} == {"altered"}
    assert sum(each.batches for each in runs) == 3
    kept = [
        record
        for each in runs
        for record in read_plain(decompress(codec, each.payload), each.records_count, 0, each.base_timestamp)
    ]
    assert [record.timestamp for record in kept] == [1_000 + n for n in sources(runs)]
    assert holes[-1] == Hole(30)


def test_what_is_left_out_moves_the_position_on() -> None:
    data = batches(batch_bytes(rows(5, 10), base_offset=5, codec=3))
    assert list(altered_pieces(data, (), 5, RULES, without(*range(5, 15)))) == [Hole(15)]


def test_records_below_the_position_are_not_asked_about() -> None:
    asked: list[int] = []

    def alter(records: Iterable[RawRecord]) -> Iterator[RawRecord]:
        for record in records:
            asked.append(record.offset)
            yield record

    data = batches(batch_bytes(rows(0, 10), codec=3), batch_bytes(rows(10, 10), base_offset=10, codec=3))
    found = list(altered_pieces(data, (), 7, RULES, alter))
    assert asked == sources(found) == list(range(7, 20))


def test_aborted_and_empty_batches_are_holes() -> None:
    aborted = retouched(batch_bytes(rows(0, 5), codec=3), attributes=0x13, producer_id=9)
    data = batches(aborted, control_bytes(5, 9, commit=False), batch_bytes(rows(6, 4), base_offset=6, codec=3))
    assert sources(altered_pieces(data, ((9, 0),), 0, RULES, keep_all)) == [6, 7, 8, 9]
    everything = RULES._replace(committed=False)
    assert sources(altered_pieces(data, ((9, 0),), 0, everything, keep_all)) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_stamps_of_the_broker_stay_and_old_formats_become_new_ones() -> None:
    stamped = retouched(batch_bytes(rows(0, 3), codec=3), attributes=3 | 8, max_timestamp=77)
    (run,) = altered_pieces(batches(stamped), (), 0, RULES, keep_all)
    assert isinstance(run, RecordRun)
    assert (run.base_timestamp, run.max_timestamp) == (77, 77)
    old = batches(batch_bytes([(5, b"k", b"v", [])], magic=1))
    (run,) = altered_pieces(old, (), 0, RULES, keep_all)
    assert isinstance(run, RecordRun)
    assert (run.source_first, run.source_next, run.records_count) == (0, 1, 1)


def test_many_small_batches_go_together_and_large_ones_apart() -> None:
    small = [batch_bytes(rows(base, 1), base_offset=base, codec=4) for base in range(300)]
    (run,) = altered_pieces(batches(*small), (), 0, RULES, keep_all)
    assert isinstance(run, RecordRun)
    assert (run.records_count, run.batches) == (300, 300)
    tight = RULES._replace(limit=2_000)
    runs = list(altered_pieces(batches(batch_bytes(rows(0, 40, 100), codec=0)), (), 0, tight, keep_all))
    assert len(runs) > 3
    assert all(isinstance(each, RecordRun) and len(each.payload) < 2_000 for each in runs)
    assert sources(runs) == list(range(40))
    with pytest.raises(TooLarge, match="offset 0"):
        list(altered_pieces(batches(batch_bytes(rows(0, 2, 3_000), codec=0)), (), 0, tight, keep_all))


@pytest.mark.parametrize("left_out", [(), (0, 1, 2, 3, 4), (11, 12), (12,)])
def test_what_stands_before_a_failure_is_given_out(left_out: tuple[int, ...]) -> None:
    def alter(records: Iterable[RawRecord]) -> Iterator[RawRecord]:
        for record in records:
            if record.offset == 13:
                raise AlterationFailed("it raised", record.offset)
            if record.offset not in left_out:
                yield record

    data = batches(*[batch_bytes(rows(base, 5), base_offset=base, codec=1) for base in (0, 5, 10, 15)])
    found: list[Piece] = []
    with pytest.raises(AlterationFailed):
        found.extend(altered_pieces(data, (), 0, RULES, alter))
    assert sources(found) == [n for n in range(13) if n not in left_out]
    assert found[-1].source_next == 13


def test_what_stands_before_damaged_records_is_given_out() -> None:
    good, bad = batch_bytes(rows(0, 5), codec=4), batch_bytes(rows(5, 5), base_offset=5, codec=4)
    broken = batches(good, bad)
    spoilt = broken[1]
    assert isinstance(spoilt, Batch)
    broken[1] = spoilt._replace(whole=memoryview(bytes(spoilt.whole[:61]) + b"x" * (len(spoilt.whole) - 61)))
    found: list[Piece] = []
    with pytest.raises(Damaged):
        found.extend(altered_pieces(broken, (), 0, RULES, keep_all))
    assert sources(found) == [0, 1, 2, 3, 4]


def test_a_gap_where_there_can_be_none_ends_what_is_appended():
    found: list[Piece] = []
    parts = batches(batch_bytes(rows(0, 5)), batch_bytes(rows(9, 5), base_offset=9))
    with pytest.raises(SourceGap) as gap:
        found.extend(altered_pieces(parts, (), 0, RULES._replace(dense_from=0), keep_all))  # before the error
    assert sources(found) == list(range(5))
    assert (gap.value.first, gap.value.end) == (5, 9)
    assert sources(altered_pieces(parts, (), 0, RULES, keep_all)) == [*range(5), *range(9, 14)]
