"""Leader epochs of a log, as its leader knows them (KIP-101, KIP-320): they reveal a log that lost its tail.

Three questions: the leader's current epoch, the end offset of an older epoch, and the epoch of the batch below an
offset. Each goes to the leader of the newest epoch in the metadata: a broker that isn't (or isn't yet) the leader of
that epoch refuses, and the request is repeated.

Metadata may be older than a batch that was read. But the broker that led when the batch was read knows that epoch, as
long as it is up: where all brokers that the cluster lists answer and none knows an epoch that high, the cluster was
restored from an older copy of its disks, its controllers' too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from kafka import errors as kafka_errors
from kafka.protocol.consumer import OffsetForLeaderEpochRequest

from drkit.kafka.admin.admin_connection import UNREADABLE, AdminConnection, StepConnection, describe, error_class
from drkit.kafka.admin.logs.log_offsets import NO_ANSWER, find_leaders, without_answer
from drkit.kafka.admin.topic_requests import metadata
from drkit.kafka.client.record_probe import SingleFetch, fetch
from drkit.kafka.protocol.record_batch import MAGIC, UNKNOWN_EPOCH, parse
from drkit.model.errors import Unreachable
from drkit.model.topology import TopicPartition

_CONSUMER = -1
_PATIENCE_SECONDS = 3.0
_FIRST_BYTES = 4 * 1024
_AT_ONCE = 1_000
"""Partitions in one request: an answer must come within the client's timeout."""
_MOST_BYTES = 64 * 1024 * 1024


class EpochEnd(NamedTuple):
    """The newest epoch that a leader knows at or below the one asked for, and where it ends (exclusive).

    Both are -1 where the leader keeps no history of epochs (old log formats).
    """

    epoch: int
    end: int


class KeptEpochs(NamedTuple):
    """The offset from which a log no longer has the records read from it; `exact`: it has all records below; else it
    may have lost some of those, too."""

    offset: int
    exact: bool


def kept_offsets(through: int, epoch: int, end: EpochEnd) -> KeptEpochs | None:
    """The records read below `through` that a log still has; None: all of them. Pure.

    Args:
        through: the offset after the last batch read.
        epoch: the leader epoch of that batch.
        end: the response of the log's leader for that epoch.
    """
    if end.end < 0 or (end.epoch == epoch and end.end >= through):
        return None
    if end.epoch == epoch:
        return KeptEpochs(end.end, exact=True)
    # it never had that epoch's batches; its own older epochs may differ before their end
    return KeptEpochs(min(end.end, through), exact=False)


def leader_epochs(connection: AdminConnection, tps: Mapping[TopicPartition, object]) -> dict[TopicPartition, int]:
    """The leader epoch of each partition in the metadata; those without a leader, and those that drkit's
    principal may not see, are left out."""
    found: dict[TopicPartition, int] = {}

    async def step(connection: StepConnection) -> None:
        await find_leaders(connection, list(tps), set(), found, denied=set())

    if tps:
        connection.call("find leader epochs", step)
    return found


def epoch_ends(connection: AdminConnection, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
    """The end offset of each partition's epoch on its leader; on a cluster that never had it (see the module
    docstring), the newest epoch that its leader knows, and the log's end.

    Partitions that don't exist, those that drkit's principal may not see, and those without a prompt answer are left
    out: nothing is known about them.
    """
    found: dict[TopicPartition, EpochEnd] = {}
    pending = dict(epochs)
    now: dict[TopicPartition, int] = {}

    async def ask(connection: StepConnection, leader: int, tps: list[TopicPartition]) -> str:
        behind = {tp: pending[tp] for tp in tps if now[tp] < pending[tp]}
        known = {tp: pending[tp] for tp in tps if now[tp] >= pending[tp]}
        why = await _ask_ends(connection, leader, known, now, pending, found) if known else ""
        if behind:
            newest = await _newest_anywhere(connection, behind)
            never = {tp: now[tp] for tp, epoch in behind.items() if newest.get(tp, epoch) == now[tp]}
            why = await _ask_ends(connection, leader, never, now, pending, found) if never else why
            left = behind.keys() - never.keys()
            why = why or ("its leader's epoch isn't known yet" if left else "")
        return why

    if pending:
        try:
            _ask_leaders(connection, "find the end offsets of leader epochs", pending, now, found, ask)
        except Unreachable:
            if any(now.get(tp, epoch) >= epoch for tp, epoch in pending.items()):
                raise  # else all leaders are known, and none has reached the requested epoch
    return found


async def _newest_anywhere(
    connection: StepConnection, tps: Mapping[TopicPartition, object]
) -> dict[TopicPartition, int]:
    """The newest leader epoch of each partition that any broker knows; an error if a listed broker doesn't answer."""
    cluster = await metadata([])(connection)
    newest: dict[TopicPartition, int] = {}
    for broker in cluster.brokers:
        seen: dict[TopicPartition, int] = {}
        await find_leaders(connection, list(tps), set(), seen, denied=set(), node=broker.node_id)
        newest |= {tp: max(epoch, newest.get(tp, epoch)) for tp, epoch in seen.items()}
    return newest


class LogBatch(NamedTuple):
    """A batch in a log: its first and last offset, leader epoch and checksum (formats before 2 have another one).

    `aborted_from`: the first offset of all transactions with records up to its end that were aborted behind it (their
    marker isn't below); None: there is none, or it wasn't asked for.
    """

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    aborted_from: int | None = None


def batches_at(
    connection: AdminConnection, offsets: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, LogBatch | None]:
    """The first batch that ends at or after each of these offsets; None: the offset is outside the log.

    Partitions that don't exist, those that drkit's principal may not read, those that their broker can't read there,
    and those without a prompt answer are left out. `committed`: so are those whose last stable offset isn't beyond it;
    and `LogBatch.aborted_from` is told.
    """
    found: dict[TopicPartition, LogBatch | None] = {}
    pending = {tp: SingleFetch(offset, _FIRST_BYTES) for tp, offset in offsets.items()}

    async def ask(connection: StepConnection, leader: int, tps: list[TopicPartition]) -> str:
        why = ""
        for first in range(0, len(tps), _AT_ONCE):
            asked = {tp: pending[tp] for tp in tps[first : first + _AT_ONCE]}
            while asked:
                answers = await fetch(connection, leader, asked, committed=committed)
                if isinstance(answers, kafka_errors.KafkaError):
                    return str(answers)
                reasons = [_take_batch(tp, answer, pending, found) for tp, answer in answers if tp in pending]
                why = next(filter(None, reasons), why)
                # batches that were cut off are asked for again at once, with more bytes
                asked = {tp: pending[tp] for tp in asked if tp in pending and pending[tp] != asked[tp]}
        return why

    if pending:
        _ask_leaders(connection, "read batches", pending, {}, found, ask)
    return found


def epochs_below(connection: AdminConnection, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The leader epoch of the batch that holds the offset below each of these; `UNKNOWN_EPOCH` where none does.
    Partitions are left out as by `batches_at`."""
    found = batches_at(connection, {tp: offset - 1 for tp, offset in offsets.items()})
    return {
        tp: UNKNOWN_EPOCH if batch is None or batch.base_offset >= offsets[tp] else batch.leader_epoch
        for tp, batch in found.items()
    }


def _ask_leaders(
    connection: AdminConnection,
    what: str,
    pending: dict[TopicPartition, Any],
    now: dict[TopicPartition, int],
    found: Mapping[TopicPartition, object],
    ask: Any,
) -> None:
    """Ask each leader until nothing is pending, or for a few seconds; `now` collects the leaders' epochs.

    Raises:
        Unreachable: no broker answers.
    """

    async def step(connection: StepConnection) -> None:
        gone: set[TopicPartition] = set()
        leaderless: dict[TopicPartition, str] = {}
        leaders = await find_leaders(connection, list(pending), gone, now, denied=gone, leaderless=leaderless)
        for tp in gone:
            pending.pop(tp, None)
        reasons = [await _or_say(ask, connection, leader, tps) for leader, tps in leaders.items()]
        if pending:
            why = next(filter(None, reasons), NO_ANSWER)
            raise without_answer({tp: leaderless.get(tp, why) for tp in pending})

    try:
        connection.call(what, step, timeout_seconds=min(_PATIENCE_SECONDS, connection.timeout_seconds))
    except Unreachable:
        if not found:
            raise


async def _or_say(ask: Any, connection: StepConnection, leader: int, tps: list[TopicPartition]) -> str:
    """The partitions of an unreachable leader stay pending; the others continue."""
    try:
        why: str = await ask(connection, leader, tps)
    except kafka_errors.KafkaError as error:
        if not error.retriable and not isinstance(error, kafka_errors.UnknownBrokerIdError):
            raise
        return str(error)
    return why


async def _ask_ends(
    connection: StepConnection,
    leader: int,
    epochs: Mapping[TopicPartition, int],
    now: Mapping[TopicPartition, int],
    pending: dict[TopicPartition, int],
    found: dict[TopicPartition, EpochEnd],
) -> str:
    """Ask one leader; returns why some are still pending, or nothing."""
    topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    partition_type = topic_type.OffsetForLeaderPartition
    by_topic: dict[str, list[object]] = defaultdict(list)
    for tp, epoch in epochs.items():
        by_topic[tp.topic].append(
            partition_type(partition=tp.partition, current_leader_epoch=now[tp], leader_epoch=epoch)
        )
    request = OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER,
        topics=[topic_type(topic=name, partitions=partitions) for name, partitions in by_topic.items()],
    )
    response = await connection.send(request, leader)
    why = ""
    for topic in response.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.topic, partition.partition)
            error = error_class(partition.error_code)
            if error is kafka_errors.TopicAuthorizationFailedError:
                pending.pop(tp, None)
                continue
            if partition.error_code and not _passes(error):
                raise error(str(tp))
            if partition.error_code:
                why = f"{tp}: {describe(error)}"
                continue
            pending.pop(tp, None)
            found[tp] = EpochEnd(partition.leader_epoch, partition.end_offset)
    return why


def _take_batch(
    tp: TopicPartition,
    answer: Any,
    pending: dict[TopicPartition, SingleFetch],
    found: dict[TopicPartition, LogBatch | None],
) -> str:
    """Process one partition's response; returns why it is still pending, or nothing."""
    offset, most = pending[tp]
    if answer.error_code:
        error = error_class(answer.error_code)
        if error is kafka_errors.OffsetOutOfRangeError:
            del pending[tp]
            found[tp] = None
            return ""
        if error is kafka_errors.TopicAuthorizationFailedError or error in UNREADABLE:
            del pending[tp]
            return ""
        if not _passes(error):
            raise error(str(tp))
        return f"{tp}: {describe(error)}"
    for batch in parse(memoryview(answer.records or b"")):
        last = batch.base_offset if batch.magic < MAGIC else batch.last_offset
        if last >= offset:
            del pending[tp]
            begun = (each.first_offset for each in answer.aborted_transactions or ())
            aborted_from = min((first for first in begun if first <= last), default=None)
            found[tp] = LogBatch(batch.base_offset, last, batch.leader_epoch, batch.crc, aborted_from)
            return ""
    if answer.high_watermark > offset and most < _MOST_BYTES:
        pending[tp] = SingleFetch(offset, most * 4)  # its batch is larger than the requested bytes
    return f"{tp}: no batch returned at {offset}"


def _passes(error: type[kafka_errors.KafkaError]) -> bool:
    """Whether an error is transient: metadata is read again before the retry."""
    return bool(error.retriable) or bool(getattr(error, "invalid_metadata", False))
