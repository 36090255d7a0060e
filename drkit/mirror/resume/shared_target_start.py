"""What a target that has other writers too has lost of a link's records where its log begins.

There are no mapping rows to go by. But each record that the link wrote names the record that it was read as
(`drkit.kafka.alteration.provenance`), and they landed in order: what was mirrored and lies below the first one that is
left is gone. Of these source offsets only those count that the link carries: a source holds what came from the target,
too. Both logs are read only where the target's log begins further on than when it was last judged.

A topic that is compacted isn't judged: there a record that is gone at the log's start may have been replaced.
"""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import Message

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.alteration.alteration import Alteration, AlterationFailed, as_record
from drkit.kafka.client.timestamp_scan import OffsetRange
from drkit.mirror.resume.shared_target import ProvenanceReader
from drkit.model.offsets import Watermark
from drkit.model.topology import Link, TopicPartition
from drkit.store.api import LinkStore

_KIND = "shared_target_start"
_NOTHING = OffsetRange(0, 0)


class _Judged(NamedTuple):
    """What was found of a partition of this epoch whose target's log begins there. Kept as a note, by partition."""

    epoch: int
    target_start: int
    begin: int
    until: int

    @classmethod
    def parse(cls, note: str | None) -> _Judged | None:
        return None if note is None else cls(*map(int, note.split(":")))

    def __str__(self) -> str:
        return ":".join(map(str, self))


class SharedTargetStart:
    """See the module docstring. For one thread at a time.

    Args:
        link: the link.
        target: the target.
        store: where it is kept what was found.
        reader: reads both sides; of this object alone.
        alteration: says which records the link carries.
    """

    def __init__(
        self, link: Link, target: ClusterAdmin, store: LinkStore, reader: ProvenanceReader, alteration: Alteration
    ) -> None:
        self._link = link
        self._target = target
        self._store = store
        self._reader = reader
        self._alteration = alteration

    def missing(self, mark: Watermark) -> OffsetRange:
        """Source offsets that were mirrored and that the target has no longer; the range may hold others, too.

        Raises:
            Unreachable: a side didn't answer.
            Refused: one may not be read.
        """
        if mark.target_start == 0:
            return _NOTHING
        known = _Judged.parse(self._store.notes(self._link.id, _KIND).get(str(mark.tp)))
        if known is None or (known.epoch, known.target_start) != (mark.epoch, mark.target_start):
            found = self._look(mark)
            known = _Judged(mark.epoch, mark.target_start, found.begin, found.end)
            self._store.put_notes(self._link.id, _KIND, {str(mark.tp): str(known)})
        return OffsetRange(known.begin, known.until)

    def _look(self, mark: Watermark) -> OffsetRange:
        there = TopicPartition(self._link.target_topic(mark.topic), mark.partition)
        key = "cleanup.policy"
        if "compact" in self._target.topic_configs([there.topic], keys=(key,)).get(there.topic, {}).get(key, ""):
            return _NOTHING
        left = self._reader.oldest(there, mark.tp, self._alteration.source_id, mark.target_start, mark.target_end)
        until = mark.source_through if left is None else min(left, mark.source_through)
        begin = self._reader.first(mark.tp, mark.source_start, until, self._carries)
        return _NOTHING if begin is None else OffsetRange(begin, until)

    def _carries(self, message: Message) -> bool:
        try:
            return self._alteration.apply(as_record(message)) is not None
        except AlterationFailed:
            return True  # unknown is not "left out"
