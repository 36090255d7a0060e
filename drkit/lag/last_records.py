"""Compares the last mirrored records of both sides, where no leader epoch and no running mirror tells of a loss.

A cluster that is restored from an older copy of all its disks, its controllers' too, gives out its leader epochs a
second time. What it took since then stands where its lost records were, and its log ends may be those that were
mirrored. A log loses records at its end only, so the last ones show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crc32c import crc32c

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.record_probe import LogPosition, ProbedRecord
from drkit.kafka.protocol.records import Damaged, RawRecord
from drkit.mapping.target_start import MappingRows
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition

if TYPE_CHECKING:
    from drkit.kafka.transform.record_transform import Alteration

TAIL_OFFSETS = 8
"""How many of a partition's last offsets are compared: the last one may hold a marker."""
Places = Mapping[LogPosition, LogPosition]
"""Places on the source, by those on the target."""


@dataclass(slots=True)
class RecordComparison:
    """What a comparison found, ascending by offset. `equal`: how many records are equal; `gone`: how many the source no
    longer has, which says nothing, as retention and compaction remove records; `differ`: places, on the source and on
    the target, with different records; `unread`: places on the source whose records could not be compared, with
    reasons."""

    equal: int = 0
    gone: int = 0
    differ: list[tuple[LogPosition, LogPosition]] = field(default_factory=list)
    unread: list[tuple[LogPosition, str]] = field(default_factory=list)

    def differs_from(self) -> dict[TopicPartition, int]:
        """By source partition, the first compared source offset with another record on the target."""
        return {here.tp: here.offset for here, _ in reversed(self.differ)}


def compare_records(
    source: ClusterAdmin, target: ClusterAdmin, places: Places, *, seconds: float, alteration: Alteration | None = None
) -> RecordComparison:
    """Compare the records at these places by timestamp, key, value and headers. A place at which the target has no
    record (a marker, compaction) isn't compared.

    `alteration`: what the link changes in records, if it does: the target's are compared with what it makes of the
    source's now.

    Raises:
        Unreachable: a cluster doesn't answer.
    """
    if not places:
        return RecordComparison()
    copies = target.probe_records(places, seconds=seconds)
    standing = {here for there, here in places.items() if copies[there].offset == there.offset}
    ours = source.probe_records(standing, seconds=seconds, bodies=alteration is not None) if standing else {}
    if alteration is not None:
        ours = {place: altered(place.tp, seen, alteration) for place, seen in ours.items()}
    return judge_records(ours, copies, places)


def altered(tp: TopicPartition, seen: ProbedRecord, alteration: Alteration) -> ProbedRecord:
    """A source record, read with its body, as the link makes it; without content (`crc` None) if it is left out. The
    link's callables must return the same result every time: they are called twice."""
    if seen.offset is None or seen.timestamp is None or seen.body is None:
        return seen
    from drkit.kafka.transform.record_transform import AlterationFailed  # noqa: PLC0415 - loads librdkafka

    record = RawRecord(seen.offset, seen.timestamp, seen.body)
    try:
        first, again = (
            [(each.timestamp, bytes(each.body)) for each in alteration.records(tp, [record])] for _ in range(2)
        )
    except (AlterationFailed, Damaged) as error:
        return seen._replace(reason=str(error))
    if first != again:
        return seen._replace(reason=f"{alteration.callables} returns another result if called again")
    if not first:
        return seen._replace(crc=None)
    ((timestamp, body),) = first
    return seen._replace(timestamp=timestamp, crc=crc32c(body))


def judge_records(
    ours: Mapping[LogPosition, ProbedRecord], copies: Mapping[LogPosition, ProbedRecord], places: Places
) -> RecordComparison:
    """Compare records that were read: `ours` on the source, `copies` on the target. Pure."""
    found = RecordComparison()
    for there, here in sorted(places.items(), key=lambda pair: pair[0].offset):
        copy = copies[there]
        why = _unread(there, copy)
        if why is None and copy.offset != there.offset:
            continue
        why = why or _unread(here, ours[here])
        if why is not None:
            found.unread.append((here, why))
        elif ours[here].offset != here.offset:
            found.gone += 1
        elif (ours[here].timestamp, ours[here].crc) != (copy.timestamp, copy.crc):
            found.differ.append((here, there))
        else:
            found.equal += 1
    return found


def _unread(place: LogPosition, seen: ProbedRecord) -> str | None:
    return None if seen.reason is None or seen.outside else f"{place.tp} at {place.offset}: {seen.reason}"


def last_places(
    link: LinkId, target_topic: Callable[[str], str], marks: Iterable[Watermark], rows: MappingRows
) -> dict[LogPosition, LogPosition]:
    """The last mirrored offsets of partitions, as far as one mapping row places them, by their target offsets."""
    places = {}
    for mark in marks:
        row = rows.last_valid_mapping(link, mark.tp, mark.epoch, mark.target_end - 1) if mark.target_end else None
        if row is None:
            continue
        there = TopicPartition(target_topic(mark.topic), mark.partition)
        delta = row.target_offset - row.source_offset
        first = max(row.target_offset, mark.target_start, mark.target_end - TAIL_OFFSETS)
        for offset in range(first, mark.target_end):
            if offset - delta < mark.source_through:
                places[LogPosition(there, offset)] = LogPosition(mark.tp, offset - delta)
    return places
