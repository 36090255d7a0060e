"""Decides whether a partition is filled before it starts, so that offsets are equal on both sides.

An alignment is noted in the store before its first filler, and only noted filler is ever removed. Filling begins only
in a partition in which no record is visible.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from drkit.kafka.admin.logs.leader_epochs import EpochEnd
from drkit.kafka.client.filler import filler_count
from drkit.mapping import ResumePoint
from drkit.mirror.engine.producer_id import LinkProducer
from drkit.mirror.health.problems import Problems
from drkit.mirror.topics.topic_sync import ReadyTopic
from drkit.model.link_state import OFFSETS_DIFFER, Alignment
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import LinkStore
from drkit.store.link_notes import alignments, put_alignment

LARGEST_ALIGNMENT = 200_000_000
"""A larger difference isn't filled (half a minute's work for the target): the delta is constant then."""

MOST_BATCHES = 2_000
"""Nor is one that takes more batches of filler than this, where max.message.bytes is small."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One partition as both sides and the store show it. Offsets as in `Watermark`.

    `leader_epoch`: of the source's leader, read before everything else. `epoch_end`: its answer for the watermark's
    epoch. `markers_end`: the target's log end where that is behind fencing markers, and `target_end` before them; None:
    `target_end` is the log's.
    """

    tp: TopicPartition
    topic: ReadyTopic
    source_start: int
    source_readable_end: int
    source_end: int
    target_start: int
    target_end: int
    watermark: Watermark | None
    last_sequence: int | None = None
    leader_epoch: int = -1
    epoch_end: EpochEnd | None = None
    markers_end: int | None = None

    @property
    def log_end(self) -> int:
        """Where the target's log ends, and the next record goes."""
        return self.target_end if self.markers_end is None else self.markers_end


class FillDecision:
    """Decides for the partitions of a link.

    Args:
        link: the link.
        store: where alignments are noted.
        problems: where different offsets are reported.
        producer: the link's.
    """

    def __init__(self, link: LinkId, store: LinkStore, problems: Problems, producer: LinkProducer) -> None:
        self._link = link
        self._store = store
        self._problems = problems
        self._producer = producer

    def alignment(
        self, seen: Observed, source_offset: int, point: ResumePoint, row: OffsetMapping | None
    ) -> Alignment | None:
        """The alignment to start or to finish, durable on return; None where the partition continues unchanged.

        Args:
            seen: the partition.
            source_offset: where it continues.
            point: the result of rows and ends.
            row: the row in force there, or None.

        Raises:
            Unreachable: the target or the store doesn't answer.
        """
        short = source_offset - point.target_offset
        visible = seen.target_start < seen.target_end
        if short < 0 or (short == 0 and not visible):
            return None
        if row is not None:
            filled = (row.source_offset, row.target_offset) == (source_offset, source_offset)
            begun = self._begun(seen) if filled and short == 0 and seen.target_start < source_offset else None
            return begun if begun is not None and begun.end == source_offset else None
        begun = self._begun(seen)
        if begun is not None and begun.begin <= point.target_offset:
            return self._noted(seen, begun.begin, source_offset)
        goes_on = visible and point.last_row is not None  # a gap of the source after mirrored records
        if short == 0 or goes_on or not seen.topic.alignable or not self._may_begin(seen, short, visible=visible):
            return None
        return self._noted(seen, point.target_offset, source_offset)

    def filling(self, observed: Iterable[Observed]) -> set[TopicPartition]:
        """Partitions that hold nothing above an unfinished alignment: only trimming judges what they hold.

        Raises:
            Unreachable: the target or the store doesn't answer.
        """
        begun = {seen.tp: (seen, self._begun(seen)) for seen in observed}
        return {tp for tp, (seen, noted) in begun.items() if noted is not None and seen.target_end <= noted.end}

    def _begun(self, seen: Observed) -> Alignment | None:
        """The unfinished alignment of the current partition, or None."""
        noted, state = alignments(self._store, self._link).get(seen.tp), seen.topic.state
        if noted is None or (noted.epoch, noted.target_topic_id) != (state.epoch, state.target_topic_id):
            return None
        return noted if self._producer.owns(noted.producer_id) else None

    def _noted(self, seen: Observed, begin: int, end: int) -> Alignment:
        state = seen.topic.state
        alignment = Alignment(
            seen.tp, state.epoch, state.target_topic, state.target_topic_id, self._producer.id(), begin, end
        )
        put_alignment(self._store, self._link, alignment)
        return alignment

    def _may_begin(self, seen: Observed, short: int, *, visible: bool) -> bool:
        target = TopicPartition(seen.topic.state.target_topic, seen.tp.partition)
        if visible:
            self._differ(
                seen,
                f"{target} on {self._link.target} holds records at offsets {seen.target_start} to "
                f"{seen.target_end - 1} that are not filler of this mirror; they stay, so offsets differ by "
                f"{short}",
                "Nothing is lost: offsets are translated (`drkit translate`); `drkit audit` names records that the "
                "source doesn't have (foreign)",
            )
            return False
        batches = -(-short // filler_count(seen.topic.max_message_bytes))
        if short > LARGEST_ALIGNMENT or batches > MOST_BATCHES:
            most = (
                f"more than {LARGEST_ALIGNMENT}"
                if short > LARGEST_ALIGNMENT
                else f"what takes more than {MOST_BATCHES} batches of max.message.bytes={seen.topic.max_message_bytes}"
            )
            self._differ(
                seen,
                f"{seen.tp} begins {short} offsets above {self._link.target}'s; {most} is not filled, so offsets "
                "differ by that much",
                "Nothing is lost: offsets are translated (`drkit translate`)",
            )
            return False
        return True

    def _differ(self, seen: Observed, reason: str, remedy: str) -> None:
        self._problems.put(OFFSETS_DIFFER, seen.tp.topic, seen.tp.partition, reason, remedy, halted=False)
