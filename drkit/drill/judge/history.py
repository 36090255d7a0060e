"""The history of a drill's clients: every attempt, every poll, every commit, and the target as read at the end (of a
link that a failback brought back the source, too); beside it what a failover stated of the group's positions.

Times (`…_at`) are seconds of CLOCK_MONOTONIC, which all processes of one machine share: their differences are exact,
whatever happens to the wall clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple


class RecordId(NamedTuple):
    """Identifies a record of the workload: its key, and its number among the records of that key (from 0)."""

    key: str
    seq: int

    def __str__(self) -> str:
        return f"{self.key}#{self.seq}"


class AttemptOutcome(StrEnum):
    """What the producer knows about an attempt.

    `acked`: acknowledged, in a transaction also committed. `aborted`: its transaction was aborted. `unknown`: no
    response came, it may or may not be in the log, or its transaction may or may not be committed.
    """

    ACKED = "acked"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A record that the producer sent. `offset` and `acked_at` are None unless it was acknowledged.

    `transaction`: the name of its transaction; None: it was sent outside of one. Then `acked_at` is the time of the
    commit.
    """

    record: RecordId
    cluster: str
    partition: int
    sent_at: float
    digest: int
    outcome: AttemptOutcome
    offset: int | None = None
    acked_at: float | None = None
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    """A record that the group received. `session`: the consumer process; `assignment`: the number of its partition
    assignment; `record`: None if the bytes are not the workload's."""

    session: str
    assignment: int
    cluster: str
    partition: int
    offset: int
    record: RecordId | None
    at: float


@dataclass(frozen=True, slots=True)
class ConfirmedPosition:
    """A position of the group that the cluster confirmed: its first one, or one that it committed."""

    cluster: str
    partition: int
    offset: int
    at: float


@dataclass(frozen=True, slots=True)
class Landed:
    """A record that an independent reader found on a cluster after the method."""

    partition: int
    offset: int
    record: RecordId | None
    digest: int


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a partition of a cluster after the method: its last stable offset, and the end of its log."""

    partition: int
    stable: int
    end: int


@dataclass(frozen=True, slots=True)
class StatedPosition:
    """Where a failover stated that the group continues on a partition of the target.

    `reread_at_most`: how many records it stated that the group reads again there; None: it stated no bound. `at`: when
    the failover ended.
    """

    partition: int
    offset: int
    reread_at_most: int | None
    at: float


@dataclass(frozen=True, slots=True)
class Returned:
    """The source of a link that a failback brought back, as an independent reader found it after the method.

    `at`: when the failback ended. `incomplete`: LANDED or ENDS, if it couldn't be read, with the reason.
    """

    at: float
    landed: tuple[Landed, ...] = ()
    ends: tuple[LogEnd, ...] = ()
    incomplete: dict[HistoryPart, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StatedLoss:
    """How many source offsets of the workload's topic a failover stated as lost.

    `lower_bound`: it stated that more may be lost. `at`: when the failover began.
    """

    records: int
    lower_bound: bool
    at: float


class HistoryPart(StrEnum):
    """The parts of a history that may be missing."""

    ATTEMPTS = "attempts"
    POLLS = "polls"
    LANDED = "landed"
    ENDS = "ends"


@dataclass(frozen=True)
class ClientHistory:
    """The history of the clients of one link in a drill, in the order of events.

    `incomplete`: the parts that may be incomplete, with the reason. A check that needs such a part can't pass.
    `stated`: of the last failover, if it succeeded. `stated_loss`: of the only one, if it succeeded.
    `ends`: of the target, of a workload with transactions.
    `returned`: the source, if clients belong there again; None: no failback brought the link back.
    """

    source: str
    target: str
    attempts: tuple[Attempt, ...] = ()
    polls: tuple[Poll, ...] = ()
    positions: tuple[ConfirmedPosition, ...] = ()
    landed: tuple[Landed, ...] = ()
    incomplete: dict[HistoryPart, str] = field(default_factory=dict)
    stated: tuple[StatedPosition, ...] = ()
    ends: tuple[LogEnd, ...] = ()
    returned: Returned | None = None
    stated_loss: StatedLoss | None = None

    @property
    def link(self) -> str:
        """The link's name."""
        return f"{self.source}->{self.target}"

    def acked(self, cluster: str) -> Iterator[Attempt]:
        """The attempts that a cluster acknowledged."""
        return (a for a in self.attempts if a.cluster == cluster and a.outcome is AttemptOutcome.ACKED)

    def after_return(self, attempt: Attempt) -> bool:
        """Whether it was acknowledged after the failback: offsets of before may be those of a log that is gone."""
        return self.returned is not None and attempt.acked_at is not None and attempt.acked_at >= self.returned.at

    def way_back(self) -> ClientHistory | None:
        """The same history with source and target exchanged: what was found on the source is `landed`, and what was
        found on the target is `returned`; None: no failback brought the link back.
        """
        if self.returned is None:
            return None
        gone = (HistoryPart.LANDED, HistoryPart.ENDS)
        incomplete = {part: why for part, why in self.incomplete.items() if part not in gone}
        return replace(
            self,
            source=self.target,
            target=self.source,
            landed=self.returned.landed,
            ends=self.returned.ends,
            incomplete=incomplete | self.returned.incomplete,
            returned=Returned(self.returned.at, self.landed, self.ends),
        )

    def missing_on_source(self) -> Iterator[Attempt]:
        """What the source, brought back, should hold and doesn't: what the target acknowledged or held, and what the
        source acknowledged since. What it alone had acknowledged before was lost in the failover, not on the way back.
        """
        if self.returned is None:
            return
        there, on_target = {one.record for one in self.returned.landed}, self.landed_records()
        for attempt in self.attempts:
            if attempt.outcome is not AttemptOutcome.ACKED or attempt.record in there:
                continue
            if attempt.cluster == self.target or attempt.record in on_target or self.after_return(attempt):
                yield attempt

    def aborted_records(self) -> frozenset[RecordId]:
        """The records of transactions that their producer aborted."""
        return frozenset(a.record for a in self.attempts if a.outcome is AttemptOutcome.ABORTED)

    def committed_transactions(self) -> dict[str, list[Attempt]]:
        """The records of each transaction that its producer committed, in order."""
        found: dict[str, list[Attempt]] = {}
        for attempt in self.attempts:
            if attempt.transaction is not None and attempt.outcome is AttemptOutcome.ACKED:
                found.setdefault(attempt.transaction, []).append(attempt)
        return found

    def landed_records(self) -> frozenset[RecordId]:
        """The workload's records that are on the target."""
        return frozenset(one.record for one in self.landed if one.record is not None)

    def landed_by_partition(self) -> dict[int, list[Landed]]:
        """What is on the target, by partition, ascending by offset."""
        return _by_partition(self.landed)


@dataclass(frozen=True, slots=True)
class LinkHistory:
    """A link's history, with its disaster.

    `disaster_at`: from when RPO and RTO are measured (CLOCK_MONOTONIC seconds), or None if there was none. `moved`:
    whether a failover succeeded and clients were moved.
    """

    history: ClientHistory
    disaster_at: float | None = None
    moved: bool = False


def _by_partition(landed: Iterable[Landed]) -> dict[int, list[Landed]]:
    found: dict[int, list[Landed]] = {}
    for one in landed:
        found.setdefault(one.partition, []).append(one)
    for rows in found.values():
        rows.sort(key=lambda row: row.offset)
    return dict(sorted(found.items()))
