"""What groups had not read, the source still holds, and the target no longer does. Pure.

It was mirrored, so it is in no lag, and no position could be better: retention or DeleteRecords removed it on the
target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from drkit.failover.plan.snapshot import PartitionView
from drkit.failover.positions.positions import PlannedPosition
from drkit.mapping.translate import translate_by_rows
from drkit.model.topology import TopicPartition
from drkit.model.wording import counted


@dataclass(frozen=True, slots=True)
class RemovedUnread:
    """So many `positions` begin where the target's logs do; `offsets`: removed before them, of all together.

    `most`: of `worst`.
    """

    positions: int = 0
    offsets: int = 0
    most: int = 0
    worst: PlannedPosition | None = None

    def sentence(self, target: str) -> str:
        """For people; empty if nothing was removed."""
        if self.worst is None:
            return ""
        return (
            f"{counted(self.positions, 'position')} {'begins' if self.positions == 1 else 'begin'} where the logs on "
            f"{target} do: retention or DeleteRecords removed {counted(self.offsets, 'offset')} there that the groups "
            f"had not read, most of {self.worst.group} on {self.worst.topic}:{self.worst.partition} ({self.most:,})"
        )


def removed_unread(
    placed: Iterable[PlannedPosition], partitions: Mapping[TopicPartition, PartitionView]
) -> RemovedUnread:
    """Count it over positions that are placed; `partitions`: by the source's names."""
    purged = {tp: view for tp, view in partitions.items() if view.target_start}
    found = RemovedUnread()
    for position in placed if purged else ():  # there may be 100,000, and most logs lost nothing
        view = purged.get(TopicPartition(position.topic, position.partition))
        count = 0 if view is None else _before(position, view)
        if count:
            first = count > found.most
            found = RemovedUnread(
                found.positions + 1,
                found.offsets + count,
                count if first else found.most,
                position if first else found.worst,
            )
    return found


def _before(position: PlannedPosition, view: PartitionView) -> int:
    """The target offsets from the first that a group had not read, of those that the source still holds, to where the
    target's log begins."""
    mark = view.watermark
    if not view.target_start or position.target_offset != view.target_start:
        return 0
    if position.source_offset is None or mark is None:
        return 0
    start = mark.source_start if view.source_start is None else view.source_start
    unread = max(position.source_offset, start)
    place = translate_by_rows(unread, view.rows, replace(mark, target_start=0)).target_offset
    return 0 if place is None else max(0, view.target_start - place)
