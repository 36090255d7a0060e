"""The reports of a load: records acknowledged, aborted and left without a response; and what each group read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from drkit.model.topology import TopicPartition


class Behaviour(StrEnum):
    """How a group reads and commits."""

    LIVE = "live"
    LAGGING = "lagging"
    AHEAD = "ahead"


@dataclass(frozen=True, slots=True)
class GroupReport:
    """The progress of a group.

    read: records processed by this reader. positions: the offset after the last processed record, by partition.
    committed: this reader's offsets that the cluster acknowledged. problem: a message for people, or None.
    """

    group: str
    behaviour: Behaviour
    topics: tuple[str, ...]
    read: int
    positions: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]
    problem: str | None


class LoadOutcome(StrEnum):
    """How a load ended."""

    COMPLETE = "complete"  # every event is acknowledged
    INTERRUPTED = "interrupted"  # it was told to stop; the report accounts for what was sent by then
    FAILED = "failed"  # the cluster refused records, or didn't answer in time


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """Records of one partition. `end_offset`: the offset after the last acknowledged one; None: there is none."""

    partition: int
    acknowledged: int
    aborted: int
    end_offset: int | None


@dataclass(frozen=True, slots=True)
class TopicReport:
    """Records of one topic.

    sent = acknowledged + aborted + unacknowledged.

    acknowledged: the cluster has them (in transactions: the transaction is committed).
    aborted: they are in the log, in an aborted transaction: readers of committed records never see them.
    unacknowledged: no response, or a refusal. They may or may not be in the log.
    """

    topic: str
    sent: int
    acknowledged: int
    aborted: int
    unacknowledged: int
    partitions: tuple[PartitionReport, ...]


@dataclass(frozen=True, slots=True)
class Transactions:
    """Transactions by outcome; `unknown`: the response to the commit never came."""

    committed: int = 0
    aborted: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The result of a load.

    `load`: the id in the header ``drkit-lab-load`` of each of its records. `events_sent`: how many of the `events` the
    producer got. `errors`: the producer's errors by name, counted; `reason`: why it failed, in words.
    """

    load: str
    dataset: str
    outcome: LoadOutcome
    reason: str | None
    started_at: datetime
    seconds: float
    events: int
    events_sent: int
    topics: tuple[TopicReport, ...]
    transactions: Transactions | None
    errors: dict[str, int]

    @property
    def acknowledged(self) -> int:
        """Records acknowledged, all topics."""
        return sum(topic.acknowledged for topic in self.topics)

    @property
    def aborted(self) -> int:
        """Records in aborted transactions, all topics."""
        return sum(topic.aborted for topic in self.topics)

    @property
    def unacknowledged(self) -> int:
        """Records without a response, or refused, all topics."""
        return sum(topic.unacknowledged for topic in self.topics)


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """The progress of a load. `seconds`: since its first event."""

    events: int
    events_sent: int
    records_sent: int
    acknowledged: int
    seconds: float

    @property
    def rate(self) -> float:
        """Records sent per second, on average."""
        return self.records_sent / self.seconds if self.seconds > 0 else 0.0


class DeliveryTally:
    """Deliveries by partition: how many, and the offset after the last one. Any thread may read `total`."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()
        self.ends: dict[tuple[str, int], int] = {}
        self.total = 0

    def add(self, other: DeliveryTally) -> None:
        """Add the counts of `other`."""
        self.counts.update(other.counts)
        self.ends.update(other.ends)
        self.total += other.total


@dataclass
class LoadLedger:
    """The accounts of one load while it runs.

    Deliveries are counted in `current`. Outside transactions that is `acknowledged` itself; inside one it is a separate
    tally, which is added to `acknowledged` or `aborted` when the transaction ends. Records in neither at the end are
    unacknowledged.
    """

    sent: Counter[str] = field(default_factory=Counter)
    records_sent: int = 0
    events_sent: int = 0
    acknowledged: DeliveryTally = field(default_factory=DeliveryTally)
    aborted: DeliveryTally = field(default_factory=DeliveryTally)
    errors: Counter[str] = field(default_factory=Counter)
    first_error: str | None = None
    committed_transactions: int = 0
    aborted_transactions: int = 0
    unknown_transactions: int = 0

    def __post_init__(self) -> None:
        self.current = self.acknowledged

    def delivered(self, error: Any, message: Any) -> None:
        """The producer's delivery callback."""
        if error is None:
            place = (message.topic(), message.partition())
            current = self.current
            current.counts[place] += 1
            current.ends[place] = message.offset() + 1
            current.total += 1
        else:
            self.failed(error)

    def failed(self, error: Any) -> None:
        """Note an error of the producer."""
        self.errors[error.name()] += 1
        if self.first_error is None:
            self.first_error = error.str()

    def begin(self) -> None:
        """A transaction begins."""
        self.current = DeliveryTally()

    def committed(self) -> None:
        """The open transaction is committed."""
        self.acknowledged.add(self.current)
        self.committed_transactions += 1
        self.current = DeliveryTally()

    def rolled_back(self) -> None:
        """The open transaction is aborted."""
        self.aborted.add(self.current)
        self.aborted_transactions += 1
        self.current = DeliveryTally()

    def unresolved(self) -> None:
        """The outcome of the open transaction is unknown."""
        self.unknown_transactions += 1
        self.current = DeliveryTally()

    def topic_reports(self, topics: tuple[str, ...]) -> tuple[TopicReport, ...]:
        """The accounts by topic, in the order of `topics`; a topic without records has zeros."""
        places = sorted(self.acknowledged.counts.keys() | self.aborted.counts.keys())
        reports = []
        for topic in topics:
            parts = tuple(
                PartitionReport(
                    place[1],
                    self.acknowledged.counts[place],
                    self.aborted.counts[place],
                    self.acknowledged.ends.get(place),
                )
                for place in places
                if place[0] == topic
            )
            acknowledged = sum(part.acknowledged for part in parts)
            aborted = sum(part.aborted for part in parts)
            sent = self.sent[topic]
            reports.append(TopicReport(topic, sent, acknowledged, aborted, sent - acknowledged - aborted, parts))
        return tuple(reports)
