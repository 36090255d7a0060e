"""What the store keeps about a link besides offsets: control state, topics, problems, leases."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from drkit.model.topology import LinkId, TopicPartition
from drkit.model.totals import greatest


class Direction(StrEnum):
    """The durable, decided state of a link. What runs right now is derived from it (`observe`)."""

    ACTIVE = "active"
    PAUSED = "paused"
    SEALED = "sealed"  # failed away from: a mirror won't run
    REVERSED = "reversed"  # the way back is flowing: data goes target -> source

    @property
    def serves_source(self) -> bool:
        """Whether clients use the source: no failover moved them away, though the mirror may be paused."""
        return self in {Direction.ACTIVE, Direction.PAUSED}


@dataclass(frozen=True, slots=True)
class LinkControl:
    """The decision that governs a link; changed by compare-and-set on `version`.

    `version` grows by one at each change. `run`: the run that decided, if any.
    """

    link: LinkId
    direction: Direction
    version: int
    changed_at: datetime
    reason: str = ""
    run: str | None = None
    paused_topics: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class TopicState:
    """What the mirror knows about a topic of a link.

    `epoch` counts incarnations of the source topic (a recreated topic starts a new epoch);
    topic ids are Kafka's (KIP-516) in their base64 form.
    """

    topic: str
    target_topic: str
    source_topic_id: str
    target_topic_id: str
    epoch: int
    partitions: int
    created_by_drkit: bool
    reason: str = ""

    def tps(self) -> list[TopicPartition]:
        """The partitions that it had when the mirror saw it last, by the source's name."""
        return [TopicPartition(self.topic, number) for number in range(self.partitions)]

    @property
    def incarnation(self) -> str:
        """Both topic ids; empty where one is unknown. An epoch alone names no incarnation: where the link's record was
        forgotten, it begins at 1 again."""
        return f"{self.source_topic_id} {self.target_topic_id}" if self.source_topic_id and self.target_topic_id else ""

    def is_topic(self, source_topic_id: str) -> bool:
        """Whether this is the source's topic that is mirrored, not a former or a newer one of the same name. Where
        either id is empty (unknown), it counts as such."""
        return not source_topic_id or self.source_topic_id in {"", source_topic_id}


WHOLE_LINK = "*"
"""The topic of a problem that concerns no single topic."""

SOURCE_TRUNCATED = "source_truncated"
"""Kind of the problem that the source lost what was mirrored."""


SOURCE_TOPIC_DENIED = "source_topic_denied"
"""Kind of the problem that drkit's principal may not see a topic on the source: its content is unknown."""

SOURCE_TOPIC_DELETED = "source_topic_deleted"
"""Kind of the problem that a mirrored topic is no longer on the source; on the target it stays."""

TOPIC_RECREATED = "topic_recreated"
"""Kind of the problem that the topic on the source is another one than was mirrored."""

TARGET_RECREATED = "target_recreated"
"""Kind of the problem that the topic on the target was deleted, or is another one than the mirror wrote."""

TARGET_REPLACED = "target_replaced"
"""Kind of the problem that the target is another cluster than the one that was mirrored to. Of the whole link, and not
recorded: each look at the clusters detects it."""

RECREATED = frozenset({TOPIC_RECREATED, TARGET_RECREATED})
"""Kinds of the problem that a topic of the same name is another one than was mirrored."""

FOREIGN_WRITER = "foreign_writer"
"""Kind of the problem that the target holds records which the mirror didn't write."""

TARGET_LOST_DATA = "target_lost_data"
"""Kind of the problem that the target lost records which it had acknowledged."""

RECORDS_MISPLACED = "records_misplaced"
"""Kind of the problem that the target holds records below their offset, and a second time at it."""

STORE_RECOVERED = "store_recovered"
"""Kind of the problem that the store was lost and its copy ends here: whether later records arrived is unknown."""

STORE_OLDER = "store_older"
"""Kind of the problem that the store is older than its copy, or that nobody knows whether it is: what landed beyond its
watermark may be mapped otherwise than its rows say. Not recorded: each look where no mirror runs detects it."""

RECORDS_UNMAPPED = "records_unmapped"
"""Kind of the problem that the target holds records of a partition of which the store has no mapping rows: they may be
copies of the source's."""

ROWS_UNPROVEN = "rows_unproven"
"""Kind of the problem that the copy didn't prove a partition's mapping rows when they were written there anew: whether
the store had them all isn't known, and the copy can't tell any more."""

ROWS_MISSING = frozenset({STORE_RECOVERED, STORE_OLDER, RECORDS_UNMAPPED})
"""Kinds of problems by which mapping rows may be missing from the store beyond a partition's watermark, or all of
them."""

COPY_CUT = "copy_cut"
"""Kind of the problem that a store was recovered from a copy that lacked records: topics or groups may be gone."""

RECOVERED_FROM_LOGS = "recovered_from_logs"
"""Kind of the problem that store and copy were lost, so only the configuration says that offsets are the same on both
sides."""

STATE_TOPIC_FAILED = "state_topic_failed"
"""Kind of the problem that the copy of the link's state on the target can't be written."""

SOURCE_GAP = "source_gap"
"""Kind of the problem that the source skips offsets of a topic that isn't compacted."""

RETENTION_GAP = "retention_gap"
"""Kind of the problem that the source removed records before they were mirrored."""

TARGET_PURGED = "target_purged"
"""Kind of the problem that the target no longer has records which the source still holds and retention keeps."""

RECORDS_RETURNED = "records_returned"
"""Kind of the problem that the source has records again that it had removed before they were mirrored."""

TRANSACTION_OPEN = "transaction_open"
"""Kind of the problem that a transaction on the source has been open for longer than its brokers let one be."""

PARTED = frozenset({FOREIGN_WRITER, SOURCE_TRUNCATED})
"""Kinds of problems that say from where on both sides hold different records."""

DELETION_HELD = "deletion_held"
"""Kind of the problem that a topic stays on the target until an operator names it, and of the notes that name one, with
the id of the target's topic."""

DELETED_ON_SOURCE = frozenset({SOURCE_TOPIC_DELETED, DELETION_HELD})
"""Kinds of the problem that the source has deleted a topic which the target still has."""

ACL_REMOVAL_HELD = "acl_removal_held"
"""Kind of the problem that ACLs stay on the target until an operator decides, and of the notes of these ACLs: what was
decided of each, or nothing."""

STANDBY_WRITABLE = "standby_writable"
"""Kind of the problem that a rule lets clients write to the target while it is a standby."""

SETTINGS_HELD = "settings_held"
"""Kind of the problem that a source's settings, by which more is removed, don't follow until an operator accepts them,
and of the notes of these (`drkit.model.topics.removing.HeldSettings`), by source topic."""

FOLLOWED_SETTINGS = "followed_settings"
"""Kind of the notes of what was followed last of these settings (`drkit.model.topics.removing.FollowedSettings`), by
source topic."""

AUDIT_DEVIATION = "audit_deviation"
"""Kind of the problem that the continuous audit found something else on the target than on the source."""

ACKNOWLEDGED = "acknowledged"
"""What such a note says of an ACL that is to be removed."""

_NAME_MISSING = frozenset({RECORDS_RETURNED, TARGET_PURGED})

RECORDS_GIVEN_UP = "records_given_up"
"""Kind of the harmless problem that an operator went on without records that the source has and the target never had:
no position among them is exact."""

FILLER_VISIBLE = "filler_visible"
"""Kind of the problem that consumers can see empty records that drkit wrote."""

OFFSETS_DIFFER = "offsets_differ"
"""Kind of the harmless problem that offsets differ between both sides, so the mapping translates."""

HARMLESS = frozenset({OFFSETS_DIFFER, RECORDS_GIVEN_UP})
"""Kinds of problems that say how positions are translated; nothing is to be done about them."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something an operator must know about a link, kept until it is cleared.

    `kind` is a short stable word (`retention_gap`, `topic_recreated`, `foreign_writer`,
    `source_truncated`, `target_lost_data` …); `partition` is None where it concerns the whole topic.
    `halted`: the partition (or topic) isn't mirrored because of it. `unsure_from`: the first source offset
    whose place on the target isn't exact because of it, or None; `unsure_until`: the end of that range
    (exclusive), or None where it has none. `exact_until`: where below that range the positions end whose next record
    both sides have, or None where they end with it; found out at each look, and not kept.
    """

    kind: str
    topic: str
    partition: int | None
    reason: str
    remedy: str
    halted: bool
    since: datetime
    unsure_from: int | None = None
    unsure_until: int | None = None
    exact_until: int | None = None

    @property
    def place(self) -> str:
        """`orders:3`, or `orders` where it concerns the whole topic."""
        return self.topic if self.partition is None else f"{self.topic}:{self.partition}"

    def concerns(self, tp: TopicPartition) -> bool:
        """Whether it is about this partition (by source topic), or its whole topic."""
        return self.topic == tp.topic and self.partition in {None, tp.partition}

    def with_another(self, problem: Problem) -> Problem:
        """One problem that reports both losses of the same place: its range goes from the first to the last of them."""
        reason = self.reason if problem.reason in self.reason else f"{self.reason}; then {problem.reason}"
        if self.unsure_from is None or problem.unsure_from is None:
            return replace(problem, reason=reason)
        return replace(
            problem,
            reason=reason,
            unsure_from=min(self.unsure_from, problem.unsure_from),
            unsure_until=greatest((self.unsure_until, problem.unsure_until)),
        )

    @property
    def differs_from(self) -> int | None:
        """The source offset from which both sides are known to hold different records, and none is mirrored."""
        return self.unsure_from if self.halted else None

    @property
    def missing(self) -> tuple[int, int] | None:
        """The source offsets [first, end) that the source holds and the target lacks because of it, though later ones
        are there; None: it names none."""
        if self.kind not in _NAME_MISSING or self.unsure_from is None or self.unsure_until is None:
            return None
        return self.unsure_from, self.unsure_until

    def doubts(self, source_offset: int) -> bool:
        """Whether the place of this source offset isn't exact because of it."""
        first = self.unsure_from if self.exact_until is None else self.exact_until
        end = self.unsure_until
        return first is not None and first <= source_offset and (end is None or source_offset < end)


@dataclass(frozen=True, slots=True)
class Lease:
    """A named, time-limited right to act, held by `owner` until `expires_at`.

    `epoch` grows each time the lease changes hands: a late holder can be told from a newer one.
    """

    name: str
    owner: str
    epoch: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Alignment:
    """The target partition is filled from `begin` (its log end at the start) up to `end` (exclusive).

    `tp` is the source's partition. `epoch`, `target_topic_id`: the incarnations that it is valid for; `producer_id`:
    of the link's producer ids the one in use when it was noted; the filler may be of an earlier one.
    """

    tp: TopicPartition
    epoch: int
    target_topic: str
    target_topic_id: str
    producer_id: int
    begin: int
    end: int

    @property
    def target_tp(self) -> TopicPartition:
        """The partition that is filled."""
        return TopicPartition(self.target_topic, self.tp.partition)

    @property
    def name(self) -> str:
        """The note's name; unambiguous, because topic names hold no colon."""
        return note_name(self.tp)

    def note(self) -> str:
        """The note's text."""
        return json.dumps(asdict(self) | {"tp": list(self.tp)}, sort_keys=True)


def note_name(tp: TopicPartition) -> str:
    """The name of a partition's note."""
    return f"{tp.topic}:{tp.partition}"


def read_alignment(text: str) -> Alignment:
    """Read what `Alignment.note` wrote."""
    fields = json.loads(text)
    return Alignment(**fields | {"tp": TopicPartition(*fields["tp"])})


@dataclass(frozen=True, slots=True)
class KeptLease:
    """A lease as a backend stores it. `owner` is None once it was released; the epoch stays, because it tells a late
    holder from the next one.
    """

    name: str
    owner: str | None
    epoch: int
    expires_at: datetime

    def lease(self) -> Lease | None:
        """The lease as callers see it; None where nobody holds it."""
        return None if self.owner is None else Lease(self.name, self.owner, self.epoch, self.expires_at)


def decide(kept: KeptLease | None, *, name: str, owner: str, ttl_seconds: float, at: datetime) -> Lease:
    """The lease after `owner` requested it: the owner's, to be stored, or another owner's that is still valid at
    `at`, with nothing to change.

    The epoch stays when the holder renews (even after expiry, if nobody else took the lease in between), and
    grows by one when the owner changes or had released it.
    """
    expires_at = at + timedelta(seconds=ttl_seconds)
    if kept is None:
        return Lease(name, owner, 1, expires_at)
    if kept.owner == owner:
        return Lease(name, owner, kept.epoch, expires_at)
    if kept.owner is not None and kept.expires_at > at:
        return Lease(name, kept.owner, kept.epoch, kept.expires_at)
    return Lease(name, owner, kept.epoch + 1, expires_at)
