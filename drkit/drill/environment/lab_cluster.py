"""Operators' and attackers' actions on a cluster of the lab: topics, settings, records, the log on disk.

Plain confluent-kafka: neither an operator's mistake nor an attack goes through drkit.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # as documented
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from drkit.drill.environment.log_surgery import stopped
from drkit.drill.environment.waiting import wait_for
from drkit.lab import Lab

_SECONDS = 40.0
_NODE_ID = "1"
SCRAM_MECHANISM: Final = "SCRAM-SHA-512"
_MECHANISM = ScramMechanism.SCRAM_SHA_512
_ITERATIONS = 4096
"""The least that Kafka accepts."""


class LabCluster:
    """A cluster of one broker.

    Args:
        lab: where it runs.
        alias: its name there.
    """

    def __init__(self, lab: Lab, alias: str) -> None:
        self.alias = alias
        self.bootstrap = lab.bootstrap(alias)
        self._lab = lab
        self._node = f"{alias}-{_NODE_ID}"
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "socket.timeout.ms": 10_000})
        self._consumers = {
            committed: Consumer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "group.id": "drkit-lab-cluster",
                    "log_level": 0,
                    "isolation.level": "read_committed" if committed else "read_uncommitted",
                    "enable.auto.commit": False,
                    "topic.metadata.refresh.interval.ms": 1_000,  # partitions are added
                }
            )
            for committed in (True, False)
        }

    def close(self) -> None:
        """Close the connections."""
        for consumer in self._consumers.values():
            consumer.close()

    # -- topics ------------------------------------------------------------------------------------

    def create(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        """Create a topic and wait until it can be read and written."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=settings)
        self._admin.create_topics([new])[topic].result(20)
        self.wait_ready(topic, partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it is gone."""
        self._admin.delete_topics([topic])[topic].result(20)
        wait_for(f"the end of {topic}", _SECONDS, lambda: self.partitions(topic) == 0)

    def grow(self, topic: str, partitions: int) -> None:
        """Give it more partitions."""
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(20)
        self.wait_ready(topic, partitions)

    def wait_ready(self, topic: str, partitions: int) -> None:
        """Wait until every partition has a leader that answers."""
        wait_for(f"{topic} on {self.alias}", _SECONDS, lambda: self.partitions(topic) == partitions)
        for number in range(partitions):
            wait_for(f"{topic}:{number} on {self.alias}", _SECONDS, partial(self._answers, topic, number))

    def partitions(self, topic: str) -> int:
        """How many it has; 0: it doesn't exist."""
        found = self._admin.list_topics(timeout=10).topics.get(topic)
        if found is None or found.error is not None:
            return 0
        return sum(1 for partition in found.partitions.values() if partition.leader >= 0)

    def ends(self, topic: str, partition: int, *, committed: bool) -> tuple[int, int]:
        """Log start, and last stable offset (or high watermark)."""
        found: list[tuple[int, int]] = []

        def ask() -> bool:
            found.append(self._consumers[committed].get_watermark_offsets(TopicPartition(topic, partition), timeout=10))
            return True

        wait_for(f"the ends of {topic}:{partition} on {self.alias}", _SECONDS, ask)
        return found[-1]

    def _answers(self, topic: str, partition: int) -> bool:
        try:
            self._consumers[True].get_watermark_offsets(TopicPartition(topic, partition), timeout=5)
        except KafkaException:
            return False
        return True

    # -- an operator's actions ---------------------------------------------------------------------

    def purge(self, topic: str, partition: int, before: int) -> bool:
        """Remove the records below an offset (-1: all); returns whether the broker accepted it."""
        position = TopicPartition(topic, partition, before)
        try:
            self._admin.delete_records([position])[position].result(20)
        except KafkaException as error:
            if error.args[0].code() in {KafkaError.POLICY_VIOLATION, KafkaError.OFFSET_OUT_OF_RANGE}:
                return False
            raise
        return True

    def set(self, topic: str, name: str, value: str | None) -> None:
        """Set one of the topic's settings; None: reset it to its default."""
        self._alter(ConfigResource.Type.TOPIC, topic, name, value)

    def set_broker(self, name: str, value: str | None) -> None:
        """As `set`, for the broker."""
        self._alter(ConfigResource.Type.BROKER, _NODE_ID, name, value)

    def set_password(self, user: str, password: str) -> None:
        """Set the password of a user of `SCRAM_MECHANISM`; creates the user if needed."""
        info = ScramCredentialInfo(_MECHANISM, _ITERATIONS)
        self._change_user(user, UserScramCredentialUpsertion(user, info, password.encode()))

    def remove_password(self, user: str) -> None:
        """Delete a user of `SCRAM_MECHANISM`."""
        self._change_user(user, UserScramCredentialDeletion(user, _MECHANISM))

    def _change_user(self, user: str, change: Any) -> None:
        self._admin.alter_user_scram_credentials([change])[user].result(20)

    def _alter(self, kind: Any, of: str, name: str, value: str | None) -> None:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value or "", incremental_operation=operation)
        resource = ConfigResource(kind, of, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(20)

    # -- the broker and its disk -------------------------------------------------------------------

    @property
    def data(self) -> Path:
        """The log directory of its broker: a folder for each partition."""
        return self._lab.dir / "nodes" / self._node / "data"

    def restart(self, *, cleanly: bool) -> None:
        """Stop the broker (or kill it) and start it again; returns when it answers."""
        with stopped(self._lab, self._node, cleanly=cleanly):
            pass

    def cut(self, topic: str, partition: int, records: int, *, cleanly: bool) -> None:
        """Remove the log's end, `records` offsets or a few more: whole batches. The broker is down meanwhile."""
        self.cut_many(topic, [partition], records, cleanly=cleanly)

    def cut_many(
        self, topic: str, partitions: Sequence[int], records: int, *, cleanly: bool
    ) -> dict[int, tuple[int, int]]:
        """As `cut`, for several partitions while the broker is down once.

        Returns, for each partition with records, its former and its new log end.
        """
        ends: dict[int, tuple[int, int]] = {}
        with stopped(self._lab, self._node, cleanly=cleanly) as disk:
            for partition in partitions:
                batches = disk.batches(topic, partition)
                if batches:
                    end = batches[-1].last_offset + 1
                    ends[partition] = end, disk.cut(topic, partition, max(0, end - records))
        return ends

    def lose(self, topic: str, partition: int, *, cleanly: bool) -> None:
        """Remove the partition's folder. The broker is down meanwhile."""
        with stopped(self._lab, self._node, cleanly=cleanly) as disk:
            shutil.rmtree(disk.partition(topic, partition), ignore_errors=True)
