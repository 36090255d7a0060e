"""One plain fetch from one leader, over the admin connection: for reading a few offsets of a log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from kafka import errors as kafka_errors
from kafka.protocol.consumer import FetchRequest

from drkit.kafka.admin.admin_connection import AdminConnection
from drkit.model.topology import TopicPartition

STALL_SECONDS = 2.0
"""The longest wait for a partition without a leader while a failover waits."""

_CONSUMER = -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_REQUEST_BYTES = 32 * 1024 * 1024
_VERSION = 12  # as the data path (`drkit.kafka.protocol.fetch_produce`)


class SingleFetch(NamedTuple):
    """Where a partition is read, and how many bytes at most."""

    offset: int
    max_bytes: int


async def fetch(
    connection: AdminConnection, leader: int, places: Mapping[TopicPartition, SingleFetch], *, committed: bool = False
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
