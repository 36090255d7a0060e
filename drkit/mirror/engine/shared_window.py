"""The window of a partition whose target has other writers too (active-active under one name). Pure.

Nobody can know in advance where a record lands there, so no offset is expected and no mapping row is
kept; positions can't be translated. What holds still: a producer's records land in the order in which
they were handed over, so an acknowledged one means that all before it landed. How far the target holds
the source's records after a crash is read from their provenance (`drkit.mirror.resume.shared_target`).

A batch that another worker of the link has written with the same sequence numbers isn't written again: the broker
answers with the place of that one. Where that lies below what was found on the target, or acknowledged, before, it
stands for other records than the answer seems to say, and the target is looked at again.
"""

from __future__ import annotations

from drkit.mirror.engine.inflight_window import InFlight, Mark
from drkit.mirror.engine.interface import PartitionProgress


class SharedInFlight(InFlight):
    """As `InFlight`, for records that may land anywhere above the last one."""

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
