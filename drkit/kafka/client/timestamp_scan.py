"""Reads offset ranges for their timestamps and transactions; never decodes values."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka import errors as kafka_errors

from drkit.kafka.admin.admin_connection import AdminConnection, RetryLater, describe, error_class
from drkit.kafka.admin.logs.log_offsets import find_leaders
from drkit.kafka.client.single_fetch import STALL_SECONDS, SingleFetch, fetch
from drkit.kafka.protocol.record_batch import MAGIC, Batch, parse
from drkit.kafka.protocol.records import Damaged, read, read_old
from drkit.model.errors import Unreachable
from drkit.model.topology import TopicPartition

_PARTITION_BYTES = 1024 * 1024
STRETCH_BYTES = 4 * 1024 * 1024


class OffsetRange(NamedTuple):
    """Offsets of a partition: from `begin`, up to `end` (exclusive)."""

    begin: int
    end: int


class SeenBatch(NamedTuple):
    """The timestamps of a batch. `producer`: its transactional producer's id, None without a transaction.

    `control`: it is a transaction's marker. `earliest`, `latest`: ms; `late`: by how many ms a record of it is
    stamped before an earlier record of the same stretch.
    """

    base_offset: int
    last_offset: int
    earliest: int
    latest: int
    late: int
    producer: int | None
    control: bool


@dataclass(slots=True)
class Scanned:
    """An offset range as far as it was read: up to `through` (exclusive). `reason`: why no further, None where whole.

    `records`: how many it holds, transaction markers not among them, those of aborted transactions among them.
    """

    through: int
    batches: list[SeenBatch] = field(default_factory=list)
    size: int = 0
    records: int = 0
    newest: int | None = None
    reason: str | None = None

    @property
    def earliest(self) -> int | None:
        """The smallest timestamp of a record, ms."""
        return min((batch.earliest for batch in self.batches if not batch.control), default=None)

    @property
    def late(self) -> int:
        """By how many ms at most a record's timestamp is older than that of a record below it."""
        return max((batch.late for batch in self.batches), default=0)


def scan(
    connection: AdminConnection,
    stretches: Mapping[TopicPartition, OffsetRange],
    *,
    seconds: float,
    most_bytes: int | None = STRETCH_BYTES,
) -> dict[TopicPartition, Scanned]:
    """Read offset ranges, each to its end or to a number of bytes (None: all); incomplete ones have a reason.

    Raises:
        Refused: the cluster denies reading.
    """
    scan = _Scan(stretches, most_bytes, {tp: Scanned(stretch.begin) for tp, stretch in stretches.items()})
    scan.left = {tp for tp, stretch in stretches.items() if stretch.begin < stretch.end}
    deadline = time.monotonic() + seconds

    async def step(connection: AdminConnection) -> None:
        moved = True
        while moved and scan.left and time.monotonic() < deadline:
            moved = await _round(connection, scan)
            if moved:
                scan.moved_at = time.monotonic()
        if scan.left and time.monotonic() < min(deadline, scan.moved_at + STALL_SECONDS):
            raise RetryLater(f"{min(scan.left)}: no batch returned")

    why = ""
    if scan.left:
        try:
            connection.call("read the ends of logs", step, timeout_seconds=seconds)
        except Unreachable as error:
            why = f": {error}"
        for tp in scan.left:
            scan.found[tp].reason = f"not read in time{why}"
    return scan.found


@dataclass(slots=True)
class _Scan:
    """A running scan; `left`: partitions that aren't done."""

    stretches: Mapping[TopicPartition, OffsetRange]
    most_bytes: int | None
    found: dict[TopicPartition, Scanned]
    left: set[TopicPartition] = field(default_factory=set)
    moved_at: float = field(default_factory=time.monotonic)


async def _round(connection: AdminConnection, scan: _Scan) -> bool:
    """One fetch from every leader; returns whether any record came."""
    absent: set[TopicPartition] = set()
    leaders = await find_leaders(connection, scan.left, absent)
    for tp in absent:
        scan.found[tp].reason = "there is no such partition"
        scan.left.discard(tp)
    moved = bool(absent)
    for leader, tps in leaders.items():
        answers = await fetch(
            connection, leader, {tp: SingleFetch(scan.found[tp].through, _PARTITION_BYTES) for tp in tps}
        )
        for tp, answer in () if isinstance(answers, kafka_errors.KafkaError) else answers:
            scanned, end = scan.found[tp], scan.stretches[tp].end
            moved |= _take(scanned, answer, end, scan.most_bytes)
            if scanned.reason is not None or scanned.through >= end:
                scan.left.discard(tp)
    return moved


def _take(scanned: Scanned, answer: Any, end: int, most_bytes: int | None) -> bool:
    """Process one partition's response; returns whether it brought records."""
    if answer.error_code:
        error = error_class(answer.error_code)
        if not error.retriable or error is kafka_errors.OffsetOutOfRangeError:
            scanned.reason = describe(error)
        return scanned.reason is not None
    data = memoryview(answer.records or b"")
    before = scanned.through
    try:
        for batch in parse(data):
            if scanned.through >= end:
                break
            _see(scanned, batch, end)
    except Damaged as error:
        scanned.reason = str(error)
        return True
    scanned.size += len(data)
    if scanned.through == before:
        if scanned.through >= answer.high_watermark:
            scanned.through = end  # no records are left there
            return True
        if len(data) >= _PARTITION_BYTES:
            scanned.reason = f"a batch at {before} is larger than {_PARTITION_BYTES} bytes"
            return True
        return False
    if most_bytes is not None and scanned.size >= most_bytes and scanned.through < end:
        scanned.reason = f"only the first {most_bytes >> 20} MiB were read"
    return True


def _see(scanned: Scanned, batch: Batch, end: int) -> None:
    """Add one batch: only its records in the range."""
    records = read_old(batch.whole) if batch.magic < MAGIC else read(batch) if batch.records_count else ()
    stamps = [(record.offset, record.timestamp) for record in records if scanned.through <= record.offset < end]
    last = max([batch.base_offset if batch.magic < MAGIC else batch.last_offset, *(offset for offset, _ in stamps)])
    scanned.through = max(scanned.through, last + 1)
    if not stamps:
        return
    late = 0
    if not batch.is_control:
        scanned.records += len(stamps)
        for _, stamp in stamps:
            if scanned.newest is None or stamp >= scanned.newest:
                scanned.newest = stamp
            else:
                late = max(late, scanned.newest - stamp)
    earliest, latest = min(stamp for _, stamp in stamps), max(stamp for _, stamp in stamps)
    producer = batch.producer_id if batch.is_transactional else None
    scanned.batches.append(SeenBatch(stamps[0][0], last, earliest, latest, late, producer, batch.is_control))
