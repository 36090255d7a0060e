"""The independent reader of tests and bench: reads logs with a plain assigned consumer, without drkit's code.

The other one, `chaos/soak/clusters.py`, keeps digests of records, for logs of millions; they share no code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

_END = KafkaError._PARTITION_EOF
_CHUNK = 5_000
_SECONDS = 60.0

Client = str | Mapping[str, Any]
"""Bootstrap servers, or librdkafka properties of a client."""


class Record(NamedTuple):
    """A record, as seen by a consumer."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int

    @property
    def content(self) -> tuple[Any, ...]:
        """Everything except for the offset."""
        return self[1:]


@dataclass(frozen=True, slots=True)
class Seen:
    """A text record of the log."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str
    value: str | None
    headers: dict[str, str]


def read_partition(client: Client, topic: str, partition: int = 0, *, committed: bool = True) -> list[Record]:
    """Every record of a partition, from its start to its current end. `committed`: only committed records."""
    consumer = _consumer(client, committed=committed)
    try:
        return _read(consumer, [(topic, partition)])[topic, partition]
    finally:
        consumer.close()


def read_until_refused(client: Client, topic: str, partition: int = 0) -> tuple[list[Record], bool]:
    """Like `read_partition`, with a consumer that checks CRCs: what it reads until it can't continue, and whether it
    reached the end. It skips records below its position, like Java's consumer; librdkafka's returns everything from its
    last request on."""
    found: list[Record] = []
    consumer = _consumer(client, committed=True, more={"check.crcs": True})
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(_SECONDS)
            assert message is not None, f"nothing came for {_SECONDS:.0f} s of {topic}:{partition}"
            error, record = message.error(), _record(message)
            if error is not None:
                return found, error.code() == _END
            if not found or record.offset > found[-1].offset:
                found.append(record)
    finally:
        consumer.close()


def read_topics(
    client: Client, wanted: Callable[[str], bool], *, committed: bool = True
) -> dict[str, dict[int, list[Record]]]:
    """Every record of the wanted topics, by topic and partition."""
    consumer = _consumer(client, committed=committed)
    try:
        topics = {name: topic for name, topic in consumer.list_topics(timeout=_SECONDS).topics.items() if wanted(name)}
        read = _read(consumer, [(name, number) for name, topic in topics.items() for number in topic.partitions])
    finally:
        consumer.close()
    return {name: {number: read[name, number] for number in sorted(topic.partitions)} for name, topic in topics.items()}


def read_topic(client: Client, topic: str) -> dict[int, list[Record]]:
    """Every committed record of a topic, by partition; none where it doesn't exist."""
    return read_topics(client, topic.__eq__).get(topic, {})


def read_log(client: Client, topic: str, *, committed: bool) -> list[Seen]:
    """Every record of a text topic, by partition and offset."""
    return [
        Seen(
            topic,
            partition,
            each.offset,
            each.timestamp,
            (each.key or b"").decode(),
            None if each.value is None else each.value.decode(),
            {name: (content or b"").decode() for name, content in each.headers},
        )
        for partition, records in read_topics(client, topic.__eq__, committed=committed)[topic].items()
        for each in records
    ]


def _consumer(client: Client, *, committed: bool, more: Mapping[str, Any] | None = None) -> Consumer:
    given = {"bootstrap.servers": client} if isinstance(client, str) else dict(client)
    return Consumer(
        {
            **given,
            "log_level": 0,
            "group.id": "independent-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # if the log's start moves meanwhile
            "fetch.wait.max.ms": 20,  # the end of a partition is reported after an empty fetch
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            **(more or {}),
        }
    )


def _read(consumer: Consumer, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], list[Record]]:
    found: dict[tuple[str, int], list[Record]] = {place: [] for place in places}
    unread = set(found)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in found])
    while unread:
        first = consumer.poll(_SECONDS)
        assert first is not None, f"nothing came for {_SECONDS:.0f} s; {sorted(unread)} are not read to their ends"
        for message in [first, *consumer.consume(_CHUNK, 0)]:
            place = message.topic(), message.partition()
            error = message.error()
            if place not in unread:
                continue  # after its former end
            if error is None:
                found[place].append(_record(message))
            else:
                assert error.code() == _END, f"{place}: {error}"
                unread.discard(place)
    return found


def _record(message: Any) -> Record:
    headers = tuple(message.headers() or ())
    return Record(message.offset(), message.key(), message.value(), headers, message.timestamp()[1])
