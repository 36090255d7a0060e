"""An audit's request and result: counts, findings, verdict. See docs/audit.md for the definitions.

Two identities hold for every partition and for the totals (`Counts.identities`):

    source_records = matched + lost + corrupted + unseen + unreadable
    target_records = matched + duplicated + corrupted + foreign + unreadable

Records that a side's own retention or compaction removed, and records written on the target after the link
was sealed, are in neither sum. They are counted apart (`source_retired`, `target_retired`, `target_appended`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum

from drkit.model.clock import date_of
from drkit.model.digests import Coverage
from drkit.model.topology import Link, LinkId
from drkit.model.wording import counted


class Verdict(StrEnum):
    """`clean`: all was compared, and nothing is lost, duplicated, corrupted, reordered, foreign or unreadable.
    `incomplete`: no such deviation is known, but something could not be compared."""

    CLEAN = "clean"
    INCOMPLETE = "incomplete"
    DEVIATED = "deviated"

    @classmethod
    def worst(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """The worst of these; `clean` where there are none."""
        return max(verdicts, key=list(cls).index, default=cls.CLEAN)


class FindingKind(StrEnum):
    """The anomalies, worst first; `unseen` is none (the mirror had not reached the record)."""

    LOST = "lost"
    UNREADABLE = "unreadable"
    CORRUPTED = "corrupted"
    DUPLICATED = "duplicated"
    FOREIGN = "foreign"
    REORDERED = "reordered"
    UNSEEN = "unseen"


DEVIATIONS = tuple(kind.value for kind in FindingKind if kind is not FindingKind.UNSEEN)
"""The kinds of finding that make a verdict `deviated`, worst first."""


class PlacementBasis(StrEnum):
    """How an audit knows where a record belongs on the target."""

    MAPPING = "mapping"  # the link's mapping rows
    CONTENT = "content"  # nothing is recorded: only content and order within the partition
    MIXED = "mixed"  # some partitions by mapping, others by content


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of records by outcome.

    `unreadable`: the record's offset on the target is in a batch that fails its CRC.

    `source_retired`: on the target only, because the source's own retention or compaction removed the record
    there (or the whole topic was recreated). `target_retired`: the same in the other direction.
    `target_appended`: on the target beyond the mirrored data of a sealed link.
    """

    source_records: int = 0
    target_records: int = 0
    matched: int = 0
    lost: int = 0
    duplicated: int = 0
    corrupted: int = 0
    reordered: int = 0
    foreign: int = 0
    unseen: int = 0
    unreadable: int = 0
    source_retired: int = 0
    target_retired: int = 0
    target_appended: int = 0

    @classmethod
    def total(cls, parts: Iterable[Counts]) -> Counts:
        """The sum of the parts, field by field."""
        sums = dict.fromkeys((each.name for each in fields(cls)), 0)
        for part in parts:
            for name in sums:
                sums[name] += getattr(part, name)
        return cls(**sums)

    @property
    def clean(self) -> bool:
        """Whether nothing deviates."""
        return not any(getattr(self, kind) for kind in DEVIATIONS)

    @property
    def deviating(self) -> Counts:
        """Without the records that match, and those that no side claims."""
        kept = {kind: getattr(self, kind) for kind in (*DEVIATIONS, "unseen", "unreadable")}
        both = self.corrupted + self.unreadable
        source, target = both + self.lost + self.unseen, both + self.duplicated + self.foreign
        return Counts(**kept | {"source_records": source, "target_records": target})

    def broken_identity(self) -> str | None:
        """Which of the two identities does not hold, or None where both do."""
        both = self.matched + self.corrupted + self.unreadable
        if self.source_records != both + self.lost + self.unseen:
            return f"source_records is not matched + lost + corrupted + unseen + unreadable: {self}"
        if self.target_records != both + self.duplicated + self.foreign:
            return f"target_records is not matched + duplicated + corrupted + foreign + unreadable: {self}"
        return None


_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_PARTITIONS = re.compile(r":(\d+(?:,\d+)*)$")


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Topics of the link's source, whole (`partitions` None) or some of their partitions.

    `topic` is a name, or, where it has a character that Kafka allows in no name, a regular expression of whole names.
    """

    topic: str
    partitions: frozenset[int] | None = None

    @classmethod
    def parse(cls, text: str) -> TopicChoice:
        """Read ``t``, ``t:0,1`` or the same with a pattern for t; raises ValueError for any other form.

        A topic name holds no colon, so this is unambiguous. In a pattern only numbers at the end are partitions.
        """
        topic, colon, numbers = text.partition(":")
        if not _NAME.fullmatch(topic) and topic:
            pattern = _PARTITIONS.search(text)
            topic, colon, numbers = (text, "", "") if pattern is None else (text[: pattern.start()], ":", pattern[1])
            try:
                re.compile(topic)
            except re.error as error:
                raise ValueError(f"{topic!r} is no regular expression: {error}") from None
        if not topic:
            raise ValueError(f"{text!r} names no topic; write t or t:0,1")
        if not colon:
            return cls(topic)
        if not re.fullmatch(r"\s*[0-9]{1,10}\s*(,\s*[0-9]{1,10}\s*)*", numbers):
            raise ValueError(f"{text!r}: {numbers!r} is not a list of partitions; write t or t:0,1")
        return cls(topic, frozenset(map(int, numbers.split(","))))

    @property
    def text(self) -> str:
        """The form that `parse` reads."""
        return self.topic if self.partitions is None else f"{self.topic}:{','.join(map(str, sorted(self.partitions)))}"

    def names(self, topic: str) -> bool:
        """Whether this topic is chosen."""
        return self.topic == topic if _NAME.fullmatch(self.topic) else re.fullmatch(self.topic, topic) is not None

    def covers(self, topic: str, partition: int) -> bool:
        """Whether this partition is chosen."""
        return self.names(topic) and (self.partitions is None or partition in self.partitions)


@dataclass(frozen=True, slots=True)
class Finding:
    """One record that differs between both sides.

    `timestamp`, `key` and `digest` are the source record's, or the target's where the source has none
    (`duplicated`, `foreign`). For a corrupted record the `target_*` fields describe the record in its place.
    `source_offset` of a duplicate names the record that it copies. `timestamp` is null where the record's
    `timestamp_ms` is no date (`drkit.model.clock.date_of`). `other_partition`, `other_offset`: for a lost or unseen
    record, an equal foreign record in another partition of the target; for a foreign one, the equal source record.
    """

    kind: FindingKind
    topic: str
    target_topic: str
    partition: int
    source_offset: int | None
    target_offset: int | None
    timestamp_ms: int
    key: bytes | None
    digest: str
    target_timestamp_ms: int | None = None
    target_key: bytes | None = None
    target_digest: str | None = None
    other_partition: int | None = None
    other_offset: int | None = None

    @property
    def timestamp(self) -> datetime | None:
        """The record's timestamp."""
        return date_of(self.timestamp_ms)

    @property
    def target_timestamp(self) -> datetime | None:
        """The timestamp of the record in its place."""
        return date_of(self.target_timestamp_ms)


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """One partition's counts and their basis.

    `source_end`, `target_end`: the ends (exclusive) up to which the audit read. `mirrored_through`: the
    source offset up to which records count as mirrored; None where nothing was mirrored. `target_bound`:
    for a sealed link, the target offset from which records are no longer this link's.
    """

    topic: str
    target_topic: str
    partition: int
    basis: PlacementBasis
    counts: Counts
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    mirrored_through: int | None
    target_bound: int | None


@dataclass(frozen=True, slots=True)
class Orphan:
    """A child record on the target whose parent isn't there. `offset`: on the target; `key`: of the parent."""

    partition: int
    offset: int
    key: str
    timestamp: datetime | None
    on_source: bool


@dataclass(frozen=True, slots=True)
class ForeignKeyAudit:
    """The result for a declared foreign key between two topics.

    `children`: child records on the target within the time window that name a parent; `keyless`: those that name
    none. `orphans`: children whose parent isn't on the target; `orphans_on_source`: the same count on the source.
    `brought`: orphans whose parent key is no orphan's on the source, so the mirror or a failover separated them.
    `first`: some of the orphans. `unread`: what can't be read of both topics on either side, in words: it counts
    neither as children nor as parents, so there may be fewer orphans, or more.
    """

    child: str
    parent: str
    key: str
    parent_key: str
    children: int
    keyless: int
    orphans: int
    orphans_on_source: int
    brought: int
    first: tuple[Orphan, ...]
    unread: tuple[str, ...] = ()


ANY_AGE = datetime.max.replace(tzinfo=UTC)
"""Unseen records count whatever their timestamps, which a producer may put beyond the last year."""


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What to audit.

    `topics` empty: all that the link covers. `since` and `until` (exclusive) select records by timestamp. `run`:
    the audit's name in findings. `out`: the folder for the findings (made if missing). `full`: decode every
    record, even where whole batches are equal. `from_digests`: read only the target where the mirror kept digests
    of what it forwarded (not with a time window). `unseen_since`: unseen records with an older timestamp count as a
    deviation (`ANY_AGE`: all do); None: none do.
    """

    link: Link
    out: str
    topics: tuple[TopicChoice, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    full: bool = False
    from_digests: bool = False
    unseen_since: datetime | None = None
    run: str = ""

    @property
    def whole(self) -> bool:
        """Whether it is about all that the link covers."""
        return not self.topics and self.since is None and self.until is None


@dataclass(frozen=True, slots=True)
class AuditResult:
    """An audit's result. `findings` holds the first ones, worst kinds first; the Parquet holds all. `coverage`: what
    was proven by digest, or None. `incomplete`: what could not be compared, and why. `overdue`: unseen records older
    than `AuditRequest.unseen_since`, with offsets of the source behind a transaction that is open that long, or None.
    `whole`: whether it is about all that the link covers.
    """

    link: LinkId
    counts: Counts
    partitions: tuple[PartitionAudit, ...]
    findings: tuple[Finding, ...]
    findings_total: int
    findings_path: str
    basis: PlacementBasis
    observed_at: datetime
    seconds: float
    notes: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    foreign_keys: tuple[ForeignKeyAudit, ...] = ()
    coverage: Coverage | None = None
    incomplete: tuple[str, ...] = ()
    overdue: int | None = None
    whole: bool = True

    @property
    def verdict(self) -> Verdict:
        """The verdict over both sides."""
        if not self.counts.clean or self.overdue:
            return Verdict.DEVIATED
        return Verdict.INCOMPLETE if self.incomplete else Verdict.CLEAN

    @property
    def verdict_in_words(self) -> str:
        """The verdict for people: a clean one says how many records it isn't about."""
        if self.verdict is not Verdict.CLEAN or not self.counts.unseen:
            return self.verdict.value
        return f"clean as far as it was mirrored, {counted(self.counts.unseen, 'record')} unseen"

    @property
    def findings_truncated(self) -> bool:
        """Whether `findings` leaves some out."""
        return len(self.findings) < self.findings_total


class SalvageKind(StrEnum):
    """Why a salvaged record isn't on the target."""

    UNSEEN = "unseen"  # the mirror had not reached it
    LOST = "lost"  # it was mirrored, or should have been, and isn't there
    CORRUPTED = "corrupted"  # another record stands in its place
    UNREADABLE = "unreadable"  # its place on the target is in a batch that can't be read
    RETIRED = "retired"  # the target's retention, compaction or DeleteRecords removed it there


class SalvageClass(StrEnum):
    """How a salvaged record relates to what its partition of the target holds."""

    NEW = "new"  # the target holds no record of its key that is or may be later, or the record has no key
    CONFLICTING = "conflicting"  # the target holds another record of its key that is or may be later
    IDENTICAL = "identical"  # an equal record


@dataclass(frozen=True, slots=True)
class SalvageResult:
    """What a salvage kept.

    `records` by kind, `by_topic` by topic; `standings` by `SalvageClass`; `through`: by `topic:partition`, the offset
    (exclusive) up to which the source was read. `uncommitted`: where transactions are still open, the log end
    (exclusive) by `topic:partition`; offsets from `through` to it are not kept. `unreadable`: by `topic:partition`,
    the source's offsets [first, until) that can't be read; they are not kept either. `incomplete`: topics that could
    not be looked at, in words.
    """

    link: LinkId
    path: str
    manifest: str
    records: dict[SalvageKind, int]
    by_topic: dict[str, int]
    standings: dict[SalvageClass, int]
    through: dict[str, int]
    uncommitted: dict[str, int]
    unreadable: dict[str, list[tuple[int, int]]]
    incomplete: tuple[str, ...]
    observed_at: datetime

    @property
    def total(self) -> int:
        """Records kept."""
        return sum(self.records.values())
