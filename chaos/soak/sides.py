"""One Kafka cluster of the soak: topics, leaders, replicas, with plain confluent-kafka."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # as documented

from drkit.drill.environment.waiting import wait_for


class SoakError(Exception):
    """The soak itself could not continue: this says nothing about the mirror."""


class Side:
    """A cluster.

    Args:
        alias: its name in the lab.
        bootstrap: host:port,… of its brokers.
    """

    def __init__(self, alias: str, bootstrap: str) -> None:
        self.alias = alias
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 10_000})

    def create(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        """Create a topic with three replicas and wait until all are in sync."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=3, config=settings)
        self._admin.create_topics([new])[topic].result(30)
        wait_for(f"topic {topic} in sync", 60, lambda: self._in_sync(topic, partitions))

    def leaders(self, topics: list[str]) -> dict[tuple[str, int], int]:
        """The leader's node id of each partition that has one."""
        found = self._topics()
        return {
            (topic, number): partition.leader
            for topic in topics
            if topic in found
            for number, partition in found[topic].partitions.items()
            if partition.leader >= 0
        }

    def healthy(self) -> bool:
        """Whether every replica of every partition is in sync."""
        topics = self._topics()
        return all(
            partition.leader >= 0 and len(partition.isrs) == len(partition.replicas)
            for topic in topics.values()
            for partition in topic.partitions.values()
        )

    def not_preferred(self) -> list[tuple[str, int]]:
        """Partitions that aren't led by the first of their replicas."""
        return [
            (name, number)
            for name, topic in self._topics().items()
            for number, partition in topic.partitions.items()
            if partition.leader != partition.replicas[0]
        ]

    def has(self, topics: Iterable[str]) -> bool:
        """Whether all of these topics exist."""
        return set(topics) <= self._topics().keys()

    def replicas(self, topic: str) -> dict[int, list[int]]:
        """The replicas of each partition, the preferred leader first."""
        return {number: list(p.replicas) for number, p in self._topics()[topic].partitions.items()}

    def _in_sync(self, topic: str, partitions: int) -> bool:
        found = self._topics().get(topic)
        return (
            found is not None
            and len(found.partitions) == partitions
            and all(p.leader >= 0 and len(p.isrs) == len(p.replicas) for p in found.partitions.values())
        )

    def _topics(self) -> dict[str, Any]:
        return {name: topic for name, topic in self._admin.list_topics(timeout=10).topics.items() if not topic.error}
