"""What is remembered of the batches read from a source: it shows whether a log lost its tail, also one that grew again.

Logs are compared by the pair (offset, leader epoch of the batch below it) (`drkit.kafka.admin.logs.source_divergence`).
A Fetch carries the pair of the next offset to read, a watermark that of the mirrored offset. Never exchange them: an
epoch that was only read would claim more than the target holds.

A cluster that is restored as a whole gives out its leader epochs a second time. So a watermark also has the checksum of
a batch (`drkit.lag.batch_comparison`): the last one of an answer, so that the work is for an answer, not for a batch.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from drkit.kafka.protocol.coalescing import CoalescedRun, Found
from drkit.kafka.protocol.record_batch import MAGIC
from drkit.mirror.engine.interface import BatchBelow
from drkit.model.offsets import SourceBatch

_MOST = 64


class SourceBatches:
    """What is known of one partition's batches since its start. One thread writes, any may read.

    Args:
        epoch: of the batch below the start offset, or `UNKNOWN_EPOCH`.
    """

    __slots__ = ("_begun", "_last", "_read")

    def __init__(self, epoch: int) -> None:
        self._begun: tuple[tuple[int, int], ...] = ((-1, epoch),)
        self._read: list[tuple[int, int]] = []
        """The last offsets and checksums of answers, ascending: of those in flight, and of some below them."""
        self._last = -1, BatchBelow(epoch, None)

    @property
    def newest_epoch(self) -> int:
        """The epoch of the last read batch."""
        return self._begun[-1][1]

    def note(self, batches: Sequence[Found], mirrored_through: int) -> None:
        """Note read batches. Forgets what is needed only below `mirrored_through`."""
        last = batches[-1]
        if isinstance(last, CoalescedRun) or last.magic >= MAGIC:  # older formats have no checksum of a batch
            self._read.append((last.last_offset, last.crc))
            if len(self._read) > _MOST:
                self._forget(mirrored_through)
        newest = self._begun[-1][1]
        if batches[0].leader_epoch == newest == last.leader_epoch:
            return  # epochs only rise along a log
        begun = [
            each for each, after in zip(self._begun, self._begun[1:], strict=False) if after[0] >= mirrored_through
        ]
        begun.append(self._begun[-1])
        for batch in batches:
            if batch.leader_epoch != begun[-1][1]:
                begun.append((batch.base_offset, batch.leader_epoch))
        self._begun = tuple(begun)

    def _forget(self, mirrored_through: int) -> None:
        """Forget what is needed only below there. The list is another one: it is read by others."""
        above = next((n for n, (offset, _) in enumerate(self._read) if offset >= mirrored_through), len(self._read))
        self._read = self._read[max(0, above - 1) :]

    def epoch_below(self, offset: int) -> int:
        """The epoch of the last batch that begins below an offset."""
        begin, newest = self._begun[-1]
        if begin < offset:  # the case wherever nothing is in flight
            return newest
        return next(epoch for first, epoch in reversed(self._begun) if first < offset or first < 0)

    def below(self, offset: int) -> BatchBelow:
        """What is known of the batches below an offset. Called for every partition each second: mostly nothing moved,
        and what was read since lies above."""
        at, found = self._last
        if at == offset:
            return found
        read = next((each for each in reversed(self._read) if each[0] < offset), None)
        self._last = offset, BatchBelow(self.epoch_below(offset), None if read is None else SourceBatch(*read))
        return self._last[1]
