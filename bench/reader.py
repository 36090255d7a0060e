"""The independent reader: reads every committed record of a topic with a plain consumer, without a mirror's code."""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError
from confluent_kafka import TopicPartition as Assigned

from bench.processes import MeasurementFailed
from drkit.model.topology import TopicPartition

_SILENCE_SECONDS = 30.0
_AT_ONCE = 10_000


class Read(NamedTuple):
    """A record of a log."""

    tp: TopicPartition
    offset: int
    key: bytes | None
    value: bytes | None


def read(address: str, topic: str) -> list[Read]:
    """Every record that readers of committed data see, from the start to the current end; by partition, in order.

    Raises:
        MeasurementFailed: nothing came for 30 s.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    seen: list[Read] = []
    try:
        unread = set(consumer.list_topics(topic, timeout=_SILENCE_SECONDS).topics[topic].partitions)
        consumer.assign([Assigned(topic, number, OFFSET_BEGINNING) for number in unread])
        while unread:
            first = consumer.poll(_SILENCE_SECONDS)
            if first is None:
                raise MeasurementFailed(f"{topic}: nothing came for {_SILENCE_SECONDS:.0f} s")
            for message in (first, *consumer.consume(_AT_ONCE, 0)):
                error = message.error()
                partition, offset = message.partition(), message.offset()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
                    unread.discard(partition)
                elif error is not None or partition is None or offset is None:
                    raise MeasurementFailed(f"{topic} can't be read: {error}")
                else:
                    seen.append(
                        Read(TopicPartition(topic, partition), offset, _bytes(message.key()), _bytes(message.value()))
                    )
    finally:
        consumer.close()
    return seen


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
