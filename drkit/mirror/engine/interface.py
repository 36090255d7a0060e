"""The interface between the runtime and an engine: what an engine is given, what it gives back.

The runtime decides (which partitions, from where, whether at all); an engine moves. It reads the
source from a known offset, knows the target offset of every record before it produces it, keeps the
mapping rows first (write-ahead), produces, and turns acknowledgements into progress:

    runtime ── start(PartitionStart …) ──▶ engine      read, admit, keep rows, produce
    runtime ◀── positions() ────────────── engine      the highest contiguous acknowledgement
    runtime ◀── poll() ─→ Incident … ───── engine      what it can't decide: the partition stands still

Promises of an engine:

    E1  A record is produced only after every mapping row up to it is durable.
    E2  `PartitionProgress` counts a source offset as mirrored only when it and everything below it is
        acknowledged at the target offset that was expected.
    E3  After an incident the partition neither reads nor produces until it is started again; the others
        continue.
    E4  Nothing is produced while `may_produce()` is false.

All methods are called from one thread, except for those that say otherwise.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from drkit.model.digests import RangeDigest
from drkit.model.offsets import OffsetMapping
from drkit.model.statistics import EngineStatistics
from drkit.model.topology import TopicPartition

KeepRows = Callable[[Sequence[OffsetMapping]], None]
"""Makes mapping rows durable; returns only when they are.

Raises `Stopped` when told to stop meanwhile, `Withdrawn` where only some are kept.
"""


class Stopped(Exception):
    """The runtime was told to stop while something was being waited for. Not an error."""


class Withdrawn(Exception):
    """`tps` aren't this engine's any more: none of their rows is kept, all of the others' are. Not an error."""

    def __init__(self, tps: Iterable[TopicPartition]) -> None:
        super().__init__()
        self.tps = frozenset(tps)


NOT_MOVING = "not_moving"
"""The kind of notice that a try to move a partition failed; of the problem that none of many succeeded."""

RECORD_REJECTED = "record_rejected"
SOURCE_UNREADABLE = "source_unreadable"

RETRIED = frozenset({NOT_MOVING, RECORD_REJECTED, SOURCE_UNREADABLE})
"""Kinds of problems whose partitions are tried again by themselves: an operator who corrects the cause (a setting, a
right) need not tell drkit. Each clears when its partition moves."""

TRIED_AGAIN = "It is tried again by itself, and at once after `drkit link resume` of the topic"
"""The end of the remedy of such a problem."""

UNREADABLE_REMEDY = (
    "If the batch is damaged, write its records again on the source, as far as they are known, and move the log start "
    f"of the source's partition behind it (kafka-delete-records). {TRIED_AGAIN}"
)
"""What to do about a batch that drkit can't take apart, or that no broker takes."""


ANOTHER_TOPIC = frozenset({3, 100, 103})
"""Kafka's errors of a broker that has no such topic (yet), or another one of its name."""


@dataclass(frozen=True, slots=True)
class PartitionStart:
    """Where a partition continues: `source_offset` is the next to read, and gets `target_offset`.

    `delta` is that of the row in force there (`target_offset - source_offset` of the row).
    `max_message_bytes` is the target topic's own limit for a batch.
    `producer_id` and `sequence` (of the next record) make each append conditional on the one before it;
    `preserve` asks for holes of the source to be matched, so that the delta stays; `fill_to` for the
    target's end to be brought there with filler before anything is read (and the filler to be removed), which was
    begun at `fill_from`: nothing below that is filler. `shared`: the target has other writers too: records land
    anywhere above `target_offset`, and no rows are kept. `leader_epoch`: the source's, of the batch below
    `source_offset`; -1 where that isn't known: a source whose log has another one there isn't read from.
    `source_topic_id`, `target_topic_id`: Kafka's, in its text form: no other topic of the name is read or written,
    where brokers go by ids; "" where it isn't known. `target_leader_epoch`: of the target's leader, seen before what
    its log holds; -1: any may lead.
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


class PartitionProgress(NamedTuple):
    """Progress of one partition: everything below `source_through` is on the target, whose next offset is
    `target_end`. The two belong together: they are always read as a pair.
    """

    source_through: int
    target_end: int


class IncidentKind(StrEnum):
    """Why a partition is halted."""

    OUT_OF_RANGE = "out_of_range"  # the source doesn't have the next offset
    DIVERGED = "diverged"  # the source's log isn't the one that was read before: it lost its tail
    SOURCE_AWAY = "source_away"  # a broker of the source was away: is its log still the one that was read?
    TOPIC_GONE = "topic_gone"  # a side has no such topic (now), or another one of its name
    UNCERTAIN = "uncertain"  # what the target holds isn't known: observe it again
    MISPLACED = "misplaced"  # records landed at other offsets than expected: read what is there
    REJECTED = "rejected"  # the target refuses a record as long as its settings and rights are as they are
    UNREADABLE = "unreadable"  # the source refuses or can't give a record
    NOT_ALIGNED = "not_aligned"  # the target partition holds what isn't filler where filler is to be removed


@dataclass(frozen=True, slots=True)
class Incident:
    """A partition that is halted, and why."""

    tp: TopicPartition
    kind: IncidentKind
    reason: str
    remedy: str = ""


class Notice(NamedTuple):
    """What an operator should know of a partition that continues: the kind of problem, why, and what to do."""

    tp: TopicPartition
    kind: str
    reason: str
    remedy: str


def gathered(incidents: queue.SimpleQueue[Incident], wait_seconds: float) -> list[Incident]:
    """What other threads have put there; an empty list where nothing comes within the time."""
    found: list[Incident] = []
    with suppress(queue.Empty):
        found.append(incidents.get(timeout=wait_seconds))
        while True:
            found.append(incidents.get_nowait())
    return found


class Engine(Protocol):
    """Moves the records of one link."""

    def start(self, partitions: Sequence[PartitionStart]) -> None:
        """Begin (or begin again) to mirror these partitions."""

    def hold(self, tps: Iterable[TopicPartition]) -> None:
        """Read no more of these; what is in flight continues. `release` continues where they were."""

    def release(self, tps: Iterable[TopicPartition]) -> None:
        """Read on where `hold` stopped."""

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Stop these for good: they leave `positions`."""

    def share_target(self, workers: int, *, in_use: bool) -> None:
        """So many workers share the link's limits now; `in_use`: whether others use the target. From any thread."""

    def poll(self, wait_seconds: float) -> list[Incident]:
        """Wait at most so long for records, map and produce what is there, take acknowledgements; returns incidents."""

    def serve(self, wait_seconds: float) -> list[Incident]:
        """Take acknowledgements only."""

    def positions(self) -> dict[TopicPartition, PartitionProgress]:
        """Progress of every partition that was started and not forgotten."""

    def leader_epochs(self, positions: Mapping[TopicPartition, PartitionProgress]) -> dict[TopicPartition, int]:
        """The source's leader epoch of the last batch below each of these positions, which `positions` gave, where
        that is known. From any thread."""

    def range_digests(self, *, opened: bool) -> list[RangeDigest]:
        """Digests of what was forwarded: of ranges that ended since the last call and (`opened`) of those that are
        open, as they are. None where an engine keeps none. From any thread."""

    def notices(self) -> list[Notice]:
        """What is to be told since the last call. May be called from any thread."""

    def moved(self) -> int:
        """Records acknowledged since the engine began, about (counted by acknowledged stretch)."""

    def in_flight(self) -> int:
        """Stretches of records that wait for their acknowledgement."""

    def statistics(self) -> EngineStatistics:
        """What it has done and is doing. May be called from any thread."""

    def waits_for(self, tp: TopicPartition) -> str | None:
        """What a partition waits for; None where it isn't mirrored here. May be called from any thread."""

    def drain(self, timeout_seconds: float) -> bool:
        """Read no more, wait for what is in flight; false if some wasn't acknowledged in time."""

    def abort_unsent(self) -> None:
        """Drop what isn't sent yet: this worker may no longer produce."""

    def close(self) -> None:
        """Release both connections, without waiting long for brokers that are down."""
