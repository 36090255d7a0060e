from __future__ import annotations

import pytest

from drkit.kafka.client.filler import ZSTD, filler_count, filler_payload, is_filler
from drkit.kafka.protocol import records
from drkit.kafka.protocol.record_batch import HEADER_BYTES, Batch, header, parse

PRODUCER = 7


def batch(payload: bytes, count: int, codec: int, producer_id: int = PRODUCER) -> Batch:
    head = header(
        attributes=codec,
        count=count,
        base_timestamp=5,
        max_timestamp=5,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        records=payload,
    )
    (found,) = parse(memoryview(head + payload))
    return found


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_filler_is_known_by_its_content_however_a_broker_compressed_it(codec: int) -> None:
    plain = records.filler(300)
    assert is_filler(batch(records.compress(codec, plain), 300, codec), {PRODUCER})
    assert is_filler(batch(records.compress(codec, plain, tight=True), 300, codec), {PRODUCER})


def test_filler_is_what_the_links_producer_wrote() -> None:
    assert not is_filler(batch(records.filler(3), 3, 0, producer_id=8), {PRODUCER})
    assert not is_filler(batch(records.filler(3), 3, 0, producer_id=-1), {PRODUCER})


@pytest.mark.parametrize("body", [b"\x02k\x01\x00", b"\x01\x02v\x00", b"\x01\x01\x02\x02h\x01", b"\x00\x01\x00"])
def test_a_record_with_a_key_a_value_or_a_header_is_not_filler(body: bytes) -> None:
    mixed = [records.RawRecord(0, 0, records.EMPTY_BODY), records.RawRecord(1, 0, body)]
    assert not is_filler(batch(records.build(mixed, 0).payload, 2, 0), {PRODUCER})


def test_empty_records_with_stamps_of_their_own_are_filler_too() -> None:
    stamped = [records.RawRecord(number, 100 * number, records.EMPTY_BODY) for number in range(3)]
    assert is_filler(batch(records.build(stamped, 4).payload, 3, 4), {PRODUCER})


def test_bytes_that_cannot_be_read_are_not_filler() -> None:
    assert not is_filler(batch(b"no zstd", 3, ZSTD), {PRODUCER})


@pytest.mark.parametrize("limit", [100, 1_000, 40_000, 100_000])
def test_a_batch_of_filler_fits_the_limit_and_uses_most_of_it(limit: int) -> None:
    count = filler_count(limit)
    assert HEADER_BYTES + len(filler_payload(count)) <= limit
    assert count == 1 or HEADER_BYTES + len(filler_payload(2 * count)) > limit


def test_no_more_than_is_wanted() -> None:
    assert filler_count(1_000_000, 10) == 10
    assert filler_count(1, 10) == 1
