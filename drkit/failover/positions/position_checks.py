"""The records at the groups' positions, read when positions are chosen and again when they are committed. Pure.

Many groups share a position, so each distinct position is checked once. A plan freezes the checks; the verification
compares the record that a group gets now with the record that was there. If either read failed, the result is
`UNKNOWN`, never a match.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from drkit.failover.context.state_machine import PlacesSeen
from drkit.failover.positions.positions import PlannedPosition
from drkit.kafka.client.record_probe import LogPosition, ProbedRecord
from drkit.model.topology import TopicPartition


class PositionCheck(NamedTuple):
    """A position on the target and the first record at or after it.

    `topic` is the target's name. `record` is that record's offset, None if the log ended there;
    `timestamp` in ms; `crc` the CRC-32C of its key, value and headers. `reason`: why it is unknown.
    """

    topic: str
    partition: int
    offset: int
    record: int | None
    timestamp: int | None
    crc: int | None
    reason: str | None

    @property
    def place(self) -> LogPosition:
        """Its position."""
        return LogPosition(TopicPartition(self.topic, self.partition), self.offset)

    @property
    def peeked(self) -> ProbedRecord:
        """The record seen there."""
        return ProbedRecord(self.record, self.timestamp, self.crc, self.reason)


class Match(StrEnum):
    """The result of comparing a position's record with the earlier one."""

    SAME = "same"
    END = "end"  # the log ended there, and still does
    NEW = "new"  # the log ended there; what was written since comes next
    GONE = "gone"  # retention or compaction removed the record; the next one comes
    DIFFERENT = "different"
    UNKNOWN = "unknown"


def places_of(positions: Iterable[PlannedPosition]) -> set[LogPosition]:
    """Every distinct position among these."""
    distinct = {(p.target_topic, p.partition, p.target_offset) for p in positions}
    return {
        LogPosition(TopicPartition(topic, partition), offset)
        for topic, partition, offset in distinct
        if offset is not None
    }


def position_checks(found: Mapping[LogPosition, ProbedRecord]) -> tuple[PositionCheck, ...]:
    """The records seen, in order."""
    return tuple(
        PositionCheck(*place.tp, place.offset, seen.offset, seen.timestamp, seen.crc, seen.reason)
        for place, seen in sorted(found.items())
    )


def compare(before: ProbedRecord, now: ProbedRecord, *, removable: bool) -> Match:
    """Compare one position at two looks. `removable`: the topic's own cleanup may have removed the record in
    between."""
    if before.reason is not None:
        return Match.UNKNOWN
    if now.reason is not None:
        return Match.DIFFERENT if now.outside else Match.UNKNOWN
    if before.offset is None:
        return Match.END if now.offset is None else Match.NEW
    if (now.offset, now.timestamp, now.crc) == (before.offset, before.timestamp, before.crc):
        return Match.SAME
    gone = removable and (now.offset is None or now.offset > before.offset)
    return Match.GONE if gone else Match.DIFFERENT


def count(matches: Iterable[Match]) -> PlacesSeen:
    """The number of each result."""
    counted = Counter(match.value for match in matches)
    return PlacesSeen(**counted)


def difference(place: LogPosition, before: ProbedRecord, now: ProbedRecord) -> str:
    """The difference, for people."""
    return f"{place.tp} at {place.offset}: {describe(now)}, before: {describe(before)}"


def describe(peeked: ProbedRecord) -> str:
    """The record at a position, in a few words."""
    if peeked.reason is not None:
        return peeked.reason
    if peeked.offset is None:
        return "the log's end"
    return f"the record {peeked.offset} (stamped {peeked.timestamp}, CRC {peeked.crc or 0:08x})"


def what_changed(before: Sequence[PositionCheck], now: Sequence[PositionCheck]) -> list[str]:
    """Positions in both lists with another record now, one sentence each. New records at an end are no change."""
    known = {standing.place: standing.peeked for standing in before}
    return [
        difference(standing.place, known[standing.place], standing.peeked)
        for standing in now
        if standing.place in known
        and compare(known[standing.place], standing.peeked, removable=True) is Match.DIFFERENT
    ]
