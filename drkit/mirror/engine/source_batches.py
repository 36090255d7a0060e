"""What is remembered of the batches read from a source: it shows whether a log lost its tail, also one that grew again.

Logs are compared by the pair (offset, leader epoch of the batch below it) (`drkit.kafka.admin.source_divergence`). A
Fetch carries the pair of the next offset to read, a watermark that of the mirrored offset. Never exchange them: an
epoch that was only read would claim more than the target holds.

A cluster that is restored as a whole gives out its leader epochs a second time. So a watermark also has the checksum of
a batch (`drkit.lag.source_batches`): the last one of an answer, so that the work is for an answer, not for a batch.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from drkit.kafka.protocol.coalescing import CoalescedRun, Found
from drkit.kafka.protocol.record_batch import MAGIC
from drkit.mirror.engine.interface import BatchBelow
from drkit.model.offsets import SourceBatch


class SourceBatches:
    """What is known of one partition's batches since its start. One thread writes, any may read.

    Args:
        epoch: of the batch below the start offset, or `UNKNOWN_EPOCH`.
    """

    __slots__ = ("_begun", "_last", "_read")

    def __init__(self, epoch: int) -> None:
        self._begun: tuple[tuple[int, int], ...] = ((-1, epoch),)
        self._read: tuple[SourceBatch, ...] = ()
        """The last batches of answers, ascending: those in flight, and the one below them."""
        self._last = -1, BatchBelow(epoch, None)

    @property
    def newest_epoch(self) -> int:
        """The epoch of the last read batch."""
        return self._begun[-1][1]

    def note(self, batches: Sequence[Found], mirrored_through: int) -> None:
        """Note read batches. Forgets what is needed only below `mirrored_through`."""
        last = batches[-1]
        if isinstance(last, CoalescedRun) or last.magic >= MAGIC:  # older formats have no checksum of a batch
            above = [each for each in self._read if each.last_offset >= mirrored_through]
            below = self._read[: len(self._read) - len(above)][-1:]
            self._read = (*below, *above, SourceBatch(last.last_offset, last.crc))
        newest = self.newest_epoch
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
        batch = next((each for each in reversed(self._read) if each.last_offset < offset), None)
        self._last = offset, BatchBelow(self.epoch_below(offset), batch)
        return self._last[1]
