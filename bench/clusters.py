"""Clusters of one broker each for the bench, sources and a target: a lab's, with a server's JVM and settings.

The lab starts its brokers for quick tests (one compiler tier, serial GC, small heap): a slow broker would hide the
difference between the mirrors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lab import Lab

SOURCE = "primary"
TARGET = "dr"
_SETTINGS = {
    "num.network.threads": "3",  # Kafka's defaults, which the lab lowers
    "num.io.threads": "8",
    "log.segment.delete.delay.ms": "1000",  # a deleted topic frees its disk space before the next case
    "offsets.topic.num.partitions": "10",
    "log.retention.ms": "-1",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster of one broker. `address`: host:port."""

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
            ours = [name for name in admin.topics() if not name.startswith("__") or name.startswith("__drkit_")]
            admin.delete_topics([name for name in ours if name not in keep])


class Clusters:
    """Context manager: starts the sources (`primary`) and `dr`, stops them at the end.

    Args:
        folder: an existing folder for data and logs; not removed.
        say: gets a line for people about each step.
        settings: of the brokers, beside the bench's own.
        sources: the clusters beside `dr`, by alias.
        heap_mib: of each broker.
    """

    def __init__(
        self,
        folder: Path,
        say: Callable[[str], None],
        settings: Mapping[str, str] | None = None,
        *,
        sources: Sequence[str] = (SOURCE,),
        heap_mib: int = 1024,
    ) -> None:
        self._folder, self._say, self._sources = folder / "clusters", say, tuple(sources)
        self._settings = {**_SETTINGS, **(settings or {})}
        self._jvm = (f"-Xms{heap_mib}m", f"-Xmx{heap_mib}m", "-XX:+UseG1GC")
        self._lab: Lab | None = None

    def __enter__(self) -> Self:
        self._lab = Lab.up(
            self._folder,
            1,
            "sqlite",
            clusters=(*self._sources, TARGET),
            broker_config=self._settings,
            broker_jvm=self._jvm,
            say=self._say,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.lab.down()

    @property
    def lab(self) -> Lab:
        """The lab, once it is up."""
        if self._lab is None:
            raise RuntimeError("the clusters are not up: enter them first")
        return self._lab

    @property
    def sources(self) -> tuple[Cluster, ...]:
        """The sources."""
        return tuple(Cluster(alias, self.lab.bootstrap(alias)) for alias in self._sources)

    @property
    def source(self) -> Cluster:
        """The first source."""
        return self.sources[0]

    @property
    def target(self) -> Cluster:
        """The target."""
        return Cluster(TARGET, self.lab.bootstrap(TARGET))

    def delete_topics(self) -> None:
        """Delete every topic of the first source and of the target, except for Kafka's own."""
        self.source.delete_topics()
        self.target.delete_topics()
