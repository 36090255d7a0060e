"""Reads a source's log with a link's filter, transform and provenance applied to `LogReader`'s records.

The target of a link that alters records holds the altered records. So an audit's tasks read the source through this
module: it applies the mirror's `Alteration` to every record and encodes the results as batches again, at the source's
offsets; a dropped record is a hole, like a compacted one.

A callable must return the same result every time for a record. So each is called twice. If it raises, or returns
different results, the expected record is unknown: these offsets are returned as
`drkit.kafka.protocol.record_batch.unreadable`, with the reason in `reasons`.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from typing import Any, Protocol

from crc32c import crc32c

from drkit.kafka.protocol.record_batch import (
    CRC_FROM,
    FIELDS,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    Batch,
    batch_of,
    unreadable,
)
from drkit.kafka.protocol.records import Damaged, RawRecord, encoded, read, read_old
from drkit.kafka.transform.record_transform import Alteration, AlterationFailed
from drkit.model.topology import Link, LinkId, TopicPartition

MOST_REASONS = 10
"""Reasons that a reader keeps, at most."""

_NODES = "on every node that runs Spark's tasks"
_CRC = struct.Struct(">I")
_CRC_AT = CRC_FROM - _CRC.size


class BatchReader(Protocol):
    """Reads batches of a log; `drkit.kafka.client.log_reader.LogReader` is one."""

    def read(self, topic: str, partition: int, first: int, until: int) -> Generator[list[Batch], None, None]:
        """The batches that hold offsets in [first, until), in order, a list at a time."""

    def end(self, topic: str, partition: int, known: int) -> int:
        """The current end of the log for this reader; `known` is an offset that it reached before."""


def packed_alteration(link: Link, where: str, source_id: str, target_id: str) -> dict[str, Any]:
    """A link's changes of records as JSON: for tasks on another machine.

    Args:
        link: a link that alters records.
        where: file and table of the configuration that name its callables, for errors.
        source_id: Kafka's id of its source.
        target_id: and of its target.
    """
    return {
        "source": link.id.source,
        "target": link.id.target,
        "filter": link.filter,
        "transform": link.transform,
        "provenance": link.provenance,
        "canary": link.canary,
        "where": where,
        "source_id": source_id,
        "target_id": target_id,
    }


def unpacked_alteration(packed: Mapping[str, Any]) -> Alteration:
    """The alteration from `packed_alteration`'s result.

    Raises:
        ConfigError: a callable can't be imported here.
    """
    link = Link(
        LinkId(packed["source"], packed["target"]),
        topics=(),
        filter=packed["filter"],
        transform=packed["transform"],
        provenance=packed["provenance"],
        canary=packed["canary"],
    )
    alteration = Alteration.named(link, packed["where"], installed=_NODES)
    alteration.identify(packed["source_id"], packed["target_id"])
    return alteration


class AlteredReader:
    """See the module docstring.

    Args:
        reader: reads the source.
        alteration: what the link does.
    """

    def __init__(self, reader: BatchReader, alteration: Alteration) -> None:
        self._reader = reader
        self._alteration = alteration
        self.reasons: list[str] = []

    def read(self, topic: str, partition: int, first: int, until: int) -> Generator[list[Batch], None, None]:
        """As `LogReader.read`, for the altered records in [first, until)."""
        tp = TopicPartition(topic, partition)
        with closing(self._reader.read(topic, partition, first, until)) as answers:
            for found in answers:
                yield [altered for batch in found for altered in self._altered(tp, batch, first, until)]

    def end(self, topic: str, partition: int, known: int) -> int:
        """As `LogReader.end`."""
        return self._reader.end(topic, partition, known)

    def _altered(self, tp: TopicPartition, batch: Batch, first: int, until: int) -> Iterator[Batch]:
        if not batch.readable:
            yield batch
            return
        try:
            every = read_old(batch.whole) if batch.magic < MAGIC else list(read(batch))
            due = [record for record in every if first <= record.offset < until]
            answers, failures = self._answers(tp, due)
        except Damaged:
            yield batch  # the decoder finds that out, too
            return
        # in offset order: kept records, and between them those without a known result
        known = sorted([*((record.offset, record) for record in answers), *((each, None) for each in failures)])
        for is_known, group in groupby(known, key=lambda each: each[1] is not None):
            members = list(group)
            if is_known:
                yield rebuilt([record for _, record in members if record is not None])
            else:
                yield unreadable(members[0][0], members[-1][0] + 1)

    def _answers(self, tp: TopicPartition, due: Sequence[RawRecord]) -> tuple[list[RawRecord], list[int]]:
        """The altered records, and the offsets of those whose result is unknown."""
        kept, failed = self._asked(tp, due)
        asks = self._alteration.callables
        if not asks:
            return kept, list(failed)
        again, failed_again = self._asked(tp, due)
        if kept != again or failed.keys() != failed_again.keys():
            one, other = ({record.offset: record for record in each} for each in (kept, again))
            for offset in sorted((one.keys() | other.keys()) - failed.keys() - failed_again.keys()):
                if one.get(offset) != other.get(offset):
                    failed[offset] = f"{asks} returns another result if called again at source offset {offset} of {tp}"
            failed = failed_again | failed
            kept = [record for record in kept if record.offset not in failed]
        self.reasons += list(failed.values())[: max(0, MOST_REASONS - len(self.reasons))]
        return kept, list(failed)

    def _asked(self, tp: TopicPartition, due: Sequence[RawRecord]) -> tuple[list[RawRecord], dict[int, str]]:
        """Call once: the kept records; by offset, why a callable failed."""
        kept: list[RawRecord] = []
        failed: dict[int, str] = {}
        rest = iter(due)
        while True:
            try:
                for record in self._alteration.records(tp, rest):
                    kept.append(record)  # noqa: PERF402 - what comes before an error is kept
            except AlterationFailed as error:  # `rest` continues after it
                failed[error.offset] = str(error)
            else:
                return kept, failed


def rebuilt(records: Sequence[RawRecord]) -> Batch:
    """A batch of these records at their own offsets, uncompressed; its header is that of a batch in a log."""
    base, stamp = records[0].offset, records[0].timestamp
    parts: list[bytes | memoryview] = []
    for offset, timestamp, body in records:
        middle = b"\0" + encoded(timestamp - stamp) + encoded(offset - base)
        parts += (encoded(len(middle) + len(body)), middle, body)
    payload = b"".join(parts)
    last, newest = records[-1].offset - base, max(record.timestamp for record in records)
    length = HEADER_BYTES - LOG_OVERHEAD + len(payload)
    fields = [base, length, -1, MAGIC, 0, 0, last, stamp, newest, -1, -1, -1, len(records)]
    whole = bytearray(FIELDS.pack(*fields) + payload)
    fields[4] = crc32c(memoryview(whole)[CRC_FROM:])
    _CRC.pack_into(whole, _CRC_AT, fields[4])
    return batch_of(tuple(fields), memoryview(bytes(whole)))
