"""Batches decoded into columns, and which of them are committed."""

from __future__ import annotations

import pytest

from drkit.kafka.protocol.committed_batches import CommittedFilter
from drkit.kafka.protocol.record_batch import Batch, parse
from drkit.kafka.protocol.record_columns import RecordColumns
from drkit.kafka.protocol.records import Damaged
from tests.support.links.batches import batch_bytes, control_bytes, retouched

ROWS = [
    (5, b"k", b"v", []),
    (9, None, b"", [("h", b"1"), ("h", None), ("", b"")]),
    (3, b"", None, []),
]


def one(data: bytes) -> Batch:
    (batch,) = parse(memoryview(data))
    return batch


def columns(data: bytes, first: int = 0, until: int = 1_000) -> RecordColumns:
    made = RecordColumns()
    made.add(one(data), first, until)
    return made


@pytest.mark.parametrize("codec", range(5))
def test_all_fields_are_had_whatever_the_codec(codec):
    found = columns(batch_bytes(ROWS, base_offset=40, codec=codec))

    assert found.offsets == [40, 41, 42]
    assert found.stamps == [5, 9, 3]
    assert found.keys == [b"k", None, b""]
    assert found.values == [b"v", b"", None]
    assert found.headers == [None, [("h", b"1"), ("h", None), ("", b"")], None]


def test_only_offsets_asked_for_are_had():
    assert columns(batch_bytes(ROWS, base_offset=40), 41, 42).offsets == [41]
    assert columns(batch_bytes([(*row[:3], []) for row in ROWS], magic=1, codec=1), 1, 3).offsets == [1, 2]


def test_the_broker_s_stamp_replaces_the_producer_s():
    stamped = retouched(batch_bytes(ROWS), attributes=0x08, max_timestamp=77)

    assert columns(stamped).stamps == [77, 77, 77]


def test_header_names_that_are_no_text_keep_their_bytes():
    data = batch_bytes([(5, b"k", b"v", [("xx", b"1")])])
    spoiled = retouched(data.replace(b"xx", b"\xffx"))

    assert columns(spoiled).headers == [[("\udcffx", b"1")]]
    assert columns(spoiled).keys == [b"k"]


def test_a_batch_that_does_not_match_its_checksum_is_damaged():
    data = bytearray(batch_bytes(ROWS))
    data[-1] ^= 1

    with pytest.raises(Damaged, match="checksum"):
        columns(bytes(data))


def test_what_is_aborted_counts_from_its_first_offset_to_its_marker():
    def batch(offset: int, producer: int) -> bytes:
        return retouched(batch_bytes(ROWS[:1], base_offset=offset), attributes=0x10, producer_id=producer)

    log = b"".join(
        [
            batch(0, 7),  # of an earlier transaction, which was committed
            batch(1, 7),
            batch(2, 8),
            control_bytes(3, 7, commit=False),
            batch(4, 7),
            control_bytes(5, 8, commit=True),
            batch_bytes(ROWS[:1], base_offset=6),
        ]
    )
    committed = CommittedFilter([(7, 1)])

    held = [batch.base_offset for batch in parse(memoryview(log)) if committed.holds(batch)]

    assert held == [0, 2, 4, 6]


def test_whose_stamp_a_record_has_is_known():
    made = RecordColumns()
    made.add(one(batch_bytes(ROWS)), 0, 2)
    made.add(one(retouched(batch_bytes(ROWS, base_offset=3), attributes=0x08, max_timestamp=77)), 0, 1_000)
    made.add(one(batch_bytes([(5, b"k", b"v", [])], magic=1)), 0, 1_000)
    assert made.append_times == [False, False, True, True, True, False]
    assert len(made) == 6
    spoiled = retouched(
        batch_bytes([(5, b"k", b"v", [("xx", b"1")])]).replace(b"xx", b"\xffx"), attributes=0x08, max_timestamp=9
    )
    assert (columns(spoiled).stamps, columns(spoiled).append_times) == ([9], [True])


@pytest.mark.parametrize(("first", "until"), [(40, 43), (39, 43), (40, 42), (41, 43), (43, 50), (30, 40)])
def test_a_batch_that_is_asked_for_in_part_gives_that_part(first, until):
    wanted = [offset for offset in (40, 41, 42) if first <= offset < until]
    assert columns(batch_bytes(ROWS, base_offset=40), first, until).offsets == wanted
    spoiled = retouched(
        batch_bytes([*ROWS[:2], (3, b"", None, [("xx", b"")])], base_offset=40).replace(b"xx", b"\xffx")
    )
    assert columns(spoiled, first, until).offsets == wanted


@pytest.mark.parametrize("cut", [61, 64, 70])
def test_a_batch_whose_records_end_too_early_is_damaged_whatever_its_checksum(cut):
    data = batch_bytes(ROWS, base_offset=40)[:cut]
    data = retouched(data[:8] + (cut - 12).to_bytes(4, "big") + data[12:])
    with pytest.raises(Damaged, match="the batch at offset 40"):
        columns(data)
    made = columns(batch_bytes(ROWS))
    assert not made.add_readable(one(data), 0, 1_000)
    assert made == columns(batch_bytes(ROWS)), "nothing of it is kept"
    assert made.add_readable(one(batch_bytes(ROWS, base_offset=7)), 0, 1_000)
    assert made.offsets == [0, 1, 2, 7, 8, 9]


def test_a_row_is_taken_over_as_it_is():
    others = columns(retouched(batch_bytes(ROWS, base_offset=40), attributes=0x08, max_timestamp=77))
    made = RecordColumns()
    made.add_row(others, 1)
    assert made == RecordColumns([41], [77], [True], [None], [b""], [[("h", b"1"), ("h", None), ("", b"")]])


def transactional(offset: int, producer: int, **more: int) -> Batch:
    fields = {"attributes": 0x10, "producer_id": producer} | more
    return one(retouched(batch_bytes(ROWS[:1], base_offset=offset), **fields))


def test_a_transaction_that_is_aborted_is_dropped_from_its_first_offset_on_however_they_are_told():
    for aborted in ([(7, 5), (8, 1)], [(8, 1), (7, 5)]):
        committed = CommittedFilter(aborted)
        batches = [transactional(offset, 7 + offset % 2) for offset in range(8)]
        assert [batch.base_offset for batch in batches if committed.holds(batch)] == [0, 2, 4]


def test_only_what_belongs_to_a_transaction_is_dropped_with_it():
    committed = CommittedFilter([(7, 0)])
    assert not committed.holds(transactional(0, 7))
    assert committed.holds(transactional(1, 7, attributes=0))
    assert committed.holds(transactional(2, 8))


def test_a_batch_that_was_emptied_holds_nothing():
    head = batch_bytes(ROWS[:1])[:61]
    empty = one(retouched(head[:8] + (49).to_bytes(4, "big") + head[12:], count=0))
    assert empty.records_count == 0
    assert not CommittedFilter([]).holds(empty)


def test_a_commit_marker_ends_no_other_transaction_and_an_abort_marker_its_own_only():
    def held(*markers: bytes) -> bool:
        committed = CommittedFilter([(7, 0), (8, 0)])
        assert not any(committed.holds(one(marker)) for marker in markers)
        return committed.holds(transactional(9, 7))

    assert not held(control_bytes(3, 7, commit=True))
    assert not held(control_bytes(3, 8, commit=False))
    assert held(control_bytes(3, 7, commit=False))
    assert held(control_bytes(3, 8, commit=False), control_bytes(4, 7, commit=False))


def test_a_transaction_that_begins_within_a_batch_drops_it():
    """The offset of its first record lies in a batch of which the log cleaner took the first ones."""
    whole = retouched(batch_bytes([ROWS[0]] * 3, base_offset=4), attributes=0x10, producer_id=7)
    assert not CommittedFilter([(7, 6)]).holds(one(whole))
    assert CommittedFilter([(7, 7)]).holds(one(whole))
