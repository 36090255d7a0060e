"""Finds what a source holds below a watermark that was never mirrored, by reading both sides from the last records on.

A source that was set back to an older copy of its disks and has grown again holds other records where it held what was
mirrored, or where it held nothing that the link carries: records that it leaves out, aborted ones, markers. A log loses
records at its end only. So from one of the last records on the target on, every record of the source that the link
carries must be where the mapping says, as the link makes it. That is asked where nothing else tells: the checksum of
the last mirrored batch does, but not where the cleaner wrote it anew, nor where the log ends below it now.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.record_probe import LogPosition
from drkit.kafka.client.timestamp_scan import OffsetRange
from drkit.kafka.protocol import record_body
from drkit.kafka.protocol.record_batch import MAGIC, Batch
from drkit.kafka.protocol.records import Damaged, RawRecord, read, read_old
from drkit.mapping.target_start import MappingRows
from drkit.model.errors import DrkitError
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition

if TYPE_CHECKING:
    from drkit.kafka.client.log_reader import LogReader
    from drkit.kafka.transform.record_transform import Alteration

_SECONDS = 10.0
"""For all partitions: the rest is unread."""
_FIRST_LOOK, _FURTHER = 8, 16
_CLEANUP = "cleanup.policy"


class UnmirroredTail(NamedTuple):
    """`first`: the first offset of each partition at which its source holds a record that the link carries and never
    mirrored, 0 where there may be earlier ones; `unread`: why others could not be read."""

    first: dict[TopicPartition, int]
    unread: dict[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class _Tail:
    """What is compared of a partition: the target's `there`, from a record on it to `mark`'s end (empty: it has no
    record), and `here` of the source; `rows`: in force there."""

    mark: Watermark
    target: TopicPartition
    there: OffsetRange
    here: OffsetRange
    rows: Sequence[OffsetMapping]

    def place(self, source_offset: int) -> int:
        """The target offset of a source offset by the rows."""
        above = bisect_right(self.rows, source_offset, key=lambda row: row.source_offset)
        return self.there.end if not self.rows else source_offset + self.rows[max(0, above - 1)].delta


def unmirrored_tail(
    source: ClusterAdmin,
    target: ClusterAdmin,
    marks: Iterable[Watermark],
    rows: MappingRows,
    *,
    link: LinkId,
    target_topic: Callable[[str], str],
    alteration: Alteration | None,
    committed: bool,
) -> UnmirroredTail:
    """Compare these partitions; nobody but the mirror writes to their target.

    Args:
        source: the cluster that the records come from.
        target: the cluster that they were mirrored to.
        marks: how far the partitions count as mirrored, and where the target ends for that.
        rows: the store's mapping rows.
        link: the link.
        target_topic: the target's name of a source topic.
        alteration: what the link does to records; None: it carries each as it is.
        committed: whether the link leaves out records of aborted transactions.

    Raises:
        Unreachable: a cluster or the store doesn't answer.
    """
    from drkit.kafka.client.log_reader import LogReader  # noqa: PLC0415 - it loads asyncio, and most commands need none

    there = {mark: TopicPartition(target_topic(mark.topic), mark.partition) for mark in marks}
    found = UnmirroredTail({}, {})
    if not there:
        return found
    starts = target.start_offsets(there.values(), partial=True)
    target_ends = target.end_offsets(there.values(), committed=False, partial=True)
    for mark, tp in there.items():
        if target_ends.get(tp, 0) < mark.target_end:
            found.unread[mark.tp] = f"{tp} on {target.alias} doesn't reach {mark.target_end}, where it ended"
    begins = source.start_offsets([mark.tp for mark in there], partial=True)
    ends = source.end_offsets([mark.tp for mark in there], committed=committed, partial=True)
    until = time.monotonic() + _SECONDS
    anchors = _anchors(target, link, there, starts, rows, found)
    with (
        LogReader(source.alias, source.cluster, timeout_seconds=_SECONDS, committed=committed) as ours,
        LogReader(target.alias, target.cluster, timeout_seconds=_SECONDS, committed=False) as theirs,
    ):
        for mark, anchor in sorted(anchors.items(), key=lambda each: each[0].tp):
            tp = mark.tp
            tail = _tail(link, mark, there[mark], anchor, rows, begins.get(tp, 0), ends.get(tp, 0))
            try:
                first = _first_unmirrored(ours, theirs, target, tail, alteration, until)
            except (DrkitError, Damaged, _TooLong) as error:
                found.unread[tp] = f"source offsets {tail.here.begin} to {tail.here.end - 1} can't be compared: {error}"
                continue
            if first is not None:
                found.first[tp] = first
            elif ends.get(tp, 0) < mark.source_through:
                found.unread[tp] = f"source offsets from {ends.get(tp, 0)} on can't be read (an open transaction?)"
    return found


def _anchors(
    target: ClusterAdmin,
    link: LinkId,
    there: Mapping[Watermark, TopicPartition],
    starts: Mapping[TopicPartition, int],
    rows: MappingRows,
    found: UnmirroredTail,
) -> dict[Watermark, int | None]:
    """One of the last records on the target of each partition; None: it has none of this epoch. What can't be read goes
    to `found`."""
    anchors: dict[Watermark, int | None] = {}
    lowest: dict[Watermark, int] = {}
    for mark, tp in there.items():
        first = rows.next_mapping(link, mark.tp, mark.epoch, -1)
        lowest[mark] = max(starts.get(tp, mark.target_start), 0 if first is None else first.target_offset)
        if mark.tp not in found.unread and (first is None or lowest[mark] >= mark.target_end):
            anchors[mark] = None
    span = _FIRST_LOOK
    while left := [mark for mark in there if mark not in anchors and mark.tp not in found.unread]:
        places = {mark: LogPosition(there[mark], max(lowest[mark], mark.target_end - span)) for mark in left}
        seen = target.probe_records(places.values(), seconds=_SECONDS)
        for mark, place in places.items():
            record = seen[place]
            if record.offset is not None and record.offset < mark.target_end:
                anchors[mark] = record.offset
            elif record.reason is not None:
                found.unread[mark.tp] = f"{place.tp} at {place.offset}: {record.reason}"
            elif place.offset == lowest[mark]:
                anchors[mark] = None
        span *= _FURTHER
    return anchors


def _tail(
    link: LinkId,
    mark: Watermark,
    target: TopicPartition,
    anchor: int | None,
    rows: MappingRows,
    source_start: int,
    source_end: int,
) -> _Tail:
    row = None if anchor is None else rows.last_valid_mapping(link, mark.tp, mark.epoch, anchor)
    end = min(mark.source_through, source_end)
    if anchor is None or row is None:
        begin = max(mark.source_start, source_start)
        return _Tail(mark, target, OffsetRange(mark.target_end, mark.target_end), OffsetRange(begin, end), ())
    begin = max(anchor - row.delta, source_start)
    in_force = [row]
    while (following := rows.next_mapping(link, mark.tp, mark.epoch, in_force[-1].source_offset)) is not None:
        if following.source_offset >= mark.source_through:
            break
        in_force.append(following)
    return _Tail(mark, target, OffsetRange(anchor, mark.target_end), OffsetRange(begin, end), in_force)


class _TooLong(Exception):
    """Reading took longer than `_SECONDS`."""


def _first_unmirrored(
    ours: LogReader,
    theirs: LogReader,
    target: ClusterAdmin,
    tail: _Tail,
    alteration: Alteration | None,
    until: float,
) -> int | None:
    from drkit.kafka.client.log_reader import OffsetsGone  # noqa: PLC0415 - as above
    from drkit.kafka.transform.record_transform import AlterationFailed  # noqa: PLC0415 - loads librdkafka

    tp = tail.mark.tp
    held = {record.offset: bytes(record.body) for record in _records(theirs, tail.target, tail.there, until)}
    keys: dict[bytes, int] | None = None
    equal = not held
    try:
        records = _records(ours, tp, tail.here, until)
        for record in records if alteration is None else alteration.records(tp, records):
            place = tail.place(record.offset)
            there = held.get(place)
            if there is not None and crc32c(there) == crc32c(record.body):
                equal = True
                continue
            if there is None and held:
                keys = _last_of_keys(target, tail.target.topic, held) if keys is None else keys
                if keys.get(_key(record.body), -1) > place:
                    continue  # the target's cleaner removed it: a later one has its key
            return record.offset if equal else 0
    except OffsetsGone:
        return None  # retention took them meanwhile
    except AlterationFailed as error:
        raise Damaged(str(error)) from error
    return None


def _last_of_keys(target: ClusterAdmin, topic: str, held: Mapping[int, bytes]) -> dict[bytes, int]:
    """The last offset of each key in a compacted topic; empty for another topic."""
    settings = target.topic_configs({topic}, keys=(_CLEANUP,)).get(topic, {})
    if "compact" not in settings.get(_CLEANUP, ""):
        return {}
    return {_key(body): offset for offset, body in sorted(held.items())}


def _key(body: bytes | memoryview) -> bytes:
    """A record's key; b"" for none, which no compacted topic holds."""
    return record_body.decode(bytes(body))[0] or b""


def _records(reader: LogReader, tp: TopicPartition, stretch: OffsetRange, until: float) -> Iterator[RawRecord]:
    batches = reader.read(tp.topic, tp.partition, stretch.begin, stretch.end)
    try:
        for batch in chain.from_iterable(batches):
            if time.monotonic() > until:
                raise _TooLong(f"not within {_SECONDS:g} s")
            yield from (each for each in _decoded(batch) if stretch.begin <= each.offset < stretch.end)
    finally:
        batches.close()


def _decoded(batch: Batch) -> Iterable[RawRecord]:
    if not batch.readable:
        raise Damaged(f"the batch at {batch.base_offset} is damaged")
    return read_old(batch.whole) if batch.magic < MAGIC else read(batch)
