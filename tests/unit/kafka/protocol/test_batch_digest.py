"""A batch's digest is the same where it is produced and where it is read, and binds place and content."""

from __future__ import annotations

import pytest

from drkit.kafka.protocol.record_batch import FIELDS, HEADER_BYTES, header, parse, placed_digest
from drkit.kafka.protocol.records import RawRecord, build

BODIES = [RawRecord(number, 1_700_000_000_000 + number, b"\x02k\x04v%d\x00" % number) for number in range(8)]
BUILT = build(BODIES, 0)


def produced(**changed: int) -> bytes:
    fields = {
        "attributes": 0,
        "count": BUILT.records_count,
        "base_timestamp": BUILT.base_timestamp,
        "max_timestamp": BUILT.max_timestamp,
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": 3,
    } | changed
    return header(**fields, records=BUILT.payload)


def as_kept(head: bytes, base_offset: int, payload: bytes = BUILT.payload) -> int:
    """What a reader makes of it: a broker gives it offset, leader epoch."""
    fields = list(FIELDS.unpack(head))
    fields[0], fields[2] = base_offset, 5
    (batch,) = parse(memoryview(FIELDS.pack(*fields) + payload))
    return placed_digest(batch.base_offset, batch.whole, batch.records)


def test_it_is_the_same_where_the_batch_is_read() -> None:
    head = produced()
    assert len(head) == HEADER_BYTES
    assert as_kept(head, 40) == placed_digest(40, head, BUILT.payload)
    assert as_kept(produced(producer_id=9, base_sequence=800), 40) == placed_digest(40, head, BUILT.payload)


@pytest.mark.parametrize("changed", [{"attributes": 4}, {"count": 7}, {"base_timestamp": 1}, {"attributes": 8}])
def test_it_binds_what_records_are_read_by(changed) -> None:
    assert as_kept(produced(**changed), 40) != placed_digest(40, produced(), BUILT.payload)


def test_it_binds_place_and_every_bit_of_the_records() -> None:
    whole = placed_digest(40, produced(), BUILT.payload)
    assert as_kept(produced(), 41) != whole
    for at in range(len(BUILT.payload)):
        other = bytearray(BUILT.payload)
        other[at] ^= 1
        assert as_kept(produced(), 40, bytes(other)) != whole
