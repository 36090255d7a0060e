"""Writes two equal logs for the benchmark of the audit, one of them damaged on request."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from itertools import cycle

from bench.load import IN_FLIGHT, Shape, batch_variants
from bench.wire import Connection
from drkit.kafka.protocol.batch_digest import placed_digest
from drkit.kafka.protocol.record_batch import HEADER_BYTES, Batch, header, parse
from drkit.kafka.protocol.records import RawRecord, build, read
from drkit.mirror.engine.range_digests import RangeDigests
from drkit.model.digests import RangeDigest
from drkit.model.topology import TopicPartition

_BEGAN = 1_780_000_000_000
_VARIANTS = 40


def log_of(records: int, partitions: int = 8) -> Shape:
    """A log for audits: 150-byte records, lz4, 1,000 per batch."""
    return Shape(records, 150, "lz4", 1_000, partitions)


def damaged_batches(log: Shape, one_in: int) -> frozenset[int]:
    """The batches that get one corrupted record each, evenly spaced, for one corrupted record in `one_in`."""
    count = max(1, log.loaded_records // one_in)
    return frozenset(log.batches * (2 * number + 1) // (2 * count) for number in range(count))


def write(address: str, topic: str, log: Shape, *, damaged: Collection[int] = ()) -> list[RangeDigest]:
    """Write a log to an existing topic, round robin over its partitions; every batch has its own timestamp.

    Returns the digests that a mirror keeps if it forwards each record to the same offset.

    Args:
        address: host:port of the one broker.
        topic: an existing one, with `log.partitions` partitions.
        log: the log to write.
        damaged: numbers of batches in which the middle record gets another value.
    """
    made = batch_variants(
        record_bytes=log.record_bytes, codec=log.codec, records_a_batch=log.records_a_batch, variants=_VARIANTS
    )
    variants = cycle([next(iter(parse(memoryview(each)))) for each in made])
    ended: deque[RangeDigest] = deque()
    ranges = [RangeDigests(TopicPartition(topic, partition), 0, ended) for partition in range(log.partitions)]

    def requests() -> Iterator[dict[int, bytes]]:
        for number in range(log.batches):
            batch = _stamped(next(variants), _BEGAN + number * 1_000, damaged=number in damaged)
            at = number // log.partitions * log.records_a_batch
            folded = placed_digest(at, batch[:HEADER_BYTES], batch[HEADER_BYTES:])
            (kept,) = parse(memoryview(batch))
            ranges[number % log.partitions].take(at, at, log.records_a_batch, len(batch), folded, kept.crc)
            yield {number % log.partitions: batch}

    with Connection(address) as connection:
        connection.produce(topic, requests(), IN_FLIGHT)
    return [*ended, *(row for each in ranges if (row := each.opened()) is not None)]


def _stamped(batch: Batch, stamp: int, *, damaged: bool) -> bytes:
    """A batch whose records have the timestamp `stamp`, with one of them damaged."""
    payload: bytes | memoryview = batch.records
    if damaged:
        records = [RawRecord(each.offset, batch.base_timestamp, bytes(each.body)) for each in read(batch)]
        middle = len(records) // 2
        body = bytearray(records[middle].body)
        body[len(body) // 2] ^= 1
        records[middle] = records[middle]._replace(body=bytes(body))
        payload = build(records, batch.codec).payload
    head = header(
        attributes=batch.attributes,
        count=batch.records_count,
        base_timestamp=stamp,
        max_timestamp=stamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records=payload,
    )
    return head + bytes(payload)
