"""What the clients of a drill kept: every attempt, every poll, every commit, and the target read at the end.

Times (`…_at`) are seconds of CLOCK_MONOTONIC, which all processes of one machine share: differences
between them are exact whatever the wall clock does. Partitions and offsets are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class RecordId(NamedTuple):
    """A record of the workload: its key, and its number among the records of that key (from 0)."""

    key: str
    seq: int

    def __str__(self) -> str:
        return f"{self.key}#{self.seq}"


class AttemptOutcome(StrEnum):
    """What the producer knows of an attempt. `unknown`: no answer came, it may or may not be in the log."""

    ACKED = "acked"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One record that the producer sent. `offset` and `acked_at` are None unless acknowledged."""

    record: RecordId
    cluster: str
    partition: int
    sent_at: float
    digest: int
    outcome: AttemptOutcome
    offset: int | None = None
    acked_at: float | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    """One record that the group was given. `session` is a consumer process, `assignment` counts the
    times it was assigned partitions; `record` is None where the bytes are none of the workload's."""

    session: str
    assignment: int
    cluster: str
    partition: int
    offset: int
    record: RecordId | None
    at: float


@dataclass(frozen=True, slots=True)
class ConfirmedPosition:
    """A position of the group that the cluster confirmed: one it started from, or one it committed."""

    cluster: str
    partition: int
    offset: int
    at: float


@dataclass(frozen=True, slots=True)
class Landed:
    """One record that an independent reader found on the target after the method."""

    partition: int
    offset: int
    record: RecordId | None
    digest: int


class HistoryPart(StrEnum):
    """The parts of a history that may be missing."""

    ATTEMPTS = "attempts"
    POLLS = "polls"
    LANDED = "landed"


@dataclass(frozen=True)
class ClientHistory:
    """All that was kept in one drill, in the order in which it happened.

    `incomplete` says which parts may lack something, and why: a check that needs such a part
    can't be passed by it.
    """

    source: str
    target: str
    attempts: tuple[Attempt, ...] = ()
    polls: tuple[Poll, ...] = ()
    positions: tuple[ConfirmedPosition, ...] = ()
    landed: tuple[Landed, ...] = ()
    incomplete: dict[HistoryPart, str] = field(default_factory=dict)

    def acked(self, cluster: str) -> Iterator[Attempt]:
        """The attempts that a cluster acknowledged."""
        return (a for a in self.attempts if a.cluster == cluster and a.outcome is AttemptOutcome.ACKED)

    def landed_records(self) -> frozenset[RecordId]:
        """The workload's records that are on the target."""
        return frozenset(one.record for one in self.landed if one.record is not None)

    def landed_by_partition(self) -> dict[int, list[Landed]]:
        """What is on the target, by partition, ascending by offset."""
        return _by_partition(self.landed)


def _by_partition(landed: Iterable[Landed]) -> dict[int, list[Landed]]:
    found: dict[int, list[Landed]] = {}
    for one in landed:
        found.setdefault(one.partition, []).append(one)
    for rows in found.values():
        rows.sort(key=lambda row: row.offset)
    return dict(sorted(found.items()))
