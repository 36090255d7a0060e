"""What a cluster says of itself: its versions, what it allows drkit itself, the room on its brokers' disks.

Versions are finalized features (KIP-584) and the requests that brokers take. Allowed operations (KIP-430) are returned
to principals that may describe the resource, as Kafka's words in lower case; a cluster without an authorizer allows
everything, as does one where drkit is a super user. Disks: KIP-827; the log of its metadata: KIP-595.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from kafka import errors as kafka_errors
from kafka.protocol.admin import DescribeClusterRequest, DescribeLogDirsRequest, DescribeQuorumRequest
from kafka.protocol.admin.acl import ACLOperation
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from drkit.kafka.admin.admin_connection import AdminConnection, StepConnection, check, error_class
from drkit.kafka.admin.topic_requests import metadata
from drkit.model.clock import from_millis, now


class VersionRange(NamedTuple):
    """The versions of a request, both inclusive."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class ClusterVersions:
    """What all brokers of a cluster have in common.

    `features`: the level of each finalized feature, one that isn't finalized is left out; None: brokers don't tell
    (before Kafka 2.7). `requests`: the versions of each request (by API key) that every broker takes.
    """

    features: Mapping[str, int] | None
    requests: Mapping[int, VersionRange]


def cluster_versions(connection: AdminConnection) -> ClusterVersions:
    """Ask every broker, each with one request.

    Raises:
        Unreachable: a broker that the cluster lists doesn't answer.
    """

    async def ask(connection: StepConnection, node: int, found: list[ClusterVersions]) -> None:
        request = ApiVersionsRequest(client_software_name="drkit", client_software_version="1")
        answer = await connection.send(request, node)
        check(answer.error_code, "read versions")
        told = (answer.finalized_features_epoch or 0) >= 0 and answer.finalized_features is not None
        features = {each.name: each.max_version_level for each in answer.finalized_features or ()} if told else None
        requests = {each.api_key: VersionRange(each.min_version, each.max_version) for each in answer.api_keys}
        found.append(ClusterVersions(features, requests))

    async def step(connection: StepConnection) -> list[ClusterVersions]:
        found: list[ClusterVersions] = []
        nodes = [broker.node_id for broker in (await metadata([])(connection)).brokers]
        await connection.gather(ask(connection, node, found) for node in nodes)
        return found

    answers: list[ClusterVersions] = connection.call("read versions", step)
    return in_common(answers)


def in_common(brokers: list[ClusterVersions]) -> ClusterVersions:
    """What each of these brokers has: a cluster in the middle of an upgrade is as old as its oldest. Pure."""
    known = [each.features for each in brokers if each.features is not None]
    features = None
    if known and len(known) == len(brokers):
        names = set(known[0]).intersection(*known[1:])
        features = {name: min(each[name] for each in known) for name in names}
    keys = set(brokers[0].requests).intersection(*(each.requests for each in brokers[1:])) if brokers else set()
    requests = {}
    for key in keys:
        ranges = [each.requests[key] for each in brokers]
        common = VersionRange(max(each.lowest for each in ranges), min(each.highest for each in ranges))
        if common.lowest <= common.highest:
            requests[key] = common
    return ClusterVersions(features, requests)


_TOPICS_A_REQUEST = 1_000
_WORDS = {int(operation): operation.name.lower() for operation in ACLOperation}


def operations_of(codes: Iterable[int] | None) -> frozenset[str] | None:
    """The operations of a response's bit field; None: the broker returned none."""
    if codes is None:
        return None
    return frozenset(_WORDS[code] for code in codes if code in _WORDS)


def allowed_on_cluster(connection: AdminConnection) -> frozenset[str] | None:
    """Operations on the cluster itself; empty if drkit may not describe it, None if the broker returns none."""

    async def step(connection: StepConnection) -> frozenset[str] | None:
        answer = await connection.send(DescribeClusterRequest(include_cluster_authorized_operations=True))
        check(answer.error_code, answer.error_message or "describe the cluster")
        return operations_of(answer.authorized_operations)

    found: frozenset[str] | None = connection.call("ask what drkit may do to the cluster", step)
    return found


def allowed_on_topics(connection: AdminConnection, names: Collection[str]) -> dict[str, frozenset[str]]:
    """Operations by topic; empty if drkit may not describe it. Topics that don't exist are left out."""
    wanted = sorted(set(names))
    found: dict[str, frozenset[str]] = {}

    async def step(connection: StepConnection) -> None:
        for start in range(0, len(wanted), _TOPICS_A_REQUEST):
            await _ask_allowed(connection, wanted[start : start + _TOPICS_A_REQUEST], found)

    if wanted:
        connection.call("ask what drkit may do to topics", step)
    return found


async def _ask_allowed(connection: StepConnection, names: Sequence[str], found: dict[str, frozenset[str]]) -> None:
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


class Disk(NamedTuple):
    """The volume of a broker's log directory. Bytes; None: the broker doesn't tell (before Kafka 3.3)."""

    broker: int
    folder: str
    total: int | None
    usable: int | None


def disks(connection: AdminConnection) -> list[Disk]:
    """The volumes that work, of every broker.

    Raises:
        Refused: drkit may not see them; it needs DESCRIBE on the cluster.
        Unreachable: a broker that the cluster lists doesn't answer.
    """

    async def ask(connection: StepConnection, node: int, found: list[Disk]) -> None:
        answer = await connection.send(DescribeLogDirsRequest(topics=[], max_version=4), node)
        check(answer.error_code, "room on disks")
        for each in answer.results:
            if not each.error_code:
                known = each.total_bytes >= 0 and each.usable_bytes >= 0
                total, usable = (each.total_bytes, each.usable_bytes) if known else (None, None)
                found.append(Disk(node, each.log_dir, total, usable))

    async def step(connection: StepConnection) -> list[Disk]:
        found: list[Disk] = []
        nodes = [broker.node_id for broker in (await metadata([])(connection)).brokers]
        await connection.gather(ask(connection, node, found) for node in nodes)
        return sorted(found)

    result: list[Disk] = connection.call("read the room on disks", step)
    return result


class MetadataEnd(NamedTuple):
    """How far the log is in which the controllers keep the metadata: its leader's epoch and its high watermark.

    It grows all the time, and each election raises the epoch.
    """

    epoch: int
    high_watermark: int


_SESSION_SECONDS = 2.0
"""How long a broker may take to answer; one that takes longer has no session."""


def sessions(connection: AdminConnection) -> dict[int, int]:
    """Which connection to each broker is open, by node id: as long as the number is the same, so is the broker's
    process. Without brokers that don't answer soon.

    Raises:
        Unreachable: no broker answers.
    """
    nothing = MetadataRequest(topics=[], allow_auto_topic_creation=False)

    async def step(connection: StepConnection) -> dict[int, int]:
        found: dict[int, int] = {}

        async def ask(node: int) -> None:
            with suppress(kafka_errors.KafkaError):  # it is down, or busy
                await connection.send(nothing, node, timeout_seconds=_SESSION_SECONDS)
                session = connection.session(node)
                if session is not None:
                    found[node] = session

        brokers = (await connection.send(nothing)).brokers
        await connection.gather(ask(broker.node_id) for broker in brokers)
        return found

    seen: dict[int, int] = connection.call("look which brokers are connected", step)
    return seen


def metadata_end(connection: AdminConnection) -> MetadataEnd | None:
    """The end of the metadata's log, as the active controller says; None: the cluster doesn't tell, or not drkit
    (ZooKeeper, Kafka before 3.3; it needs DESCRIBE on the cluster).

    Raises:
        Unreachable: no broker answers, or there is no active controller.
    """

    async def step(connection: StepConnection) -> MetadataEnd | None:
        log = await _metadata_log(connection)
        return None if log is None else MetadataEnd(log.leader_epoch, log.high_watermark)

    found: MetadataEnd | None = connection.call("ask for the end of the metadata's log", step)
    return found


class ControllerClock(NamedTuple):
    """How many seconds the active controller's clock is ahead of this machine's (negative: behind): at least `least`,
    at most `most`. Between them lies the time that the answer took."""

    node: int
    least: float
    most: float


def controller_clock(connection: AdminConnection) -> ControllerClock | None:
    """Compare the active controller's clock with this machine's; None and errors as `metadata_end`.

    The controller says of itself, as of a replica of the metadata's log, that it has caught up at the current time
    (KIP-836). It is the one time that Kafka tells without being written to.
    """

    async def step(connection: StepConnection) -> ControllerClock | None:
        begun = now()
        log = await _metadata_log(connection)
        ended = now()
        own = [] if log is None else [each for each in log.current_voters if each.replica_id == log.leader_id]
        if not own or own[0].last_caught_up_timestamp < 0:
            return None
        told = from_millis(own[0].last_caught_up_timestamp)
        millisecond = timedelta(milliseconds=1)  # the timestamp is rounded down
        return ControllerClock(
            own[0].replica_id, (told - ended).total_seconds(), (told + millisecond - begun).total_seconds()
        )

    found: ControllerClock | None = connection.call("ask for the controller's time", step)
    return found


async def _metadata_log(connection: StepConnection) -> Any:
    """The `PartitionData` of the metadata's log; None as `metadata_end`."""
    topic = DescribeQuorumRequest.TopicData
    asked = topic(topic_name="__cluster_metadata", partitions=[topic.PartitionData(partition_index=0)])
    if connection.supports(DescribeQuorumRequest) is None:
        return None
    answer = await connection.send(DescribeQuorumRequest(topics=[asked]))
    found = [log for each in answer.topics for log in each.partitions]
    for code in (answer.error_code, *(log.error_code for log in found)):
        error = error_class(code)
        if code and error.retriable and error is not kafka_errors.UnknownTopicOrPartitionError:
            raise error("describe the controllers' quorum")
        if code:
            return None
    return found[0] if found else None
