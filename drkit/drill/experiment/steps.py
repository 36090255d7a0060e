"""The steps of an experiment file, except for its faults, and the conditions that a step or a rule may name.

`drkit.drill.steps` plays each step, `drkit.drill.conditions` evaluates each condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, assert_never

from pydantic import Field

from drkit.drill.experiment.base import TARGET, Cluster, DrillModel, LinkName, OfLink, Place, Seconds, of_link, of_links
from drkit.drill.experiment.faults import (
    AnyFault,
    ApplicationFault,
    CorrectClock,
    Fault,
    HealNetwork,
    Kill,
    NetworkFault,
    NodeFault,
    Pause,
    RenewCertificate,
    RenewCredentials,
    Restart,
    Resume,
    TopicFault,
    struck_cluster,
)

# --- conditions ----------------------------------------------------------------------------------------------------


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


# --- steps ---------------------------------------------------------------------------------------------------------


class Transactions(DrillModel):
    """Write in transactions of so many `records`; each `abort_every`-th is aborted (0: none)."""

    records: int = Field(default=20, ge=1, le=10_000)
    abort_every: int = Field(default=4, ge=0, le=1_000)


class LateRecords(DrillModel):
    """Every `every`-th record has a timestamp `seconds` before the time at which it is sent: data that arrives late."""

    every: int = Field(default=2, ge=2, le=1_000)
    seconds: float = Field(default=3_600.0, gt=0, le=31_536_000)


class Workload(OfLink):
    """Start a producer on a link's source that records the acknowledgements, and a group that records what it read.

    `records_per_second`: over all partitions; `value_bytes`: the approximate length of a record's value;
    `transactions`: write in transactions; `late`: some records have earlier timestamps.
    """

    do: Literal["workload"]
    topic: str = Field(default="drill.orders", pattern=r"^[a-zA-Z0-9._-]{1,200}$")
    partitions: int = Field(default=4, ge=1, le=1000)
    keys: int = Field(default=100, ge=1, le=100_000)
    records_per_second: float = Field(default=500.0, gt=0, le=20_000)
    value_bytes: int = Field(default=200, ge=100, le=100_000)
    group: str = Field(default="drill-billing", min_length=1)
    commit_every_seconds: Seconds = 0.5
    transactions: Transactions | None = None
    late: LateRecords | None = None


class Load(DrillModel):
    """Run `drkit lab load`: real data beside the workload."""

    do: Literal["load"]
    dataset: Literal["flights", "orders"]
    rate: float | None = Field(default=None, gt=0)
    limit: int | None = Field(default=None, ge=1)
    background: bool = True


class Mirror(DrillModel):
    """Start `drkit mirror` as a separate process."""

    do: Literal["mirror"]


class Wait(DrillModel):
    """Wait until a condition holds."""

    do: Literal["wait"]
    until: Condition
    timeout_seconds: Seconds = 60.0


class Hold(DrillModel):
    """Let time pass."""

    do: Literal["hold"]
    seconds: Annotated[float, Field(gt=0, le=3600)]


FailoverStage = Literal["fence", "drain", "translate", "commit", "switch", "verify", "close"]
FailbackStage = Literal["salvage", "scrub", "reverse", "reseed", "audit", FailoverStage]


class Strike(DrillModel):
    """Faults that strike as a stage of a run begins: its intent is in the journal, its work has not begun."""

    at: str
    faults: Annotated[list[AnyFault], Field(min_length=1)]


class FailoverStrike(Strike):
    """At a stage of a failover."""

    at: FailoverStage


class FailbackStrike(Strike):
    """At a stage of a failback."""

    at: FailbackStage


class RunbookBlocks(DrillModel):
    """The operator has only a runbook: the commands of its blocks are executed, in this order, as they stand there.

    `book`: one of the runbooks that drkit is installed with; `blocks`: names of its blocks.
    """

    book: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    blocks: list[str] = Field(min_length=1)


class Failover(DrillModel):
    """Run `drkit failover` to a cluster, as an operator would: all links that lead to it move, in one run.

    `links`: only these. `strikes`: faults at its stages, of several links as the first of them comes there; the node
    `run` is the run's own process. `resumes`: how often `drkit resume` may follow if the run ends partly done or was
    killed. `runbook`: in place of the command, and of the options that it would have.
    """

    do: Literal["failover"]
    to: Cluster = TARGET
    links: list[LinkName] = Field(default=[])
    mode: Literal["planned", "unplanned"] = "unplanned"
    at: str | None = None
    accept_unfenced: bool = False
    groups: list[str] = Field(default=[])
    strikes: list[FailoverStrike] = Field(default=[])
    resumes: int = Field(default=0, ge=0, le=20)
    runbook: RunbookBlocks | None = None
    timeout_seconds: Seconds = 120.0


class Failback(DrillModel):
    """Run `drkit failback`: re-seed the old primaries, move groups back, in one run of all links that failed over.

    `to`: only those of this old primary. `links`: only these. `strikes`, `resumes`: as in a failover.
    """

    do: Literal["failback"]
    to: Cluster | None = None
    links: list[LinkName] = Field(default=[])
    accept_unfenced: bool = False
    strikes: list[FailbackStrike] = Field(default=[])
    resumes: int = Field(default=0, ge=0, le=20)
    timeout_seconds: Seconds = 300.0


class Reprotect(DrillModel):
    """Run `drkit reprotect`: the target becomes the source permanently, the old primary its up-to-date standby.

    All links that failed over, or these `links`, in one run. Afterwards the lab's configuration has them reversed; the
    mirror reads it at its next start.
    """

    do: Literal["reprotect"]
    links: list[LinkName] = Field(default=[])
    timeout_seconds: Seconds = 300.0


class MoveClients(OfLink):
    """Stop a link's group and producer on the old cluster, and start the group, then the producer, on its other one.

    `keep_producer`: the old producer continues, with its own keys: both sides accept writes.
    """

    do: Literal["move_clients"]
    to: Cluster
    keep_producer: bool = False


class StopClients(DrillModel):
    """Stop the producer, the consumer or both; they finish what is in flight. `link`: of this one, else of all."""

    do: Literal["stop_clients"]
    link: LinkName | None = None
    who: Literal["producer", "consumer", "both"] = "both"


Move = Failover | Failback
BranchStep = Annotated[
    Load | Wait | Hold | Fault | Failover | Failback | Reprotect | MoveClients | StopClients,
    Field(discriminator="do"),
]


class Parallel(DrillModel):
    """Play branches at the same time, each a list of steps in order; ends when all of them have ended.

    A step that does not succeed ends its branch. In the other branches the current step is played to its end, and no
    further one begins.
    """

    do: Literal["parallel"]
    branches: list[Annotated[list[BranchStep], Field(min_length=1)]] = Field(min_length=2, max_length=16)


PlainStep = Workload | Load | Mirror | Wait | Hold | Fault | Failover | Failback | Reprotect | MoveClients | StopClients
"""Any step but a parallel."""
Step = Annotated[PlainStep | Parallel, Field(discriminator="do")]
Rollback = Annotated[
    Kill | Pause | Resume | Restart | HealNetwork | RenewCredentials | RenewCertificate | CorrectClock | StopClients,
    Field(discriminator="do"),
]


def steps_in(step: Step) -> list[PlainStep]:
    """The step itself; of a parallel all steps of its branches."""
    return [inner for branch in step.branches for inner in branch] if isinstance(step, Parallel) else [step]


def faults_of(step: Step | Rollback) -> list[Fault]:
    """The faults of a step: itself, or those at its stages; of a parallel those of its branches."""
    return [fault for _, fault in faults_in(step, ())]


def struck_clusters(step: Step | Rollback) -> list[str]:
    """The clusters that a step strikes, also at stages; a step that ends a fault strikes none."""
    return list(dict.fromkeys(cluster for fault in faults_of(step) if (cluster := struck_cluster(fault)) is not None))


def strikes_in(move: Move, place: Place = ()) -> Iterator[tuple[Place, str, Fault]]:
    """The faults at the stages of a move at a place of the file, each with its own place and its stage."""
    for at, strike in enumerate(move.strikes):
        for one, fault in enumerate(strike.faults):
            yield (*place, "strikes", at, "faults", one), strike.at, fault


def faults_in(step: Step | Rollback, place: Place) -> Iterator[tuple[Place, Fault]]:
    """The faults of a step at a place of the file, each with its own place."""
    if isinstance(step, Fault):
        yield place, step
    elif isinstance(step, Move):
        for inside, _, fault in strikes_in(step, place):
            yield inside, fault
    elif isinstance(step, Parallel):
        for at, branch in enumerate(step.branches):
            for one, inner in enumerate(branch):
                yield from faults_in(inner, (*place, "branches", at, one))


# --- drkit's commands ----------------------------------------------------------------------------------------------


def command_of(step: Move | Reprotect, config: str, salvage: str, cluster_ids: Sequence[str]) -> list[str]:
    """The command of a failover, failback or reprotect, which says yes to everything.

    `config`: the file; `salvage`: the folder; `cluster_ids`: of the old primaries that a return may change,
    `ALIAS=ID`.
    """
    to = None if isinstance(step, Reprotect) else step.to
    words = [step.do, *([] if to is None else ["--to", to]), *_named("--link", step.links), "--yes", "--config", config]
    if isinstance(step, Failover):
        words += [f"--{step.mode}", *([] if step.at is None else [f"--at={step.at}"]), *_named("--group", step.groups)]
    else:
        words += [*_named("--cluster-id", cluster_ids), "--salvage-dir", salvage]
    return words if isinstance(step, Reprotect) or not step.accept_unfenced else [*words, "--accept-unfenced"]


def load_command(step: Load, lab: str) -> list[str]:
    """The command that loads a data set into a lab, by its folder."""
    words = ["lab", "load", step.dataset, "--dir", lab]
    words += [] if step.rate is None else ["--rate", f"{step.rate:g}"]
    return words if step.limit is None else [*words, "--limit", str(step.limit)]


def _named(option: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


# --- descriptions, for results -------------------------------------------------------------------------------------


def describe(step: Step | Rollback) -> str:  # noqa: PLR0911, PLR0912, C901  # one arm a step
    """A step's short description."""
    if isinstance(step, NodeFault):
        return f"{step.do} {step.node}"
    if isinstance(step, TopicFault | ApplicationFault | NetworkFault):
        return f"{step.do.replace('_', ' ')} on {step.cluster}"
    match step:
        case Failover():
            return f"failover{of_links(step.links)} to {step.to}"
        case Failback():
            to = "" if step.to is None else f" to {step.to}"
            return f"failback{of_links(step.links)}{to}"
        case Reprotect():
            return f"reprotect{of_links(step.links)}"
        case MoveClients():
            return f"move clients{of_link(step.link)} to {step.to}"
        case StopClients():
            return f"stop {'clients' if step.who == 'both' else step.who}{of_link(step.link)}"
        case Wait():
            return f"wait until {step.until.condition}{of_link(getattr(step.until, 'link', None))}"
        case Hold():
            return f"hold {step.seconds:g} s"
        case Load():
            return f"load {step.dataset}"
        case Parallel():
            return f"in parallel: {' | '.join(', '.join(map(describe, branch)) for branch in step.branches)}"
        case Workload():
            return f"workload{of_link(step.link)}"
        case Mirror():
            return step.do
        case _:
            assert_never(step)


def describe_strike(move: Move, stage: str, fault: Fault) -> str:
    """The short description of a fault at a stage."""
    return f"{describe(fault)} at {move.do} {stage}"
