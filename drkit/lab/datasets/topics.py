"""Creates a data set's topics on a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from drkit.lab.datasets.events import TopicSpec
from drkit.model.errors import Refused

_MOST_REPLICAS = 3


class TopicPartitions(Protocol):
    """What of a topic is looked at."""

    @property
    def partitions(self) -> int:
        """How many partitions it has."""


class TopicAdmin(Protocol):
    """What is asked of a cluster. `drkit.kafka.admin.cluster_admin.ClusterAdmin` is one."""

    def brokers(self) -> Sequence[Any]:
        """The brokers alive."""

    def topics(self, names: Iterable[str] | None = None) -> Mapping[str, TopicPartitions]:
        """Those of `names` that exist."""

    def topic_configs(self, names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """Effective configuration by topic."""

    def create_topic(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until it can be written."""


def prepare_topics(admin: TopicAdmin, specs: Sequence[TopicSpec]) -> list[str]:
    """Create what is missing; nothing is created where an existing topic doesn't fit.

    Returns:
        Remarks for people: topics that exist already and are appended to, and settings of theirs
        that differ from what the data set wants.

    Raises:
        Refused: a topic exists with another number of partitions.
        Unreachable: the cluster doesn't answer.
    """
    existing = admin.topics([spec.name for spec in specs])
    unfit = [spec for spec in specs if spec.name in existing and existing[spec.name].partitions != spec.partitions]
    if unfit:
        found = ", ".join(
            f"{spec.name} has {_partitions(existing[spec.name].partitions)}, the data set needs {spec.partitions}"
            for spec in unfit
        )
        raise Refused(
            f"existing topics don't fit the data set: {found}",
            meaning="With another number of partitions the keys would lie elsewhere; nothing was written",
            remedy="Delete those topics, or load into another lab (--dir)",
        )
    replicas = min(_MOST_REPLICAS, len(admin.brokers()))
    for spec in specs:
        if spec.name not in existing:
            admin.create_topic(
                spec.name,
                partitions=spec.partitions,
                replication_factor=max(1, replicas),
                config=_config(spec, replicas),
            )
    return _remarks(admin, [spec for spec in specs if spec.name in existing])


def _config(spec: TopicSpec, replicas: int) -> dict[str, str]:
    """With three replicas, one may be down without stopping writes or losing what was acknowledged."""
    config = dict(spec.config)
    if replicas >= _MOST_REPLICAS:
        config["min.insync.replicas"] = str(_MOST_REPLICAS - 1)
    return config


def _remarks(admin: TopicAdmin, kept: Sequence[TopicSpec]) -> list[str]:
    if not kept:
        return []
    remarks = [f"appending to what exists: {', '.join(spec.name for spec in kept)}"]
    effective = admin.topic_configs([spec.name for spec in kept])
    for spec in kept:
        has = effective.get(spec.name, {})
        remarks.extend(
            f"{spec.name}: {key} is {has.get(key, 'not set')}, the data set is made for {value}"
            for key, value in spec.config.items()
            if has.get(key) != value
        )
    return remarks


def _partitions(count: int) -> str:
    return f"{count} partition" if count == 1 else f"{count} partitions"
