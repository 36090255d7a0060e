"""Requests to group coordinators and their responses; callers use `drkit.kafka.groups.group_admin`."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka import errors as kafka_errors
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import OffsetCommitRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from drkit.kafka.admin import schemas
from drkit.kafka.admin.admin_connection import StepConnection, describe, error_class
from drkit.model.topology import TopicPartition

_DENIED = describe(kafka_errors.GroupAuthorizationFailedError)

GROUPS_A_REQUEST = 500
GROUPS_A_FETCH = 2_000
"""Groups whose offsets are read in one request: of 50 partitions each, an answer of about 2 MB."""
_GROUP_KEY = 0
_IN_FLIGHT = 4  # one less than the number at which the client stops sending
_NO_GENERATION = -1


class CommittedOffset(NamedTuple):
    """A committed position: the next offset that the group will read, and the metadata kept with it.

    A tuple: tens of thousands are created every second if many groups commit.
    """

    group: str
    topic: str
    partition: int
    offset: int
    metadata: str

    @property
    def tp(self) -> TopicPartition:
        """The partition, by this cluster's name of the topic."""
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True)
class FetchedOffsets:
    """Committed offsets by group, and the reason for each group whose offsets can't be read now."""

    offsets: dict[str, list[CommittedOffset]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def denied(self) -> set[str]:
        """The groups that may not be read: no listing shows them, either."""
        return {group for group, why in self.failures.items() if why == _DENIED}


async def find_coordinators(
    connection: StepConnection,
    groups: list[str],
    remembered: dict[str, int] | None = None,
    denied: set[str] | None = None,
) -> tuple[dict[int, list[str]], str]:
    """Groups by coordinator's node id, and why the others have none now.

    Groups in `remembered` aren't looked up but taken from it, once: the caller puts correct ones back.
    `denied` collects those that drkit may not describe; None: that is an error.
    """
    coordinators: dict[int, list[str]] = defaultdict(list)
    why = "no coordinator found"
    if remembered:
        for group in groups:
            if group in remembered:
                coordinators[remembered.pop(group)].append(group)
        known = {group for found in coordinators.values() for group in found}
        groups = [group for group in groups if group not in known]
    batched = (connection.supports(FindCoordinatorRequest) or 0) >= 4  # noqa: PLR2004 - KIP-699
    chunks = [groups[i : i + GROUPS_A_REQUEST] for i in range(0, len(groups), GROUPS_A_REQUEST)]
    for chunk in chunks if batched else [[group] for group in groups]:
        if batched:
            request = FindCoordinatorRequest(key_type=_GROUP_KEY, coordinator_keys=chunk, min_version=4, max_version=4)
            answers = [(answer.key, answer) for answer in (await connection.send(request)).coordinators]
        else:
            request = FindCoordinatorRequest(key=chunk[0], key_type=_GROUP_KEY, max_version=3)
            answers = [(chunk[0], await connection.send(request))]
        for group, answer in answers:
            if answer.error_code:
                error = error_class(answer.error_code)
                if error is kafka_errors.GroupAuthorizationFailedError and denied is not None:
                    denied.add(group)
                    continue
                if not error.retriable:
                    raise error(group)
                why = describe(error)
            else:
                coordinators[answer.node_id].append(group)
    return coordinators, why


def read_group(group: Any, left: dict[str, None], fetched: FetchedOffsets) -> None:
    """Process one group's response; a transient error leaves it in `left`, for a retry."""
    name = group.group_id
    found = []
    error = error_class(group.error_code)
    if group.error_code and error is not kafka_errors.GroupIdNotFoundError:
        if not error.retriable:
            fetched.failures[name] = describe(error)
            left.pop(name, None)
        return
    for topic in group.topics:
        topic_name = topic.name
        for partition in topic.partitions:
            if partition.error_code:
                partition_error = error_class(partition.error_code)
                if not partition_error.retriable:
                    fetched.failures[name] = f"{topic_name}:{partition.partition_index}: {describe(partition_error)}"
                    left.pop(name, None)
                return
            offset = partition.committed_offset
            if offset >= 0:
                metadata = partition.metadata or ""
                found.append(CommittedOffset(name, topic_name, partition.partition_index, offset, metadata))
    fetched.offsets[name] = found
    left.pop(name, None)


def describing(
    request_type: Any, names_field: str, left: dict[str, None], clients: dict[str, tuple[str, ...]]
) -> Callable[[StepConnection, int, list[str]], Awaitable[None]]:
    """The client ids of groups' members by one of the two describe calls."""

    async def ask(connection: StepConnection, node: int, chunk: list[str]) -> None:
        request = request_type(**{names_field: chunk, "include_authorized_operations": False})
        response = await connection.send(request, node)
        for group in response.groups:
            error = error_class(group.error_code)
            if group.error_code and error is not kafka_errors.GroupIdNotFoundError:
                if not error.retriable:
                    raise error(group.group_id)
                continue
            clients[group.group_id] = tuple(member.client_id for member in group.members)
            left.pop(group.group_id, None)

    return ask


async def pipelined(
    connection: StepConnection, node: int, commits: Mapping[str, Mapping[TopicPartition, tuple[int, str]]]
) -> AsyncIterator[tuple[str, Any]]:
    """Commit group after group without waiting for each; groups with their responses, in order."""
    waiting: deque[tuple[str, Awaitable[Any]]] = deque()
    for group, offsets in commits.items():
        waiting.append((group, await connection.begin(commit_request(group, offsets), node)))
        if len(waiting) >= _IN_FLIGHT:
            first, answer = waiting.popleft()
            yield first, await answer
    for group, answer in waiting:
        yield group, await answer


def rejections(response: Any) -> dict[TopicPartition, type[kafka_errors.KafkaError]] | None:
    """Partitions that a commit's response rejects; None if it must be retried."""
    rejected: dict[TopicPartition, type[kafka_errors.KafkaError]] = {}
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                error = error_class(partition.error_code)
                if error.retriable and error is not kafka_errors.UnknownTopicOrPartitionError:
                    return None
                rejected[TopicPartition(topic.name, partition.partition_index)] = error
    return rejected


def commit_request(group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> OffsetCommitRequest:
    """A commit from outside the group (no generation, no member), without a leader epoch."""
    topic_type = OffsetCommitRequest.OffsetCommitRequestTopic
    partition_type = topic_type.OffsetCommitRequestPartition
    by_topic: dict[str, list[object]] = defaultdict(list)
    for tp, (offset, metadata) in offsets.items():
        by_topic[tp.topic].append(
            partition_type(
                partition_index=tp.partition,
                committed_offset=offset,
                committed_leader_epoch=-1,
                committed_metadata=metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=_NO_GENERATION,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[topic_type(name=name, partitions=partitions) for name, partitions in by_topic.items()],
        max_version=9,
    )


class ConsumerGroupDescribeRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]  # untyped base
    """Describe groups by id."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]  # untyped base
    """Each group's state and members."""


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]  # untyped base
    """Share-partition start offsets of groups by id."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]  # untyped base
    """Each group's start offsets; -1 where a partition has none yet."""
