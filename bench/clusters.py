"""Starts single-broker clusters for the bench, sources and a target: the lab's brokers, with a server's JVM settings.

The lab starts its brokers for quick tests (one compiler tier, serial GC, small heap). Here they have both compilers
and 1 GiB, like a real broker: a slow broker would hide the difference between the mirrors.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.processes import end, spawn
from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import kafka_node
from drkit.lab.kafka_node import formatted_bootstrap
from drkit.lab.layout import Layout, Node, cluster_uuid
from drkit.lab.ports import free_ports
from drkit.lab.process import Interrupts
from drkit.lab.start import brokers_seen, last_lines, refuse_too_little_memory
from drkit.lab.toolchain import Toolchain
from drkit.model.errors import DrkitError

SOURCE = "primary"
TARGET = "dr"
_HEAP_MIB = 1024
_NEED_MIB = 4600  # two brokers, MirrorMaker 2, and the page cache
_READY_SECONDS = 120.0
_POLL_SECONDS = 0.1
_SYN_SECONDS = 0.5
_SETTINGS = {
    "num.network.threads": "3",  # Kafka's defaults, which the lab lowers
    "num.io.threads": "8",
    "log.segment.delete.delay.ms": "1000",  # a deleted topic frees its disk space before the next case
    "offsets.topic.num.partitions": "10",
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "1000",  # the compacted topic of `translate` gets its holes soon
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running single-broker cluster. `address`: host:port."""

    alias: str
    address: str

    def admin(self) -> ClusterAdmin:
        """A client for topics and offsets; close it."""
        return ClusterAdmin(self.alias, ClusterConfig(bootstrap_servers=self.address), timeout_seconds=60.0)

    def create_topic(self, name: str, partitions: int, config: dict[str, str] | None = None) -> None:
        """Create a topic and wait until it accepts records."""
        with self.admin() as admin:
            admin.create_topic(name, partitions=partitions, replication_factor=1, config=config)

    def delete_topics(self, *, keep: Collection[str] = ()) -> None:
        """Delete every topic, also drkit's, except for Kafka's own and those to keep; returns when they are gone."""
        with self.admin() as admin:
            admin.delete_topics([name for name in admin.topics() if _is_ours(name) and name not in keep])


def _is_ours(topic: str) -> bool:
    return not topic.startswith("__") or topic.startswith("__drkit_")


class Clusters:
    """Context manager: starts the sources (`primary`) and `dr`, stops them at the end.

    Args:
        folder: an existing folder for data and logs; not removed.
        toolchain: with the jar set `kafka`.
        say: gets a line for people about each step.
        settings: of the brokers, beside the bench's own.
        sources: the clusters beside `dr`, by alias.
        heap_mib: of each broker.
    """

    def __init__(
        self,
        folder: Path,
        toolchain: Toolchain,
        say: Callable[[str], None],
        settings: Mapping[str, str] | None = None,
        *,
        sources: Sequence[str] = (SOURCE,),
        heap_mib: int = _HEAP_MIB,
    ) -> None:
        self._folder = folder
        self._toolchain = toolchain
        self._say = say
        self._heap_mib = heap_mib
        self._children: list[subprocess.Popen[bytes]] = []
        self._queued: list[socket.socket] = []
        aliases = (*sources, TARGET)
        ports = iter(free_ports(2 * len(aliases)))
        self._nodes = [Node(f"{alias}-1", "kafka", alias, 1, next(ports), next(ports)) for alias in aliases]
        self._layout = Layout(
            brokers=1,
            store=None,
            clusters=aliases,
            cluster_ids={alias: cluster_uuid() for alias in aliases},
            nodes=tuple(self._nodes),
            broker_config={**_SETTINGS, **(settings or {})},
        )

    @property
    def sources(self) -> tuple[Cluster, ...]:
        """The sources."""
        return tuple(Cluster(node.cluster, node.address) for node in self._nodes[:-1])

    @property
    def source(self) -> Cluster:
        """The first source."""
        return self.sources[0]

    @property
    def target(self) -> Cluster:
        """The target."""
        return Cluster(TARGET, self._nodes[-1].address)

    def delete_topics(self) -> None:
        """Delete every topic of the first source and of the target, except for Kafka's own."""
        self.source.delete_topics()
        self.target.delete_topics()

    def signal_sources(self, number: signal.Signals) -> None:
        """Send a signal to every source: SIGKILL, or SIGSTOP."""
        for child in self._children[:-1]:
            child.send_signal(number)
            if number == signal.SIGKILL:
                child.wait()

    def silence_sources(self) -> None:
        """Make every source unresponsive, even to a SYN: it is stopped, and its queue of connections is full."""
        self.signal_sources(signal.SIGSTOP)
        for node in self._nodes[:-1]:
            host, _, port = node.address.rpartition(":")
            with suppress(TimeoutError):
                while True:
                    self._queued.append(socket.create_connection((host, int(port)), timeout=_SYN_SECONDS))

    def heal_sources(self) -> None:
        """Make every source answer again, with its former data."""
        while self._queued:
            self._queued.pop().close()
        for index, node in enumerate(self._nodes[:-1]):
            child = self._children[index]
            child.send_signal(signal.SIGCONT)  # no signal for one that has ended
            if child.poll() is not None:
                self._children[index] = self._launched(node)
        for node, child in zip(self._nodes[:-1], self._children, strict=False):
            self._await(node, child)

    def __enter__(self) -> Self:
        refuse_too_little_memory(_NEED_MIB)
        with Interrupts() as interrupts:
            bootstrap = formatted_bootstrap(self._toolchain, interrupts)
        try:
            for node in self._nodes:
                kafka_node.prepare(node, self._folder / node.name, bootstrap, self._layout)
                self._children.append(self._launched(node))
            for node, child in zip(self._nodes, self._children, strict=True):
                self._await(node, child)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._queued:
            self._queued.pop().close()
        for child in self._children:
            child.send_signal(signal.SIGCONT)  # a stopped one can't end in order
        end(self._children)

    def _launched(self, node: Node) -> subprocess.Popen[bytes]:
        folder = self._folder / node.name
        command = [
            *(str(self._toolchain.java), f"-Xms{self._heap_mib}m", f"-Xmx{self._heap_mib}m", "-XX:+UseG1GC"),
            *("-Djava.awt.headless=true", "-Dlog4j2.disable.jmx=true"),
            f"-Dlog4j2.configurationFile={(folder / 'log4j2.xml').as_uri()}",
            *("-cp", self._toolchain.classpath("kafka"), "kafka.Kafka", str(folder / "server.properties")),
        ]
        return spawn(command, folder / "log" / "console.log")

    def _await(self, node: Node, child: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while brokers_seen(node) != frozenset({node.node_id}):
            if child.poll() is not None or time.monotonic() > deadline:
                log = self._folder / node.name / "log"
                words = last_lines(log / "console.log", 10) + last_lines(log / "server.log", 10)
                raise DrkitError(f"broker {node.name} did not start", meaning="\n".join(words))
            time.sleep(_POLL_SECONDS)
        self._say(f"{node.name} answers on {node.address}")
