"""Finds which of a link's records a target with other writers has lost at the start of its log.

There are no mapping rows. But each record that the link wrote names its source record
(`drkit.kafka.transform.provenance`), and they are in order: mirrored records below the first remaining one are gone.
Only source offsets that the link carries count: a source also holds records that came from the target. Both logs are
read only if the target's log begins further on than when it was last judged.

In a compacted topic a record may be gone because anybody wrote a newer one with its key. So there, if retention
explains nothing, keys decide: a record that the link carries and whose key the target no longer holds is missing,
because compaction never removes the newest record of a key. Tombstones count, too: whether theirs had expired isn't
known.
"""

from __future__ import annotations

from hashlib import blake2b

from confluent_kafka import Message

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.purged_records import Missing, find_purged
from drkit.kafka.client.record_probe import OffsetRange
from drkit.kafka.transform.record_transform import Alteration, AlterationFailed, as_record
from drkit.mirror.resume.shared_target import ProvenanceReader
from drkit.model.clock import now
from drkit.model.offsets import Watermark
from drkit.model.record import Record
from drkit.model.topology import Link, TopicPartition
from drkit.store.api import LinkStore
from drkit.store.link_notes import JudgedStart, judged_start, newest_own, put_judged_start

_NOTHING = OffsetRange(0, 0)
_MOST_KEYS = 200_000
"""40 MB of digests; with more keys, the whole range counts."""


class SharedTargetStart:
    """See the module docstring. Not thread-safe.

    Args:
        link: the link.
        source, target: the clusters.
        store: where results are kept.
        reader: reads both sides; used by this object alone.
        alteration: says which records the link carries.
    """

    def __init__(
        self,
        link: Link,
        source: ClusterAdmin,
        target: ClusterAdmin,
        store: LinkStore,
        reader: ProvenanceReader,
        alteration: Alteration,
    ) -> None:
        self._link = link
        self._source = source
        self._target = target
        self._store = store
        self._reader = reader
        self._alteration = alteration

    def missing(self, mark: Watermark) -> OffsetRange:
        """Source offsets that were mirrored and that the target no longer has; the range may hold others, too.

        Raises:
            Unreachable: a side didn't answer.
            Refused: one may not be read.
        """
        if mark.target_start == 0:
            return _NOTHING
        known = judged_start(self._store, self._link.id, mark.tp)
        if known is None or (known.epoch, known.target_start) != (mark.epoch, mark.target_start):
            found = self._look(mark)
            known = JudgedStart(mark.epoch, mark.target_start, found.begin, found.end)
            put_judged_start(self._store, self._link.id, mark.tp, known)
        return OffsetRange(known.begin, known.until)

    def _look(self, mark: Watermark) -> OffsetRange:
        there = TopicPartition(self._link.target_topic(mark.topic), mark.partition)
        note = newest_own(self._store, self._link.id).get(mark.tp)
        if note is not None and note.epoch == mark.epoch and mark.target_start <= note.begin:
            return _NOTHING  # what is gone was an earlier epoch's
        left = self._reader.oldest(there, mark.tp, self._alteration.source_id, mark.target_start, mark.target_end)
        until = mark.source_through if left is None else min(left, mark.source_through)
        begin = self._reader.first(mark.tp, mark.source_start, until, self._carries)
        if begin is None:
            return _NOTHING
        if not self._is_compacted(mark.topic, there.topic):
            return OffsetRange(begin, until)
        # first: this costs a few requests, and retention runs often
        missing = {mark.tp: Missing(OffsetRange(begin, until), there, emptied=left is None)}
        at_ms = int(now().timestamp() * 1000)
        stretch = find_purged(self._source, self._target, missing, self._link.settings_policy, at_ms=at_ms).get(mark.tp)
        return _NOTHING if stretch is None else self._not_replaced(mark, there, stretch)

    def _is_compacted(self, topic: str, there: str) -> bool:
        """Whether either side is compacted: to purge a compacted topic one must change its policy for a while."""
        return bool(self._source.compacted([topic]) or self._target.compacted([there]))

    def _not_replaced(self, mark: Watermark, there: TopicPartition, stretch: OffsetRange) -> OffsetRange:
        """From the first to the last record of a source range that the link carries, whose key the target no longer
        holds, and of whose key the source holds no later record that the link carries."""
        newest: dict[bytes, int] = {}
        for message in self._reader.of_source(mark.tp, stretch.begin, mark.source_end):
            record = self._carried(message)
            if record is None:
                continue
            if record.offset < stretch.end:
                newest[_digest(record)] = record.offset
            else:
                newest.pop(_digest(record), None)
            if len(newest) > _MOST_KEYS:
                return stretch
        end = self._target.end_offsets([there], committed=False).get(there, mark.target_end)
        for message in self._reader.of_target(there, mark.target_start, end):
            newest.pop(_digest(as_record(message)), None)
        return OffsetRange(min(newest.values()), max(newest.values()) + 1) if newest else _NOTHING

    def _carries(self, message: Message) -> bool:
        return self._carried(message) is not None

    def _carried(self, message: Message) -> Record | None:
        """A source record as it is on the target; None: the link doesn't carry it."""
        record = as_record(message)
        try:
            return self._alteration.apply(record)
        except AlterationFailed:
            return record  # if unknown, assume that it is carried


def _digest(record: Record) -> bytes:
    """128 bits of a record's key; a record without a key replaces none and is never replaced."""
    if record.key is None:
        return b"%d" % record.offset
    return blake2b(record.key, digest_size=16).digest()
