"""Offset preservation: bringing a fresh target partition to the offset where its source begins.

A partition can't be created with an offset other than 0, but offsets can be used up: batches of empty
records (half a million of them are 350 KB compressed), then DeleteRecords moves the log start behind
them, and nothing of it is visible. The filler is appended like any record, with the link's producer
id and sequence, so a crash in between goes on where the log ends.

The topic must be `cleanup.policy=delete` meanwhile (a compacted one refuses records without a key and
DeleteRecords), see `drkit.mirror.topics`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

from drkit.kafka import records
from drkit.kafka.batch import MAGIC, Batch
from drkit.mirror.batch_partition import BatchPartition
from drkit.mirror.pieces import Run
from drkit.model.topology import TopicPartition

FILLER_RECORDS = 500_000
"""Empty records in one batch of filler: 350 KB compressed, 50 ms of a broker's time."""

LARGEST_ALIGNMENT = 200_000_000
"""More offsets than this aren't filled (half a minute's work for the target): the delta is constant then."""

_ZSTD = 4

Trim = Callable[[TopicPartition, int], None]
"""Removes a target partition's records below an offset."""


def fillers(partition: BatchPartition, fill_to: int) -> int:
    """Queue what brings the target partition's end to `fill_to`; returns the bytes queued."""
    queued, stamp, source = 0, int(time.time() * 1000), partition.next_source
    while partition.next_target < fill_to:
        count = min(FILLER_RECORDS, fill_to - partition.next_target)
        queued += partition.fill(Run(source, source, count, _ZSTD, stamp, stamp, _payload(count)))
    return queued


def is_filler(batch: Batch) -> bool:
    """Whether a batch is filler and nothing else."""
    count = batch.records_count
    if batch.magic != MAGIC or batch.codec != _ZSTD or not 0 < count <= FILLER_RECORDS:
        return False
    return bytes(batch.records) == (_payload(count) if count == FILLER_RECORDS else _compressed(count))


def _compressed(count: int) -> bytes:
    return records.compress(_ZSTD, records.filler(count))


@lru_cache(maxsize=2)
def _payload(count: int) -> bytes:
    return _compressed(count)
