"""Looks at a few places of logs, over the admin connection: first records at offsets, timestamps of ranges.

`fetch` is one plain fetch from one leader. `scan` reads offset ranges for their timestamps and transactions, and never
decodes values. `probe_records` reads the first record that a consumer would get from each of many offsets, in a few
fetches per partition:

Many offsets of a partition are often in the same batches: they are fetched in ascending order, and every batch
answers all offsets that it covers. The partitions of a leader go into few requests, with little of each, as a log may
hold much behind an offset. Control records are skipped, as consumers do; aborted records are not distinguished, which
is right for a comparison of two probes.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crc32c import crc32c
from kafka import errors as kafka_errors
from kafka.protocol.consumer import FetchRequest

from drkit.kafka.admin.admin_connection import AdminConnection, RetryLater, StepConnection, describe, error_class
from drkit.kafka.admin.logs.log_offsets import find_leaders
from drkit.kafka.protocol.record_batch import MAGIC, Batch, parse
from drkit.kafka.protocol.records import Damaged, RawRecord, read, read_old
from drkit.model.errors import Unreachable
from drkit.model.topology import TopicPartition

STALL_SECONDS = 2.0
"""The longest wait for a partition without a leader while a failover waits."""

_CONSUMER = -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_REQUEST_BYTES = 32 * 1024 * 1024
_VERSION = 12  # as the data path (`drkit.kafka.protocol.data_requests`)


class SingleFetch(NamedTuple):
    """Where a partition is read, and how many bytes at most."""

    offset: int
    max_bytes: int


async def fetch(
    connection: StepConnection, leader: int, places: Mapping[TopicPartition, SingleFetch], *, committed: bool = False
) -> list[tuple[TopicPartition, Any]] | kafka_errors.KafkaError:
    """The leader's response for each partition, as in the protocol; the error if it can't be reached. `committed`: only
    up to the last stable offset, and with the aborted transactions.

    Raises:
        KafkaError: a permanent error.
    """
    topic_type = FetchRequest.FetchTopic
    partition_type = topic_type.FetchPartition
    by_topic: dict[str, list[object]] = defaultdict(list)
    for tp, (offset, max_bytes) in places.items():
        by_topic[tp.topic].append(
            partition_type(partition=tp.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        )
    request = FetchRequest(
        replica_id=_CONSUMER,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_REQUEST_BYTES,
        isolation_level=_READ_COMMITTED if committed else _READ_UNCOMMITTED,
        topics=[topic_type(topic=name, partitions=partitions) for name, partitions in by_topic.items()],
        min_version=_VERSION,
        max_version=_VERSION,
    )
    try:
        response = await connection.send(request, leader)
    except kafka_errors.KafkaError as error:
        if not error.retriable and not isinstance(error, kafka_errors.UnknownBrokerIdError):
            raise
        return error
    return [(TopicPartition(t.topic, p.partition_index), p) for t in response.responses for p in t.partitions]


_FIRST_BYTES = 8 * 1024
_ANSWER_BYTES = 8 * 1024 * 1024
"""Requested at once: a broker's answer must come within the client's timeout."""
_MOST_BYTES = 64 * 1024 * 1024


class LogPosition(NamedTuple):
    """An offset of a partition."""

    tp: TopicPartition
    offset: int


class ProbedRecord(NamedTuple):
    """The first record at or after an offset.

    `offset` None: no record, the log ends there (or has only control records). `timestamp` in ms; `crc`: CRC-32C of
    the encoded key, value and headers; `body`: these, if requested; `producer_id`: its batch's, -1: it has none.
    `reason`: why there is no record. `outside`: the offset isn't in the log, so a consumer would start where its
    `auto.offset.reset` says. `late`: it wasn't read in time, which says nothing about the log. `marker_epoch`: of a
    control record its producer's epoch; None: it is no control record.
    """

    offset: int | None = None
    timestamp: int | None = None
    crc: int | None = None
    reason: str | None = None
    outside: bool = False
    body: bytes | None = None
    late: bool = False
    producer_id: int = -1
    marker_epoch: int | None = None


NOTHING = ProbedRecord()


@dataclass(slots=True)
class _Wanted:
    """Offsets of one partition that are still to be read, ascending; `at`: the next offset to fetch."""

    offsets: deque[int]
    at: int
    max_bytes: int = _FIRST_BYTES


@dataclass(slots=True)
class _Look:
    """A running probe."""

    wanted: dict[TopicPartition, _Wanted]
    bodies: bool = False
    control: bool = False
    found: dict[LogPosition, ProbedRecord] = field(default_factory=dict)
    why: str = "no leader, or more offsets than could be read"
    moved_at: float = field(default_factory=time.monotonic)

    def settle(self, tp: TopicPartition, peeked: ProbedRecord) -> None:
        """One result for all remaining offsets of the partition."""
        for offset in self.wanted.pop(tp).offsets:
            self.found[LogPosition(tp, offset)] = peeked

    def end(self, tp: TopicPartition, end: int) -> None:
        """The partition has no more records: `end` is its high watermark."""
        beyond = ProbedRecord(reason=f"beyond the log, which ends at {end}", outside=True)
        for offset in self.wanted.pop(tp).offsets:
            self.found[LogPosition(tp, offset)] = NOTHING if offset <= end else beyond


def probe_records(
    connection: AdminConnection,
    places: Iterable[LogPosition],
    *,
    seconds: float,
    bodies: bool = False,
    control: bool = False,
) -> dict[LogPosition, ProbedRecord]:
    """The first record at or after each offset; has the reason if it can't or may not be read, or not in time.

    Args:
        connection: the cluster.
        places: the offsets; each distinct one is read once.
        seconds: the limit for all of them.
        bodies: whether to return the records' bodies, too.
        control: whether a control record counts as one, too; it has no checksum.
    """
    look = _look_for(places)
    look.bodies, look.control = bodies, control
    deadline = time.monotonic() + seconds

    async def step(connection: StepConnection) -> None:
        leaders = await _find_leaders(connection, look)
        moved = True
        while moved and time.monotonic() < deadline:
            moved = False
            for leader, tps in leaders.items():
                moved |= await _ask(connection, leader, tps, look)
            if moved:
                look.moved_at = time.monotonic()
        if look.wanted and time.monotonic() < min(deadline, look.moved_at + STALL_SECONDS):
            raise RetryLater(look.why)

    if look.wanted:
        try:
            connection.call("read records at positions", step, timeout_seconds=seconds)
        except Unreachable as error:
            look.why = str(error)
        for tp in list(look.wanted):
            look.settle(tp, ProbedRecord(reason=f"not read in time: {look.why}", late=True))
    return look.found


async def _find_leaders(connection: StepConnection, look: _Look) -> dict[int, list[TopicPartition]]:
    absent: set[TopicPartition] = set()
    denied: set[TopicPartition] = set()
    leaders = await find_leaders(connection, list(look.wanted), absent, denied=denied)
    for tp in absent:
        look.settle(tp, ProbedRecord(reason="there is no such partition", outside=True))
    for tp in denied:
        look.settle(tp, ProbedRecord(reason=describe(kafka_errors.TopicAuthorizationFailedError)))
    return leaders


def _look_for(places: Iterable[LogPosition]) -> _Look:
    by_partition: dict[TopicPartition, list[int]] = defaultdict(list)
    for tp, offset in set(places):
        by_partition[tp].append(offset)
    return _Look({tp: _Wanted(deque(sorted(offsets)), min(offsets)) for tp, offsets in by_partition.items()})


def _portions(tps: Sequence[TopicPartition], look: _Look) -> Iterator[list[TopicPartition]]:
    """Those that are still to be read, as many at once as one answer holds."""
    portion: list[TopicPartition] = []
    size = 0
    for tp in tps:
        if tp not in look.wanted:
            continue
        size += look.wanted[tp].max_bytes
        if portion and size > _ANSWER_BYTES:
            yield portion
            portion, size = [], look.wanted[tp].max_bytes
        portion.append(tp)
    if portion:
        yield portion


async def _ask(connection: StepConnection, leader: int, tps: Sequence[TopicPartition], look: _Look) -> bool:
    """One round of fetches from a leader; returns whether it made progress. A leader that doesn't answer one of them
    isn't asked for more in this round: the others must not wait for its silence several times."""
    moved = False
    for portion in _portions(tps, look):
        places = {tp: SingleFetch(look.wanted[tp].at, look.wanted[tp].max_bytes) for tp in portion}
        answers = await fetch(connection, leader, places)
        if isinstance(answers, kafka_errors.KafkaError):
            look.why = str(answers)
            break
        taken = [_take(look, tp, answer) for tp, answer in answers if tp in look.wanted]
        moved |= any(taken)
    return moved


def _take(look: _Look, tp: TopicPartition, answer: Any) -> bool:
    """Process one partition's response; returns whether it made progress."""
    if answer.error_code:
        return _failed(look, tp, answer)
    wanted = look.wanted[tp]
    before = len(wanted.offsets), wanted.at
    data = memoryview(answer.records or b"")
    try:
        for batch in parse(data):
            _answer(look, tp, wanted, batch)
            if not wanted.offsets:
                del look.wanted[tp]
                return True
    except Damaged as error:
        look.settle(tp, ProbedRecord(reason=str(error)))
        return True
    if wanted.at >= answer.high_watermark:
        look.end(tp, answer.high_watermark)
    elif (len(wanted.offsets), wanted.at) == before:
        if not data or wanted.max_bytes >= _MOST_BYTES:
            look.why = f"{tp}: no batch returned at {wanted.at}"
            return False
        wanted.max_bytes *= 4  # a batch larger than the requested bytes was cut off
    return True


def _failed(look: _Look, tp: TopicPartition, answer: Any) -> bool:
    """As `_take`, for an error."""
    error = error_class(answer.error_code)
    if error is kafka_errors.OffsetOutOfRangeError:
        wanted = look.wanted[tp]
        look.found[LogPosition(tp, wanted.offsets.popleft())] = ProbedRecord(reason="outside the log", outside=True)
        if wanted.offsets:
            wanted.at = wanted.offsets[0]
        else:
            del look.wanted[tp]
        return True
    if not error.retriable:
        look.settle(tp, ProbedRecord(reason=describe(error)))
        return True
    look.why = f"{tp}: {describe(error)}"
    return False


def _answer(look: _Look, tp: TopicPartition, wanted: _Wanted, batch: Batch) -> None:
    """Answer the offsets that this batch covers; the next fetch continues after it, or at the next offset."""
    through = batch.base_offset if batch.magic < MAGIC else batch.last_offset
    if batch.is_control and look.control:
        marker = ProbedRecord(
            batch.last_offset,
            batch.max_timestamp,
            producer_id=batch.producer_id,
            marker_epoch=batch.producer_epoch,
        )
        while wanted.offsets and wanted.offsets[0] <= batch.last_offset:
            look.found[LogPosition(tp, wanted.offsets.popleft())] = marker
        if not wanted.offsets:
            return
    if not batch.is_control and batch.records_count and (batch.magic < MAGIC or wanted.offsets[0] <= through):
        for record in _records(batch):
            through = max(through, record.offset)
            if record.offset < wanted.offsets[0]:
                continue
            body = bytes(record.body) if look.bodies else None
            peeked = ProbedRecord(
                record.offset, record.timestamp, crc32c(record.body), body=body, producer_id=batch.producer_id
            )
            while wanted.offsets and wanted.offsets[0] <= record.offset:
                look.found[LogPosition(tp, wanted.offsets.popleft())] = peeked
            if not wanted.offsets:
                return
    wanted.at = max(wanted.at, through + 1, wanted.offsets[0])


def _records(batch: Batch) -> Iterator[RawRecord]:
    return iter(read_old(batch.whole)) if batch.magic < MAGIC else read(batch)


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

    async def step(connection: StepConnection) -> None:
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


async def _round(connection: StepConnection, scan: _Scan) -> bool:
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
            moved |= _take_scanned(scanned, answer, end, scan.most_bytes)
            if scanned.reason is not None or scanned.through >= end:
                scan.left.discard(tp)
    return moved


def _take_scanned(scanned: Scanned, answer: Any, end: int, most_bytes: int | None) -> bool:
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
