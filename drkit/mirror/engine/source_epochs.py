"""The leader epochs of a source's batches, as they were read: they show whether a log lost its tail. Pure.

The pair (offset, epoch of the batch below it) is what a log is compared by (`drkit.kafka.admin.source_divergence`): a
Fetch carries that of the next offset to be read, a watermark keeps that of what is mirrored. Never one for the other:
an epoch that was only read would claim more than is on the target.
"""

from __future__ import annotations

from collections.abc import Sequence

from drkit.kafka.protocol.coalescing import Found


class SourceEpochs:
    """The leader epochs of one partition's batches from where it was started. Noted by one thread, read by any.

    Args:
        epoch: of the batch below the offset where it is started; `UNKNOWN_EPOCH` where that isn't known.
    """

    __slots__ = ("_begun",)

    def __init__(self, epoch: int) -> None:
        self._begun: tuple[tuple[int, int], ...] = ((-1, epoch),)

    @property
    def newest(self) -> int:
        """The epoch of the last batch that was read."""
        return self._begun[-1][1]

    def note(self, batches: Sequence[Found], mirrored_through: int) -> None:
        """These batches were read. What is needed only below `mirrored_through` is forgotten."""
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
        if begin < offset:  # so it is wherever nothing is under way; asked of every partition each second
            return newest
        return next(epoch for first, epoch in reversed(self._begun) if first < offset or first < 0)
