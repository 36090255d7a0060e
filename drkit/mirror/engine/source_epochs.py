"""The leader epochs of the read batches of a source: they show whether a log lost its tail. Pure.

Logs are compared by the pair (offset, epoch of the batch below it) (`drkit.kafka.admin.source_divergence`). A Fetch
carries the pair of the next offset to read, a watermark that of the mirrored offset. Never exchange them: an epoch
that was only read would claim more than the target holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from drkit.kafka.protocol.coalescing import Found


class SourceEpochs:
    """The leader epochs of one partition's batches since its start. One thread writes, any may read.

    Args:
        epoch: of the batch below the start offset, or `UNKNOWN_EPOCH`.
    """

    __slots__ = ("_begun",)

    def __init__(self, epoch: int) -> None:
        self._begun: tuple[tuple[int, int], ...] = ((-1, epoch),)

    @property
    def newest(self) -> int:
        """The epoch of the last read batch."""
        return self._begun[-1][1]

    def note(self, batches: Sequence[Found], mirrored_through: int) -> None:
        """Note read batches. Forgets epochs that are needed only below `mirrored_through`."""
        newest = self.newest
        if batches[0].leader_epoch == newest == batches[-1].leader_epoch:
            return  # epochs only rise along a log
        begun = [
            each for each, after in zip(self._begun, self._begun[1:], strict=False) if after[0] >= mirrored_through
        ]
        begun.append(self._begun[-1])
        for batch in batches:
            if batch.leader_epoch != begun[-1][1]:
                begun.append((batch.base_offset, batch.leader_epoch))
        self._begun = tuple(begun)

    def below(self, offset: int) -> int:
        """The epoch of the last batch that begins below an offset."""
        begin, newest = self._begun[-1]
        if begin < offset:  # the case wherever nothing is in flight; called for every partition each second
            return newest
        return next(epoch for first, epoch in reversed(self._begun) if first < offset or first < 0)
