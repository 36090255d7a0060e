"""What a continuous audit has reconciled: ranges of source offsets, the counts of each, and their sum. Pure.

A range is closed once the mirror's watermark has passed it: the mirror says that the target holds all of it. It is
reconciled once, and one atomic step adds its counts to the stored sum, so a killed process counts no range twice
and omits none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any, NamedTuple

from drkit.model.audit.audit_result import DEVIATIONS, Counts
from drkit.model.clock import iso
from drkit.model.errors import DrkitError
from drkit.model.offsets import merged_ranges

FORMAT = "drkit-continuous-audit/2"


class ClosedRange(NamedTuple):
    """Source offsets [first, until) of a partition in one epoch that are on the target by the mirror's watermark.

    `closed_ms`: when the audit first saw that, ms since the epoch. `opening`: the partition's first range. It begins
    where the logs do, and covers what is on the target before its first record. `incarnation`: as `TopicState` has it.
    `again`: the mirror went back and copied it a second time, so its records are in the sum already.
    """

    topic: str
    partition: int
    epoch: int
    first: int
    until: int
    closed_ms: int
    opening: bool = False
    incarnation: str = ""
    again: bool = False

    @property
    def name(self) -> str:
        """`epoch/partition/topic`."""
        return f"{self.epoch}/{self.partition}/{self.topic}"

    @property
    def incarnation_name(self) -> str:
        """As `incarnation_name` has it."""
        return incarnation_name(self.epoch, self.incarnation)


def incarnation_name(epoch: int, incarnation: str) -> str:
    """The epoch, and the topic ids behind it where they are known."""
    return f"{epoch} {incarnation}".rstrip()


def one_incarnation(one: str, other: str) -> bool:
    """Whether two such names are one incarnation's; where ids are unknown, the epoch decides."""
    (epoch, *ids), (other_epoch, *other_ids) = one.split(" "), other.split(" ")
    return epoch == other_epoch and (not ids or not other_ids or ids == other_ids)


KINDS = DEVIATIONS
GONE = "gone"


class Sample(NamedTuple):
    """A deviating record: one of KINDS, or GONE, and its offset on either side."""

    kind: str
    source_offset: int | None
    target_offset: int | None


@dataclass(frozen=True, slots=True)
class Reconciled:
    """One range's outcome. `problem`: why it could not be reconciled (then there are no counts).

    `behind`: for an empty range, the target offsets [first, until) above its end that were read instead.
    `reached`: the target offset up to which the audit read; None where nothing was compared.
    `beyond`: target offsets [first, until) above the range that its counts include: no source record belongs
    there yet, but records of the range may be displaced so far.

    `gone`: records of a live range that the target has already removed although the source still has them. `first`:
    some of the deviating records.
    """

    closed: ClosedRange
    target_topic: str
    counts: Counts = field(default_factory=Counts)
    gone: int = 0
    first: tuple[Sample, ...] = ()
    problem: str | None = None
    behind: tuple[int, int] | None = None
    reached: int | None = None
    beyond: tuple[int, int] | None = None

    @property
    def deviates(self) -> bool:
        """Whether it found a deviation."""
        return not self.counts.clean or self.gone > 0

    def __str__(self) -> str:
        found = [f"{getattr(self.counts, kind):,} {kind}" for kind in KINDS if getattr(self.counts, kind)]
        if self.gone:
            found.append(f"{self.gone:,} gone from the target")
        closed = self.closed
        at = f"source offsets {closed.first} to {closed.until - 1}"
        if self.behind is not None:
            at = f"target offsets {self.behind[0]} to {self.behind[1] - 1}, after the last mirrored record"
        return f"{closed.topic}:{closed.partition} {at}: {self.problem or ', '.join(found) or 'equal'}"


def slices(ranges: Sequence[ClosedRange], most: int) -> list[list[ClosedRange]]:
    """Group ranges into lots of at most `most` offsets, cutting long ones. A partition's parts stay in order, one a
    lot."""
    lots: list[list[ClosedRange]] = []
    rest = [each for each in ranges if each.first < each.until]
    while rest:
        room, lot, left = most, list[ClosedRange](), list[ClosedRange]()
        for each in rest:
            until = min(each.until, each.first + room)
            if until > each.first:
                lot.append(each._replace(until=until))
                room -= until - each.first
            if until < each.until:
                left.append(each._replace(first=until, opening=each.opening and until == each.first))
        lots.append(lot)
        rest = left
    return lots


@dataclass(slots=True)
class AuditProgress:
    """The sum, kept beside the stream's checkpoint.

    `batch`: the last of the stream's batches in it. `topics`: counts by source topic. `alerts`: number of ranges that
    deviated; `unknown`: number of ranges that could not be reconciled. `latency_seconds`: of the last batch, from when
    its oldest range was first seen closed to its verdict. `begins`: for the batch `begins_of`, the first offsets of
    those ranges whose beginning the logs no longer held at the first read, by `ClosedRange.name`; kept before the batch
    is reconciled. `looks`: how often records were found above the last mirrored ones; `told`: the target offsets that
    were counted that way, by `topic:partition`, so no range counts them again. `reached`: the target offset read up to,
    by `topic:partition`; where a target ended early, records appended later are below the last range's end.
    `incarnations`: of which incarnation these two and `through` are, by `topic:partition`. `waiting`:
    of an audit that was stopped, what it waited for instead of comparing what was closed; None: for nothing.
    """

    run: str
    link: str
    started_at: str
    batch: int = -1
    ranges: int = 0
    alerts: int = 0
    unknown: int = 0
    gone: int = 0
    latency_seconds: float | None = None
    reconciled_at: str | None = None
    topics: dict[str, Counts] = field(default_factory=dict)
    through: dict[str, int] = field(default_factory=dict)
    begins: dict[str, int] = field(default_factory=dict)
    begins_of: int = -1
    looks: int = 0
    told: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    incarnations: dict[str, str] = field(default_factory=dict)
    waiting: str | None = None

    @property
    def counts(self) -> Counts:
        """Over all topics."""
        return Counts.total(self.topics.values())

    @property
    def verdict(self) -> str:
        """Like an audit's; `unknown` where something could not be reconciled, or nothing was, and nothing deviates."""
        if self.alerts:
            return "deviated"
        return "unknown" if self.unknown or not self.ranges or self.waiting is not None else "clean"

    def is_of(self, name: str, incarnation: str) -> bool:
        """Whether what is kept of a `topic:partition` is of this incarnation, by its `incarnation_name`."""
        return name in self.incarnations and one_incarnation(self.incarnations[name], incarnation)

    def told_of(self, ranges: Iterable[ClosedRange]) -> dict[str, list[tuple[int, int]]]:
        """Of `told`, what is of the incarnations that the ranges are of, and of what the mirror wrote there since."""
        names = {f"{each.topic}:{each.partition}": each.incarnation_name for each in ranges if not each.again}
        return {name: self.told[name] for name, of in names.items() if name in self.told and self.is_of(name, of)}

    def added(self, batch: int, found: Iterable[Reconciled], at: datetime, latency_seconds: float) -> AuditProgress:
        """The sum plus one batch's ranges."""
        outcomes = list(found)
        topics, through, reached = dict(self.topics), dict(self.through), dict(self.reached)
        told, incarnations = dict(self.told), dict(self.incarnations)
        for each in outcomes:
            topic, name = each.closed.topic, f"{each.closed.topic}:{each.closed.partition}"
            of = each.closed.incarnation_name
            if each.closed.again or not one_incarnation(incarnations.get(name, of), of):
                told.pop(name, None)
                reached.pop(name, None)
            incarnations[name] = of
            counts = each.counts.deviating if each.closed.again else each.counts
            topics[topic] = Counts.total([topics.get(topic, Counts()), counts])
            through[name] = each.closed.until
            if each.reached is not None:
                reached[name] = each.reached
            if each.beyond is not None:
                told[name] = merged_ranges([*told.get(name, ()), each.beyond])
        return replace(
            self,
            batch=batch,
            begins={},
            begins_of=-1,
            ranges=self.ranges + len(outcomes),
            alerts=self.alerts + sum(each.deviates for each in outcomes),
            unknown=self.unknown + sum(each.problem is not None for each in outcomes),
            gone=self.gone + sum(each.gone for each in outcomes),
            latency_seconds=latency_seconds,
            reconciled_at=iso(at),
            topics=topics,
            through=through,
            reached=reached,
            told=told,
            incarnations=incarnations,
        )

    def beheld(self, found: Iterable[tuple[Reconciled, Iterable[tuple[int, int]]]]) -> AuditProgress:
        """The sum plus what was found above the last mirrored records: outcomes, and the target offsets they count."""
        topics, told, alerts, unknown = dict(self.topics), dict(self.told), self.alerts, self.unknown
        for outcome, offsets in found:
            topic, name = outcome.closed.topic, f"{outcome.closed.topic}:{outcome.closed.partition}"
            topics[topic] = Counts.total([topics.get(topic, Counts()), outcome.counts])
            told[name] = merged_ranges([*told.get(name, ()), *offsets])
            alerts += outcome.deviates
            unknown += outcome.problem is not None
        return replace(self, topics=topics, told=told, alerts=alerts, unknown=unknown, looks=self.looks + 1)

    def to_json(self) -> str:
        """As it is kept."""
        return json.dumps({"format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, text: str, where: str) -> AuditProgress:
        """Read what `to_json` wrote.

        Raises:
            DrkitError: it can't be read.
        """
        try:
            body: Mapping[str, Any] = json.loads(text)
            known = {FORMAT: body}[body["format"]]
            topics = {topic: Counts(**counts) for topic, counts in body["topics"].items()}
            names = {each.name for each in fields(cls)}
            told = {name: [tuple(each) for each in ranges] for name, ranges in body.get("told", {}).items()}
            kept = {key: value for key, value in known.items() if key in names}
            return cls(**{**kept, "topics": topics, "told": told})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DrkitError(
                f"{where} is not a continuous audit's progress: {error}",
                meaning="What was reconciled before is not known",
                remedy="Give another --checkpoint to start over",
            ) from error
