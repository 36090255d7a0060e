"""One Kafka cluster of the soak: topics, leaders, replicas, and every record, with plain confluent-kafka."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # as documented

from drkit.drill.environment.waiting import wait_for

# --- a cluster -----------------------------------------------------------------------------------------------------


class SoakError(Exception):
    """The soak itself could not continue: this says nothing about the mirror."""


class Side:
    """A cluster.

    Args:
        alias: its name in the lab.
        bootstrap: host:port,… of its brokers.
    """

    def __init__(self, alias: str, bootstrap: str) -> None:
        self.alias = alias
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 10_000})

    def create(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        """Create a topic with three replicas and wait until all are in sync."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=3, config=settings)
        self._admin.create_topics([new])[topic].result(30)
        wait_for(f"topic {topic} in sync", 60, lambda: self._in_sync(topic, partitions))

    def leaders(self, topics: list[str]) -> dict[tuple[str, int], int]:
        """The leader's node id of each partition that has one."""
        found = self._topics()
        return {
            (topic, number): partition.leader
            for topic in topics
            if topic in found
            for number, partition in found[topic].partitions.items()
            if partition.leader >= 0
        }

    def healthy(self) -> bool:
        """Whether every replica of every partition is in sync."""
        topics = self._topics()
        return all(
            partition.leader >= 0 and len(partition.isrs) == len(partition.replicas)
            for topic in topics.values()
            for partition in topic.partitions.values()
        )

    def not_preferred(self) -> list[tuple[str, int]]:
        """Partitions that aren't led by the first of their replicas."""
        return [
            (name, number)
            for name, topic in self._topics().items()
            for number, partition in topic.partitions.items()
            if partition.leader != partition.replicas[0]
        ]

    def has(self, topics: Iterable[str]) -> bool:
        """Whether all of these topics exist."""
        return set(topics) <= self._topics().keys()

    def replicas(self, topic: str) -> dict[int, list[int]]:
        """The replicas of each partition, the preferred leader first."""
        return {number: list(p.replicas) for number, p in self._topics()[topic].partitions.items()}

    def _in_sync(self, topic: str, partitions: int) -> bool:
        found = self._topics().get(topic)
        return (
            found is not None
            and len(found.partitions) == partitions
            and all(p.leader >= 0 and len(p.isrs) == len(p.replicas) for p in found.partitions.values())
        )

    def _topics(self) -> dict[str, Any]:
        return {name: topic for name, topic in self._admin.list_topics(timeout=10).topics.items() if not topic.error}


# --- the independent reader, without drkit's code ------------------------------------------------------------------

_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's own name of the event
_CHUNK = 5_000
_SILENT_POLLS = 60


class Record(NamedTuple):
    """A record: its offset, its key, and a digest of everything in it (see `digest`)."""

    offset: int
    key: bytes | None
    digest: bytes


class Content(NamedTuple):
    """A partition as seen by a consumer: its records, and the log's end (of committed data, or of all)."""

    records: list[Record]
    start: int
    end: int


def digest(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]], timestamp: int
) -> bytes:
    """128 bits over every byte of a record, including lengths and absence, so that different records differ."""
    said = hashlib.blake2b(digest_size=16)
    said.update(struct.pack(">q", timestamp))
    for part in (key, value):
        _add(said, part)
    for name, text in headers:
        _add(said, name.encode())
        _add(said, text)
    return said.digest()


def _add(said: hashlib.blake2b, part: bytes | None) -> None:
    said.update(struct.pack(">q", -1 if part is None else len(part)))
    said.update(part or b"")


def read(bootstrap: str, topic: str, partition: int, *, committed: bool, ignore: str | None = None) -> Content:
    """Everything that a consumer with this isolation sees. `ignore`: headers with this prefix don't count."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "group.id": "soak-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,  # the end of a partition is reported after an empty fetch
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    records: list[Record] = []
    silent = 0
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            first = consumer.poll(1.0)
            silent = silent + 1 if first is None else 0
            if silent > _SILENT_POLLS:
                raise SoakError(f"{topic}:{partition} can't be read on {bootstrap}")
            for message in [] if first is None else [first, *consumer.consume(_CHUNK, 0)]:
                error = message.error()
                if error is None:
                    stamp = message.timestamp()[1]
                    headers = [each for each in message.headers() or [] if not (ignore and each[0].startswith(ignore))]
                    said = digest(message.key(), message.value(), headers, stamp)  # type: ignore[arg-type]  # as consumed
                    records.append(Record(int(message.offset() or 0), message.key(), said))
                elif error.code() == _END:
                    start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
                    return Content(records, start, end)
                elif not error.retriable():
                    raise SoakError(f"{topic}:{partition}: {error}")
    finally:
        consumer.close()
