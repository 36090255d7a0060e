"""Deletes topics whose deletion another cluster requests: asks every broker, and deletes by topic id."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Collection, Mapping

from kafka import errors as kafka_errors
from kafka.protocol.admin import DeleteTopicsRequest
from kafka.protocol.metadata import MetadataRequest

from drkit.kafka.admin.admin_connection import AdminConnection, error_class
from drkit.kafka.admin.topic_requests import TOPICS_A_REQUEST, reason
from drkit.model.deadline import Deadline
from drkit.model.errors import DrkitError

_WITH_IDS = 6
_GONE = (kafka_errors.UnknownTopicOrPartitionError, kafka_errors.UnknownTopicIdError)


def absent_everywhere(connection: AdminConnection, names: Collection[str]) -> set[str]:
    """Those of these topics that none of the cluster's brokers knows; each broker is asked.

    Raises:
        Unreachable: a broker that the cluster lists doesn't answer: it might know them.
    """
    wanted = sorted(names)

    async def step(connection: AdminConnection) -> set[str]:
        cluster = await connection.send(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        absent = set(wanted)
        topic_type = MetadataRequest.MetadataRequestTopic
        for broker in cluster.brokers:
            for start in range(0, len(wanted), TOPICS_A_REQUEST):
                asked = [topic_type(name=name) for name in wanted[start : start + TOPICS_A_REQUEST]]
                answer = await connection.send(
                    MetadataRequest(topics=asked, allow_auto_topic_creation=False), broker.node_id
                )
                known = {t.name for t in answer.topics if error_class(t.error_code) not in _GONE}
                absent -= known
        return absent

    return connection.call("ask every broker for topics", step) if wanted else set()


class TooLate(DrkitError):
    """The request was not sent: the time until which it was to be sent had passed."""


def delete_exact(
    connection: AdminConnection, topics: Mapping[str, str], until: Deadline | None = None
) -> dict[str, str]:
    """Delete topics by name *and* topic id: one of the same name with another id stays.

    Args:
        connection: the cluster.
        topics: topic ids in Kafka's text form, by name.
        until: when the request must have been sent, as its reasons are valid no longer; None: at any time.

    Returns:
        The reason, by name, for those that were not deleted. Absent ones are fine.

    Raises:
        TooLate: `until` has passed, and nothing was sent since.
    """
    ids = {_uuid(text): name for name, text in topics.items()}
    failures: dict[str, str] = {}

    async def step(connection: AdminConnection) -> None:
        version = connection.supports(DeleteTopicsRequest)
        if version is None or version < _WITH_IDS:
            failures.update(dict.fromkeys(topics, "its brokers can't delete by topic id (before Kafka 2.8)"))
            return
        state = DeleteTopicsRequest.DeleteTopicState
        if until is not None and until.passed:
            raise TooLate(
                f"topics on {connection.alias} were not deleted: too much time had passed since they were looked at",
                remedy="Try again",
            )
        response = await connection.send(
            DeleteTopicsRequest(
                topics=[state(name=None, topic_id=topic_id) for topic_id in ids],
                topic_names=[],
                timeout_ms=int(connection.timeout_seconds * 1000),
                min_version=_WITH_IDS,
            )
        )
        for result in response.responses:
            error = error_class(result.error_code)
            if result.error_code == 0 or error in _GONE:
                continue
            if error.retriable:
                raise error(result.name)
            failures[ids[result.topic_id]] = reason(error, result.error_message)

    if topics:
        connection.call("delete topics", step)
    return failures


def _uuid(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
