"""The record batch as it lies on the wire: read, rewritten, joined. aiokafka builds and reads the other side."""

from __future__ import annotations

import struct

import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st

from drkit.kafka.protocol import record_batch, records
from drkit.kafka.protocol.coalescing import CoalescedRun, scan
from tests.support.links.batches import CODECS, batch_bytes

pytestmark = pytest.mark.usefixtures("joining")

_BYTES = st.none() | st.binary(max_size=40)
_RECORD = st.tuples(st.integers(0, 2**45), _BYTES, _BYTES, st.lists(st.tuples(st.text(max_size=5), _BYTES), max_size=3))


def _read(data: bytes) -> list[tuple[object, ...]]:
    memory = MemoryRecords(data)
    found = []
    while memory.has_next():
        each = memory.next_batch()
        assert each.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in each]
    return found


def _produced(built: records.Built, codec: int, *, sequence: int = 5) -> bytes:
    head = record_batch.header(
        attributes=codec,
        count=built.records_count,
        base_timestamp=built.base_timestamp,
        max_timestamp=built.max_timestamp,
        producer_id=9,
        producer_epoch=0,
        base_sequence=sequence,
        records=built.payload,
    )
    return head + built.payload


@pytest.mark.parametrize("codec", CODECS, ids=CODECS.get)
@settings(max_examples=40)
@given(rows=st.lists(_RECORD, min_size=1, max_size=12))
def test_taken_apart_and_put_together_a_batch_says_the_same(codec, rows):
    data = batch_bytes(rows, base_offset=70, codec=codec)
    (found,) = record_batch.parse(memoryview(data))
    assert found.intact()
    assert (found.base_offset, found.last_offset) == (70, 70 + len(rows) - 1)
    assert found.codec == codec
    taken = list(records.read(found))
    assert [(r.offset, r.timestamp) for r in taken] == [(70 + i, row[0]) for i, row in enumerate(rows)]
    again = _produced(records.build(taken, codec), codec)
    assert _read(again) == [(i, *row) for i, row in enumerate(rows)]


@settings(max_examples=40)
@given(rows=st.lists(_RECORD, min_size=1, max_size=12), sequence=st.integers(0, record_batch.SEQUENCES - 1))
def test_a_forwarded_batch_keeps_its_records_byte_for_byte(rows, sequence):
    (found,) = record_batch.parse(memoryview(batch_bytes(rows, base_offset=3, codec=3)))
    head = record_batch.header(
        attributes=found.attributes | record_batch.TRANSACTIONAL | record_batch.DELETE_HORIZON,
        count=found.records_count,
        base_timestamp=found.base_timestamp,
        max_timestamp=found.max_timestamp,
        producer_id=1,
        producer_epoch=0,
        base_sequence=sequence,
        records=found.records,
    )
    (sent,) = record_batch.parse(memoryview(head + bytes(found.records)))
    assert sent.intact()
    assert bytes(sent.records) == bytes(found.records)
    assert (sent.base_offset, sent.attributes, sent.leader_epoch, sent.producer_id) == (0, 3, -1, 1)


def test_a_batch_cut_off_at_the_end_is_dropped():
    whole = batch_bytes([(1, b"k", b"v" * 50, [])])
    data = whole + batch_bytes([(1, b"k", b"w" * 50, [])], base_offset=1)[:-1]
    assert [each.base_offset for each in record_batch.parse(memoryview(data))] == [0]
    found, damaged = scan(memoryview(data))
    assert ([each.base_offset for each in found], damaged) == ([0], None)


@pytest.mark.parametrize(
    ("magic", "length"), [(2, -(2**31)), (2, -100), (2, 0), (2, 48), (1, -100), (1, 13), (0, -1), (0, 13)]
)
def test_a_batch_that_cannot_be_as_short_as_it_says_is_damaged(magic: int, length: int) -> None:
    one, rest = batch_bytes([(5, b"k", b"v", [])]), bytearray(batch_bytes([(5, b"k", b"v", [])], base_offset=1))
    struct.pack_into(">i", rest, 8, length)
    rest[16] = magic
    found, damaged = scan(memoryview(one + bytes(rest) * 2))
    assert ([each.base_offset for each in found], damaged) == ([0], 1)
    assert len(list(record_batch.parse(memoryview(one + bytes(rest))))) == 1
    found, damaged = scan(memoryview(one + bytes(rest[:20])))  # also where there isn't room for a header
    assert ([each.base_offset for each in found], damaged) == ([0], 1)


def test_sequence_numbers_wrap():
    assert record_batch.next_sequence(2**31 - 1, 1) == 0
    assert record_batch.next_sequence(2**31 - 2, 5) == 3


@settings(max_examples=40)
@given(rows=st.lists(_RECORD, min_size=2, max_size=30))
def test_batches_of_one_are_joined_into_what_they_say(rows):
    data = b"".join(batch_bytes([row], base_offset=40 + i) for i, row in enumerate(rows))
    found, damaged = scan(memoryview(data))
    assert damaged is None
    (run,) = found
    assert isinstance(run, CoalescedRun)
    assert (run.base_offset, run.last_offset, run.records_count) == (40, 40 + len(rows) - 1, len(rows))
    built = records.Built(run.records_count, run.base_timestamp, run.max_timestamp, run.payload)
    assert _read(_produced(built, 0)) == [(i, *row) for i, row in enumerate(rows)]
    assert [(r.offset, r.timestamp) for r in run.records()] == [(40 + i, row[0]) for i, row in enumerate(rows)]


@settings(max_examples=80)
@given(data=st.data())
def test_small_batches_of_any_shape_hold_what_they_held(data):
    """Whatever lies in a row: values of every length class, stamps that go back, batches too large to be joined."""
    value = st.one_of(st.binary(max_size=40), st.integers(0, 20_000).map(bytes))
    row = st.tuples(st.integers(0, 2**41), st.none() | st.binary(max_size=100), value, st.just([]))
    sizes = st.one_of(st.just(1), st.integers(1, 20))
    batches = data.draw(
        st.lists(sizes.flatmap(lambda n: st.lists(row, min_size=n, max_size=n)), min_size=1, max_size=12)
    )
    parts, rows = [], []
    for batch_rows in batches:
        parts.append(batch_bytes(batch_rows, base_offset=len(rows)))
        rows += batch_rows
    found, damaged = scan(memoryview(b"".join(parts)))
    assert damaged is None
    seen = []
    for each in found:
        assert each.base_offset == len(seen)
        if isinstance(each, CoalescedRun):
            built = records.Built(each.records_count, each.base_timestamp, each.max_timestamp, each.payload)
            assert each.max_timestamp == max(stamp for stamp, *_ in rows[len(seen) : len(seen) + each.records_count])
            seen += [plain[1:] for plain in _read(_produced(built, 0))]
        else:
            seen += [plain[1:] for plain in _read(bytes(each.whole))]
    assert seen == rows


def test_only_plain_neighbours_are_joined():
    one = [(5, b"k", b"v", [])]
    parts = [
        batch_bytes(one, base_offset=0),
        batch_bytes(one, base_offset=1),
        batch_bytes(one, base_offset=3),  # a hole before it
        batch_bytes(one, base_offset=4, codec=3),
        batch_bytes(one * 2, base_offset=5),
        batch_bytes(one, base_offset=7),
        batch_bytes(one * 17, base_offset=8),
    ]
    found, _ = scan(memoryview(b"".join(parts)))
    kinds = [(type(each).__name__, each.base_offset, each.records_count) for each in found]
    assert kinds == [("CoalescedRun", 0, 2), ("Batch", 3, 1), ("Batch", 4, 1), ("CoalescedRun", 5, 3), ("Batch", 8, 17)]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_length_written_longer_than_it_need_be_is_read_as_it_is(size):
    """No producer is known to do so; a broker takes it."""
    (plain,) = record_batch.parse(memoryview(batch_bytes([(5, b"k", b"v", [])])))
    length, rest = bytes(plain.records)[:1], bytes(plain.records)[1:]
    payload = bytes([length[0] | 0x80, *[0x80] * (size - 2), 0]) + rest
    one = _produced(records.Built(1, 5, 5, payload), 0)
    two = b"".join(struct.pack(">q", offset) + one[8:] for offset in range(2))
    (run,), _ = scan(memoryview(two))
    built = records.Built(run.records_count, run.base_timestamp, run.max_timestamp, run.payload)
    assert [plain[2:4] for plain in _read(_produced(built, 0))] == [(b"k", b"v")] * 2


@pytest.mark.parametrize("at", [17, 30, 66])
def test_a_spoilt_batch_is_named_and_ends_the_scan(at):
    parts = [bytearray(batch_bytes([(5, b"k", b"v", [])], base_offset=i)) for i in range(4)]
    parts[2][at] ^= 1
    found, damaged = scan(memoryview(b"".join(parts)))
    assert damaged == 2
    assert sum(each.records_count for each in found) == 2


def test_filler_is_records_without_anything():
    payload = records.filler(1_000)
    built = records.Built(1_000, 5, 5, payload)
    assert _read(_produced(built, 0)) == [(i, 5, None, None, []) for i in range(1_000)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 3])
def test_old_formats_are_read(magic, codec):
    if (magic, codec) == (0, 3):
        pytest.skip("format 0 writes LZ4 frames with a wrong checksum; Kafka's own readers work round it")
    rows = [(10 + i, b"k%d" % i, None if i == 1 else b"v%d" % i, []) for i in range(3)]
    data = batch_bytes(rows, magic=magic, codec=codec)
    found = records.read_old(memoryview(data))
    assert [r.offset for r in found] == [0, 1, 2]
    assert [r.timestamp for r in found] == ([10, 11, 12] if magic else [-1, -1, -1])
    stamps = [(r.offset, r.timestamp) for r in found]
    again = _read(_produced(records.build(found, 0), 0))
    assert [(offset, key, value) for offset, _, key, value, _ in again] == [
        (i, key, value) for i, (_, key, value, _) in enumerate(rows)
    ]
    assert [(offset, stamp) for offset, stamp, *_ in again] == stamps


def test_what_cannot_be_read_says_so():
    (found,) = record_batch.parse(memoryview(batch_bytes([(1, b"k", b"v", [])], codec=4)))
    broken = found._replace(whole=memoryview(bytes(found.whole[:61]) + b"nonsense"))
    with pytest.raises(records.Damaged, match="can't be decompressed"):
        list(records.read(broken))
    (plain,) = record_batch.parse(memoryview(batch_bytes([(1, b"k", b"v", [])])))
    with pytest.raises(records.Damaged, match="end too early"):
        list(records.read(plain._replace(records_count=3)))
    (several,) = record_batch.parse(memoryview(batch_bytes([(1, b"k", b"value", [])] * 3)))
    for wrong in (several._replace(whole=several.whole[:-2]), several._replace(records_count=2)):
        with pytest.raises(records.Damaged, match="take "):
            list(records.read(wrong))


def test_what_must_be_small_is_packed_more_tightly():
    (plain,) = record_batch.parse(
        memoryview(batch_bytes([(1, b"k", b'{"number": %d}' % (n * n), []) for n in range(400)]))
    )
    many = list(records.read(plain))
    loose, tight = records.build(many, 3), records.build(many, 3, tight=True)
    assert len(tight.payload) < len(loose.payload)
    assert records.decompress(3, tight.payload) == records.decompress(3, loose.payload)
    assert records.build(many, 1, tight=True).payload == records.build(many, 1).payload
