"""The in-flight window of one partition: what was sent, what is acknowledged, and up to where without a gap. Pure.

Records are sent in batches, each acknowledged by itself. The target appends one producer's records in order and
without gaps, so if the last record of a batch is at the expected offset, the whole batch is. The arithmetic:

    source    … 100 101 104 | 105 (marker) end          a batch of 3, then a trailing hole
    target    …  40  41  42 |                           expected offset of the mark: 42
    position before (100, 40), after the ack (105, 43), after the hole (106, 43)

Invariants:

    W1  `position` only grows, and only by batches whose predecessors are all acknowledged.
    W2  An acknowledgement at an unexpected offset stops the window: nothing later counts.
    W3  A hole counts as mirrored only once everything sent before it is acknowledged.
"""

from __future__ import annotations

from collections import deque

from drkit.mirror.engine.interface import PartitionProgress


class Mark:
    """The end of a batch: the position once it and everything before it are acknowledged."""

    __slots__ = ("after", "done")

    def __init__(self, after: PartitionProgress, *, done: bool) -> None:
        self.after = after
        self.done = done


class InFlight:
    """The window of one partition, from its start position."""

    __slots__ = ("_marks", "_sent", "position", "stopped")

    def __init__(self, source_offset: int, target_offset: int) -> None:
        self.position = PartitionProgress(source_offset, target_offset)
        self.stopped: str | None = None
        self._sent = self.position
        self._marks: deque[Mark] = deque()

    def __len__(self) -> int:
        """Batches and holes not yet counted."""
        return len(self._marks)

    def send(self, source_next: int, target_next: int) -> Mark:
        """Note a sent batch, which ends below these two offsets (exclusive)."""
        mark = Mark(PartitionProgress(source_next, target_next), done=False)
        self._marks.append(mark)
        self._sent = mark.after
        return mark

    def hole(self, source_next: int) -> None:
        """Note that the source has no record up to `source_next` (exclusive) after what was sent."""
        if source_next <= self._sent.source_through:
            return
        self._sent = PartitionProgress(source_next, self._sent.target_end)
        if self._marks:
            self._marks.append(Mark(self._sent, done=True))
        elif self.stopped is None:
            self.position = self._sent

    def acknowledge(self, mark: Mark, target_offset: int) -> int:
        """Note that the last record of `mark` is at `target_offset`. Returns how many target offsets this completed.

        A mismatch stops the window and sets `stopped` to the reason.
        """
        if self.stopped is not None:
            return 0
        expected = mark.after.target_end - 1
        if target_offset != expected:
            self.stop(f"a record expected at target offset {expected} landed at {target_offset}")
            return 0
        mark.done = True
        before = self.position.target_end
        while self._marks and self._marks[0].done:
            self.position = self._marks.popleft().after
        return self.position.target_end - before

    def stop(self, reason: str) -> None:
        """Count nothing more, because the target's content is unknown. The first reason stays."""
        if self.stopped is None:
            self.stopped = reason
        self._marks.clear()


class SharedInFlight(InFlight):
    """Like `InFlight`, for a target with other writers (active-active under one name).

    Target offsets can't be known in advance there, so none is expected, no mapping row is kept, and positions can't be
    translated. One producer's records still arrive in the order in which they were sent, so an acknowledged record
    means that all before it arrived. After a crash, provenance shows how far the target holds the source's records
    (`drkit.mirror.resume.shared_target`).

    A batch that another worker of the link has already written with the same sequence numbers isn't written again: the
    broker answers with the earlier offset. Where that is below what was found on the target or acknowledged before, the
    response concerns other records, and the target is observed again.
    """

    __slots__ = ("_counted",)

    def __init__(self, source_offset: int, target_offset: int) -> None:
        super().__init__(source_offset, target_offset)
        self._counted = target_offset  # as if nobody else wrote: the marks' offsets are relative to it

    def hole(self, source_next: int) -> None:
        """See `InFlight.hole`."""
        landed = self.position.target_end
        super().hole(source_next)
        self.position = PartitionProgress(self.position.source_through, max(landed, self.position.target_end))

    def acknowledge(self, mark: Mark, target_offset: int) -> int:
        """Note that the last record of `mark` is at `target_offset`. Returns how many records this completed."""
        if self.stopped is not None:
            return 0
        if target_offset < self.position.target_end:
            lowest = self.position.target_end
            self.stop(f"a record expected at target offset {lowest} or above was reported at {target_offset}")
            return 0
        mark.done = True
        before = self._counted
        while self._marks and self._marks[0].done:
            after = self._marks.popleft().after
            self._counted = after.target_end
            self.position = PartitionProgress(after.source_through, max(self.position.target_end, target_offset + 1))
        return self._counted - before
