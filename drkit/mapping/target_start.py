"""The source offset below which a target holds nothing, because its log or its mapping begins there. Pure.

    source   S ...... until ...... source_through
    target        T ............... target_end          T is until's place, by the mapping row that holds there

The target no longer holds what the mirror wrote below T, and never held what is below the first mapping row. The
source still holds offsets from its log start S. Where S is at or above `until`, nothing is missing. (S can be below
the first row: a new leader that missed a DeleteRecords request undoes it.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from drkit.model.link_state import TARGET_PURGED, Problem
from drkit.model.offsets import OffsetMapping, Watermark, without_ranges
from drkit.model.topology import LinkId, TopicPartition
from drkit.model.wording import counted


class MappingRows(Protocol):
    """Look-ups in mapping rows (`drkit.store.api.MappingStore` has them, and rows that were read before)."""

    def mappings(self, link: LinkId, tp: TopicPartition, epoch: int) -> Sequence[OffsetMapping]:
        """All rows of a partition in an epoch, ascending by source offset."""

    def next_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, source_offset: int) -> OffsetMapping | None:
        """The first row strictly above `source_offset`."""

    def last_valid_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, target_end: int) -> OffsetMapping | None:
        """The row with the greatest `target_offset` <= `target_end` (ties: greatest source offset)."""


def missing_until(rows: MappingRows, link: LinkId, mark: Watermark) -> int:
    """The source offset below which the target holds nothing, by the target's log start in the watermark.

    0 where no row is kept, so nothing is known. Reads at most three rows.
    """
    first = rows.next_mapping(link, mark.tp, mark.epoch, -1)
    if first is None:
        return 0
    row = rows.last_valid_mapping(link, mark.tp, mark.epoch, mark.target_start) if mark.target_start > 0 else None
    if row is None:
        return first.source_offset
    until = row.source_offset + mark.target_start - row.target_offset
    following = rows.next_mapping(link, mark.tp, mark.epoch, row.source_offset)
    if following is not None:
        until = min(until, following.source_offset)
    return max(first.source_offset, min(until, mark.source_through))


def not_accepted(begin: int, until: int, accepted: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """From the first to the last of the missing offsets [`begin`, `until`) that nobody has accepted; None: there are
    none. What was accepted between them is told once more. `accepted`: ranges."""
    left = without_ranges([(begin, until)], accepted)
    return (left[0][0], left[-1][1]) if left else None


def purge_problem(link: LinkId, mark: Watermark, target_topic: str, begin: int, until: int, since: datetime) -> Problem:
    """The problem that source offsets [`begin`, `until`) were removed from the target, which begins at the watermark's
    `target_start`."""
    return Problem(
        TARGET_PURGED,
        mark.topic,
        mark.partition,
        f"{target_topic}:{mark.partition} on {link.target} begins at {mark.target_start}: source offsets {begin} to "
        f"{until - 1} (up to {counted(until - begin, 'record')}) were removed there, though {link.source} still holds "
        "them and no retention of the topic explains it",
        f"Find who removed them: DeleteRecords, or a shorter retention set on {link.target} (where they had been "
        f"purged on {link.source}, a broker may have brought them back there). To mirror them again, delete the "
        f"topic on {link.target} and start over: `drkit link resume '{link}' --topic {mark.topic} "
        f"--accept-recreated`. To go on without them: `drkit link acknowledge '{link}' {TARGET_PURGED} --topic "
        f"{mark.topic}`",
        halted=False,
        since=since,
        unsure_from=begin,
        unsure_until=until,
    )
