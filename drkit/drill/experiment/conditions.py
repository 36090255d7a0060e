"""The conditions of an experiment file: what a steady state, a wait or a safety rule asks for.

`drkit.drill.conditions` evaluates each.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from drkit.drill.experiment.base import Cluster, DrillModel, OfLink


class Acknowledged(OfLink):
    """The producer has at least so many acknowledgements from a cluster."""

    condition: Literal["acknowledged"]
    cluster: Cluster
    at_least: int = Field(ge=1)


class Consumed(OfLink):
    """The group has read at least so many records from a cluster."""

    condition: Literal["consumed"]
    cluster: Cluster
    at_least: int = Field(ge=1)


class Drained(OfLink):
    """The group has read everything in the workload's topic on a cluster."""

    condition: Literal["drained"]
    cluster: Cluster


class Mirrored(OfLink):
    """`drkit status` reports that the workload's topic is at most so many records behind; `leaving_out`: ignore these
    partitions."""

    condition: Literal["mirrored"]
    at_most_behind: int = Field(ge=0)
    leaving_out: list[Annotated[int, Field(ge=0, le=999)]] = Field(default=[])


class PositionsCaptured(OfLink):
    """`drkit status` has a captured position of the workload's group for each partition."""

    condition: Literal["positions_captured"]


class Answers(DrillModel):
    """A cluster answers a metadata request."""

    condition: Literal["answers"]
    cluster: Cluster


class Silent(DrillModel):
    """A cluster does not answer a metadata request."""

    condition: Literal["silent"]
    cluster: Cluster


class NoMembers(OfLink):
    """The workload's group has no member on a cluster: the sessions of dead consumers have expired."""

    condition: Literal["no_members"]
    cluster: Cluster


class ProblemTold(OfLink):
    """`drkit status` reports such a problem for the workload's topic (`source_truncated`, `retention_gap` …)."""

    condition: Literal["problem_told"]
    kind: str = Field(pattern=r"^[a-z_]+$")


class MirrorTold(OfLink):
    """The mirror itself reports a problem of this kind for the workload's topic; `partition`: for this one, else any.

    `problem_told` may hold without it: `drkit status` compares partitions that no mirror fetches.
    """

    condition: Literal["mirror_told"]
    kind: str = Field(pattern=r"^[a-z_]+$")
    partition: int | None = Field(default=None, ge=0)


class SameRecords(OfLink):
    """Both clusters hold the same records of the workload's topic, each partition in the same order, as read by an
    independent reader."""

    condition: Literal["same_records"]


class MirrorEnded(DrillModel):
    """The mirror's process has ended by itself."""

    condition: Literal["mirror_ended"]


Condition = Annotated[
    Acknowledged
    | Consumed
    | Drained
    | Mirrored
    | PositionsCaptured
    | Answers
    | Silent
    | NoMembers
    | ProblemTold
    | MirrorTold
    | SameRecords
    | MirrorEnded,
    Field(discriminator="condition"),
]
