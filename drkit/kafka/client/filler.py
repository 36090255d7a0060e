"""Filler: empty records that use up offsets, so that a partition can begin where its source begins.

A partition can't be created with an offset other than 0, but batches of empty records advance its log end (half a
million of them are 350 KB compressed), and DeleteRecords moves the log start behind them.

Only proven filler is removed: right before each DeleteRecords all records below are read, and must be records of the
link's producers without key, value and headers, in the offset range that is recorded as being filled. Their bytes
aren't compared: the broker may have recompressed them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import closing
from functools import lru_cache

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.log_reader import LogReader, OffsetsGone
from drkit.kafka.protocol import records
from drkit.kafka.protocol.record_batch import HEADER_BYTES, MAGIC, Batch
from drkit.model.errors import Refused, Unreachable
from drkit.model.topology import TopicPartition

ZSTD = 4
FILLER_RECORDS = 500_000
"""Most empty records in one batch: 350 KB compressed, 50 ms of a broker's time."""

_STEP_DOWN = 0.95
_BYTES_A_RECORD = 0.7
_READ_SECONDS = 10.0


class NotFiller(Refused):
    """The records there aren't the link's filler, so they aren't removed."""


def filler_count(limit: int, wanted: int = FILLER_RECORDS) -> int:
    """How many empty records, `wanted` at most, one batch of `limit` bytes takes; at least 1."""
    return max(1, min(_most(limit), wanted))


@lru_cache(maxsize=16)
def _most(limit: int) -> int:
    count = max(1, min(FILLER_RECORDS, int(limit / _BYTES_A_RECORD)))
    while count > 1 and (size := HEADER_BYTES + len(filler_payload(count))) > limit:
        count = max(1, int(count * _STEP_DOWN * limit / size))
    return count


@lru_cache(maxsize=2)
def filler_payload(count: int) -> bytes:
    """The records of one batch of filler, compressed (`ZSTD`)."""
    return records.compress(ZSTD, _plain(count))


@lru_cache(maxsize=1)
def _plain(count: int) -> bytes:
    return records.filler(count)


def is_filler(batch: Batch, producers: Collection[int]) -> bool:
    """Whether a batch holds only empty records that one of these producers wrote, with any compression."""
    count = batch.records_count
    if batch.magic != MAGIC or batch.is_control or batch.is_transactional or batch.producer_id not in producers:
        return False
    if not 0 < count <= FILLER_RECORDS:
        return False
    try:
        plain = records.decompress(batch.codec, batch.records)
        return bytes(plain) == _plain(count) or all(each.body == records.EMPTY_BODY for each in records.read(batch))
    except records.Damaged:
        return False


class FillerTrimmer:
    """Removes filler from partitions of one cluster, and nothing else. Shared by threads.

    Args:
        alias: the cluster's name in messages.
        cluster: how to reach it.
        admin: its administration.
        producers: the link's producer ids there: what an earlier mirror of the link wrote as filler is filler, too.
    """

    def __init__(
        self,
        alias: str,
        cluster: ClusterConfig,
        admin: ClusterAdmin,
        producers: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self._alias = alias
        self._cluster = cluster
        self._admin = admin
        self._producers = producers
        self._lock = threading.Lock()
        self._idle: list[LogReader] = []
        self._closed = False

    def close(self) -> None:
        """Release its connections."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for reader in idle:
            reader.close()

    def trim(self, target: TopicPartition, producer_id: int, begin: int, below: int) -> None:
        """Remove the records below an offset of a partition, if all of them are filler.

        Args:
            target: the partition.
            producer_id: a producer of the filler, besides the link's.
            begin: the first offset of the filler; lower ones aren't filler.
            below: remove the records below it; not beyond the log's end.

        Raises:
            NotFiller: there are other records; only filler below them was removed.
            Refused: the cluster refuses it.
            Unreachable: it doesn't answer.
        """
        starts = self._admin.start_offsets([target])
        if target not in starts:
            raise Unreachable(f"cluster {self._alias} doesn't know {target} now", remedy="It is tried again")
        if starts[target] >= below:
            return
        stranger = self._stranger(target, producer_id, starts[target], begin, below)
        safe = below if stranger is None else stranger
        if safe > starts[target]:
            self._admin.delete_records({target: safe})
        if stranger is not None:
            raise NotFiller(
                f"{target} on {self._alias} holds records at offset {stranger} that drkit did not write as filler",
                meaning="Another client wrote them, so drkit keeps them and all records above them",
                remedy=f"Read them; if nobody needs the records below offset {below}, remove them with "
                "kafka-delete-records.sh",
            )

    def _stranger(self, target: TopicPartition, producer_id: int, start: int, begin: int, below: int) -> int | None:
        """The first offset in [start, below) that isn't filler, as the log holds it now; None: there is none."""
        deadline, own = time.monotonic() + _READ_SECONDS, {producer_id, *self._producers()}
        while True:
            reader = self._borrow()
            try:
                with closing(reader.read(*target, start, below)) as answers:
                    for batch in (batch for batches in answers for batch in batches):
                        if batch.base_offset < begin or not is_filler(batch, own):
                            return max(batch.base_offset, start)
            except OffsetsGone as error:  # some of it was removed meanwhile
                start = self._admin.start_offsets([target])[target]
                if start >= below:
                    return None
                if time.monotonic() > deadline:
                    raise Unreachable(error.what, remedy="It is tried again") from error
            else:
                return None
            finally:
                self._give_back(reader)

    def _borrow(self) -> LogReader:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return LogReader(self._alias, self._cluster, timeout_seconds=_READ_SECONDS, committed=False)

    def _give_back(self, reader: LogReader) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(reader)
                return
        reader.close()
