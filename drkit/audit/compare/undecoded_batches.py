"""Compares and searches batches without decoding their records. Pure.

The digest is 128 bits over the records' bytes and the header fields that they are read by: two batches with equal
digests hold equal records (key, value, headers, timestamp) at equal distances from their first offset. A mirror that
forwards a batch rewrites only other fields.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from xxhash import xxh3_128

from drkit.audit.compare.byte_search import any_in
from drkit.kafka.protocol.record_batch import CODEC_MASK, FIELDS, LOG_APPEND_TIME, MAGIC, Batch
from drkit.kafka.protocol.records import Damaged, PlainBuffer


class _Local(threading.local):
    """What each thread that searches keeps."""

    def __init__(self) -> None:
        self.buffer = PlainBuffer()


_local = _Local()


def digest(batch: Batch) -> tuple[int, int]:
    """128 bits over the records and what they are read by, as two signed numbers."""
    stamped = batch.attributes & LOG_APPEND_TIME
    prefix = FIELDS.pack(
        0,
        0,
        0,
        0,
        0,
        batch.attributes & (CODEC_MASK | LOG_APPEND_TIME),
        batch.last_delta,
        batch.base_timestamp,
        batch.max_timestamp if stamped else 0,
        0,
        0,
        0,
        batch.records_count,
    )
    state = xxh3_128(prefix)
    state.update(batch.records)
    both = state.digest()
    return int.from_bytes(both[:8], "big", signed=True), int.from_bytes(both[8:], "big", signed=True)


def holds_any(batch: Batch, needles: Sequence[bytes]) -> bool:
    """Whether one of these is in a batch's plain bytes; always so of the old formats, which are decoded to know, and
    never of a batch that can't be read."""
    if batch.magic < MAGIC:
        return True
    if not batch.whole:  # an unreadable stretch; what a reader hands over otherwise, it has checked
        return False
    try:
        plain, end = _local.buffer.fill(batch.codec, batch.records)
    except Damaged:
        return False
    return any_in(needles, plain, end)
