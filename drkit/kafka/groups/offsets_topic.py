"""Groups that may have changed, by the ends of the coordinators' log, without a request per group.

Every commit, deletion and expiry of offsets, and every new group, is a record in a partition of the
coordinators' own log, `__consumer_offsets`; the group's name determines which one. So while a partition's
end doesn't move, no group in it has changed, and one small request per broker shows that for all groups.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka import errors as kafka_errors
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from drkit.kafka.admin.admin_connection import RetryLater, StepConnection, check, error_class
from drkit.kafka.admin.logs.log_offsets import LATEST

OFFSETS_TOPIC = "__consumer_offsets"
_CONSUMER = -1
_HASH_BITS = 0xFFFFFFFF
_SIGN = 0x80000000


@dataclass(frozen=True, slots=True)
class OffsetsTopicEnds:
    """The state of the coordinators' log.

    Args:
        partitions: how many it has; 0: it doesn't exist yet (there never was a group), or may not be read.
        ends: end offsets by partition; those whose leader didn't answer are left out.
        cluster_id: of the cluster that answered; empty if that isn't known.
    """

    partitions: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    cluster_id: str = ""


async def read_log_state(connection: StepConnection) -> OffsetsTopicEnds:
    """One check (within a step): a metadata request, and one request per broker that leads a partition."""
    topic_type = MetadataRequest.MetadataRequestTopic
    metadata = await connection.send(
        MetadataRequest(topics=[topic_type(name=OFFSETS_TOPIC)], allow_auto_topic_creation=False)
    )
    topic, cluster_id = metadata.topics[0], metadata.cluster_id or ""
    error = error_class(topic.error_code)
    if error is kafka_errors.UnknownTopicOrPartitionError or issubclass(error, kafka_errors.AuthorizationError):
        return OffsetsTopicEnds(cluster_id=cluster_id)
    check(topic.error_code, OFFSETS_TOPIC)
    by_leader: dict[int, list[int]] = {}
    for partition in topic.partitions:
        if partition.leader_id >= 0:
            by_leader.setdefault(partition.leader_id, []).append(partition.partition_index)
    ends: dict[int, int] = {}
    why = "no partition has a leader"
    patience = connection.timeout_seconds / (len(by_leader) + 1)
    for leader, partitions in by_leader.items():
        try:
            ends.update(await _ends(connection, leader, partitions, patience))
        except kafka_errors.KafkaError as error:
            if not error.retriable and not isinstance(error, kafka_errors.UnknownBrokerIdError):
                raise
            why = str(error)
    if not ends:
        raise RetryLater(f"{OFFSETS_TOPIC}: {why}")
    return OffsetsTopicEnds(len(topic.partitions), ends, cluster_id)


async def _ends(connection: StepConnection, leader: int, partitions: list[int], patience: float) -> dict[int, int]:
    topic_type = ListOffsetsRequest.ListOffsetsTopic
    partition_type = topic_type.ListOffsetsPartition
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=0,
        topics=[
            topic_type(
                name=OFFSETS_TOPIC,
                partitions=[
                    partition_type(partition_index=partition, current_leader_epoch=-1, timestamp=LATEST)
                    for partition in partitions
                ],
            )
        ],
        min_version=1,
        max_version=6,
    )
    response = await connection.send(request, leader, timeout_seconds=patience)
    found: dict[int, int] = {}
    for topic in response.topics:
        for partition in topic.partitions:
            error = error_class(partition.error_code)
            if partition.error_code and not error.retriable:
                check(partition.error_code, f"{OFFSETS_TOPIC}:{partition.partition_index}")
            if not partition.error_code:
                found[partition.partition_index] = partition.offset
    return found


def partition_of(group: str, partitions: int) -> int:
    """A group's partition of `__consumer_offsets`: Java's hash of its name."""
    value = 0
    for unit in memoryview(group.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & _HASH_BITS
    signed = value - (_HASH_BITS + 1) if value & _SIGN else value
    return (0 if value == _SIGN else abs(signed)) % partitions
