"""Up to which source offset a target has nothing, because of where its log and its mapping begin. Pure.

    source   S ...... until ...... source_through
    target        T ............... target_end          T is until's place, by the mapping row that holds there

What the mirror put below T is on the target no longer, and what is below the first mapping row never was. The source
still holds what is from its own log start S on. Where S is at or above `until`, nothing is missing. (S can be below the
first row: DeleteRecords is undone by a leader that never heard of it.)
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Protocol

from drkit.model.link_state import TARGET_PURGED, Problem
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.model.wording import counted


class MappingRows(Protocol):
    """Single rows of a store (`drkit.store.api.MappingStore` has them)."""

    def next_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, source_offset: int) -> OffsetMapping | None:
        """The first row strictly above `source_offset`."""

    def last_valid_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, target_end: int) -> OffsetMapping | None:
        """The row with the greatest `target_offset` <= `target_end` (ties: greatest source offset)."""


def missing_until(rows: MappingRows, link: LinkId, mark: Watermark) -> int:
    """The source offset below which the target has nothing, by the target's log start as the watermark has it.

    0 where no row is kept, so that nothing is known. At most three rows are read.
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


class ReportedPurge(NamedTuple):
    """What was reported of a partition's purged offsets: `until` (exclusive), and `accepted`: up to where an operator
    has accepted it by clearing the problem. Kept as a note of kind `TARGET_PURGED`, by source partition."""

    epoch: int
    accepted: int
    until: int

    @classmethod
    def parse(cls, note: str | None) -> ReportedPurge | None:
        """What `str` wrote; None where there is no note."""
        return None if note is None else cls(*map(int, note.split(":")))

    def __str__(self) -> str:
        return ":".join(map(str, self))


def accepted_until(told: ReportedPurge | None, epoch: int, *, recorded: bool) -> int:
    """Up to which source offset (exclusive) an operator has accepted that something is missing.

    `recorded`: the problem is on record. One that was told and isn't any more was cleared.
    """
    if told is None or told.epoch != epoch:
        return 0
    return told.accepted if recorded else told.until


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
        f"Find out who removed them (DeleteRecords, a shorter retention that was set on {link.target}; where they were "
        f"purged on {link.source} before, a broker there may have brought them back). To have "
        f"them there again, delete the topic on {link.target} and start it again: `drkit link resume '{link}' --topic "
        f"{mark.topic} --accept-recreated`. To go without them: `drkit link resume '{link}' --topic {mark.topic}`",
        halted=False,
        since=since,
        unsure_from=begin,
        unsure_until=until,
    )
