"""A test's own link on the shared lab, its runtime, and an independent reader of both sides.

The reader is plain confluent-kafka, without drkit: tests compare the mirror's store with it.
"""

from __future__ import annotations

import json
import socket
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from drkit.config import ClusterConfig, Config, load_config
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import Loss
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab
from drkit.mapping import Translator
from drkit.mirror.runtime.mirror_runtime import MirrorReport, MirrorRuntime
from drkit.model.link_state import Problem, TopicState
from drkit.model.topology import Link
from drkit.model.topology import TopicPartition as Place
from drkit.store import open_store
from drkit.store.api import Store
from tests.support.clusters.lab import USERS
from tests.support.clusters.topics import create_topic, delete_records, has_no_leader_yet
from tests.support.commands.running import Commands, Running, on_threads
from tests.support.links.log_reader import Record, read_partition
from tests.support.wait import wait_until


class Side:
    """One cluster, with plain confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic (settings with underscores for dots) and wait until it accepts records."""
        settings = {"retention.ms": "-1", **{name.replace("_", "."): value for name, value in config.items()}}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=settings)
        create_topic({"bootstrap.servers": self.bootstrap, "log_level": 0}, new)
        wait_until(lambda: self.partitions(topic) == partitions, what=f"topic {topic}")

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it is gone."""
        self.admin.delete_topics([topic])[topic].result(20)
        wait_until(lambda: self.partitions(topic) == 0, what=f"the end of topic {topic}")

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(20)
        wait_until(lambda: self.partitions(topic) == partitions, what=f"{partitions} partitions of {topic}")

    def purge(self, topic: str, before: int, partition: int = 0) -> None:
        """Remove the records below an offset."""
        delete_records(self.admin, topic, before, partition)

    def partitions(self, topic: str) -> int:
        """The number of partitions of a topic; 0: it doesn't exist."""
        found = self.admin.list_topics(timeout=10).topics.get(topic)
        return 0 if found is None or found.error is not None else len(found.partitions)

    def producer(self, **config: Any) -> Producer:
        """A producer (settings with underscores for dots)."""
        extra = {name.replace("_", "."): value for name, value in config.items()}
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1, "log_level": 0, **extra})

    def read(self, topic: str, partition: int = 0, *, committed: bool = True) -> list[Record]:
        """All records of a partition."""
        return read_partition(self.bootstrap, topic, partition, committed=committed)

    def end(self, topic: str, partition: int = 0) -> int:
        """The high watermark."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "independent-reader",
                "isolation.level": "read_uncommitted",  # else it is the last stable offset
                "log_level": 0,
            }
        )

        def ask() -> tuple[int, int] | None:
            try:
                return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            except KafkaException as error:
                if has_no_leader_yet(error):
                    return None
                raise

        try:
            return wait_until(ask, what=f"the end of {topic}:{partition}")[1]
        finally:
            consumer.close()


class Pair:
    """Two clusters of different labs, with the aliases of a `Mirrored` link."""

    def __init__(self, primary: str, dr: str) -> None:
        self._servers = {"primary": primary, "dr": dr}

    def bootstrap(self, alias: str) -> str:
        return self._servers[alias]


class Mirrored(Commands):
    """A link with only topics and groups of the test's own prefix, and its own store."""

    def __init__(self, lab: Lab | Pair, folder: Path, prefix: str, store_url: str | None = None) -> None:
        self.lab = lab
        self.folder = folder
        self.prefix = prefix
        self.source = Side(lab.bootstrap("primary"))
        self.target = Side(lab.bootstrap("dr"))
        super().__init__(folder / "drkit.toml")
        self.config_path.write_text(
            f"""
[clusters.primary]
bootstrap_servers = "{lab.bootstrap("primary")}"
[clusters.dr]
bootstrap_servers = "{lab.bootstrap("dr")}"
[store]
url = "{store_url or f"sqlite:///{folder / 'drkit.db'}"}"
[[links]]
source = "primary"
target = "dr"
topics = ["{prefix}.*"]
groups = ["{prefix}.*"]
"""
        )
        self.config = load_config(self.config_path)
        self.link: Link = self.config.links[0].link()
        self.store: Store = open_store(self.config.store.plain_url)

    def configure(self, text: str) -> None:
        """Add keys to the link's table in the configuration file."""
        self.config_path.write_text(f"{self.config_path.read_text()}\n{text}\n")
        self.config = load_config(self.config_path)
        self.link = self.config.links[0].link()

    def close(self) -> None:
        """Clean up."""
        super().close()
        self.store.close()

    def name(self, part: str) -> str:
        """The full name of a topic or group of the link."""
        return f"{self.prefix}-{part}"

    def created_by_drkit(self, topic: str) -> None:
        """Record a topic on both sides like a failback that has recreated it."""
        ids = []
        for side in (self.source, self.target):
            with ClusterAdmin("side", ClusterConfig(bootstrap_servers=side.bootstrap)) as admin:
                ids.append(admin.topics([topic])[topic].topic_id)
        state = TopicState(topic, topic, *ids, 1, 1, created_by_drkit=True)
        self.store.put_topic_states(self.link.id, [state])

    def without_primary(self) -> Config:
        """The same configuration, with an address of the primary at which nothing answers."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        clusters = self.config.clusters
        gone = clusters["primary"].model_copy(update={"bootstrap_servers": f"127.0.0.1:{port}"})
        return self.config.model_copy(update={"clusters": {**clusters, "primary": gone}})

    def planned_loss(self, config: Config | None = None) -> Loss:
        """What a failover planned now would lose."""
        with ClusterContext(config or self.config, self.store) as estate:
            return make_plan(estate, PlanRequest("dr")).loss

    # -- running the mirror ------------------------------------------------------------------------

    def runtime(self, looks: float = 0.3, **options: Any) -> MirrorRuntime:
        """A runtime of the link that checks topics every `looks` seconds."""
        return MirrorRuntime(self.config, self.link, self.store, topic_seconds=looks, **options)

    def catch_up(self) -> MirrorReport:
        """Run until caught up."""
        return self.runtime().run(until_caught_up=True)

    @contextmanager
    def running(self, **options: Any) -> Iterator[Running]:
        """The mirror on a thread while the body runs; stopped at its end unless it ended by itself."""
        with on_threads(mirror=lambda: self.runtime(**options)) as running:
            yield running["mirror"]

    # -- checks ------------------------------------------------------------------------------------

    def through(self, topic: str, partition: int = 0) -> int:
        """The mirrored offset in the store; -1: unknown."""
        watermark = self.store.watermarks(self.link.id).get(Place(topic, partition))
        return -1 if watermark is None else watermark.source_through

    def problems(self, kind: str | None = None) -> list[Problem]:
        """Problems in the store (of a kind)."""
        return [problem for problem in self.store.problems(self.link.id) if kind in {None, problem.kind}]

    def wait_through(self, topic: str, partition: int = 0, *, offset: int | None = None) -> None:
        """Wait until everything on the source (or everything up to `offset`) is mirrored according to the store."""
        goal = self.source.end(topic, partition) if offset is None else offset
        wait_until(lambda: self.through(topic, partition) >= goal, 60, f"{topic}:{partition} mirrored through {goal}")

    def hold(self, topic: str) -> None:
        """Pause a topic with `drkit link`, write probes to it, and wait until they stay on the source."""
        told = self.drkit("link", "pause", str(self.link.id), "--topic", topic)
        assert told.returncode == 0, told.stderr
        producer = self.source.producer()

        def stays() -> bool:
            before = self.target.end(topic)
            producer.produce(topic, value=b"probe", partition=0)
            assert producer.flush(20) == 0
            watermark = self.store.watermarks(self.link.id)[Place(topic, 0)]
            return watermark.lag_records > 0 and self.target.end(topic) == before

        wait_until(stays, what=f"{topic} held")

    def assert_same(self, topic: str, partition: int = 0, *, target_topic: str | None = None) -> list[Record]:
        """Assert that every record of the source is on the target once, in order, unchanged; returns the source's."""
        ours = self.source.read(topic, partition)
        theirs = self.target.read(target_topic or topic, partition, committed=False)
        assert [record.content for record in theirs] == [record.content for record in ours]
        return ours

    def assert_translates(
        self, topic: str, partition: int = 0, commits: Sequence[int] | None = None, *, newest_only: bool = False
    ) -> None:
        """Assert that every position that a group may have committed translates to its next record on the target.

        Any offset after the previous record and not beyond the next one is correct: markers are in between.
        `newest_only`: the target also holds older records, which the source no longer has.
        """
        ours = self.source.read(topic, partition)
        theirs = self.target.read(topic, partition, committed=False)
        if newest_only:
            theirs = theirs[-len(ours) :]
        assert [record.content for record in ours] == [record.content for record in theirs]
        offsets = [record.offset for record in ours]
        end = self.target.end(topic, partition)
        translator = Translator(self.store, self.link.id)
        start = offsets[0] if offsets else 0
        for commit in commits if commits is not None else range(start, self.source.end(topic, partition) + 1):
            following = bisect_left(offsets, commit)
            first = theirs[following - 1].offset + 1 if following else 0
            last = theirs[following].offset if following < len(theirs) else end
            answer = translator.translate(Place(topic, partition), commit)
            assert answer.certainty.value == "exact", (commit, answer)
            assert answer.target_offset is not None
            assert first <= answer.target_offset <= last, (commit, answer)


def as_restricted(lab: Lab, world: Mirrored) -> Mirrored:
    """The same link; its mirror is the user `mirror` of the secured lab, which has no rights by default."""
    text = world.config_path.read_text()
    for alias in ("primary", "dr"):
        client = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "mirror",
            "sasl.password": USERS["mirror"],
        }
        lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in client.items()]
        servers = f'bootstrap_servers = "{lab.bootstrap(alias, sasl=True)}"'
        table = "\n".join([servers, f"[clusters.{alias}.client]", *lines])
        text = text.replace(f'bootstrap_servers = "{lab.bootstrap(alias)}"', table)
    world.config_path.write_text(text)
    world.configure("")
    return world
