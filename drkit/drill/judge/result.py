"""The result of a drill: the document of `drkit drill run --output json`, kept as `result.json`.

`docs/schemas/drill.schema.json` is generated from these types (a test compares them).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from drkit.model.clock import iso

Instant = Annotated[datetime, PlainSerializer(iso, return_type=str, when_used="json")]
Verdict = Literal["passed", "failed", "unknown"]
ObjectiveName = Literal["rpo_records", "rpo_seconds", "rto_seconds"]
StepOutcome = Literal["ok", "failed", "skipped", "unknown"]
Section = Literal["setup", "method", "rollbacks"]
ExitValue = Literal[0, 1, 6, 8]
"""The exit codes of a drill: passed, refuted, an objective missed, unknown."""


class Document(BaseModel):
    """The base of every document of `drkit drill`."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class StrikeResult(Document):
    """The outcome of a fault at a stage of a failover or failback. `line`: the fault's, in the experiment's file."""

    step: str
    line: int
    outcome: StepOutcome
    reason: str | None
    seconds: float
    started_after_seconds: float | None


class StepResult(Document):
    """The outcome of a step. `section`: `setup` before the disturbance, `method` from it on, `rollbacks`.

    `started_after_seconds`: since the drill's start; null if it was skipped.
    `strikes`: the faults at stages of a failover or failback; one that couldn't be injected has the outcome unknown.
    `branches`: the steps of each branch of a parallel step; its own outcome is the worst of theirs.
    """

    section: Section
    step: str
    line: int
    outcome: StepOutcome
    reason: str | None
    seconds: float
    started_after_seconds: float | None = None
    strikes: list[StrikeResult] = []
    branches: list[list[StepResult]] = []


class SteadyStateResult(Document):
    """Whether the steady state was seen before the disturbance; `reached` is null if it was never checked."""

    reached: bool | None
    reason: str | None
    seconds: float


class WitnessRecord(Document):
    """One anomaly, with its position on a cluster."""

    cluster: str
    partition: int
    offset: int | None
    record: str | None
    text: str


class CheckResult(Document):
    """One check of a link. `anomalies` counts all, `witnesses` lists the first; null if the check couldn't be made."""

    check: str
    link: str
    outcome: Verdict
    anomalies: int | None
    reason: str | None
    witnesses: list[WitnessRecord]


class ObjectiveResult(Document):
    """One objective, and the measured value."""

    name: ObjectiveName
    objective: float
    measured: float | None
    outcome: Literal["met", "missed", "unknown"]


class Measurements(Document):
    """The measurements of the clients, of a link or of all links together (the sum of records, the greatest of
    seconds); null: it couldn't be measured. Seconds and counts.

    `rpo_records`: acknowledged by the source and not on the target. `rpo_seconds`: the age of the
    oldest of them at the disaster, or when the youngest of them was sent if that was later. `rto_seconds`: from the
    disaster to the first record read on the target. `unknown`: attempts without a response. `landed`: records on the
    target at the end. `reread`: records read on the source and again on the target.
    """

    rpo_records: int | None
    rpo_seconds: float | None
    rto_seconds: float | None
    acknowledged: int
    unknown: int
    landed: int | None
    reread: int | None


class LinkResult(Document):
    """One link of a drill. `topic`, `target_topic`: its workload's, by the name on each cluster. `moved`: whether its
    clients were moved to the target after a failover that succeeded; else it has no RTO."""

    link: str
    topic: str
    target_topic: str
    group: str
    moved: bool
    measured: Measurements
    failover: dict[str, Any] | None = Field(
        description="The document of the last failover that moved it, of several links the part that is this one's; "
        "null if none did."
    )


class DrillResult(Document):
    """A whole drill. `exit_code`: the one of `drkit drill run`; `reasons`: of the verdict, in words."""

    run: str
    title: str
    hypothesis: str
    file: str
    verdict: Verdict
    exit_code: ExitValue
    reasons: list[str]
    started_at: Instant
    ended_at: Instant
    seconds: float
    steady_state: SteadyStateResult
    steps: list[StepResult]
    checks: list[CheckResult]
    objectives: list[ObjectiveResult]
    measured: Measurements
    links: list[LinkResult]
    failover: dict[str, Any] | None = Field(
        description="The document of the last `drkit failover --output json`, verbatim."
    )
    failback: dict[str, Any] | None = Field(
        default=None, description="The document of `drkit failback --output json`, verbatim."
    )
    reprotect: dict[str, Any] | None = Field(
        default=None, description="The document of `drkit reprotect --output json`, verbatim."
    )
    interrupted: bool = Field(default=False, description="Whether a signal ended it before its end.")
    folder: str


class DrillSummary(Document):
    """A drill in `drkit drill history`. `verdict` is null if the drill left no result."""

    run: str
    title: str | None
    verdict: Verdict | None
    started_at: Instant | None
    seconds: float | None
    rpo_records: int | None
    rto_seconds: float | None
    folder: str
    reason: str | None


class DrillHistory(Document):
    """The document of `drkit drill history --output json`: newest first."""

    drills: list[DrillSummary]


class ScheduledRun(Document):
    """One run that the scheduler started. `exit_code`: the drill's; `run`: null if it left no result."""

    started_at: Instant
    run: str | None
    verdict: Verdict | None
    exit_code: int


class TimeLeftOut(Document):
    """A scheduled time at which no drill ran, and why."""

    at: Instant
    reason: str


class ScheduleResult(Document):
    """The document of `drkit drill schedule --output json`, written when it ends.

    `next_runs`: without those in blackouts. `missed`: the policy for missed times. `left_out`: times at which no drill
    ran, including those in blackouts.
    """

    file: str
    cron: str
    timezone: str
    missed: Literal["skip", "grace", "once"]
    next_runs: list[Instant]
    ran: list[ScheduledRun]
    left_out: list[TimeLeftOut]
