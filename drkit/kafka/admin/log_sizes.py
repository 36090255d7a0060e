"""Bytes of partitions' logs on their leaders' disks (DescribeLogDirs, KIP-113)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kafka.protocol.admin import DescribeLogDirsRequest

from drkit.kafka.admin.admin_connection import AdminConnection, check, error_class
from drkit.kafka.admin.log_offsets import find_leaders
from drkit.model.topology import TopicPartition


def log_sizes(connection: AdminConnection, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Bytes by partition; those that no leader tells of are left out.

    Raises:
        Refused: the cluster denies it: it needs DESCRIBE on the cluster.
    """
    wanted = list(tps)
    found: dict[TopicPartition, int] = {}

    async def step(connection: AdminConnection) -> None:
        leaders = await find_leaders(connection, wanted, set())
        await connection.gather(_ask(connection, leader, led, found) for leader, led in leaders.items())

    if wanted:
        connection.call("read the sizes of logs", step)
    return found


async def _ask(
    connection: AdminConnection, leader: int, tps: list[TopicPartition], found: dict[TopicPartition, int]
) -> None:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for tp in tps:
        by_topic[tp.topic].append(tp.partition)
    topic_type = DescribeLogDirsRequest.DescribableLogDirTopic
    request = DescribeLogDirsRequest(
        topics=[topic_type(topic=name, partitions=numbers) for name, numbers in by_topic.items()], max_version=4
    )
    response = await connection.send(request, leader)
    check(response.error_code, "sizes of logs")
    for folder in response.results:
        if folder.error_code:
            error = error_class(folder.error_code)
            if not error.retriable:
                raise error(folder.log_dir)
            continue
        for topic in folder.topics:
            for partition in topic.partitions:
                if not partition.is_future_key:
                    found[TopicPartition(topic.name, partition.partition_index)] = partition.partition_size
