"""The interface between the runtime and an engine.

The runtime decides (which partitions, from where, whether at all); an engine moves records. It reads the
source from a known offset, knows the target offset of every record before it produces it, stores the
mapping rows first (write-ahead), produces, and turns acknowledgements into progress:

    runtime ── start(PartitionStart …) ──▶ engine      read, admit, keep rows, produce
    runtime ◀── positions() ────────────── engine      the highest contiguous acknowledgement
    runtime ◀── poll() ─→ Incident … ───── engine      what it can't decide: the partition is halted

Promises of an engine:

    E1  A record is produced only after every mapping row up to it is durable.
    E2  `PartitionProgress` counts a source offset as mirrored only when it and everything below it is
        acknowledged at the expected target offset.
    E3  After an incident the partition neither reads nor produces until it is restarted; the others
        continue.
    E4  Nothing is produced while `may_produce()` is false.

All methods must be called from one thread, unless they say otherwise.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from drkit.kafka.protocol.record_batch import UNKNOWN_EPOCH
from drkit.model.digests import RangeDigest
from drkit.model.link_state import SOURCE_GAP
from drkit.model.offsets import HOLES_ANYWHERE, OffsetMapping, SourceBatch
from drkit.model.statistics import EngineStatistics
from drkit.model.topology import TopicPartition


class BatchBelow(NamedTuple):
    """What is known of a source's batches below an offset: the leader epoch of the last one (`UNKNOWN_EPOCH` where it
    isn't known), and one of the last with its checksum, the last one where nothing is in flight (or None)."""

    leader_epoch: int
    batch: SourceBatch | None


NOTHING_BELOW = BatchBelow(UNKNOWN_EPOCH, None)


KeepRows = Callable[[Sequence[OffsetMapping], Mapping[TopicPartition, int]], None]
"""Makes mapping rows durable before it returns; second: the `claim` of each partition's `PartitionStart`.

Raises `Stopped` when told to stop meanwhile, `Withdrawn` where only some rows are stored.
"""


class Stopped(Exception):
    """The runtime was told to stop during a wait. Not an error."""


class Withdrawn(Exception):
    """`tps` no longer belong to this engine: none of their rows is stored, all others are. Not an error."""

    def __init__(self, tps: Iterable[TopicPartition]) -> None:
        super().__init__()
        self.tps = frozenset(tps)


TURN_BYTES = 128 * 1024
"""At least so many bytes of a partition are asked for at once. In a backlog thousands of partitions take turns with
them."""

TURN_SECONDS = 10.0
"""Partitions take turns at a broker that moved records of some of them within this time, or since a limit let it."""

NOT_MOVING = "not_moving"
"""The kind of notice that an attempt to move a partition failed, and of the problem that many attempts failed."""

RECORD_REJECTED = "record_rejected"
SOURCE_UNREADABLE = "source_unreadable"

RETRIED = frozenset({NOT_MOVING, RECORD_REJECTED, SOURCE_GAP, SOURCE_UNREADABLE})
"""Kinds of problems whose partitions are retried automatically: an operator who corrects the cause (a setting, a
permission) need not tell drkit. Each clears when its partition moves."""

TRIED_AGAIN = "drkit retries it automatically, and at once after `drkit link resume` of the topic"
"""The end of the remedy of such a problem."""

UNREADABLE_REMEDY = (
    "If the batch is damaged, write its records again on the source, as far as they are known, and move the log start "
    f"of the source's partition behind it (kafka-delete-records). {TRIED_AGAIN}"
)
"""What to do about a batch that drkit can't take apart, or that every broker refuses."""


ANOTHER_TOPIC = frozenset({3, 100, 103})
"""Kafka's errors of a broker that lacks the topic, or has another one with its name."""


@dataclass(frozen=True, slots=True)
class PartitionStart:
    """Where a partition continues: `source_offset` is the next to read, and gets `target_offset`.

    `delta` is that of the row in force there (`target_offset - source_offset` of the row).
    `max_message_bytes` is the target topic's own limit for a batch.
    `producer_id` and `sequence` (of the next record) make each append conditional on the one before it.
    `preserve`: match holes of the source, so that the delta stays. `fill_to`: first fill the target up to
    this end with filler, then remove the filler; `fill_from`: where filling began, nothing below is filler.
    `shared`: the target has other writers, so records get any offset above `target_offset`, and no rows are
    kept. `leader_epoch`: the source's, of the batch below `source_offset`, or -1; a source whose log has
    another one there isn't read from. `source_topic_id`, `target_topic_id`: Kafka's, in text form, or "";
    no other topic of the name is read or written, where brokers use ids. `target_leader_epoch`: of the
    target's leader, seen before its log was read; -1: any may lead. `looked_at`: when the source was compared, in
    monotonic seconds; None: nobody knows. `dense_from`: from this source offset on the log has no gaps: its topic
    isn't compacted. `claim`: the generation with which its mapping rows are stored.
    """

    tp: TopicPartition
    target_topic: str
    epoch: int
    source_offset: int
    target_offset: int
    delta: int
    max_message_bytes: int
    producer_id: int = -1
    sequence: int = 0
    preserve: bool = False
    fill_to: int | None = None
    shared: bool = False
    leader_epoch: int = -1
    fill_from: int = 0
    source_topic_id: str = ""
    target_topic_id: str = ""
    target_leader_epoch: int = -1
    looked_at: float | None = None
    dense_from: int = HOLES_ANYWHERE
    claim: int = 0


class PartitionProgress(NamedTuple):
    """Progress of one partition: everything below `source_through` is on the target, whose next offset is
    `target_end`. Always read the two together.
    """

    source_through: int
    target_end: int


class StableEnd(NamedTuple):
    """A source's last stable offset. `open_since`: since when a transaction is seen to be open there, in monotonic
    seconds; None: none is."""

    offset: int
    open_since: float | None


class IncidentKind(StrEnum):
    """Why a partition is halted."""

    OUT_OF_RANGE = "out_of_range"  # the source doesn't have the next offset
    DIVERGED = "diverged"  # the source's log differs from the one that was read: it lost its tail
    SOURCE_AWAY = "source_away"  # a broker of the source was away: compare its log again
    TOPIC_GONE = "topic_gone"  # a side lacks the topic, or has another one of its name
    UNCERTAIN = "uncertain"  # the target's content is unknown: observe it again
    MISPLACED = "misplaced"  # records are at unexpected offsets: read what is there
    REJECTED = "rejected"  # the target refuses a record with its current settings and permissions
    UNREADABLE = "unreadable"  # the source refuses or can't give a record
    GAP = "gap"  # the source skips offsets of a topic that isn't compacted: a damaged batch may be there
    NOT_ALIGNED = "not_aligned"  # the target partition holds real records where filler is to be removed


@dataclass(frozen=True, slots=True)
class Incident:
    """A halted partition, and why. `gap`: the source offsets [first, end) that the source skips."""

    tp: TopicPartition
    kind: IncidentKind
    reason: str
    remedy: str = ""
    gap: tuple[int, int] | None = None


class Notice(NamedTuple):
    """A fact about a partition that continues, for the operator: the kind of problem, why, and what to do."""

    tp: TopicPartition
    kind: str
    reason: str
    remedy: str


def gathered(incidents: queue.Queue[Incident], wait_seconds: float) -> list[Incident]:
    """Take incidents put by other threads; an empty list after a timeout.

    Not from a SimpleQueue: up to Python 3.12 its `get` waits for ever where a signal is handled until after
    the timeout.
    """
    found: list[Incident] = []
    with suppress(queue.Empty):
        found.append(incidents.get(timeout=wait_seconds))
        while True:
            found.append(incidents.get_nowait())
    return found


Goals = Callable[[], Mapping[TopicPartition, int]]
"""Returns the source offsets up to which a run that ends mirrors each partition; empty until they are set. Called
only once partitions were started."""


class Engine(Protocol):
    """Moves the records of one link."""

    def start(self, partitions: Sequence[PartitionStart]) -> None:
        """Start (or restart) mirroring these partitions."""

    def hold(self, tps: Iterable[TopicPartition]) -> None:
        """Stop reading these; requests in flight continue. `release` continues from there."""

    def release(self, tps: Iterable[TopicPartition]) -> None:
        """Continue reading where `hold` stopped."""

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Stop these for good: they leave `positions`."""

    def share_target(self, workers: int, *, in_use: bool) -> None:
        """Set how many workers share the link's limits; `in_use`: whether others use the target. From any thread."""

    def poll(self, wait_seconds: float) -> list[Incident]:
        """Read, map and produce for at most that long, and handle acknowledgements; returns incidents."""

    def serve(self, wait_seconds: float) -> list[Incident]:
        """Only handle acknowledgements; returns incidents."""

    def positions(self) -> dict[TopicPartition, PartitionProgress]:
        """Progress of every started partition that was not forgotten."""

    def at_rest(self) -> dict[TopicPartition, PartitionProgress]:
        """Progress of those of them of which nothing waits to be written, and no request for its answer. From any
        thread."""

    def stable_ends(self) -> dict[TopicPartition, StableEnd]:
        """The last stable offsets of those partitions of whose source an answer said it. From any thread."""

    def batches_below(self, positions: Mapping[TopicPartition, PartitionProgress]) -> dict[TopicPartition, BatchBelow]:
        """What is known of the source's batches below each of these positions (from `positions`). From any thread."""

    def range_digests(self, *, opened: bool) -> list[RangeDigest]:
        """Digests of forwarded ranges: those that ended since the last call, and (`opened`) the open ones so far. Empty
        for an engine without digests. From any thread."""

    def notices(self) -> list[Notice]:
        """Notices since the last call. From any thread."""

    def moved(self) -> int:
        """Records acknowledged since the engine began, approximately (whole batches)."""

    def in_flight(self) -> int:
        """How many batches wait for their acknowledgement."""

    def unsettled(self) -> bool:
        """Whether the target may still get a request of this engine's, now or after it was closed: one went without an
        answer, and nothing that was appended since makes it fail. From any thread."""

    def statistics(self) -> EngineStatistics:
        """The engine's counters. From any thread."""

    def unasked(self) -> Collection[TopicPartition]:
        """Those that it isn't to move now, though their source holds more: others have their turn first. They don't
        count as stuck. From any thread."""

    def waits_for(self, tp: TopicPartition) -> str | None:
        """What a partition waits for; None where it isn't mirrored here. From any thread."""

    def drain(self, timeout_seconds: float) -> bool:
        """Stop reading and wait for requests in flight; False if some weren't acknowledged in time."""

    def abort_unsent(self) -> None:
        """Drop everything unsent: this worker may no longer produce."""

    def close(self) -> None:
        """Release both connections, without a long wait for brokers that are down."""
