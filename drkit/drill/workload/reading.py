"""The workload's records, made and recognized, and read from a cluster independently of the clients.

A value is JSON with the drill, the key and the record's number; a digest covers key, value, headers and timestamp, so
that it reveals any change.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from drkit.drill.judge.history import Landed, LogEnd, RecordId

HEADER = "drill"


def value_of(drill: str, record: RecordId, size: int) -> bytes:
    """The value of a record, padded to about `size` bytes."""
    body = json.dumps({"drill": drill, "key": record.key, "seq": record.seq}, separators=(",", ":"))[:-1]
    pad = max(0, size - len(body) - len(',"pad":""}'))
    return f'{body},"pad":"{"x" * pad}"}}'.encode()


def record_of(drill: str, key: bytes | None, value: bytes | None) -> RecordId | None:
    """The record of this drill with these bytes; None if there is none."""
    if key is None or value is None:
        return None
    try:
        body = json.loads(value)
        record = RecordId(body["key"], body["seq"])
        mine = body["drill"] == drill
    except (ValueError, KeyError, TypeError):
        return None
    typed = isinstance(record.key, str) and isinstance(record.seq, int)
    return record if mine and typed and record.key.encode() == key else None


def digest_of(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]], timestamp: int
) -> int:
    """A 63-bit digest of everything that must arrive unchanged. `timestamp` in ms."""
    digest = hashlib.blake2b(digest_size=8)
    for part in (key, value, *(piece for name, content in headers for piece in (name.encode(), content))):
        digest.update(b"-" if part is None else b"+" + len(part).to_bytes(8, "big") + part)
    digest.update(timestamp.to_bytes(8, "big", signed=True))
    return int.from_bytes(digest.digest(), "big") >> 1


NO_GROUP = "drkit-drill-reader"
"""librdkafka requires a group even if the reader never joins one."""


ANSWER_SECONDS = 10.0
_LEADER_MOVES = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})


class NotRead(Exception):
    """A cluster didn't answer in time; the message names the request."""


def answers(properties: dict[str, str], timeout_seconds: float) -> bool:
    """Whether the cluster answers a metadata request in time."""
    try:
        AdminClient(_quiet(properties)).list_topics(timeout=timeout_seconds)
    except KafkaException:
        return False
    return True


def create_topic(
    properties: dict[str, str], topic: str, partitions: int, replicas: int, timeout_seconds: float
) -> None:
    """Create a topic and wait until it exists.

    Raises:
        NotRead: the cluster refused or didn't answer.
    """
    config = {"min.insync.replicas": str(max(1, replicas - 1))}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=config)
    admin = AdminClient(_quiet(properties))
    try:
        admin.create_topics([new], operation_timeout=timeout_seconds)[topic].result(timeout_seconds)
        deadline = time.monotonic() + timeout_seconds
        while len(admin.list_topics(topic, timeout=timeout_seconds).topics[topic].partitions) < partitions:
            if time.monotonic() > deadline:
                raise NotRead(f"topic {topic} was created, but does not exist")
            time.sleep(0.05)
    except (KafkaException, TimeoutError) as error:
        raise NotRead(f"topic {topic} can't be created: {error}") from error


def log_ends(properties: dict[str, str], topic: str, partitions: int, timeout_seconds: float) -> dict[int, int]:
    """By partition, the offset after the last record; of at least so many partitions, and of those that were added.

    Raises:
        NotRead: the cluster didn't answer.
    """
    consumer = Consumer({**_quiet(properties), "group.id": NO_GROUP})
    try:
        each = _each_partition(consumer, topic, partitions, timeout_seconds)
        return {p: _marks(consumer, topic, p, timeout_seconds)[1] for p in each}
    except KafkaException as error:
        raise NotRead(f"the end of {topic} can't be read: {error}") from error
    finally:
        consumer.close()


def stable_ends(
    properties: dict[str, str], topic: str, partitions: int, timeout_seconds: float, settle_seconds: float
) -> list[LogEnd]:
    """The last stable offset and the log end of each partition (at least so many), once they agree, or after
    `settle_seconds`.

    They differ while a transaction is open. The broker aborts one whose producer is gone after its timeout; one whose
    marker is missing stays open.

    Raises:
        NotRead: the cluster didn't answer.
    """
    levels = ("read_committed", "read_uncommitted")
    both = [Consumer({**_quiet(properties), "group.id": NO_GROUP, "isolation.level": level}) for level in levels]
    deadline = time.monotonic() + settle_seconds
    try:
        while True:
            ends = [
                LogEnd(partition, *(_marks(consumer, topic, partition, timeout_seconds)[1] for consumer in both))
                for partition in _each_partition(both[0], topic, partitions, timeout_seconds)
            ]
            if all(one.stable >= one.end for one in ends) or time.monotonic() > deadline:
                return ends
            time.sleep(0.5)
    except KafkaException as error:
        raise NotRead(f"the ends of {topic} can't be read: {error}") from error
    finally:
        for consumer in both:
            consumer.close()


def _each_partition(consumer: Consumer, topic: str, at_least: int, timeout_seconds: float) -> range:
    there = consumer.list_topics(topic, timeout=timeout_seconds).topics[topic].partitions
    return range(max(at_least, len(there)))


def _marks(consumer: Consumer, topic: str, partition: int, timeout_seconds: float) -> tuple[int, int]:
    """The first offset of a partition, and the one after its last record.

    A newly elected leader may not know its role yet, so this retries until the timeout.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        left = max(0.1, deadline - time.monotonic())
        try:
            marks: tuple[int, int] | None = consumer.get_watermark_offsets(TopicPartition(topic, partition), left)
        except KafkaException as error:
            if error.args[0].code() not in _LEADER_MOVES or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
            continue
        if marks is None:
            raise NotRead(f"the ends of {topic}:{partition} are not known")
        return marks


def group_positions(
    properties: dict[str, str], group: str, topic: str, partitions: int, timeout_seconds: float
) -> dict[int, int]:
    """A group's committed offsets by partition (absent: none).

    Raises:
        NotRead: the coordinator didn't answer.
    """
    consumer = Consumer({**_quiet(properties), "group.id": group})
    try:
        found = consumer.committed([TopicPartition(topic, p) for p in range(partitions)], timeout=timeout_seconds)
    except KafkaException as error:
        raise NotRead(f"the positions of group {group} can't be read: {error}") from error
    finally:
        consumer.close()
    return {tp.partition: tp.offset for tp in found if tp.offset != OFFSET_INVALID and tp.offset >= 0}


def read_all(
    properties: dict[str, str],
    drill: str,
    topic: str,
    partitions: int,
    timeout_seconds: float,
) -> list[Landed]:
    """All records of a topic, read from its start to its current end: of at least so many partitions, and of those
    that were added.

    Raises:
        NotRead: the end was not reached within `timeout_seconds` after the last record came.
    """
    settings: dict[str, str | bool] = {"group.id": NO_GROUP, "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**_quiet(properties), **settings})
    found: list[Landed] = []
    at_end: set[int] = set()
    try:
        each = _each_partition(consumer, topic, partitions, timeout_seconds)
        marks = {p: _marks(consumer, topic, p, timeout_seconds) for p in each}
        consumer.assign([TopicPartition(topic, p, low) for p, (low, _) in marks.items()])
        deadline = time.monotonic() + timeout_seconds
        while at_end != marks.keys():
            message = consumer.poll(0.2)
            batch = [] if message is None else [message, *consumer.consume(1000, 0)]
            for one in batch:
                if (error := one.error()) is not None:
                    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # as documented
                        at_end |= _ended(one, marks)
                        continue
                    raise NotRead(f"{topic} can't be read: {error}")
                found.append(_landed(drill, one))
            if batch:
                deadline = time.monotonic() + timeout_seconds
            elif time.monotonic() > deadline:
                raise NotRead(f"{topic} was read up to {len(found)} records and no further in {timeout_seconds:g} s")
    except KafkaException as error:
        raise NotRead(f"{topic} can't be read: {error}") from error
    finally:
        consumer.close()
    return [one for one in found if one.offset < marks[one.partition][1]]


def _ended(message: Message, marks: dict[int, tuple[int, int]]) -> set[int]:
    """The partition whose end this event tells, if that is not before the end that was looked up.

    A position would not do: a log may end with a transaction's marker, behind which no record is.
    """
    partition, offset = message.partition(), message.offset()
    return {partition} if partition is not None and offset is not None and offset >= marks[partition][1] else set()


def _landed(drill: str, message: Message) -> Landed:
    partition, offset = message.partition(), message.offset()
    if partition is None or offset is None:
        raise NotRead("a record came without a partition or offset")
    key, value = message.key(), message.value()
    headers = [(name, content.encode() if isinstance(content, str) else content) for name, content in _headers(message)]
    return Landed(
        partition, offset, record_of(drill, key, value), digest_of(key, value, headers, message.timestamp()[1])
    )


def _headers(message: Message) -> list[tuple[str, str | bytes | None]]:
    found = message.headers() or []
    return list(found.items()) if isinstance(found, dict) else found


def _quiet(properties: dict[str, str]) -> dict[str, str | int | float | bool]:
    """Silences librdkafka's own log lines about missing brokers, which are expected here."""
    return {**properties, "log_level": 0}
