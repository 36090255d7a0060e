"""What a group reader asks of its client: settings, batches of messages, log ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from drkit.model.topology import TopicPartition

POLL_SECONDS = 0.1
_BATCH = 1000
_ANSWER_SECONDS = 1.0


def reader_config(client: Mapping[str, Any], group: str) -> dict[str, Any]:
    """Librdkafka properties of a group reader: it commits itself, and hears of partitions' ends."""
    return {
        **client,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "session.timeout.ms": 10_000,  # soon out of the group when it, or the cluster, is killed
        "fetch.wait.max.ms": 100,
        "queued.max.messages.kbytes": 16_384,
        "log_level": 0,  # what matters comes through error_cb
    }


def list_offsets(consumer: Consumer, tps: Sequence[TopicPartition], which: int) -> dict[TopicPartition, int]:
    """The first (`OFFSET_BEGINNING`) or end (`OFFSET_END`) offset of partitions; those without an answer left out.

    Kafka's ListOffsets takes these marks where a time would stand, and so does this call of the client.
    """
    if not tps:
        return {}
    try:
        answers = consumer.offsets_for_times([ClientPartition(*tp, which) for tp in tps], timeout=_ANSWER_SECONDS)
    except KafkaException:
        return {}  # no cluster now: error_cb has said so, and the next round asks again
    return {TopicPartition(a.topic, a.partition): a.offset for a in answers if a.error is None and a.offset >= 0}


def fetch(consumer: Consumer) -> list[Any]:
    """Up to a batch of messages, waiting only for the first (`consume` would wait its whole time)."""
    first = consumer.poll(POLL_SECONDS)
    if first is None:
        return []
    return [first, *consumer.consume(_BATCH - 1, 0)]
