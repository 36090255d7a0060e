"""Reads the first record that a consumer would get from each of many offsets, in a few fetches per partition.

Many offsets of a partition are often in the same batches: they are fetched in ascending order, and every batch
answers all offsets that it covers. The partitions of a leader go into few requests, with little of each, as a log may
hold much behind an offset. Control records are skipped, as consumers do; aborted records are not distinguished, which
is right for a comparison of two probes.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crc32c import crc32c
from kafka import errors as kafka_errors

from drkit.kafka.admin.admin_connection import AdminConnection, RetryLater, describe, error_class
from drkit.kafka.admin.logs.log_offsets import find_leaders
from drkit.kafka.client.single_fetch import STALL_SECONDS, SingleFetch, fetch
from drkit.kafka.protocol.record_batch import MAGIC, Batch, parse
from drkit.kafka.protocol.records import Damaged, RawRecord, read, read_old
from drkit.model.errors import Unreachable
from drkit.model.topology import TopicPartition

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
    `auto.offset.reset` says. `late`: it wasn't read in time, which says nothing about the log.
    """

    offset: int | None = None
    timestamp: int | None = None
    crc: int | None = None
    reason: str | None = None
    outside: bool = False
    body: bytes | None = None
    late: bool = False
    producer_id: int = -1


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
        control: whether a control record counts as one, too; it has no timestamp and no checksum.
    """
    look = _look_for(places)
    look.bodies, look.control = bodies, control
    deadline = time.monotonic() + seconds

    async def step(connection: AdminConnection) -> None:
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


async def _find_leaders(connection: AdminConnection, look: _Look) -> dict[int, list[TopicPartition]]:
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


async def _ask(connection: AdminConnection, leader: int, tps: Sequence[TopicPartition], look: _Look) -> bool:
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
        marker = ProbedRecord(batch.last_offset, producer_id=batch.producer_id)
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
