"""Blocks all writes of clients to topics, whoever they are, by the topics' settings.

A leader refuses a batch that is larger than `max.message.bytes` before it appends anything, and makes no exception for
super users (`UnifiedLog.append`); no authorizer is needed. But it makes none for the markers that end transactions,
either, and a coordinator doesn't send a marker again that was refused for its size: its transaction then stays open
until that broker restarts. So the limit is the size of a marker, and `compression.type = gzip` closes the gap below it:

    a marker: 61 bytes of header, 17 of record; never compressed                  78   appended
    of a client, in gzip: the header, 18 bytes of gzip's own, the data      over  79   refused as it comes
    of a client, in no or another codec, of more than 78 bytes              over  78   refused as it comes
    the same, of up to 78 bytes (10 of key, value and headers)              over  79   refused once it is in gzip

Followers, consumers and committed offsets are not affected. Settings reach a leader a moment after the controller has
stored them, both at once; so each leader is asked with a batch that it can't append: it refuses it for its size where
the block is in effect, else for its wrong checksum, which it checks later.

`produce_request` is how a leader is asked, here and for the proof of a fence: with a batch that it can't append.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

from crc32c import crc32c
from kafka import errors as kafka_errors
from kafka.protocol.producer import ProduceRequest

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.admin_connection import AdminConnection, RetryLater, StepConnection, describe, error_class
from drkit.kafka.admin.logs.log_offsets import NO_ANSWER, find_leaders
from drkit.kafka.admin.topic_requests import absent_on_all, describe_configs, metadata
from drkit.model.errors import DrkitError
from drkit.model.topology import TopicPartition

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

        async def step(connection: StepConnection) -> dict[int, frozenset[str]]:
            nodes = [broker.node_id for broker in (await metadata([])(connection)).brokers]
            return {node: await _ask(connection, node, wanted) for node in nodes}

        found: dict[int, frozenset[str]] = self._connection.call("probe who may write", step)
        return found


def produce_request(
    connection: StepConnection, partitions: Mapping[str, Collection[int]], records: bytes
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


async def _ask(connection: StepConnection, node: int, topics: Sequence[str]) -> frozenset[str]:
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


BLOCK = {"max.message.bytes": "78", "compression.type": "gzip"}
"""The settings of a blocked topic. Nobody else has a use for them."""

_TOO_LARGE = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)
_PARTITIONS_A_REQUEST = 2_000


def is_blocked(config: Mapping[str, str]) -> bool:
    """Whether a topic with these settings takes no writes."""
    return BLOCK.items() <= config.items()


def wait_until_blocked(connection: AdminConnection, tps: Collection[TopicPartition]) -> None:
    """Wait until the leader of each of these partitions refuses every write.

    Where drkit itself may not write (a closed cluster), a leader that shows the setting counts: no client but a super
    user may write there either. Partitions that don't exist are left out: topics that no broker knows, as one that has
    just started, or is cut off from its controllers, may not know them yet.

    Raises:
        Unreachable: a leader doesn't answer, or doesn't refuse in time.
        DrkitError: a leader answers with something else.
    """

    async def step(connection: StepConnection) -> None:
        absent: set[TopicPartition] = set()
        leaderless: dict[TopicPartition, str] = {}
        leaders = await find_leaders(connection, list(tps), absent, leaderless=leaderless)
        led = {tp for found in leaders.values() for tp in found}
        unlisted = {tp.topic for tp in absent} - {tp.topic for tp in led | leaderless.keys()}
        if unlisted and (known := sorted(unlisted - await absent_on_all(connection, unlisted))):
            raise RetryLater(f"a broker doesn't list {known[0]}, which another one has")
        if missing := sorted(set(tps) - led - absent):
            raise RetryLater(f"{missing[0]}: {leaderless.get(missing[0], NO_ANSWER)}")
        for node, found in leaders.items():
            for start in range(0, len(found), _PARTITIONS_A_REQUEST):
                await _check(connection, node, found[start : start + _PARTITIONS_A_REQUEST])

    if tps:
        connection.call("block writes", step)


async def _check(connection: StepConnection, node: int, tps: Collection[TopicPartition]) -> None:
    numbers: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(tps):
        numbers[topic].append(partition)
    answer: Any = await connection.send(produce_request(connection, numbers, _UNFIT), node)
    denied = set()
    for topic in answer.responses:
        for partition in topic.partition_responses:
            error = error_class(partition.error_code)
            if error in DENIED:
                denied.add(topic.name)
            elif error is kafka_errors.CorruptRecordError or error.retriable:
                raise RetryLater(f"broker {node} still takes writes to {topic.name}:{partition.index}")
            elif error not in _TOO_LARGE:
                raise DrkitError(f"broker {node} of {connection.alias} answered {describe(error)} to an unfit batch")
    if denied:
        shown = await describe_configs(connection, sorted(denied), list(BLOCK), node=node)
        if not all(is_blocked(shown.get(name, {})) for name in denied):
            raise RetryLater(f"broker {node} doesn't know yet that writes are blocked")


def _unfit_batch() -> bytes:
    """A batch of format 2, larger than a marker, that holds zeros for a record and a wrong checksum: no broker can
    append it."""
    after = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + bytes(64)
    checksum = crc32c(after) ^ 1
    rest = struct.pack(">ibI", -1, 2, checksum) + after
    return struct.pack(">qi", 0, len(rest)) + rest


_UNFIT = _unfit_batch()
