"""Creates a data set's topics on a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from drkit.lab.datasets.events import TopicSpec
from drkit.model.errors import Refused

_MOST_REPLICAS = 3


class TopicPartitions(Protocol):
    """The part of a topic's description that is used here."""

    @property
    def partitions(self) -> int:
        """How many partitions it has."""


class TopicAdmin(Protocol):
    """The admin requests that are used here, as in `drkit.kafka.admin.cluster_admin.ClusterAdmin`."""

    def brokers(self) -> Sequence[Any]:
        """The live brokers."""

    def topics(self, names: Iterable[str] | None = None) -> Mapping[str, TopicPartitions]:
        """Those of `names` that exist."""

    def topic_configs(self, names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """Effective configuration by topic."""

    def create_topic(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until it accepts records."""


def prepare_topics(admin: TopicAdmin, specs: Sequence[TopicSpec]) -> list[str]:
    """Create the missing topics; none if an existing topic doesn't fit.

    Returns:
        Remarks for people: existing topics, to which the load appends, and those of their settings that differ from the
        data set's.

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
            meaning="With another number of partitions the keys would be on other partitions; nothing was written",
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
    """With three replicas, one may be down without stopping writes or losing acknowledged records."""
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
