"""Finds which groups' positions come from transactions, by reading a part of the coordinators' log.

The log is compacted: it keeps the last commit of each group and partition however old, and a transaction's commit is in
a batch marked transactional. So an idle group is classified by its last commit, without waiting for the next one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.client.log_reader import LogReader
from drkit.kafka.protocol.record_batch import Batch
from drkit.kafka.protocol.records import Damaged
from drkit.kafka.protocol.transaction_log import commit_records
from drkit.model.topology import TopicPartition

_ANSWER_SECONDS = 2.0


class CommitScan:
    """Reads one partition of the coordinators' log in steps. Not thread-safe.

    Args:
        alias: the cluster's name in messages.
        cluster: how to reach it.
        part: a partition of `__consumer_offsets`.
        first, until: the range of its offsets.
    """

    def __init__(self, alias: str, cluster: ClusterConfig, part: TopicPartition, first: int, until: int) -> None:
        self.part = part
        self._reader = LogReader(alias, cluster, timeout_seconds=_ANSWER_SECONDS, committed=False)
        self._answers = self._reader.read(part.topic, part.partition, first, until)
        self._batches: Iterator[Batch] = chain.from_iterable(self._answers)
        self._until = until
        self._last: dict[tuple[str, TopicPartition], bool] = {}

    def read_on(self, seconds: float) -> bool:
        """Read for about that long, but at least one answer; returns whether all is read.

        Raises:
            Damaged: a batch can't be read.
            DrkitError: like `LogReader.read`.
        """
        deadline = time.monotonic() + seconds
        for batch in self._batches:
            if not batch.readable:
                raise Damaged(f"the batch at offset {batch.base_offset} of {self.part} fails its checksum")
            if batch.base_offset < self._until and not batch.is_control:
                self._take(batch)
            if time.monotonic() >= deadline:
                return False
        return True

    def by_transactions(self) -> dict[str, bool]:
        """By group, whether a transaction (of any outcome) committed any of its current positions."""
        found: dict[str, bool] = {}
        for (group, _), transactional in self._last.items():
            found[group] = transactional or found.get(group, False)
        return found

    def close(self) -> None:
        """Close the connections."""
        self._answers.close()
        self._reader.close()

    def _take(self, batch: Batch) -> None:
        transactional = batch.is_transactional
        for record in commit_records(batch):
            if record.offset is None:
                self._last.pop((record.group, record.tp), None)
            else:
                self._last[record.group, record.tp] = transactional
