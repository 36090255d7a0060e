"""Reads offset ranges of a link's source, and counts the records that the link carries: without those of aborted
transactions, and those that its filter leaves out.

What stands behind an open transaction counts, too, and is named: which of it will be aborted is unknown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drkit.failover.run.cluster_context import ClusterContext
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.timestamp_scan import OffsetRange
from drkit.kafka.protocol.records import Damaged, RawRecord
from drkit.model.errors import DrkitError
from drkit.model.topology import Link, TopicPartition

if TYPE_CHECKING:
    from drkit.kafka.client.log_reader import LogReader
    from drkit.kafka.transform.record_transform import Alteration

_ANSWER_SECONDS = 10.0


@dataclass(slots=True)
class CarriedRecords:
    """The records of an offset range that the link carries. `earliest`: the smallest timestamp, ms; None: there is no
    record. `undecided`: how many of them stand behind an open transaction. `reason`: why the range was not read to its
    end; None: it was. `unaltered`: why what the filter leaves out is counted, too; None: it isn't."""

    records: int = 0
    earliest: int | None = None
    undecided: int = 0
    reason: str | None = None
    unaltered: str | None = None

    def add(self, timestamp: int, records: int = 1) -> None:
        """Count records, of which the earliest has this timestamp (ms)."""
        self.records += records
        self.earliest = timestamp if self.earliest is None else min(self.earliest, timestamp)


def count_carried(
    estate: ClusterContext, link: Link, ranges: Mapping[TopicPartition, OffsetRange], *, seconds: float
) -> dict[TopicPartition, CarriedRecords]:
    """Count the records of these ranges; what isn't read in time, or can't be, has a reason.

    Raises:
        Unreachable: the source doesn't answer.
    """
    from drkit.kafka.client.log_reader import LogReader  # noqa: PLC0415 - loads aiokafka

    source = link.id.source
    admin = estate.admin(source, may_be_gone=True)
    wanted = {tp: each for tp, each in ranges.items() if each.begin < each.end}
    found = {tp: CarriedRecords() for tp in ranges}
    stable = admin.end_offsets(wanted, committed=True, partial=True) if link.committed else {}
    alteration, unaltered = _alteration(estate, link, admin)
    until = time.monotonic() + seconds
    cluster, timeout = estate.config.clusters[source], min(seconds, _ANSWER_SECONDS)
    with LogReader(source, cluster, timeout_seconds=timeout, committed=link.committed) as reader:
        for tp, (begin, end) in sorted(wanted.items()):
            if link.committed and tp not in stable:
                found[tp].reason = "no leader answers for it"
                continue
            decided = OffsetRange(begin, max(begin, min(end, stable.get(tp, end))))
            found[tp].unaltered = unaltered
            try:
                _count(_records(reader, tp, decided, until), tp, alteration, found[tp])
            except (DrkitError, Damaged, _Late) as error:
                found[tp].reason = str(error)
    held = {tp: OffsetRange(max(each.begin, stable[tp]), each.end) for tp, each in wanted.items() if tp in stable}
    _count_undecided(admin, {tp: each for tp, each in held.items() if each.begin < each.end}, found, until)
    return found


def _count(
    records: Iterator[RawRecord], tp: TopicPartition, alteration: Alteration | None, found: CarriedRecords
) -> None:
    if alteration is None:
        for record in records:
            found.add(record.timestamp)
        return
    from drkit.kafka.transform.record_transform import AlterationFailed  # noqa: PLC0415 - loads librdkafka

    try:
        for record in alteration.records(tp, records):
            found.add(record.timestamp)
    except AlterationFailed as error:
        found.reason = str(error)


def _count_undecided(
    admin: ClusterAdmin,
    ranges: Mapping[TopicPartition, OffsetRange],
    found: Mapping[TopicPartition, CarriedRecords],
    until: float,
) -> None:
    """Count what stands behind the last stable offset of its partition."""
    if not ranges:
        return
    for tp, seen in admin.scan(ranges, seconds=max(1.0, until - time.monotonic()), most_bytes=None).items():
        found[tp].reason = found[tp].reason or seen.reason
        if seen.records and seen.earliest is not None:
            found[tp].add(seen.earliest, seen.records)
            found[tp].undecided = seen.records


def _alteration(estate: ClusterContext, link: Link, source: ClusterAdmin) -> tuple[Alteration | None, str | None]:
    """What the link does to records, if anything, or why that isn't known here."""
    if not link.alters:
        return None, None
    from drkit.kafka.transform.record_transform import Alteration  # noqa: PLC0415 - loads librdkafka

    try:
        alteration = Alteration.of(estate.config, link)
        if link.marks and alteration is not None:
            alteration.identify(source.cluster_id(), estate.admin(link.id.target).cluster_id())
    except DrkitError as error:
        return None, error.what
    return alteration, None


class _Late(Exception):
    """Not read in time."""


def _records(reader: LogReader, tp: TopicPartition, offsets: OffsetRange, until: float) -> Iterator[RawRecord]:
    with closing(reader.records(tp.topic, tp.partition, offsets.begin, offsets.end)) as records:
        for record in records:
            if time.monotonic() > until:
                raise _Late("there was no time for it")
            yield record
