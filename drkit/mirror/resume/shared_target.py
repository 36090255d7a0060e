"""Where a link goes on whose target partitions have other writers too (active-active under one name).

There is no mapping to go by: the target's end says nothing of this link. But each record that the link
wrote names the record that it was read as (`drkit.kafka.alteration.provenance`), and they landed in order. So the
target is read from the last acknowledged record on; the link goes on after the newest one of its own
that it finds there: none is missing, and none is there twice.

Where nothing is known of a partition (it is new to the link, or the store was lost) the whole of it is
read once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from confluent_kafka import Message

from drkit.kafka.alteration.alteration import Alteration
from drkit.kafka.alteration.provenance import last_hop
from drkit.kafka.protocol.fetch_produce import UNKNOWN_EPOCH
from drkit.mirror.engine.interface import PartitionStart
from drkit.mirror.resume.offset_alignment.fill_decision import Observed
from drkit.mirror.resume.partition_resume import Halt, Resumed, Resumer
from drkit.mirror.resume.tail_verification import TailVerifier
from drkit.model.offsets import Watermark
from drkit.model.topology import TopicPartition

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 1.0


class ProvenanceReader(TailVerifier):
    """Finds what a link wrote among what others wrote."""

    def newest(self, seen: Observed, source_id: str, begin: int, end: int) -> int | None:
        """The greatest source offset that the target's records in [begin, end) were mirrored from.

        None where none of them was mirrored from this partition.

        Raises:
            Unreachable: the target doesn't answer.
        """
        newest = None
        target = seen.topic.state.target_topic
        for record in self._read(self._target, target, seen.tp.partition, begin, end, "read_uncommitted"):
            hop = last_hop(record.headers() or [])  # type: ignore[arg-type]  # bytes, as they were consumed
            if hop is not None and hop[:3] == (source_id, *seen.tp) and (newest is None or hop.offset > newest):
                newest = hop.offset
        return newest

    def oldest(self, there: TopicPartition, tp: TopicPartition, source_id: str, begin: int, end: int) -> int | None:
        """The source offset of the first record of `there`, in [begin, end), that was mirrored from `tp`; None: no
        record there was.

        Raises:
            Unreachable: the target doesn't answer.
        """
        for record in self._read(self._target, *there, begin, end, "read_uncommitted"):
            hop = last_hop(record.headers() or [])  # type: ignore[arg-type]  # bytes, as they were consumed
            if hop is not None and hop[:3] == (source_id, *tp):
                return hop.offset
        return None

    def first(self, tp: TopicPartition, begin: int, end: int, wanted: Callable[[Message], bool]) -> int | None:
        """The offset of the source's first record in [begin, end) that is wanted; None: there is none.

        Raises:
            Unreachable: the source doesn't answer.
        """
        records = self._read(self._source, *tp, begin, end, self._isolation)
        return next((int(record.offset() or 0) for record in records if wanted(record)), None)


class SharedResumer(Resumer):
    """As `Resumer`, by provenance alone; `use` first."""

    def use(self, reader: ProvenanceReader, alteration: Alteration) -> SharedResumer:
        """Say who reads the target, and who knows the source's id."""
        self._reader = reader
        self._alteration = alteration
        return self

    def _settled_ends(self, tps: Sequence[TopicPartition], stop: threading.Event) -> dict[TopicPartition, int]:
        """The target's log ends, after a while in which what a dead worker had in flight may land.

        Others move them, so that two reads need not agree.
        """
        return {} if stop.wait(_SETTLE_SECONDS) else self._target.log_ends(tps, partial=True)

    def _doubted(self, observations: Sequence[Observed]) -> set[TopicPartition]:  # noqa: ARG002 - as the base's
        """None: other writers' records lie between."""
        return set()

    def _decide(self, seen: Observed, *, doubted: bool = False) -> Resumed | Halt:  # noqa: ARG002 - as the base's
        known, mark = seen.source_start, seen.watermark
        if mark is not None and seen.target_end < mark.target_end:
            landed = self._landed(replace(seen, watermark=None))  # whose records went is not known: look at all of it
            source_offset = known if landed is None else max(known, landed + 1)
            if source_offset < mark.source_through:
                self._note_loss(seen, mark, source_offset)
        else:
            known = known if mark is None else mark.source_through
            landed = self._landed(seen)
            source_offset = known if landed is None else max(known, landed + 1)
        end = seen.target_end
        if source_offset < seen.source_start:
            self._note_gap(seen, source_offset)
            source_offset = seen.source_start
        watermark = self._watermark(seen, source_offset, end)
        self._store.put_watermarks(self._link, [watermark])
        start = PartitionStart(
            tp=seen.tp,
            target_topic=seen.topic.state.target_topic,
            source_topic_id=seen.topic.state.source_topic_id,
            target_topic_id=seen.topic.state.target_topic_id,
            epoch=seen.topic.state.epoch,
            source_offset=source_offset,
            target_offset=end,
            delta=end - source_offset,
            max_message_bytes=seen.topic.max_message_bytes,
            shared=True,
            leader_epoch=UNKNOWN_EPOCH if watermark.leader_epoch is None else watermark.leader_epoch,
        )
        return Resumed(self._conditional(start, seen), watermark)

    def _note_loss(self, seen: Observed, mark: Watermark, source_offset: int) -> None:
        self._problems.put(
            "target_lost_data",
            seen.tp.topic,
            seen.tp.partition,
            f"{seen.topic.state.target_topic}:{seen.tp.partition} on {self._link.target} ends at {seen.target_end}, "
            f"and held records up to {mark.target_end}: of what was mirrored, nothing above source offset "
            f"{source_offset - 1} is left",
            f"From source offset {source_offset} on, records are copied again. Find out why {self._link.target} lost "
            "them (an unclean leader election?)",
            halted=False,
            adds=True,
        )

    def _landed(self, seen: Observed) -> int | None:
        """The newest source offset that is on the target above the last acknowledged record; None: none is."""
        begin = seen.target_start if seen.watermark is None else max(seen.target_start, seen.watermark.target_end)
        if seen.target_end > begin:
            log.info("%s: looking for own records among %d of %s", self._link, seen.target_end - begin, seen.tp)
        return self._reader.newest(seen, self._alteration.source_id, begin, seen.target_end)
