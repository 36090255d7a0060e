"""Decides which batches of a Fetch response hold committed records, as Kafka's own consumer does. Pure.

A response at isolation level 1 lists the aborted transactions that overlap its batches: each applies from
its first offset until its producer's abort marker (KIP-98).
"""

from __future__ import annotations

from collections.abc import Sequence

from drkit.kafka.protocol.record_batch import Batch
from drkit.kafka.protocol.records import read


class CommittedFilter:
    """Asked of the batches of one response, each once and in order.

    Args:
        aborted: (producer id, first offset) of aborted transactions, from the same response; none where
            aborted records count, too.
    """

    __slots__ = ("_dropping", "_due")

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._due = sorted(aborted, key=lambda each: each[1], reverse=True)
        self._dropping: set[int] = set()

    def holds(self, batch: Batch) -> bool:
        """Whether a batch of format 2 has committed records: it is no marker, not emptied, not aborted."""
        last = batch.last_offset
        while self._due and self._due[-1][1] <= last:
            self._dropping.add(self._due.pop()[0])
        if batch.is_control:
            if self._dropping and _aborts(batch):
                self._dropping.discard(batch.producer_id)
            return False
        return batch.records_count > 0 and not (batch.is_transactional and batch.producer_id in self._dropping)


def _aborts(batch: Batch) -> bool:
    """Whether a control batch holds an abort marker (type 0; KIP-98), not a commit marker (type 1)."""
    for record in read(batch):
        body = record.body
        # key: length 4 as a varint, version i16, type i16
        return len(body) > 4 and body[3] == 0 and body[4] == 0  # noqa: PLR2004 - as above
    return False
