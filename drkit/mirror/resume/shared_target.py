"""Finds where a link continues whose target partitions have other writers (active-active under one name).

There is no mapping, and the target's end says nothing about this link. But each record that the link wrote names its
source record (`drkit.kafka.transform.provenance`), and they are in order. So the target is read from the last
acknowledged record on, and the link continues after its own newest record found there: none is missing or duplicated.

Provenance doesn't say of which topic with the name, or of what an operator accepted anew, a record is. So where an
epoch begins on the target is noted before anything of it is appended: own records below are of an earlier one.

Where nothing is known of a partition (it is new to the link, or the store was lost) the whole of it is
read once. So it is where the target has lost what was acknowledged. Others may have written since, so that its end
tells nothing; but the newest record of the link's is at a known place (`drkit.store.link_notes`), where no
other can stand unless the log was cut. That is looked at whenever a partition is taken up; and it is taken up again
whenever another leader's time begins on the target, before anything more is appended (`drkit.mirror.engine.sender`,
`drkit.mirror.health.truncation_watches`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from confluent_kafka import Message

from drkit.kafka.admin.logs.source_divergence import KIND, remedy_of
from drkit.kafka.client.record_probe import LogPosition, ProbedRecord
from drkit.kafka.protocol.data_requests import UNKNOWN_EPOCH
from drkit.kafka.transform.provenance import last_hop, read_hop
from drkit.kafka.transform.record_transform import Alteration, AlterationFailed
from drkit.mirror.resume.offset_alignment.fill_decision import Observed
from drkit.mirror.resume.partition_resume import Halt, Resumed, Resumer, start_at
from drkit.mirror.resume.tail_verification import TailVerifier, difference_of
from drkit.mirror.resume.transformed_tail import altered
from drkit.model.errors import Unreachable
from drkit.model.link_state import TARGET_LOST_DATA
from drkit.model.offsets import Watermark
from drkit.model.topology import TopicPartition
from drkit.store.link_notes import NewestOwn, newest_own, put_newest_own

log = logging.getLogger(__name__)

_SETTLE_SECONDS = 1.0
_PEEK_SECONDS = 10.0


class ProvenanceReader(TailVerifier):
    """Finds a link's own records among others' records."""

    def newest(self, seen: Observed, source_id: str, begin: int, end: int) -> tuple[int, int] | None:
        """The greatest source offset among the target's records in [begin, end) mirrored from this partition, and that
        record's target offset; None where there is none.

        Raises:
            Unreachable: the target doesn't answer.
        """
        newest = None
        target = seen.topic.state.target_topic
        for record in self._read(self._target, target, seen.tp.partition, begin, end, "read_uncommitted"):
            hop = last_hop(record.headers() or [])  # type: ignore[arg-type]  # bytes, as they were consumed
            if hop is not None and hop[:3] == (source_id, *seen.tp) and (newest is None or hop.offset > newest[0]):
                newest = hop.offset, int(record.offset() or 0)
        return newest

    def oldest(self, there: TopicPartition, tp: TopicPartition, source_id: str, begin: int, end: int) -> int | None:
        """The source offset of the first record of `there`, in [begin, end), that was mirrored from `tp`, or None.

        Raises:
            Unreachable: the target doesn't answer.
        """
        for record in self.of_target(there, begin, end):
            hop = last_hop(record.headers() or [])  # type: ignore[arg-type]  # bytes, as they were consumed
            if hop is not None and hop[:3] == (source_id, *tp):
                return hop.offset
        return None

    def of_target(self, there: TopicPartition, begin: int, end: int) -> Iterator[Message]:
        """All records of the target's partition `there` in [begin, end).

        Raises:
            Unreachable: the target doesn't answer.
        """
        return self._read(self._target, *there, begin, end, "read_uncommitted")

    def of_source(self, tp: TopicPartition, begin: int, end: int) -> Iterator[Message]:
        """All records of the source's partition `tp` in [begin, end), by the link's isolation level.

        Raises:
            Unreachable: the source doesn't answer.
        """
        return self._read(self._source, *tp, begin, end, self._isolation)

    def first(self, tp: TopicPartition, begin: int, end: int, wanted: Callable[[Message], bool]) -> int | None:
        """The offset of the source's first wanted record in [begin, end), or None.

        Raises:
            Unreachable: the source doesn't answer.
        """
        records = self.of_source(tp, begin, end)
        return next((int(record.offset() or 0) for record in records if wanted(record)), None)


class SharedResumer(Resumer):
    """Like `Resumer`, by provenance alone; call `use` first."""

    _keeps_rows = False

    def use(self, reader: ProvenanceReader, alteration: Alteration) -> SharedResumer:
        """Set the reader of the target, and the alteration, which knows the source's id."""
        self._reader = reader
        self._alteration = alteration
        self._places: dict[TopicPartition, int | None] = {}
        self._begins: dict[TopicPartition, int] = {}
        self._lost: set[TopicPartition] = set()
        self._leader_epochs: dict[TopicPartition, int] = {}
        return self

    def _settled_ends(self, tps: Sequence[TopicPartition], stop: threading.Event) -> dict[TopicPartition, int]:
        """The target's log ends, after a wait in which a dead worker's requests in flight may arrive.

        Others' writes move them, so two reads need not agree.
        """
        self._leader_epochs = self._target.leader_epochs(tps)  # before all other reads there
        if stop.wait(_SETTLE_SECONDS):
            return {}
        return self._target.log_ends([tp for tp in tps if tp in self._leader_epochs], partial=True)

    def _doubted(
        self, observations: Sequence[Observed]
    ) -> tuple[set[TopicPartition], dict[TopicPartition, Unreachable]]:
        """None is doubted by its end, because others' records lie between. Remembers for `_decide` which have lost the
        link's newest record.

        Raises:
            Unreachable: the target or the store doesn't answer.
        """
        notes = newest_own(self._notes, self._link)
        self._places, self._lost, self._begins = {}, set(), {}
        wanted: dict[LogPosition, Observed] = {}
        for seen in observations:
            note = notes.get(seen.tp)
            self._begins[seen.tp] = _epoch_begin(seen, note)
            if seen.watermark is None:
                continue
            place = self._places[seen.tp] = None if note is None else note.now(seen.watermark)
            if place is not None and seen.target_start <= place < seen.target_end:
                wanted[LogPosition(_target_of(seen), place)] = seen
        found = self._target.probe_records(wanted, seconds=_PEEK_SECONDS, bodies=True) if wanted else {}
        unread: dict[TopicPartition, Unreachable] = {}
        for position, seen in wanted.items():
            try:
                if not self._stands(position, found[position], seen):
                    self._lost.add(seen.tp)
            except Unreachable as error:
                unread[seen.tp] = error
        return set(), unread

    def _stands(self, position: LogPosition, found: ProbedRecord, seen: Observed) -> bool:
        """Whether the link's newest record is where it was, or compaction or retention may have removed it since."""
        if found.outside:
            return True  # removed meanwhile at the log's start
        if found.reason is not None:
            raise Unreachable(f"{position.tp} on {self._link.target} can't be read back: {found.reason}")
        if found.offset is None:
            high = self._target.end_offsets([position.tp], committed=False, partial=True).get(position.tp, 0)
            if high <= position.offset:
                raise Unreachable(f"{position.tp} on {self._link.target} isn't replicated again yet")
            return seen.topic.compacted
        if found.offset != position.offset:
            return seen.topic.compacted
        hop = read_hop(found.body or b"")
        through = 0 if seen.watermark is None else seen.watermark.source_through
        return hop is not None and hop[:3] == (self._alteration.source_id, *seen.tp) and hop.offset < through

    def _continued(self, seen: Observed) -> Watermark | None:
        return None if seen.tp in self._lost else super()._continued(seen)

    def _first_difference(self, seen: Observed) -> None:
        """Unknown: others' records lie between the link's."""

    def _decide(self, seen: Observed, *, doubted: bool = False) -> Resumed | Halt:  # noqa: ARG002 - as the base's
        mark, place = seen.watermark, self._places.get(seen.tp)
        lost = mark is not None and (seen.target_end < mark.target_end or seen.tp in self._lost)
        if mark is None or lost or place is None:
            landed = self._landed(replace(seen, watermark=None))  # it is unknown what remains: read all of the epoch
            known, place = seen.source_start, -1
        else:
            landed = self._landed(seen)
            known = mark.source_through
        replaced = None if landed is None else self._replaced(seen, *landed)
        if replaced is not None:
            return self._truncated(seen, known, replaced)
        source_offset = known if landed is None else max(known, landed[0] + 1)
        if mark is not None and lost and source_offset < mark.source_through:
            self._note_loss(seen, mark, source_offset)
        end = seen.target_end
        if source_offset < seen.source_start:
            self._note_gap(seen, source_offset)
            source_offset = seen.source_start
        place = place if landed is None else landed[1]
        newest = NewestOwn(seen.topic.state.epoch, end, place, self._begins[seen.tp])
        put_newest_own(self._notes, self._link, {seen.tp: newest})  # first: an older watermark ends below its `log_end`
        watermark = self._watermark(seen, source_offset, end)
        self._keep([watermark])
        start = replace(
            start_at(watermark, seen),
            shared=True,
            target_leader_epoch=self._leader_epochs.get(_target_of(seen), UNKNOWN_EPOCH),
        )
        return Resumed(self._conditional(start, seen), watermark)

    def _replaced(self, seen: Observed, source_offset: int, place: int) -> str | None:
        """How the link's newest record on the target differs from the source's record at its offset now, or None. No
        watermark covers it yet, so no leader epoch does."""
        if source_offset >= seen.source_end:
            return f"there is none: it ends at {seen.source_end}"
        ours = next(self._reader.of_target(_target_of(seen), place, place + 1), None)
        try:
            theirs = next(
                altered(self._reader.of_source(seen.tp, source_offset, source_offset + 1), self._alteration), None
            )
        except AlterationFailed as error:
            return f"what was made of it can't be checked: {error}"
        if ours is None or theirs is None:  # retention or the cleaner removed it; otherwise records don't vanish
            gone = source_offset < seen.source_start or seen.topic.compacted or ours is None
            return None if gone else "there is none that is mirrored"
        difference = difference_of(ours, theirs)
        return None if difference is None else f"its {difference} is another"

    def _truncated(self, seen: Observed, known: int, what: str) -> Halt:
        source, target = self._link.source, self._link.target
        return Halt(
            KIND,
            f"{seen.tp} on {source} lost records from offset {known} or above after they were mirrored: {target} holds "
            f"one that was mirrored from there, and of the record at its offset on {source} {what}",
            f"{remedy_of(self._link, seen.tp.topic)}, behind what others and this link wrote",
            known,
        )

    def _note_loss(self, seen: Observed, mark: Watermark, source_offset: int) -> None:
        self._problems.put(
            TARGET_LOST_DATA,
            seen.tp.topic,
            seen.tp.partition,
            f"{_target_of(seen)} on {self._link.target} ends at {seen.target_end}, and had held records up to "
            f"{mark.target_end} before it lost its end: no mirrored record above source offset "
            f"{source_offset - 1} is left",
            f"drkit copies from source offset {source_offset} on what {self._link.source} holds now. Find out why "
            f"{self._link.target} lost them (an unclean leader election, a restored disk?): if {self._link.source} was "
            "restored as well, these may be other records",
            halted=False,
            adds=True,
        )

    def _landed(self, seen: Observed) -> tuple[int, int] | None:
        """The newest source offset on the target above the last acknowledged record, and its target offset."""
        begin = max(seen.target_start, self._begins[seen.tp])
        if seen.watermark is not None:
            begin = max(begin, seen.watermark.target_end)
        if seen.target_end > begin:
            log.info("%s: looking for own records among %d of %s", self._link, seen.target_end - begin, seen.tp)
        return self._reader.newest(seen, self._alteration.source_id, begin, seen.target_end)


def _epoch_begin(seen: Observed, note: NewestOwn | None) -> int:
    """The target's offset from which on own records are of this epoch: its log's end when the epoch is first taken up.
    0 in the first epoch, of which a store that was lost may know nothing."""
    epoch = seen.topic.state.epoch
    if note is not None and note.epoch == epoch:
        return min(note.begin, seen.target_end)  # a target that lost more than the epoch: it grows on from there
    return seen.target_end if epoch > 1 else 0


def _target_of(seen: Observed) -> TopicPartition:
    return TopicPartition(seen.topic.state.target_topic, seen.tp.partition)
