"""A test's own link on the shared lab: unique topics and groups, its own store, an independent reader.

Everything here uses confluent-kafka's plain clients, so that drkit's effects are checked without drkit.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic

from drkit.config import Config, load_config
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.lab import Lab
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.model.errors import Refused
from drkit.model.topology import Link
from drkit.store import open_store
from drkit.store.api import Store
from tests.support.clusters.topics import create_topic
from tests.support.links.log_reader import read_topics
from tests.support.wait import wait_until

TIMEOUT = 30.0


@dataclass
class OwnLink:
    """`primary->dr` with the topics and groups that have the prefix `name`."""

    name: str
    config_path: Path
    config: Config
    store: Store

    @property
    def link(self) -> Link:
        return self.config.links[0].link()

    def estate(self, config: Config | None = None) -> ClusterContext:
        return ClusterContext(config or self.config, self.store, patience_seconds=2.0)

    def topic(self, suffix: str) -> str:
        return f"{self.name}.{suffix}"

    def client(self, alias: str) -> dict[str, str]:
        """Properties of a plain client: drkit's address and credentials."""
        cluster = self.config.clusters[alias]
        return {"bootstrap.servers": cluster.bootstrap_servers, **cluster.properties()}

    # -- actions on the clusters -------------------------------------------------------------------

    def create(self, alias: str, suffix: str, partitions: int = 2, **config: str) -> str:
        topic = self.topic(suffix)
        settings = {key.replace("_", "."): value for key, value in config.items()}
        create_topic(self.client(alias), NewTopic(topic, partitions, 1, config=settings))
        return topic

    def produce(self, alias: str, topic: str, values: Mapping[int, Sequence[str]], stamp: int | None = None) -> None:
        """Produce values by partition, with the timestamps `stamp`, `stamp` + 1 s … (default: now)."""
        failed: list[object] = []
        producer = Producer({**self.client(alias), "linger.ms": 5})
        for partition, texts in values.items():
            for number, text in enumerate(texts):
                producer.produce(
                    topic,
                    text.encode(),
                    key=str(number).encode(),
                    partition=partition,
                    timestamp=int(time.time() * 1000) if stamp is None else stamp + 1000 * number,
                    on_delivery=lambda error, _message: failed.append(error) if error else None,
                )
        assert producer.flush(TIMEOUT) == 0
        assert not failed

    def commit(self, alias: str, group: str, topic: str, offsets: Mapping[int, int]) -> str:
        """Commit like a consumer of the group; returns the group's full name."""
        name = f"{self.name}.{group}"
        consumer = Consumer({**self.client(alias), "group.id": name, "enable.auto.commit": False})
        try:
            wanted = [ClientPartition(topic, partition, offset) for partition, offset in offsets.items()]
            for done in wait_until(lambda: commit_once(consumer, wanted), what=f"a coordinator for {name}"):
                assert done.error is None
        finally:
            consumer.close()
        return name

    # -- an independent reader ---------------------------------------------------------------------

    def committed(self, alias: str, group: str) -> dict[tuple[str, int], int]:
        """The group's committed offsets on topics of this link."""
        consumer = Consumer({**self.client(alias), "group.id": group, "enable.auto.commit": False})
        try:
            topics = consumer.list_topics(timeout=TIMEOUT).topics
            wanted = [
                ClientPartition(name, partition)
                for name, topic in topics.items()
                if name.startswith(f"{self.name}.")
                for partition in topic.partitions
            ]
            found = consumer.committed(wanted, timeout=TIMEOUT)
        finally:
            consumer.close()
        return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

    def records(self, alias: str, topic: str) -> dict[int, dict[int, str]]:
        """Every value of a topic by partition and offset."""
        read = read_topics(self.client(alias), topic.__eq__).get(topic, {})
        return {
            partition: {each.offset: (each.value or b"").decode() for each in records}
            for partition, records in read.items()
        }

    def values(self, alias: str, topic: str) -> dict[int, list[str]]:
        """Every value of a topic by partition, in order."""
        return {partition: list(records.values()) for partition, records in self.records(alias, topic).items()}

    def unread(self, alias: str, group: str, topic: str) -> dict[int, list[str]]:
        """The values that a group would read from its committed offsets on, by partition."""
        stands = self.committed(alias, group)
        return {
            partition: [value for offset, value in records.items() if offset >= stands[topic, partition]]
            for partition, records in self.records(alias, topic).items()
            if (topic, partition) in stands
        }

    def topic_names(self, alias: str) -> set[str]:
        return set(AdminClient(self.client(alias)).list_topics(timeout=TIMEOUT).topics)


def own_link(
    lab: Lab, folder: Path, name: str, store_url: str | None = None, *, extra: str = "", **objectives: float
) -> OwnLink:
    """A test's own configuration file and store, for the shared lab's clusters; `extra`: more of the file."""
    base = load_config(lab.config_path)
    lines = []
    for alias, cluster in base.clusters.items():
        lines += [f"[clusters.{alias}]", f'bootstrap_servers = "{cluster.bootstrap_servers}"']
    lines += [
        "[store]",
        f'url = "{store_url or f"sqlite:///{folder}/drkit.db"}"',
        "[[links]]",
        'source = "primary"',
        'target = "dr"',
        f'topics = ["{name}[.].*"]',
        f'groups = ["{name}[.].*"]',
    ]
    if objectives:
        lines += ["[objectives]", *(f"{key} = {value}" for key, value in objectives.items())]
    path = folder / "drkit.toml"
    path.write_text("\n".join([*lines, extra]) + "\n", encoding="utf-8")
    return open_link(path, name)


def open_link(config_path: Path, name: str) -> OwnLink:
    """The link of a configuration that `own_link` wrote, opened again."""
    config = load_config(config_path)
    return OwnLink(name, config_path, config, open_store(config.store.plain_url))


_PASSING = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
"""The errors of a group's coordinator that is being elected or loads its log."""


def commit_once(consumer: Consumer, wanted: list[ClientPartition]) -> list[ClientPartition]:
    try:
        done: list[ClientPartition] = consumer.commit(offsets=wanted, asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() in _PASSING:
            raise AssertionError(str(error)) from error  # not yet
        raise
    return done


def texts(prefix: str, count: int, partitions: Iterable[int] = (0, 1)) -> dict[int, list[str]]:
    """`count` values for each partition, all different."""
    return {partition: [f"{prefix}-{partition}-{number}" for number in range(count)] for partition in partitions}


def mirror(own: OwnLink, link: Link | None = None) -> int:
    """Mirror until all current records of the source are on the target; returns the number of records."""
    report = MirrorRuntime(own.config, link or own.link, own.store).run(until_caught_up=True)
    assert report.caught_up
    assert not report.halted
    return report.records


@contextmanager
def mirroring(own: OwnLink, link: Link | None = None) -> Iterator[None]:
    """A running mirror in its own thread."""
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=1) as pool:
        running = pool.submit(MirrorRuntime(own.config, link or own.link, own.store).run, False, stop)
        try:
            yield
        finally:
            stop.set()
            with suppress(Refused):  # a failover sealed the link meanwhile
                running.result(TIMEOUT)


def without_primary(own: OwnLink) -> Config:
    """The same configuration, with an address of the primary at which nothing answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    gone = own.config.clusters["primary"].model_copy(update={"bootstrap_servers": f"127.0.0.1:{port}"})
    return own.config.model_copy(update={"clusters": {**own.config.clusters, "primary": gone}})


def failed_over(own: OwnLink, *, accept_unfenced: bool) -> tuple[str, str]:
    """A topic and a group, with records that only the primary holds, and new ones on dr."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 10))
    group = own.commit("primary", "g", topic, {0: 3, 1: 10})
    mirror(own)
    own.produce("primary", topic, texts("only-here", 2))
    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        assert run_failover(estate, plan, accept_unfenced=accept_unfenced).error is None
    own.produce("dr", topic, texts("on-dr", 5))
    own.commit("dr", "g", topic, {0: 12, 1: 14})
    return topic, group
