"""Compares the last mirrored records of both sides, where no leader epoch and no running mirror tells of a loss.

A cluster that is restored from an older copy of all its disks, its controllers' too, gives out its leader epochs a
second time. What it took since then stands where its lost records were, and its log ends may be those that were
mirrored. A log loses records at its end only, so the last ones show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.record_probe import LogPosition, ProbedRecord
from drkit.mapping.target_start import MappingRows
from drkit.model.offsets import Watermark
from drkit.model.topology import Link, TopicPartition

TAIL_OFFSETS = 8
"""How many of a partition's last offsets are compared: the last one may hold a marker."""
Places = Mapping[LogPosition, LogPosition]
"""Places on the target, by those on the source."""


@dataclass(slots=True)
class LastRecords:
    """By source partition: `differ`, the first compared source offset with another record on the target; `unread`, why
    the comparison failed. A place that a log lacks (retention, compaction, a marker) says nothing."""

    differ: dict[TopicPartition, int] = field(default_factory=dict)
    unread: dict[TopicPartition, str] = field(default_factory=dict)


def compare_last_records(source: ClusterAdmin, target: ClusterAdmin, places: Places, *, seconds: float) -> LastRecords:
    """Compare the records at these places by key, value and headers.

    Raises:
        Unreachable: a cluster doesn't answer.
    """
    found = LastRecords()
    if not places:
        return found
    ours = source.probe_records(places, seconds=seconds)
    theirs = target.probe_records(places.values(), seconds=seconds)
    for place, there in sorted(places.items(), key=lambda pair: pair[0].offset):
        here, copy = ours[place], theirs[there]
        why = _unread(place, here) or _unread(there, copy)
        if why is not None:
            found.unread.setdefault(place.tp, why)
        elif here.offset == place.offset and copy.offset == there.offset and here.crc != copy.crc:
            found.differ.setdefault(place.tp, place.offset)
    return found


def _unread(place: LogPosition, seen: ProbedRecord) -> str | None:
    return None if seen.reason is None or seen.outside else f"{place.tp} at {place.offset}: {seen.reason}"


def last_places(link: Link, marks: Iterable[Watermark], rows: MappingRows) -> dict[LogPosition, LogPosition]:
    """The last mirrored offsets of partitions, as far as one mapping row places them."""
    places = {}
    for mark in marks:
        row = rows.last_valid_mapping(link.id, mark.tp, mark.epoch, mark.target_end - 1) if mark.target_end else None
        if row is None:
            continue
        there = TopicPartition(link.target_topic(mark.topic), mark.partition)
        delta = row.target_offset - row.source_offset
        first = max(row.target_offset, mark.target_start, mark.target_end - TAIL_OFFSETS)
        for offset in range(first, mark.target_end):
            if offset - delta < mark.source_through:
                places[LogPosition(mark.tp, offset - delta)] = LogPosition(there, offset)
    return places
