"""Batches decoded into columns, and which of them are committed."""

from __future__ import annotations

import pytest

from drkit.kafka.protocol.committed_batches import CommittedFilter
from drkit.kafka.protocol.record_batch import Batch, parse
from drkit.kafka.protocol.record_columns import RecordColumns
from drkit.kafka.protocol.records import Damaged
from tests.support.batches import batch_bytes, control_bytes, retouched

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
