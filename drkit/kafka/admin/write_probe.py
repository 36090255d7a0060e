"""Asks every broker whether a principal may write, without writing.

A Produce request without a record batch can't append anything: a broker checks the ACLs first and answers
TOPIC_AUTHORIZATION_FAILED, and only then the records, which it refuses as invalid. So the response shows whether
the principal may write, on every broker, whether or not it leads the partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

from kafka import errors as kafka_errors
from kafka.protocol.producer import ProduceRequest

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.admin_connection import AdminConnection, describe, error_class
from drkit.kafka.admin.topic_requests import metadata
from drkit.model.errors import DrkitError

_TOPICS_A_REQUEST = 500
DENIED = (kafka_errors.TopicAuthorizationFailedError, kafka_errors.ClusterAuthorizationFailedError)
"""Errors that a broker returns to a principal that may not write."""
_PASSED = (
    kafka_errors.NoError,
    kafka_errors.InvalidRecordError,
    kafka_errors.CorruptRecordError,
    kafka_errors.NotLeaderForPartitionError,
    kafka_errors.UnknownTopicOrPartitionError,
)
"""Errors that a broker returns only after it has checked the ACLs."""


class WriteProbe:
    """Probes one cluster with one client's credentials; a context manager.

    Args:
        alias: the cluster's name in messages.
        cluster: that client's configuration.
        timeout_seconds: the bound of every call.
    """

    def __init__(self, alias: str, cluster: ClusterConfig, *, timeout_seconds: float) -> None:
        self._connection = AdminConnection(alias, cluster, timeout_seconds=timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @property
    def principal(self) -> str:
        """The probed principal, for messages."""
        return self._connection.principal or "the client of the certificate"

    def may_write(self, topics: Collection[str]) -> dict[int, frozenset[str]]:
        """Those of these topics that the principal may write through each broker (node id); empty: all are denied.

        Raises:
            Unreachable: a broker that the cluster lists doesn't answer.
            ConfigError: the client's credentials are not accepted.
            DrkitError: the response shows neither.
        """
        wanted = sorted(topics)

        async def step(connection: AdminConnection) -> dict[int, frozenset[str]]:
            nodes = [broker.node_id for broker in (await metadata([])(connection)).brokers]
            return {node: await _ask(connection, node, wanted) for node in nodes}

        found: dict[int, frozenset[str]] = self._connection.call("probe who may write", step)
        return found


def produce_request(
    connection: AdminConnection, partitions: Mapping[str, Collection[int]], records: bytes
) -> ProduceRequest:
    """A request to append the same bytes to each of these partitions, by topic: bytes that no broker can append."""
    topic_type = ProduceRequest.TopicProduceData
    partition_type = topic_type.PartitionProduceData
    return ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=int(connection.timeout_seconds * 1000),
        topic_data=[
            topic_type(name=name, partition_data=[partition_type(index=number, records=records) for number in numbers])
            for name, numbers in partitions.items()
        ],
        min_version=3,
        max_version=9,
    )


async def _ask(connection: AdminConnection, node: int, topics: Sequence[str]) -> frozenset[str]:
    open_ones = set()
    for start in range(0, len(topics), _TOPICS_A_REQUEST):
        first = dict.fromkeys(topics[start : start + _TOPICS_A_REQUEST], (0,))
        answer: Any = await connection.send(produce_request(connection, first, b""), node)
        for topic in answer.responses:
            error = error_class(topic.partition_responses[0].error_code)
            if error in DENIED:
                continue
            if error not in _PASSED and not error.retriable:
                raise DrkitError(f"broker {node} of {connection.alias} answered {describe(error)} to an empty produce")
            open_ones.add(topic.name)
    return frozenset(open_ones)
