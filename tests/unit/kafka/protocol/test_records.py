"""Records at the edges of what their numbers take: every length of a varint, many records, what can't be read."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_128_intdigest

from drkit.kafka import compiled
from drkit.kafka.compiled import FARTHEST, FEW, LEAST, MOST, SMALL
from drkit.kafka.protocol.broker_versions import NEEDED, REMEDY, lacking, what_is_lacking
from drkit.kafka.protocol.coalescing import CoalescedRun, joined_plainly, merged, scan
from drkit.kafka.protocol.record_batch import (
    CONTROL,
    DELETE_HORIZON,
    FIELDS,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    damaged_at,
    header,
    next_sequence,
    parse,
    placed_digest,
    shortest,
    unreadable,
)
from drkit.kafka.protocol.records import (
    NUMBERS,
    Damaged,
    PlainBuffer,
    RawRecord,
    build,
    compress,
    decompress,
    encoded,
    filler,
    read,
    read_old,
    read_plain,
    read_varint,
)
from tests.support.links.batches import batch_bytes, retouched

EDGES = [0, 1, -1, 63, 64, -64, -65, 8_191, 8_192, -8_192, -8_193, 2**20, 2**31, -(2**31), 2**45, 2**62]


def one(data: bytes):
    (found,) = parse(memoryview(data))
    return found


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (8_191, "fe7f"),
     (-8_192, "ff7f"), (8_192, "808001")],
)  # fmt: skip
def test_numbers_are_written_zigzag(value, written):
    assert encoded(value).hex() == written


@pytest.mark.parametrize("value", EDGES)
def test_every_number_reads_back(value):
    written = encoded(value)
    assert read_varint(b"\xff" + written + b"\xff", 1) == (value, 1 + len(written))


def test_the_first_numbers_are_at_hand():
    assert len(NUMBERS) == MOST
    assert [encoded(n) for n in range(MOST)] == NUMBERS


# -- reading and building --------------------------------------------------------------------------

SIZES = [0, 50, 57, 58, 59, 60, 61, 62, 3_990, 3_995, 4_000, 8_180, 8_190, 8_200, 20_000, 1_100_000]
"""Values with which a record's length takes one byte, two, three and four, and from where on it isn't looked up."""


@pytest.mark.parametrize("size", SIZES)
def test_records_of_every_length_are_read_and_built_alike(size):
    rows = [(5, b"k", bytes(size), []), (6, None, b"x", []), (7, b"", bytes(size), [])]
    batch = one(batch_bytes(rows, base_offset=70))
    found = list(read(batch))
    assert [(record.offset, record.timestamp) for record in found] == [(70, 5), (71, 6), (72, 7)]
    assert [len(record.body) for record in found] == [len(bytes(record.body)) for record in found]
    assert build(found, 0).payload == bytes(batch.records)


@pytest.mark.parametrize("stamps", [(0, 63), (0, 64), (0, -64), (0, -65), (0, 8_192), (5, 2**45), (2**45, 0)])
def test_stamps_of_every_distance_are_read_and_built_alike(stamps):
    batch = one(batch_bytes([(stamp, b"k", b"v", []) for stamp in stamps]))
    found = list(read(batch))
    assert [record.timestamp for record in found] == list(stamps)
    built = build(found, 0)
    assert built.payload == bytes(batch.records)
    assert (built.records_count, built.base_timestamp, built.max_timestamp) == (2, stamps[0], max(stamps))


def test_offsets_of_every_distance_are_read_and_built_alike():
    count = 8_200
    batch = one(batch_bytes([(n % 3, None, b"", []) for n in range(count)], base_offset=10))
    found = list(read(batch))
    assert [record.offset for record in found] == list(range(10, 10 + count))
    assert build(found, 0).payload == bytes(batch.records)
    assert build(found, 0).max_timestamp == 2


@given(
    st.lists(st.tuples(st.integers(0, 2**50), st.binary(min_size=3, max_size=9_000)), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_what_is_built_reads_back_with_offsets_in_a_row(rows, step):
    records = [RawRecord(7 + step * n, stamp, body) for n, (stamp, body) in enumerate(rows)]
    built = build(records, 0)
    again = list(read_plain(built.payload, built.records_count, 3, built.base_timestamp))
    assert [(each.offset, each.timestamp, bytes(each.body)) for each in again] == [
        (3 + n, stamp, body) for n, (stamp, body) in enumerate(rows)
    ]


def test_a_broker_s_stamp_is_that_of_every_record():
    stamped = one(retouched(batch_bytes([(5, b"k", b"v", []), (9, b"k", b"v", [])]), attributes=8, max_timestamp=77))
    assert [record.timestamp for record in read(stamped)] == [77, 77]
    (record,) = read_plain(build([RawRecord(0, 5, b"x")], 0).payload, 1, 0, 5, append_time=0)
    assert record.timestamp == 0


@pytest.mark.parametrize("numbers", [(3, 2), (2, 3), (4, 4)])
def test_numbers_written_longer_than_they_need_be_are_read_as_they_are(numbers):
    """No producer is known to do so; a broker takes it. Length, stamp and offset in so many bytes."""

    def long(value: int, size: int) -> bytes:
        plain = value << 1
        return bytes([*(0x80 | plain >> 7 * n & 0x7F for n in range(size - 1)), plain >> 7 * (size - 1)])

    size, other = numbers
    rest = b"\0" + long(9, size) + long(70, other) + b"body"
    payload = long(len(rest), size) + rest
    assert [tuple(record) for record in read_plain(payload, 1, 5, 100)] == [(75, 109, b"body")]


@pytest.mark.parametrize("cut", range(1, 9))
def test_records_that_end_too_early_are_damaged(cut):
    payload = build([RawRecord(0, 5, b"body"), RawRecord(1, 5, b"")], 0).payload
    with pytest.raises(Damaged, match="the records of the batch at offset 40"):
        list(read_plain(payload[:-cut], 2, 40, 5))


def test_codecs_that_nobody_knows():
    with pytest.raises(Damaged, match="compression codec 5 is not known"):
        decompress(5, b"x")
    with pytest.raises(KeyError):
        compress(5, b"x")
    assert (decompress(0, b"x"), compress(0, b"x")) == (b"x", b"x")


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_what_is_packed_is_unpacked(codec):
    plain = b"some text, " * 500
    for tight in (False, True):
        packed = compress(codec, plain, tight=tight)
        assert len(packed) < len(plain)
        assert decompress(codec, memoryview(packed)) == plain


@pytest.mark.parametrize("codec", range(5))
def test_a_buffer_that_is_used_again_shows_each_batch_and_no_other(codec):
    buffer = PlainBuffer()
    large = b"long, " * 300_000  # more than the buffer begins with
    for plain in (large, b"short", large, b".", b"another"):
        filled, end = buffer.fill(codec, memoryview(compress(codec, plain)))
        assert filled[:end] == plain


@pytest.mark.parametrize("codec", range(1, 5))
def test_what_cannot_be_unpacked_is_no_earlier_batch(codec):
    buffer = PlainBuffer()
    buffer.fill(codec, compress(codec, b"text, " * 500))
    with pytest.raises(Damaged, match="can't be decompressed"):
        buffer.fill(codec, compress(codec, b"other, " * 500)[:-9])


def test_filler_has_nothing_and_as_many_as_wanted():
    assert [tuple(record) for record in read_plain(filler(3), 3, 7, 5)] == [(n, 5, b"\1\1\0") for n in (7, 8, 9)]


def test_messages_of_the_old_formats_that_are_spoilt_say_so():
    rows = [(11, b"", None, []), (10, None, b"v", [])]
    data = bytearray(batch_bytes(rows, magic=1))
    assert [bytes(record.body) for record in read_old(memoryview(bytes(data)))] == [b"\0\1\0", b"\1\2v\0"]
    data[-1] ^= 1
    with pytest.raises(Damaged, match="does not match its checksum"):
        read_old(memoryview(bytes(data)))
    packed = bytearray(batch_bytes(rows, magic=1, codec=1))
    packed[-12:-8] = b"\0\0\0\0"
    with pytest.raises(Damaged):
        read_old(memoryview(bytes(packed)))


# -- batches ---------------------------------------------------------------------------------------


def test_the_header_of_a_batch_to_be_produced():
    records = b"the records"
    head = header(
        attributes=0x7F, count=3, base_timestamp=5, max_timestamp=9, producer_id=77, producer_epoch=4, base_sequence=8,
        records=records,
    )  # fmt: skip
    crc = crc32c(head[21:] + records)
    assert FIELDS.unpack(head) == (0, 49 + len(records), -1, 2, crc, 0x0F, 2, 5, 9, 77, 4, 8, 3)
    assert one(head + records).intact()


@pytest.mark.parametrize(
    ("attributes", "codec", "transactional", "control"),
    [(0, 0, False, False), (4, 4, False, False), (TRANSACTIONAL, 0, True, False), (CONTROL | 3, 3, False, True),
     (LOG_APPEND_TIME | DELETE_HORIZON | 7, 7, False, False)],
)  # fmt: skip
def test_what_attributes_say(attributes, codec, transactional, control):
    batch = one(retouched(batch_bytes([(5, b"k", b"v", [])]), attributes=attributes))
    assert (batch.codec, batch.is_transactional, batch.is_control) == (codec, transactional, control)


def test_what_a_consumer_takes():
    good = batch_bytes([(5, b"k", b"v", [])], base_offset=7)
    spoilt = bytearray(good)
    spoilt[-1] ^= 1
    assert (one(good).readable, one(bytes(spoilt)).readable) == (True, False)
    for magic in (0, 1):
        old = batch_bytes([(5, b"k", b"v", [])], magic=magic)
        spoilt = bytearray(old)
        spoilt[-1] ^= 1
        assert (one(old).readable, one(bytes(spoilt)).readable) == (True, False)
    stands_for = unreadable(10, 15)
    assert (stands_for.base_offset, stands_for.last_offset, stands_for.records_count) == (10, 14, 5)
    assert not stands_for.readable
    assert (stands_for.is_control, stands_for.codec) == (False, 0)
    assert nothing_known(stands_for)


def nothing_known(batch) -> bool:
    """Of what -1 stands for."""
    return {batch.leader_epoch, batch.base_timestamp, batch.max_timestamp, batch.producer_id} == {-1}


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_the_old_formats_are_told_by_their_offsets(magic):
    rows = [(5, b"k", b"v" * n, []) for n in (60, 1, 0)]
    data = batch_bytes(rows, magic=magic)
    for cut in (0, 1):
        found = list(parse(memoryview(data[: len(data) - cut])))
        assert [batch.base_offset for batch in found] == [0, 1, 2][: 3 - cut]
        assert b"".join(bytes(batch.whole) for batch in found) == data[: sum(len(each.whole) for each in found)]
        assert {(batch.magic, batch.records_count, batch.last_delta) for batch in found} == {(magic, 1, 0)}
    for value in (b"", b"v" * 60):  # shorter than a header of format 2, and longer
        (found,) = parse(memoryview(batch_bytes([(5, None, value, [])], magic=magic)))
        assert nothing_known(found)
        assert (found.crc, found.attributes, found.last_offset, found.records_count) == (0, 0, 0, 1)
    mixed = batch_bytes([(5, b"k", b"v", [])]) + batch_bytes(rows, magic=magic, base_offset=1)
    assert [batch.magic for batch in parse(memoryview(mixed))] == [2, magic, magic, magic]
    assert [type(each).__name__ for each in scan(memoryview(mixed))[0]] == ["Batch"] * 4
    assert scan(memoryview(mixed))[1] is None


def test_a_batch_that_the_cleaner_emptied_is_whole():
    """Its header stays, and nothing else of it."""
    head = of_records(1)[:61]
    empty = retouched(head[:8] + struct.pack(">i", 49) + head[12:], count=0)
    found, damaged = scan(memoryview(empty + of_records(1, base=1)))
    assert ([(each.base_offset, each.records_count) for each in found], damaged) == ([(0, 0), (1, 1)], None)


def test_a_short_message_of_an_old_format_is_whole_whatever_its_attributes():
    """With the broker's stamp, as attributes say; the next one follows at once."""
    messages = [bytearray(batch_bytes([(5, b"k", b"v", [])], magic=1, base_offset=base)) for base in range(3)]
    for message in messages:
        message[17] = LOG_APPEND_TIME
    found, damaged = scan(memoryview(b"".join(messages)))
    assert (len(found), damaged) == (3, None)


def test_how_short_a_batch_can_be():
    assert [shortest(magic) for magic in (0, 1, 2, 3)] == [14, 14, 49, 49]
    head = struct.pack(">qi", 70, 48) + bytes(4) + b"\2"
    assert damaged_at(memoryview(head)) == 70
    assert damaged_at(memoryview(head[:-1])) is None
    assert damaged_at(memoryview(struct.pack(">qi", 70, 49) + bytes(4) + b"\2")) is None
    assert damaged_at(memoryview(struct.pack(">qi", 70, 13) + bytes(4) + b"\0")) == 70


def test_sequence_numbers_begin_again():
    assert [next_sequence(2**31 - 3, count) for count in (1, 2, 3, 4)] == [2**31 - 2, 2**31 - 1, 0, 1]


@pytest.mark.parametrize("size", [0, 4_095, 4_096, 4_097, 9_000])
def test_a_digest_is_one_over_place_head_and_records_however_many(size):
    head, records = bytes(range(80)), b"r" * size
    expected = xxh3_128_intdigest(struct.pack(">q", 70) + head[21:35] + records)
    assert placed_digest(70, head, records) == placed_digest(70, memoryview(head), memoryview(records)) == expected


# -- joining small batches -------------------------------------------------------------------------


def of_records(*counts: int, size: int = 1, base: int = 0) -> bytes:
    parts = []
    for count in counts:
        parts.append(batch_bytes([(5 + base, b"k", bytes(size), [])] * count, base_offset=base))
        base += count
    return b"".join(parts)


def kinds(data: bytes) -> list[tuple[bool, int, int]]:
    """Whether it was joined, its first offset and how many records."""
    found, damaged = scan(memoryview(data))
    assert damaged is None
    return [(isinstance(each, CoalescedRun), each.base_offset, each.records_count) for each in found]


@pytest.fixture(autouse=True)
def plainly(monkeypatch):
    monkeypatch.setattr(compiled._State, "kernel", None)
    monkeypatch.setattr(compiled._State, "wanted", True)


def test_batches_of_few_records_are_joined_and_those_of_more_are_not():
    assert kinds(of_records(FEW, FEW)) == [(True, 0, 2 * FEW)]
    assert kinds(of_records(FEW + 1, FEW)) == [(False, 0, FEW + 1), (False, FEW + 1, FEW)]
    assert kinds(of_records(2, FEW + 1, 1, 1)) == [(False, 0, 2), (False, 2, FEW + 1), (True, FEW + 3, 2)]
    assert kinds(of_records(1, 1, FEW + 1)) == [(True, 0, 2), (False, 2, FEW + 1)]


def length(data: bytes) -> int:
    return struct.unpack_from(">i", data, 8)[0]


def test_batches_of_some_size_are_joined_and_larger_ones_are_not():
    """By the length that their headers have: below 8 KB."""
    within = next(size for size in range(8_300, 8_000, -1) if length(of_records(1, size=size)) == SMALL - 1)
    assert kinds(of_records(1, 1, size=within)) == [(True, 0, 2)]
    assert kinds(of_records(1, 1, size=within + 1)) == [(False, 0, 1), (False, 1, 1)]
    assert kinds(of_records(1) + of_records(1, size=within + 1, base=1) + of_records(1, 1, base=2)) == [
        (False, 0, 1),
        (False, 1, 1),
        (True, 2, 2),
    ]
    tiny = batch_bytes([(5, None, b"", [])]) + batch_bytes([(5, None, b"", [])], base_offset=1)
    assert length(tiny) >= LEAST
    assert kinds(tiny) == [(True, 0, 2)]


def test_a_run_ends_where_it_is_long_enough():
    count = MOST // FEW + 3
    found = kinds(of_records(*[FEW] * count))
    assert [joined for joined, *_ in found] == [True, True]
    assert MOST - FEW < found[0][2] <= MOST
    assert sum(records for *_, records in found) == count * FEW


@pytest.mark.parametrize(
    "apart",
    [
        {"attributes": TRANSACTIONAL},
        {"attributes": 1},
        {"last_delta": 1},
        {"count": 2},
        {"count": 2, "last_delta": 1},
    ],
)
def test_what_is_unlike_the_others_is_not_joined_with_them(apart):
    odd = retouched(of_records(1, base=2), **apart)
    data = of_records(1, 1) + odd + of_records(1, 1, base=4)
    found, _ = scan(memoryview(data))
    assert [isinstance(each, CoalescedRun) for each in found][:2] == [True, False]
    assert bytes(found[1].whole) == odd


def test_records_that_are_not_what_their_header_says_are_left_as_they_lie():
    two = bytearray(of_records(2, base=2))
    at = 61 + two[61] // 2 + 1  # where the second record begins
    two[at + 3] = 4  # its offset: the third's
    odd = retouched(bytes(two))
    found, _ = scan(memoryview(of_records(1, 1) + odd + of_records(1, 1, base=4)))
    assert [(isinstance(each, CoalescedRun), each.records_count) for each in found] == [
        (True, 2),
        (False, 2),
        (True, 2),
    ]
    assert bytes(found[1].whole) == odd


def of_one_record(stamp: int, offset: int, *, base: int, body: bytes = b"\2k\2v\0") -> bytes:
    """A batch of one record whose stamp and offset aren't the batch's."""
    rest = b"\0" + encoded(stamp) + encoded(offset) + body
    records = encoded(len(rest)) + rest
    fields = {"count": 1, "base_timestamp": 5, "max_timestamp": 5 + stamp}
    head = header(attributes=0, producer_id=-1, producer_epoch=-1, base_sequence=-1, records=records, **fields)
    return struct.pack(">q", base) + head[8:] + records


@pytest.mark.parametrize("body", [b"\2k\2v\0", b"\1" + encoded(200) + bytes(200) + b"\0"])
@pytest.mark.parametrize("stamp", [1, 3, 70, 9_000])
def test_the_only_record_of_a_batch_may_be_stamped_otherwise_than_the_batch(stamp, body):
    data = of_one_record(0, 0, base=0, body=body) + of_one_record(stamp, 0, base=1, body=body)
    run, after = joined_plainly(data, 0)
    assert after == len(data)
    assert [(record.offset, record.timestamp) for record in run.records()] == [(0, 5), (1, 5 + stamp)]
    assert {bytes(record.body) for record in run.records()} == {body}


@pytest.mark.parametrize("body", [b"\2k\2v\0", b"\1" + encoded(200) + bytes(200) + b"\0"])
@pytest.mark.parametrize("stamp", [0, 3])
def test_the_only_record_of_a_batch_that_is_not_its_first_is_left_as_it_lies(stamp, body):
    data = of_records(1, 1) + of_one_record(stamp, 1, base=2, body=body)
    run, after = joined_plainly(data, 0)
    assert (run.records_count, data[after:]) == (2, of_one_record(stamp, 1, base=2, body=body))


@pytest.mark.parametrize("by", [-2, 2])
@pytest.mark.parametrize("body", [b"\2k\2v\0", b"\1" + encoded(200) + bytes(200) + b"\0"])
def test_a_record_that_is_longer_or_shorter_than_its_batch_is_left_as_it_lies(body, by):
    odd = bytearray(of_one_record(0, 0, base=2, body=body))
    odd[61] += by
    odd = bytearray(retouched(bytes(odd)))
    run, after = joined_plainly(of_records(1, 1) + bytes(odd), 0)
    assert (run.records_count, len(of_records(1, 1))) == (2, after)


def test_what_a_run_says_of_itself():
    data = b"".join(batch_bytes([(stamp, b"k", b"v", [])], base_offset=70 + n) for n, stamp in enumerate((9, 5, 30, 7)))
    run, after = joined_plainly(data, 0)
    assert after == len(data)
    assert (run.base_offset, run.last_offset, run.records_count, run.batches) == (70, 73, 4, 4)
    assert (run.base_timestamp, run.max_timestamp, run.leader_epoch) == (9, 30, -1)
    assert [(record.offset, record.timestamp) for record in run.records()] == [(70, 9), (71, 5), (72, 30), (73, 7)]
    back = b"".join(batch_bytes([(stamp, b"k", b"v", [])], base_offset=n) for n, stamp in enumerate((9, 5)))
    assert joined_plainly(back, 0)[0].max_timestamp == 9


def test_a_run_that_begins_within_fetched_bytes():
    data = of_records(FEW + 1) + of_records(1, 1, 2, base=FEW + 1)
    at = len(of_records(FEW + 1))
    assert joined_plainly(data, 0) == (None, 0)
    run, after = joined_plainly(data, at)
    assert (run.base_offset, run.records_count, after) == (FEW + 1, 4, len(data))
    assert joined_plainly(data[:-1], at)[0].records_count == 2


@pytest.mark.parametrize("far", [MOST - 1, MOST, 2**40, -1])
def test_stamps_far_from_the_first_are_kept(far):
    rows = [[(5, b"k", b"v", [])], [(5 + far, b"k", b"v", []), (6, b"k", b"v", [])]]
    data = batch_bytes(rows[0]) + batch_bytes(rows[1], base_offset=1)
    run, _ = joined_plainly(data, 0)
    assert [record.timestamp for record in run.records()] == [5, 5 + far, 6]


def test_a_batch_that_was_cut_off_is_not_joined():
    data = of_records(1, 1, 1)
    assert kinds(data[:-1]) == [(True, 0, 2)]
    assert kinds(of_records(1, 1)[:-1]) == [(False, 0, 1)]


def test_more_than_is_copied_at_a_time_is_joined_all_the_same():
    count = 300
    found = kinds(of_records(*[1] * count, size=2_000))
    assert all(joined for joined, *_ in found)
    assert sum(records for *_, records in found) == count
    assert len(found) <= 5


def test_small_batches_are_counted_for_the_machine_code(monkeypatch):
    told = []
    monkeypatch.setattr(compiled, "found", told.append)
    scan(memoryview(of_records(1, 1, 1, FEW + 1, 1, 1)))
    scan(memoryview(of_records(1)))
    assert told == [5, 0]
    batches = list(parse(memoryview(of_records(1, 1, 1))))
    assert merged(batches, 10_000) is None
    assert told == [5, 0, 3]


class Merging:
    """In place of the machine code, whose own tests compare it with plain Python: what it is given."""

    def __init__(self):
        self.given = []

    def merge(self, parts):
        self.given.append(parts)
        return b"".join(plain for plain, _, _ in parts), 7


def test_what_is_merged_fits_and_is_numbered_from_the_first(monkeypatch):
    kernel = Merging()
    monkeypatch.setattr(compiled._State, "kernel", kernel)
    batches = list(parse(memoryview(of_records(1, 2, 1, size=100))))
    plains = [bytes(batch.records) for batch in batches]
    grown = [len(plain) + 24 * count for plain, count in zip(plains, (1, 2, 1), strict=True)]
    assert [count for count, _ in merged(batches, sum(grown))] == [3]
    assert [count for count, _ in merged(batches, sum(grown) - 1)] == [2, 1]
    assert [count for count, _ in merged(batches, max(grown))] == [1, 1, 1]
    assert merged(batches, max(grown) - 1) is None
    kernel.given.clear()
    ((_, built),) = merged(batches, 10_000)
    assert kernel.given == [list(zip(plains, (1, 2, 1), (0, 1, 3), strict=True))]
    assert (built.records_count, built.base_timestamp, built.max_timestamp) == (4, 5, 12)


@pytest.mark.parametrize(
    ("apart", "left"), [(FARTHEST - 1, False), (FARTHEST, True), (1 - FARTHEST, False), (-FARTHEST, True)]
)
def test_stamps_so_far_apart_that_they_could_overflow_are_left_alone(monkeypatch, apart, left):
    monkeypatch.setattr(compiled._State, "kernel", Merging())
    (first,) = parse(memoryview(of_records(1)))
    other = first._replace(base_timestamp=first.base_timestamp + apart)
    assert (merged([first, other], 10_000) is None) is left


# -- brokers ---------------------------------------------------------------------------------------


def test_a_broker_that_lacks_something_is_told_with_all_of_it():
    known = {need.api_key: (0, need.version) for need in NEEDED}
    assert lacking(known) == []
    assert len(lacking({})) == len(NEEDED)
    lacks = lacking(known | {NEEDED[0].api_key: (0, NEEDED[0].version - 1)})
    assert what_is_lacking("h:1", lacks) == f"broker h:1 lacks {lacks[0]}"
    assert lacking(known | {61: (0, 0)}) == []
    assert "2.8" in REMEDY
