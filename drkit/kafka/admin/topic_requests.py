"""Requests about topics and their responses; callers use `drkit.kafka.admin.cluster_admin`.

Deletions that another cluster requests ask every broker first, and delete by topic id.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from kafka import errors as kafka_errors
from kafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.metadata import MetadataRequest

from drkit.kafka.admin.admin_connection import AdminConnection, StepConnection, check, describe, error_class
from drkit.model.clock import Deadline
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.topology import is_internal

TOPICS_A_REQUEST = 200
_PARTITIONS_A_REQUEST = 2_000  # a KRaft controller refuses requests that create more than 10,000 metadata records
_TOPIC_RESOURCE = 2
_SET = 0
_REMOVE = 1


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as metadata shows it. `topic_id` is Kafka's own text form (URL-safe base64, 22 characters).

    `leaderless` names the partitions that have no leader now: they can be neither read nor written.
    """

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    internal: bool
    leaderless: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


class Teller(NamedTuple):
    """A broker, and the connection by which it told something: as long as that is the same, so is its process
    (`StepConnection.session`)."""

    node: int
    session: int


class ToldSettings(NamedTuple):
    """Settings by topic, and who told them; None: its connection was made, or lost, meanwhile."""

    settings: dict[str, dict[str, str]]
    teller: Teller | None


Topic = TypeVar("Topic", TopicInfo, NewTopic)


def metadata(names: Sequence[str] | None) -> Callable[[StepConnection], Any]:
    """A step that reads metadata of these topics (None: all; empty: only the cluster)."""

    async def step(connection: StepConnection) -> Any:
        topic_type = MetadataRequest.MetadataRequestTopic
        topics = None if names is None else [topic_type(name=name) for name in names]
        return await connection.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False))

    return step


async def every_broker(connection: StepConnection) -> list[int]:
    """The brokers that the cluster lists, and those to which a connection is open (within a step): who asks each of
    them misses none that is cut off from the controllers."""
    listed = {broker.node_id for broker in (await metadata([])(connection)).brokers}
    return sorted(listed | connection.connected_nodes())


def _id(topic_id: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


_NO_ID = _id(uuid.UUID(int=0))


def topic_info(topic: Any) -> TopicInfo:
    """A topic of a metadata response."""
    replicas = [len(partition.replica_nodes) for partition in topic.partitions]
    return TopicInfo(
        name=topic.name,
        topic_id=_id(topic.topic_id),
        partitions=len(topic.partitions),
        replication_factor=max(replicas, default=0),
        internal=bool(topic.is_internal) or is_internal(topic.name),
        leaderless=tuple(p.partition_index for p in topic.partitions if p.leader_id < 0),
    )


def first_to_create(topics: Iterable[NewTopic]) -> list[NewTopic]:
    """As many of these topics, in order, as one request may create; at least one if there is any."""
    return first_within(topics, _PARTITIONS_A_REQUEST)[:TOPICS_A_REQUEST]


def first_within(topics: Iterable[Topic], most: int) -> list[Topic]:
    """The first of these topics that together have this many partitions; at least one if there is any."""
    chosen: list[Topic] = []
    partitions = 0
    for topic in topics:
        partitions += topic.partitions
        if chosen and partitions > most:
            break
        chosen.append(topic)
    return chosen


def create_request(topics: Sequence[NewTopic], timeout_seconds: float) -> CreateTopicsRequest:
    """A request that creates these topics."""
    topic_type = CreateTopicsRequest.CreatableTopic
    config_type = topic_type.CreatableTopicConfig
    return CreateTopicsRequest(
        topics=[
            topic_type(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=[],
                configs=[config_type(name=name, value=value) for name, value in topic.config.items()],
            )
            for topic in topics
        ],
        timeout_ms=int(timeout_seconds * 1000),
        validate_only=False,
    )


def alter_request(configs: Sequence[tuple[str, Mapping[str, str | None]]]) -> IncrementalAlterConfigsRequest:
    """A request that sets these settings (None: removes the topic's own) and leaves the others as they are."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    entry = resource.AlterableConfig
    return IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=_TOPIC_RESOURCE,
                resource_name=name,
                configs=[
                    entry(name=key, config_operation=_REMOVE if value is None else _SET, value=value)
                    for key, value in config.items()
                ],
            )
            for name, config in configs
        ],
        validate_only=False,
    )


def reason(error: type[kafka_errors.KafkaError], message: str | None) -> str:
    """Why a request was refused: Kafka's name of the error, and the broker's own words."""
    return f"{describe(error)}: {message}" if message else describe(error)


async def describe_configs(
    connection: StepConnection,
    names: Sequence[str],
    keys: Sequence[str] | None,
    denied: set[str] | None = None,
    *,
    node: int | None = None,
    timeout_seconds: float | None = None,
) -> dict[str, dict[str, str]]:
    """Effective settings by topic (within a step); topics that don't exist are left out. `denied` collects those
    whose settings may not be read; None: that is an error. `node`: the broker to ask; None: any. `timeout_seconds`: as
    in `StepConnection.send`.
    """
    resource = DescribeConfigsRequest.DescribeConfigsResource
    response = await connection.send(
        DescribeConfigsRequest(
            resources=[
                resource(
                    resource_type=_TOPIC_RESOURCE,
                    resource_name=name,
                    configuration_keys=None if keys is None else list(keys),
                )
                for name in names
            ],
            min_version=1,
        ),
        node,
        timeout_seconds=timeout_seconds,
    )
    found = {}
    for result in response.results:
        if error_class(result.error_code) is kafka_errors.UnknownTopicOrPartitionError:
            continue
        if denied is not None and error_class(result.error_code) is kafka_errors.TopicAuthorizationFailedError:
            denied.add(result.resource_name)
            continue
        check(result.error_code, f"topic {result.resource_name}")
        found[result.resource_name] = {entry.name: entry.value for entry in result.configs if entry.value is not None}
    return found


_ANSWER_SECONDS = 2.0
"""How long a broker may take to tell the settings of topics that are asked of it."""


def configs_by_broker(
    connection: AdminConnection, names: Collection[str], keys: Sequence[str], nodes: Collection[int]
) -> dict[int, ToldSettings]:
    """Effective settings of these topics as each of these brokers tells them, by node id; those that don't answer soon
    are left out.

    Raises:
        Unreachable: the cluster doesn't answer.
    """

    async def step(connection: StepConnection) -> dict[int, ToldSettings]:
        found: dict[int, ToldSettings] = {}

        async def ask(node: int) -> None:
            with suppress(kafka_errors.KafkaError):  # it is down, or busy
                told = await told_configs(connection, sorted(names), keys, set(), node, timeout_seconds=_ANSWER_SECONDS)
                found[node] = told

        await connection.gather(ask(node) for node in nodes)
        return found

    found: dict[int, ToldSettings] = connection.call("read topic configurations of brokers", step)
    return found


async def told_configs(
    connection: StepConnection,
    names: Sequence[str],
    keys: Sequence[str] | None,
    denied: set[str] | None,
    node: int | None,
    *,
    timeout_seconds: float | None = None,
) -> ToldSettings:
    """As `describe_configs`, for any number of topics, of one broker: with who told them."""
    session = None if node is None else connection.session(node)
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(names), TOPICS_A_REQUEST):
        some = names[start : start + TOPICS_A_REQUEST]
        found |= await describe_configs(connection, some, keys, denied, node=node, timeout_seconds=timeout_seconds)
    same = node is not None and session is not None and connection.session(node) == session
    return ToldSettings(found, Teller(node, session) if node is not None and session is not None and same else None)


_WITH_IDS = 6
_GONE = (kafka_errors.UnknownTopicOrPartitionError, kafka_errors.UnknownTopicIdError)


def absent_everywhere(connection: AdminConnection, names: Collection[str]) -> set[str]:
    """Those of these topics that none of the cluster's brokers knows; each broker is asked.

    Raises:
        Unreachable: a broker that the cluster lists doesn't answer: it might know them.
    """

    async def step(connection: StepConnection) -> set[str]:
        return await absent_on_all(connection, names)

    return connection.call("ask every broker for topics", step) if names else set()


def ids_on_all(connection: AdminConnection, names: Collection[str]) -> dict[str, str]:
    """The ids of those of these topics that each of the cluster's brokers knows, under one id; each broker is asked.

    Raises:
        Unreachable: a broker that the cluster lists doesn't answer.
    """

    async def step(connection: StepConnection) -> dict[str, str]:
        first, *others = await _known_by_broker(connection, names)
        everywhere = {name for name, topic_id in first.items() if all(known.get(name) == topic_id for known in others)}
        return {name: first[name] for name in everywhere if first[name] != _NO_ID}

    return connection.call("ask every broker for topics", step) if names else {}


async def absent_on_all(connection: StepConnection, names: Collection[str]) -> set[str]:
    """As `absent_everywhere`, within a step."""
    return set(names).difference(*await _known_by_broker(connection, names))


async def _known_by_broker(connection: StepConnection, names: Collection[str]) -> list[dict[str, str]]:
    """Those of these topics that each broker knows, with their ids there; hidden ones have the id of zeros."""
    wanted = sorted(names)
    topic_type = MetadataRequest.MetadataRequestTopic
    found = []
    for node in await every_broker(connection):
        known: dict[str, str] = {}
        for start in range(0, len(wanted), TOPICS_A_REQUEST):
            asked = [topic_type(name=name) for name in wanted[start : start + TOPICS_A_REQUEST]]
            answer = await connection.send(MetadataRequest(topics=asked, allow_auto_topic_creation=False), node)
            known |= {t.name: _id(t.topic_id) for t in answer.topics if error_class(t.error_code) not in _GONE}
        found.append(known)
    return found


class TooLate(DrkitError):
    """The request was not sent: the time until which it was to be sent had passed.

    `sent_before`: an earlier attempt was sent and got no answer, so it may still be carried out.
    """

    def __init__(self, what: str, *, remedy: str = "", sent_before: bool = False) -> None:
        super().__init__(what, remedy=remedy)
        self.sent_before = sent_before


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
        Unreachable: no broker answers; or one refuses, and an earlier attempt got no answer.
    """
    ids = {_uuid(text): name for name, text in topics.items()}
    failures: dict[str, str] = {}
    unanswered = 0  # a broker that stood still may carry it out yet, also behind a later attempt's answer

    def sent() -> None:
        nonlocal unanswered
        unanswered += 1

    async def step(connection: StepConnection) -> None:
        nonlocal unanswered
        version = connection.supports(DeleteTopicsRequest)
        if version is None or version < _WITH_IDS:
            failures.update(dict.fromkeys(topics, "its brokers can't delete by topic id (before Kafka 2.8)"))
            return
        state = DeleteTopicsRequest.DeleteTopicState
        if until is not None and until.passed:
            raise TooLate(
                f"topics on {connection.alias} were not deleted: too much time had passed since they were looked at",
                remedy="Try again",
                sent_before=unanswered > 0,
            )
        response = await connection.send(
            DeleteTopicsRequest(
                topics=[state(name=None, topic_id=topic_id) for topic_id in ids],
                topic_names=[],
                timeout_ms=int(connection.timeout_seconds * 1000),
                min_version=_WITH_IDS,
            ),
            sent=sent,
        )
        unanswered -= 1
        for result in response.responses:
            error = error_class(result.error_code)
            if result.error_code == 0 or error in _GONE:
                continue
            if error.retriable:
                raise error(result.name)
            failures[ids[result.topic_id]] = reason(error, result.error_message)

    if topics:
        connection.call("delete topics", step)
    if failures and unanswered > 0:
        name, why = next(iter(failures.items()))
        raise Unreachable(
            f"topic {name} can't be deleted on {connection.alias}: {why}",
            meaning="An earlier request to delete it got no answer: it may be carried out yet",
        )
    return failures


def _uuid(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
