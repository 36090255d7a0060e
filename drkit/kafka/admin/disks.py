"""The room on the disks of a cluster's brokers (KIP-827)."""

from __future__ import annotations

from typing import NamedTuple

from kafka.protocol.admin import DescribeLogDirsRequest

from drkit.kafka.admin.admin_connection import AdminConnection, check
from drkit.kafka.admin.topic_requests import metadata


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

    async def ask(connection: AdminConnection, node: int, found: list[Disk]) -> None:
        answer = await connection.send(DescribeLogDirsRequest(topics=[], max_version=4), node)
        check(answer.error_code, "room on disks")
        for each in answer.results:
            if not each.error_code:
                known = each.total_bytes >= 0 and each.usable_bytes >= 0
                total, usable = (each.total_bytes, each.usable_bytes) if known else (None, None)
                found.append(Disk(node, each.log_dir, total, usable))

    async def step(connection: AdminConnection) -> list[Disk]:
        found: list[Disk] = []
        nodes = [broker.node_id for broker in (await metadata([])(connection)).brokers]
        await connection.gather(ask(connection, node, found) for node in nodes)
        return sorted(found)

    result: list[Disk] = connection.call("read the room on disks", step)
    return result
