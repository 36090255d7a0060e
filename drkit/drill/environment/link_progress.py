"""One link of a drill: its workload and clients, what struck it, and what a failover stated of its group."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from drkit.drill.environment.clients import Clients
from drkit.drill.experiment.base import LinkSpec
from drkit.drill.experiment.steps import Workload
from drkit.drill.judge.history import ConfirmedPosition, StatedPosition
from drkit.drill.workload.reading import ANSWER_SECONDS, NotRead, group_positions


@dataclass
class LinkProgress:
    """A link and its state so far. Times are seconds of CLOCK_MONOTONIC.

    `drill`: the name by which the link's records are recognized.
    `disasters`: the moments of the faults on its source, and of its failovers.
    `failover`: the document of the last failover that moved it, or its part of it; `failed_over`: whether that
    succeeded. `away`: whether it is failed over now: no failback or reprotect succeeded since.
    `moved`: whether clients were moved to the target after a failover that succeeded.
    `started_from`: the group's position on the target before it read there; `start_unknown` says why that couldn't be
    read.
    `stated`: where the last failover stated that the group continues; empty if it did not succeed.
    `turned`: whether the configuration has it the other way round, after a reprotect.
    """

    spec: LinkSpec
    workload: Workload
    clients: Clients
    drill: str
    disasters: list[float] = field(default_factory=list)
    failover: dict[str, Any] | None = None
    failed_over: bool = False
    away: bool = False
    moved: bool = False
    started_from: tuple[ConfirmedPosition, ...] = ()
    start_unknown: str | None = None
    stated: tuple[StatedPosition, ...] = ()
    turned: bool = False

    @property
    def disaster_at(self) -> float | None:
        """From when RPO and RTO are measured; None: nothing struck the source, and no failover began."""
        return min(self.disasters, default=None)

    def note_disaster(self) -> None:
        """Note the moment of a fault on the source, or of a failover."""
        self.disasters.append(time.monotonic())

    def topic_on(self, cluster: str) -> str:
        """The workload's topic on one of the link's clusters."""
        return self.spec.topic_on(cluster, self.workload.topic)

    def note_positions(self, properties: dict[str, str], cluster: str) -> None:
        """Store the group's position on a cluster, by its coordinator, before it reads there."""
        workload, topic = self.workload, self.topic_on(cluster)
        try:
            found = group_positions(properties, workload.group, topic, workload.partitions, ANSWER_SECONDS)
        except NotRead as error:
            self.start_unknown = str(error)
            return
        at = time.monotonic()
        self.started_from = tuple(
            ConfirmedPosition(cluster, partition, offset, at) for partition, offset in found.items()
        )

    @property
    def configured(self) -> tuple[str, str]:
        """Source and target as the lab's configuration has them now."""
        source, target = self.spec.clusters
        return (target, source) if self.turned else (source, target)
