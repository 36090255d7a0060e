"""The in-flight window of one partition: what was sent, what is acknowledged, how far that is contiguous. Pure.

Records are sent in stretches (batches), each acknowledged by itself. The target appends one producer's
records in order and without gaps, so the last one of a stretch landing at the offset expected shows that
the stretch landed as expected; the arithmetic is:

    source    … 100 101 104 | 105 (marker) end          a stretch of 3, then a trailing hole
    target    …  40  41  42 |                           expected offset of the mark: 42
    position before (100, 40), after the ack (105, 43), after the hole (106, 43)

Invariants:

    W1  `position` only grows, and only by stretches whose every predecessor is acknowledged.
    W2  An acknowledgement at another offset than expected stops the window: nothing later counts.
    W3  A hole counts as mirrored only once all that was sent before it is acknowledged.
"""

from __future__ import annotations

from collections import deque

from drkit.mirror.engine.interface import PartitionProgress


class Mark:
    """The end of a stretch: the position that holds once it and all before it are acknowledged."""

    __slots__ = ("after", "done")

    def __init__(self, after: PartitionProgress, *, done: bool) -> None:
        self.after = after
        self.done = done


class InFlight:
    """The window of one partition, from the position where it was started."""

    __slots__ = ("_marks", "_sent", "position", "stopped")

    def __init__(self, source_offset: int, target_offset: int) -> None:
        self.position = PartitionProgress(source_offset, target_offset)
        self.stopped: str | None = None
        self._sent = self.position
        self._marks: deque[Mark] = deque()

    def __len__(self) -> int:
        """Stretches and holes not yet counted."""
        return len(self._marks)

    def send(self, source_next: int, target_next: int) -> Mark:
        """A stretch was handed over; it ends below these two offsets (exclusive)."""
        mark = Mark(PartitionProgress(source_next, target_next), done=False)
        self._marks.append(mark)
        self._sent = mark.after
        return mark

    def hole(self, source_next: int) -> None:
        """The source has no record from what was sent up to `source_next` (exclusive)."""
        if source_next <= self._sent.source_through:
            return
        self._sent = PartitionProgress(source_next, self._sent.target_end)
        if self._marks:
            self._marks.append(Mark(self._sent, done=True))
        elif self.stopped is None:
            self.position = self._sent

    def acknowledge(self, mark: Mark, target_offset: int) -> int:
        """The last record of `mark` landed at `target_offset`. Returns how many target offsets this completed.

        A mismatch stops the window and says why in `stopped`.
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
        """Count nothing more: what is on the target isn't known any longer. The first reason stays."""
        if self.stopped is None:
            self.stopped = reason
        self._marks.clear()


class SharedInFlight(InFlight):
    """As `InFlight`, where the target has other writers too (active-active under one name).

    Nobody can know in advance where a record lands there, so no offset is expected and no mapping row is kept;
    positions can't be translated. A producer's records still land in the order in which they were sent, so an
    acknowledged one means that all before it landed. How far the target holds the source's records after a crash is
    read from their provenance (`drkit.mirror.resume.shared_target`).

    A batch that another worker of the link has written with the same sequence numbers isn't written again: the broker
    answers with the offset of that one. Where that lies below what was found on the target, or acknowledged, before, it
    stands for other records than the response seems to say, and the target is observed again.
    """

    __slots__ = ("_counted",)

    def __init__(self, source_offset: int, target_offset: int) -> None:
        super().__init__(source_offset, target_offset)
        self._counted = target_offset  # as if nobody else wrote: what the marks' offsets are reckoned from

    def hole(self, source_next: int) -> None:
        """See `InFlight.hole`."""
        landed = self.position.target_end
        super().hole(source_next)
        self.position = PartitionProgress(self.position.source_through, max(landed, self.position.target_end))

    def acknowledge(self, mark: Mark, target_offset: int) -> int:
        """The last record of `mark` landed at `target_offset`. Returns how many records this completed."""
        if self.stopped is not None:
            return 0
        if target_offset < self.position.target_end:
            lowest = self.position.target_end
            self.stop(f"a record expected at target offset {lowest} or above is said to be at {target_offset}")
            return 0
        mark.done = True
        before = self._counted
        while self._marks and self._marks[0].done:
            after = self._marks.popleft().after
            self._counted = after.target_end
            self.position = PartitionProgress(after.source_through, max(self.position.target_end, target_offset + 1))
        return self._counted - before
