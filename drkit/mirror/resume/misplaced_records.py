"""Finds the mirror's own records below their expected offsets, before anything is written after them.

The end of a target that lost its tail and then got an append can be anywhere, so it says nothing. If a partition has
nothing beyond its watermark (which would be verified anyway), the last record below its end is compared with the source
record that the mapping assigns to it, for all partitions in a few requests. Where they differ, and where an append was
reported at an unexpected offset, the log is read back to where the two sides diverge
(`drkit.mirror.resume.copied_run` shows the result).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.record_probe import LogPosition, ProbedRecord
from drkit.mapping import resume_point
from drkit.mirror.resume.copied_run import CopiedRun
from drkit.mirror.resume.offset_alignment.fill_decision import Observed
from drkit.mirror.resume.tail_verification import Difference, Tail, TailVerifier
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import MappingStore

_LAST = 3
"""How many offsets below the end are read: the last may be markers, which hold no record."""
_PEEK_SECONDS = 5.0
_PEEK_SECONDS_A_PLACE = 0.1
_FIRST_LOOK, _FURTHER = 1_000, 8


class Misplaced(NamedTuple):
    """Copies of the source's records `run` are at target offsets [`begin`, `end`), where records from `source_offset`
    on were or should be; the log ends after them.
    """

    begin: int
    end: int
    source_offset: int
    run: CopiedRun


class MisplacedRecords:
    """See the module docstring. Not thread-safe.

    Args:
        link: the link.
        source, target: the clusters.
        store: the link's rows.
        verifier: reads ranges back.
    """

    def __init__(
        self, link: LinkId, source: ClusterAdmin, target: ClusterAdmin, store: MappingStore, verifier: TailVerifier
    ) -> None:
        self._link = link
        self._source = source
        self._target = target
        self._store = store
        self._verifier = verifier

    def doubted(self, observed: Iterable[Observed]) -> tuple[set[TopicPartition], dict[TopicPartition, str]]:
        """Partitions whose last record may not be the one that the mapping expects; and those of which it couldn't be
        read in time, with the reason: nothing is known about them.

        Raises:
            Refused: a cluster denies reading.
            Unreachable: the store doesn't answer.
        """
        looked_at = [seen for seen in observed if _ends_below_watermark(seen)]
        alters = self._verifier.alteration is not None
        doubted: set[TopicPartition] = set()
        if alters:  # misplaced records aren't recognised by content there: look further back at once
            doubted = {s.tp for s in looked_at if s.watermark and s.target_end < s.watermark.target_end}
            looked_at = [seen for seen in looked_at if seen.tp not in doubted]
        late: dict[TopicPartition, str] = {}
        meant: dict[LogPosition, tuple[Observed, LogPosition]] = {}
        for seen in looked_at:
            row = self._store.last_valid_mapping(self._link, seen.tp, seen.topic.state.epoch, seen.target_end - 1)
            if row is None:
                # Records below the first row are older than this epoch: they say nothing while they are at the end.
                if seen.watermark is None or seen.target_end < seen.watermark.target_end:
                    doubted.add(seen.tp)
                continue
            target = TopicPartition(seen.topic.state.target_topic, seen.tp.partition)
            lowest = max(seen.target_start, row.target_offset, seen.target_end - _LAST)
            for offset in range(lowest, seen.target_end):
                if offset - row.delta >= seen.source_start:
                    meant[LogPosition(target, offset)] = seen, LogPosition(seen.tp, offset - row.delta)
        seconds = max(_PEEK_SECONDS, len(meant) * _PEEK_SECONDS_A_PLACE)
        there = self._target.probe_records(meant, seconds=seconds) if meant else {}
        held = {place for place, peeked in there.items() if peeked.offset == place.offset}
        here = self._source.probe_records([meant[place][1] for place in held], seconds=seconds) if held else {}
        for place, (seen, source) in meant.items():
            ours, theirs = there[place], here.get(source)
            unread = next((each for each in (ours, theirs) if each is not None and each.late), None)
            if unread is not None:
                late[seen.tp] = f"{seen.tp} {unread.reason}"
            elif ours.reason is not None or (
                theirs is not None and not _same(ours, theirs, source, seen, alters=alters)
            ):
                doubted.add(seen.tp)
        return doubted, {tp: why for tp, why in late.items() if tp not in doubted}

    def difference(self, seen: Observed) -> tuple[Difference, Misplaced | int] | None:
        """Where the two sides diverge below the target's end, and what is there: the mirror's own records, or the first
        source offset that should be there. None where they don't diverge.

        Raises:
            Unreachable: a side or the store doesn't answer.
        """
        rows = self._store.mappings(self._link, seen.tp, seen.topic.state.epoch)
        if not rows or seen.watermark is None or seen.target_start >= seen.target_end:
            return None
        found = self._first_difference(seen, rows, seen.watermark.target_end)
        return None if found is None else (found, self._recognised(seen, rows, found.target_offset))

    def _first_difference(self, seen: Observed, rows: Sequence[OffsetMapping], mirrored: int) -> Difference | None:
        floor = max(seen.target_start, rows[0].target_offset)
        if floor >= seen.target_end:
            what = f"below target offset {seen.target_end} nothing has a mapping: all mirrored records are gone"
            return Difference(seen.target_start, what)
        span = _FIRST_LOOK
        while True:
            begin = max(floor, min(mirrored, seen.target_end) - span)
            found = self._verifier.difference(_tail(seen, begin, rows), mirrored)
            if found is None or found.target_offset > begin or begin == floor:
                return found
            span *= _FURTHER

    def _recognised(self, seen: Observed, rows: Sequence[OffsetMapping], begin: int) -> Misplaced | int:
        due = resume_point(rows, None, begin, source_start=seen.source_start).source_offset
        if begin >= seen.target_end or seen.watermark is None:
            return due
        tail = _tail(seen, begin, rows)
        for first in sorted({due, max(due, seen.watermark.source_through)}, reverse=True):  # the likelier one first
            run = self._verifier.copied_run(tail, max(first, seen.source_start), seen.source_readable_end)
            if run is not None:
                return Misplaced(begin, seen.target_end, due, run)
        return due


def _ends_below_watermark(seen: Observed) -> bool:
    """Whether nothing is beyond the watermark: anything there is verified anyway."""
    mark = seen.watermark
    return mark is not None and seen.target_start < seen.target_end <= mark.target_end


def _same(there: ProbedRecord, here: ProbedRecord, source: LogPosition, seen: Observed, *, alters: bool) -> bool:
    """Whether a record is the copy of the source's. Of a link that alters records the timestamp tells: no callable
    changes it, and callables that were changed since say nothing of what was mirrored before."""
    if here.offset != source.offset:  # the source's cleaner or retention removed it: nothing to compare
        return here.reason is None and seen.topic.compacted
    return there.timestamp == here.timestamp and (alters or there.crc == here.crc)


def _tail(seen: Observed, begin: int, rows: Sequence[OffsetMapping]) -> Tail:
    in_force = max(bisect_right(rows, begin, key=lambda row: row.target_offset) - 1, 0)
    return Tail(
        seen.tp,
        seen.topic.state.target_topic,
        begin,
        seen.target_end,
        rows[in_force:],
        seen.source_start,
        seen.target_start,
        seen.topic.compacted,
        seen.source_readable_end,
    )
