"""Finds what a source holds above the last record that is on the target, though it counts as mirrored.

A link that leaves records out may have mirrored none of the last offsets below its watermark; so may one whose source
has holes there. Comparing the last records of both sides then proves nothing of these offsets: a source that was set
back to an older copy of its disks and has grown again holds other records there. Where nothing else tells (the checksum
of the last mirrored batch does, but not where the cleaner wrote it anew, nor where the log ends below it now), they are
read: the link must carry none of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.log_reader import LogReader, OffsetsGone
from drkit.kafka.client.timestamp_scan import OffsetRange
from drkit.kafka.protocol.record_batch import MAGIC, Batch
from drkit.kafka.protocol.records import Damaged, RawRecord, read, read_old
from drkit.mapping.target_start import MappingRows
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition

if TYPE_CHECKING:
    from drkit.kafka.transform.record_transform import Alteration

_SECONDS = 10.0
"""For all partitions: the rest is unread."""


class UnmirroredTail(NamedTuple):
    """`first`: the first offset of each partition at which its source holds a record that the link carries and never
    mirrored; `unread`: why others could not be read."""

    first: dict[TopicPartition, int]
    unread: dict[TopicPartition, str]


def tail_range(link: LinkId, mark: Watermark, rows: MappingRows) -> OffsetRange | None:
    """The source offsets below the watermark and above the last record on the target, which has no other writers; None:
    there are none."""
    row = rows.last_valid_mapping(link, mark.tp, mark.epoch, mark.target_end - 1) if mark.target_end > 0 else None
    after = 0 if row is None else row.source_offset + mark.target_end - row.target_offset
    begin = max(after, mark.source_start)
    return OffsetRange(begin, mark.source_through) if begin < mark.source_through else None


def unmirrored_tail(
    source: ClusterAdmin,
    link: LinkId,
    marks: Iterable[Watermark],
    rows: MappingRows,
    *,
    alteration: Alteration | None,
    committed: bool,
) -> UnmirroredTail:
    """Read these partitions of the source above the last record that is on the target.

    Args:
        source: the cluster.
        link: the link.
        marks: how far the partitions count as mirrored, and where the target ends for that.
        rows: the store's mapping rows.
        alteration: what the link does to records; None: it carries each as it is.
        committed: whether the link leaves out records of aborted transactions.

    Raises:
        Unreachable: the store doesn't answer.
    """
    ranges = {mark.tp: tail for mark in marks if (tail := tail_range(link, mark, rows)) is not None}
    if not ranges:
        return UnmirroredTail({}, {})
    return _read(source, ranges, alteration, committed=committed)


def _read(
    source: ClusterAdmin,
    ranges: Mapping[TopicPartition, OffsetRange],
    alteration: Alteration | None,
    *,
    committed: bool,
) -> UnmirroredTail:
    found = UnmirroredTail({}, {})
    until = time.monotonic() + _SECONDS
    try:
        starts = source.start_offsets(ranges, partial=True)
        ends = source.end_offsets(ranges, committed=committed, partial=True)
    except Unreachable as error:
        return UnmirroredTail({}, dict.fromkeys(ranges, error.what))
    with LogReader(source.alias, source.cluster, timeout_seconds=_SECONDS, committed=committed) as reader:
        for tp, whole in sorted(ranges.items()):
            tail = OffsetRange(max(whole.begin, starts.get(tp, 0)), min(whole.end, ends.get(tp, whole.begin)))
            try:
                first = _first_carried(reader, tp, tail, alteration, until)
            except (DrkitError, Damaged, _TooLong) as error:
                found.unread[tp] = f"source offsets {tail.begin} to {tail.end - 1} could not be read: {error}"
                continue
            if first is not None:
                found.first[tp] = first
            elif tail.end < whole.end:
                found.unread[tp] = f"source offsets {tail.end} to {whole.end - 1} can't be read (an open transaction?)"
    return found


class _TooLong(Exception):
    """Reading took longer than `_SECONDS`."""


def _first_carried(
    reader: LogReader, tp: TopicPartition, tail: OffsetRange, alteration: Alteration | None, until: float
) -> int | None:
    from drkit.kafka.transform.record_transform import AlterationFailed  # noqa: PLC0415 - loads librdkafka

    try:
        for record in _records(reader, tp, tail, until):
            if alteration is None or next(alteration.records(tp, [record]), None) is not None:
                return record.offset
    except OffsetsGone:
        return None  # retention took them meanwhile
    except AlterationFailed as error:
        raise Damaged(str(error)) from error
    return None


def _records(reader: LogReader, tp: TopicPartition, tail: OffsetRange, until: float) -> Iterator[RawRecord]:
    batches = reader.read(tp.topic, tp.partition, tail.begin, tail.end)
    try:
        for batch in chain.from_iterable(batches):
            if time.monotonic() > until:
                raise _TooLong(f"not within {_SECONDS:g} s")
            yield from (each for each in _decoded(batch) if tail.begin <= each.offset < tail.end)
    finally:
        batches.close()


def _decoded(batch: Batch) -> Iterable[RawRecord]:
    if not batch.readable:
        raise Damaged(f"the batch at {batch.base_offset} is damaged")
    return read_old(batch.whole) if batch.magic < MAGIC else read(batch)
