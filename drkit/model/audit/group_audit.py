"""What one group missed or read twice through a failover: its source position, its target position, and the
records between them. See docs/audit.md.

Counts are of records; None is unknown, and `notes` say why. `missed`: records that the group had not read on the
source and won't read on the target; `twice`: records that it reads again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from drkit.model.topology import LinkId
from drkit.model.totals import total


class GroupVerdict(StrEnum):
    """`deviated`: a record was missed, altered or copied; `unknown`: none is known to be, but not all is known."""

    CLEAN = "clean"
    DEVIATED = "deviated"
    UNKNOWN = "unknown"


class SourceEvidence(StrEnum):
    """Where the group's position on the source comes from."""

    SOURCE = "source"  # the source itself, asked now
    JOURNAL = "journal"  # the failover's journal
    TIMELINE = "timeline"  # what the mirror captured over time


class After(StrEnum):
    """Where the group's position on the target comes from."""

    FAILOVER = "failover"  # the failover committed it
    TARGET = "target"  # the failover didn't move it; the target has this position now


class Reason(StrEnum):
    """Why a record was missed or is read twice."""

    POSITION = "position"  # missed: on the target, below the group's position there
    LOST = "lost"  # missed: below the highest mirrored position, not on the target
    UNREADABLE = "unreadable"  # missed: its place on the target is in a batch that can't be read
    UNMIRRORED = "unmirrored"  # missed: the mirror had not reached it
    CORRUPTED = "corrupted"  # read, but altered
    REREAD = "reread"  # twice: read on the source, and at or above the group's position on the target
    DUPLICATED = "duplicated"  # twice: a further copy on the target of a record not read on the source
    RETIRED = "retired"  # was on the target; retention or compaction removed it: whether it was read isn't known


class CountBasis(StrEnum):
    """What the counts are based on."""

    RECORDS = "records"  # both sides, compared record by record
    MAPPING = "mapping"  # the target and the mapping only: the source can't be read


@dataclass(frozen=True, slots=True)
class GroupPositions:
    """A group's position on a partition before and after. Offsets are the next to be read.

    `source_seen_at`: when the source position was seen. `target_now`: what it has committed on the target now.
    `why`: the reason for each position that isn't known or is doubtful.
    """

    topic: str
    target_topic: str
    partition: int
    source_offset: int | None
    before: SourceEvidence | None
    source_seen_at: datetime | None
    target_offset: int | None
    after: After | None
    target_now: int | None
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupMove:
    """What a failover did with one group. `unreadable`: why the source's records can't be compared, or None."""

    link: LinkId
    group: str
    run: str
    moved_at: datetime
    places: tuple[GroupPositions, ...]
    unreadable: str | None = None


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """Records by reason; None: unknown. `unmirrored_at_least`: source offsets beyond the mirrored position as the
    mirror last saw them, where `unmirrored` is unknown. `uncompared`: offsets that can't be judged because one side
    can't be read."""

    position: int | None = None
    lost: int | None = None
    unmirrored: int | None = None
    corrupted: int | None = None
    reread: int | None = None
    duplicated: int | None = None
    retired: int | None = None
    unreadable: int | None = None
    unmirrored_at_least: int | None = None
    uncompared: int = 0

    @property
    def missed(self) -> int | None:
        """Records neither read before nor to be read later."""
        return None if self.uncompared else total((self.position, self.lost, self.unreadable, self.unmirrored))

    @property
    def twice(self) -> int | None:
        """Seen twice."""
        return total((self.reread, self.duplicated))

    @property
    def verdict(self) -> GroupVerdict:
        """Records read again because of the position alone are no deviation: consumers expect at-least-once."""
        found = (self.position, self.lost, self.unreadable, self.unmirrored, self.corrupted, self.duplicated)
        if any(found) or self.unmirrored_at_least:
            return GroupVerdict.DEVIATED
        unsure = None in {*found, self.reread} or self.retired or self.uncompared
        return GroupVerdict.UNKNOWN if unsure else GroupVerdict.CLEAN

    @classmethod
    def sum(cls, parts: Iterable[GroupCounts]) -> GroupCounts:
        """The sum of all parts; unknown where one is."""
        found = list(parts)
        names = ("position", "lost", "unreadable", "unmirrored", "corrupted", "reread", "duplicated", "retired")
        sums = {name: total([getattr(part, name) for part in found]) for name in names}
        least = [each for each in (_least(part) for part in found) if each]
        return cls(
            **sums,
            unmirrored_at_least=sum(least) if sums["unmirrored"] is None and least else None,
            uncompared=sum(part.uncompared for part in found),
        )


def _least(part: GroupCounts) -> int | None:
    return part.unmirrored_at_least if part.unmirrored is None else part.unmirrored


@dataclass(frozen=True, slots=True)
class GroupWitness:
    """A record that was missed or is read twice, or one of its sides. `stamp` in ms; all None where it can't be read,
    and `problem` says why."""

    reason: Reason
    topic: str
    partition: int
    source_offset: int | None
    target_offset: int | None
    stamp: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """One partition of the view."""

    place: GroupPositions
    counts: GroupCounts
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupAudit:
    """The view. `observed_at`: when the logs' ends were taken; `seconds`: how long it took."""

    move: GroupMove
    means: CountBasis
    partitions: tuple[GroupPartition, ...]
    witnesses: tuple[GroupWitness, ...]
    observed_at: datetime
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> GroupCounts:
        """All partitions together."""
        return GroupCounts.sum(each.counts for each in self.partitions)

    @property
    def missed_at_least(self) -> int:
        """Records known to be missed, even where others are unknown."""
        parts = [each.counts for each in self.partitions]
        return sum(
            (part.position or 0) + (part.lost or 0) + (part.unreadable or 0) + (_least(part) or 0) for part in parts
        )

    @property
    def twice_at_least(self) -> int:
        """Records known to be read twice."""
        return sum((each.counts.reread or 0) + (each.counts.duplicated or 0) for each in self.partitions)

    @property
    def verdict(self) -> GroupVerdict:
        """The worst verdict of the partitions."""
        found = {each.counts.verdict for each in self.partitions}
        return next(
            (each for each in (GroupVerdict.DEVIATED, GroupVerdict.UNKNOWN) if each in found), GroupVerdict.CLEAN
        )
