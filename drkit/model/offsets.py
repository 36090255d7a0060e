"""Offsets on both sides of a link: mapping rows, watermarks, group positions, translations.

Offsets are non-negative integers; every `_end` and `through` is exclusive (the next offset).
`delta = target_offset - source_offset`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from drkit.model.topology import TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class OffsetMapping:
    """One mapping row: from `source_offset` on, the delta is `target_offset - source_offset`.

    A row is written only where the delta changes, before the first record of its segment is
    produced (write-ahead). It holds until the next row of the same epoch.
    """

    topic: str
    partition: int
    epoch: int
    source_offset: int
    target_offset: int

    @property
    def delta(self) -> int:
        """Target offset minus source offset, for the whole segment."""
        return self.target_offset - self.source_offset

    @property
    def tp(self) -> TopicPartition:
        """The partition, by its source topic."""
        return TopicPartition(self.topic, self.partition)


class SourceBatch(NamedTuple):
    """A batch of a source's log: its last offset, and its checksum (CRC-32C of all behind its leader epoch, KIP-98)."""

    last_offset: int
    crc: int


class LastBatch(NamedTuple):
    """The last batch of a log: its leader epoch, last offset and checksum (`SourceBatch`)."""

    leader_epoch: int
    last_offset: int
    crc: int


class WaitingRecords(NamedTuple):
    """What a source holds beyond what is mirrored, with what stands behind open transactions, so that nobody reads it.

    `until`: the source's high watermark. `since`: when a high watermark beyond what is mirrored was first seen; None:
    not known, because a transaction was open when a mirror looked at the partition for the first time. `at_most`: the
    oldest may be younger than `since`, at which a mirror had last looked before one was open. When that one began, its
    coordinator doesn't say in either case.
    """

    until: int
    since: datetime | None
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class Watermark:
    """What is known to be on the target, and the mirror's last view of both logs.

    `source_through`: everything below it is on the target (or is a hole on the source).
    `target_end`: the target offset that the next record gets.
    `source_end`: last stable offset under read_committed, else the high watermark; below `source_through` only where
    the source has lost mirrored records.
    `behind_since`: when the source's end was first seen beyond `source_through`; None if caught up.
    `leader_epoch`: the source's leader epoch of the last batch below `source_through`, never a later one's, or None.
    A source that doesn't know that epoch, or whose log ends it earlier, has lost mirrored records
    (`drkit.kafka.admin.logs.source_divergence`).
    `source_batch`: one of the last batches below `source_through` as it was read, the last one where nothing is in
    flight; None: unknown. A source that holds another one at its offset was set back and has grown again
    (`drkit.lag.batch_comparison`).
    `waiting`: what the source holds beyond `source_through` by its high watermark; None: nothing, or the link carries
    open transactions, too, so that `source_end` and `behind_since` say it.
    """

    topic: str
    partition: int
    epoch: int
    source_through: int
    target_end: int
    source_start: int
    source_end: int
    target_start: int
    observed_at: datetime
    behind_since: datetime | None = None
    leader_epoch: int | None = None
    source_batch: SourceBatch | None = None
    waiting: WaitingRecords | None = None

    @property
    def tp(self) -> TopicPartition:
        """The partition, by its source topic."""
        return TopicPartition(self.topic, self.partition)

    def epoch_at(self, through: int) -> int | None:
        """The leader epoch of a watermark moved to `through`, or None where it may differ."""
        return self.leader_epoch if through == self.source_through else None

    def batch_below(self, through: int) -> SourceBatch | None:
        """The batch of a watermark moved to `through`, or None where it isn't below that."""
        batch = self.source_batch
        return batch if batch is not None and batch.last_offset < through else None

    def waiting_beyond(self, through: int) -> WaitingRecords | None:
        """What waits of a watermark moved to `through`; None where nothing does."""
        return self.waiting if self.waiting is not None and self.waiting.until > through else None

    @property
    def held_records(self) -> int:
        """The source offsets behind open transactions, as last seen."""
        return 0 if self.waiting is None else max(0, self.waiting.until - max(self.source_end, self.source_through))

    @property
    def lag_records(self) -> int:
        """Source offsets not yet on the target, as last seen."""
        return max(0, self.source_end - self.source_through)

    def lag_at(self, at: datetime) -> tuple[int | None, float]:
        """The source offsets not yet on the target, and for how many seconds they have been waiting at most; the number
        is None if no look succeeded for so long that records may have come unseen."""
        waiting = 0.0 if self.behind_since is None else max(0.0, (at - self.behind_since).total_seconds())
        unseen = (at - self.observed_at).total_seconds()
        return (self.lag_records, waiting) if unseen <= LOOKS_WITHIN_SECONDS else (None, max(waiting, unseen))


class GroupPosition(NamedTuple):
    """A consumer group's committed offset on the source, with its metadata, as captured.

    `topic_id`: the source's topic that it is a position in, not another one of the same name; empty: unknown.
    A tuple, because a large site has a million of them.
    """

    group: str
    topic: str
    partition: int
    offset: int
    metadata: str
    captured_at: datetime
    topic_id: str = ""

    @property
    def tp(self) -> TopicPartition:
        """The partition, by its source topic."""
        return TopicPartition(self.topic, self.partition)


class Certainty(StrEnum):
    """How surely the target offset of a source position is known."""

    EXACT = "exact"
    CONSERVATIVE = "conservative"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Translation:
    """The answer to "where is this source offset on the target?".

    `target_offset` is None only when unavailable. `reread`: the number of target offsets at or above
    `target_offset` that hold source records below `source_offset` (read again). `skipped`: the number of source
    records at or above `source_offset` that are on the target, but below `target_offset` (0 by construction).
    `reason` is None when exact.
    """

    source_offset: int
    certainty: Certainty
    target_offset: int | None
    reason: str | None = None
    reread: int | None = 0
    skipped: int | None = 0


LOOKS_WITHIN_SECONDS = 30.0
"""A running mirror checks each partition every second, and stores the result every ten if there are very many."""
HOLES_ANYWHERE = 2**63 - 1
"""Where a log without gaps begins, of one that may have them anywhere: a compacted topic's."""
MOST_RANGES = 100
"""So many ranges of offsets a note holds; of more, the older ones are joined or left out."""


def merged_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort ranges and merge those that touch; drop empty ones."""
    found: list[tuple[int, int]] = []
    for first, until in sorted(ranges):
        if first >= until:
            continue
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(until, found[-1][1]))
        else:
            found.append((first, until))
    return found


def without_ranges(ranges: Iterable[tuple[int, int]], holes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Subtract `holes` from ranges; in order."""
    left = merged_ranges(ranges)
    for first, until in merged_ranges(holes):
        cut = ((low, min(high, first)) for low, high in left)
        left = merged_ranges([*cut, *((max(low, until), high) for low, high in left)])
    return left
