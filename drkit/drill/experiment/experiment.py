"""An experiment file: unknown keys are errors, and every error has its file and line.

    title, hypothesis          what is rehearsed, and what should hold
    lab                        the clusters
    steady_state               conditions that must hold before the disturbance
    safety                     rules that are checked before every step from the disturbance on
    method                     steps, in order: `do` names the step
    checks                     anomalies that the clients' history must not show
    objectives                 the RPO and RTO to meet
    rollbacks                  steps that always run at the end

The first fault or failover is *the disturbance*: the steady state is checked right before it, and
until then nothing can refute the hypothesis (a failed step leaves the verdict unknown).

The types refuse a wrong key or value; `contradictions.py` finds parts that contradict each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from drkit.config import Objectives as ConfiguredObjectives
from drkit.drill.experiment.base import SOURCE, TARGET, Cluster, DrillModel, LinkSpec, Place, Seconds
from drkit.drill.experiment.faults import Fault
from drkit.drill.experiment.steps import (
    Condition,
    Failback,
    Failover,
    Move,
    MoveClients,
    Parallel,
    Reprotect,
    Rollback,
    Step,
    Workload,
    faults_in,
    steps_in,
)

CheckName = Literal[
    "lost",
    "duplicated",
    "corrupted",
    "reordered",
    "nonmonotonic_poll",
    "skipped_by_group",
    "both_sides_written",
    "position_moved_back",
    "reread_beyond_plan",
    "loss_beyond_plan",
    "foreign",
    "aborted_read",
    "torn_transaction",
    "dirty_commit",
    "stable_offset_stuck",
]

MOVED_CHECKS = ("skipped_by_group", "both_sides_written", "reread_beyond_plan", "loss_beyond_plan")
"""Checks of clients that move to the target."""


class LabSpec(DrillModel):
    """The lab that the experiment needs.

    `brokers`: per cluster; `secured`: the clusters have an authorizer, for the fence, and the applications
    authenticate; `tls`: they do so over TLS; `wan`: drkit reaches primary over a network that network faults disturb;
    `links`: the links, and with them the clusters.
    """

    brokers: int = Field(default=1, ge=1, le=9)
    store: Literal["sqlite", "cassandra"] = "sqlite"
    secured: bool = False
    tls: bool = False
    wan: bool = False
    links: list[LinkSpec] = Field(default=[LinkSpec(source=SOURCE, target=TARGET)], min_length=1, max_length=6)

    @property
    def clusters(self) -> tuple[str, ...]:
        """The aliases of the clusters, in the order of the links."""
        return tuple(dict.fromkeys(alias for link in self.links for alias in link.clusters))


class SteadyState(DrillModel):
    """Conditions that must all hold, together, before the disturbance."""

    within_seconds: Seconds = 60.0
    conditions: list[Condition] = Field(min_length=1)


class Safety(DrillModel):
    """Rules that are checked before every step from the disturbance on; the method ends where one doesn't hold.

    `time_limit_seconds`: of the whole drill; no step begins later. `never_both_sides`: no fault strikes a cluster
    while one that it has a link with doesn't answer. `healthy_brokers`: how many of a cluster's brokers must answer.
    `abort_when`: conditions that must not hold.
    """

    time_limit_seconds: Seconds | None = None
    never_both_sides: bool = False
    healthy_brokers: dict[Cluster, Annotated[int, Field(ge=1, le=9)]] = Field(default={})
    abort_when: list[Condition] = Field(default=[])


class Objectives(DrillModel):
    """The objectives; None: not judged."""

    rpo_records: int | None = Field(default=None, ge=0)
    rpo_seconds: float | None = Field(default=None, ge=0)
    rto_seconds: float | None = Field(default=None, ge=0)


class Experiment(DrillModel):
    """One experiment file."""

    title: str = Field(min_length=1)
    hypothesis: str = Field(min_length=1)
    lab: LabSpec = LabSpec()
    steady_state: SteadyState
    safety: Safety = Safety()
    method: list[Step] = Field(min_length=1)
    checks: list[CheckName] = Field(min_length=1)
    objectives: Objectives = Objectives()
    rollbacks: list[Rollback] = Field(default=[])

    @property
    def links(self) -> list[LinkSpec]:
        """The links, each with its workload."""
        return self.lab.links

    def link(self, name: str) -> LinkSpec:
        """The link with this name."""
        return next(link for link in self.links if link.name == name)

    def workload(self, link: str) -> Workload:
        """The workload step of a link."""
        return next(step for step in self.method if isinstance(step, Workload) and step.link == link)

    def moved_by(self, step: Failover) -> list[LinkSpec]:
        """The links that a failover moves: all that lead to its cluster, or those that it names."""
        return [link for link in self.links if link.target == step.to and link.name in (step.links or [link.name])]

    def returned_by(self, step: Failback | Reprotect, away: Collection[str]) -> list[LinkSpec]:
        """The links that a failback or reprotect brings back, of those that failed over (`away`)."""
        old_primary = step.to if isinstance(step, Failback) else None
        found = [link for link in self.links if link.name in away and link.name in (step.links or [link.name])]
        return [link for link in found if old_primary in (None, link.source)]

    def each_move(self) -> Iterator[tuple[Place, Move | Reprotect, frozenset[str]]]:
        """Each failover, failback and reprotect: its place, and the links that those before it left failed over."""
        away: frozenset[str] = frozenset()
        for place, step in self.each_step():
            if not isinstance(step, Move | Reprotect):
                continue
            yield place, step, away
            if isinstance(step, Failover):
                away |= {link.name for link in self.moved_by(step)}
            else:
                away -= {link.name for link in self.returned_by(step, away)}

    def linked_with(self, cluster: str) -> list[str]:
        """The clusters at the other end of a cluster's links."""
        ends = (link.clusters for link in self.links if cluster in link.clusters)
        return [alias for alias in dict.fromkeys(alias for both in ends for alias in both) if alias != cluster]

    @property
    def moving(self) -> list[str]:
        """The links whose clients move to the target."""
        moves = {(step.link, step.to) for _, step in self.each_step() if isinstance(step, MoveClients)}
        return [link.name for link in self.links if (link.name, link.target) in moves]

    @property
    def measures_rto(self) -> bool:
        """Whether an RTO can be measured: clients move after a failover."""
        return bool(self.moving) and any(isinstance(step, Failover) for _, step in self.each_step())

    def checks_of(self, link: str) -> list[CheckName]:
        """The checks of a link: those of moved clients only where its clients move, if any link's do."""
        moving = self.moving
        return [name for name in self.checks if name not in MOVED_CHECKS or not moving or link in moving]

    def each_step(self) -> Iterator[tuple[Place, Step]]:
        """Every step of the method with its place, in the order of the file; a parallel before its branches."""
        for number, step in enumerate(self.method):
            yield ("method", number), step
            if isinstance(step, Parallel):
                for at, branch in enumerate(step.branches):
                    for one, inner in enumerate(branch):
                        yield ("method", number, "branches", at, one), inner

    def each_fault(self) -> Iterator[tuple[Place, Fault]]:
        """Every fault with its place, those at stages of a run and in rollbacks included."""
        sections: tuple[tuple[str, Sequence[Step | Rollback]], ...]
        sections = (("method", self.method), ("rollbacks", self.rollbacks))
        for section, steps in sections:
            for number, step in enumerate(steps):
                yield from faults_in(step, (section, number))

    def with_defaults(self, configured: ConfiguredObjectives) -> Experiment:
        """The experiment, with the configured objectives for those that it doesn't set."""
        own = self.objectives
        filled = Objectives(
            rpo_records=configured.rpo_records if own.rpo_records is None else own.rpo_records,
            rpo_seconds=configured.rpo_seconds if own.rpo_seconds is None else own.rpo_seconds,
            rto_seconds=configured.rto_seconds if own.rto_seconds is None and self.measures_rto else own.rto_seconds,
        )
        return self.model_copy(update={"objectives": filled})

    @property
    def has_faults(self) -> bool:
        """Whether it has any fault."""
        return next(self.each_fault(), None) is not None

    @property
    def disturbance(self) -> int | None:
        """The index in `method` of the first step that is, or has in a branch, a fault or failover."""
        disturbs = (any(isinstance(each, Fault | Move) for each in steps_in(step)) for step in self.method)
        return next((number for number, found in enumerate(disturbs) if found), None)
