"""Operations that a cluster allows drkit itself (KIP-430); returned to principals that may describe the resource.

Operations are Kafka's words in lower case. A cluster without an authorizer allows everything, as does one where drkit
is a super user.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.admin.acl import ACLOperation
from kafka.protocol.metadata import MetadataRequest

from drkit.kafka.admin.admin_connection import AdminConnection, check, error_class

_TOPICS_A_REQUEST = 1_000
_WORDS = {int(operation): operation.name.lower() for operation in ACLOperation}


def operations_of(codes: Iterable[int] | None) -> frozenset[str] | None:
    """The operations of a response's bit field; None: the broker returned none."""
    if codes is None:
        return None
    return frozenset(_WORDS[code] for code in codes if code in _WORDS)


def allowed_on_cluster(connection: AdminConnection) -> frozenset[str] | None:
    """Operations on the cluster itself; empty if drkit may not describe it, None if the broker returns none."""

    async def step(connection: AdminConnection) -> frozenset[str] | None:
        answer = await connection.send(DescribeClusterRequest(include_cluster_authorized_operations=True))
        check(answer.error_code, answer.error_message or "describe the cluster")
        return operations_of(answer.authorized_operations)

    found: frozenset[str] | None = connection.call("ask what drkit may do to the cluster", step)
    return found


def allowed_on_topics(connection: AdminConnection, names: Collection[str]) -> dict[str, frozenset[str]]:
    """Operations by topic; empty if drkit may not describe it. Topics that don't exist are left out."""
    wanted = sorted(set(names))
    found: dict[str, frozenset[str]] = {}

    async def step(connection: AdminConnection) -> None:
        for start in range(0, len(wanted), _TOPICS_A_REQUEST):
            await _ask(connection, wanted[start : start + _TOPICS_A_REQUEST], found)

    if wanted:
        connection.call("ask what drkit may do to topics", step)
    return found


async def _ask(connection: AdminConnection, names: Sequence[str], found: dict[str, frozenset[str]]) -> None:
    topic_type = MetadataRequest.MetadataRequestTopic
    request = MetadataRequest(
        topics=[topic_type(name=name) for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        min_version=8,
    )
    for topic in (await connection.send(request)).topics:
        error = error_class(topic.error_code)
        if error is kafka_errors.TopicAuthorizationFailedError:
            found[topic.name] = frozenset()
        elif error not in {kafka_errors.UnknownTopicOrPartitionError, kafka_errors.InvalidTopicError}:
            allowed = operations_of(topic.authorized_operations)
            if allowed is not None:
                found[topic.name] = allowed
