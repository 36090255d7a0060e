"""Reading whole partitions with a bare consumer, by assignment: none of drkit's code takes part."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as it lies on the log."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str
    value: str | None
    headers: dict[str, str]


def read_log(bootstrap: str, topic: str, *, committed: bool) -> list[Seen]:
    """Every record of a topic from its start to its end of now, by partition and offset.

    `committed`: only what readers of committed records see.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    seen: list[Seen] = []
    try:
        unread = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        while unread:
            message = consumer.poll(30)
            assert message is not None, f"{topic}: nothing came for 30 s; partitions {sorted(unread)} are not read"
            error = message.error()
            if error is None:
                seen.append(_seen(message))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                unread.discard(message.partition())
    finally:
        consumer.close()
    return sorted(seen, key=lambda record: (record.partition, record.offset))


def _seen(message) -> Seen:
    value = message.value()
    return Seen(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key().decode(),
        None if value is None else value.decode(),
        {name: content.decode() for name, content in message.headers() or []},
    )
