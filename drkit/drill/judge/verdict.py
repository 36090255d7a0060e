"""Measures RPO and RTO as the clients saw them, and computes the verdict from the outcomes. Pure.

    failed    a check found an anomaly, or a step failed after the disturbance        exit 1
    unknown   something that had to be seen could not be seen                         exit 8
    failed    every check holds and an objective was missed                           exit 6
    unknown   all of that holds, and a rollback failed: the lab isn't as it was       exit 8
    passed    every check holds, every objective is met, all is rolled back           exit 0

In that order: a refutation of the hypothesis outweighs what couldn't be seen. Before the disturbance
nothing can refute it: a failed step there leaves it untested, so unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from drkit.drill.experiment.base import of_link
from drkit.drill.experiment.experiment import Objectives
from drkit.drill.judge.checkers import AnomalyCheck
from drkit.drill.judge.history import AttemptOutcome, ClientHistory, HistoryPart
from drkit.drill.judge.result import (
    CheckResult,
    ExitValue,
    Measurements,
    ObjectiveName,
    ObjectiveResult,
    SteadyStateResult,
    StepOutcome,
    StepResult,
    Verdict,
    WitnessRecord,
)
from drkit.model.totals import greatest, total


def measure(history: ClientHistory, *, disaster_at: float | None, moved: bool) -> Measurements:
    """Measure a history.

    Args:
        history: the clients' history.
        disaster_at: the time of the disaster (CLOCK_MONOTONIC seconds), or None if there was none.
        moved: whether a failover succeeded and clients were moved: otherwise there is no RTO.

    Returns:
        None for what couldn't be measured: there is no RPO where the source acknowledged nothing. `rpo_seconds` is 0
        where nothing is missing; `acknowledged` and `unknown` count the attempts on both clusters. What is missing on
        a source that was brought back is missing, too.
    """
    sure = not {HistoryPart.ATTEMPTS, HistoryPart.LANDED} & history.incomplete.keys()
    on_target = history.landed_records()
    promised = list(history.acked(history.source))
    sure = sure and bool(promised)  # without acknowledged records no loss was measured
    sure = sure and (history.returned is None or HistoryPart.LANDED not in history.returned.incomplete)
    not_back = list(history.missing_on_source())
    counted = on_target | {attempt.record for attempt in not_back}
    missing = [*(attempt for attempt in promised if attempt.record not in counted), *not_back]
    rpo_seconds: float | None = None
    if sure and not missing:
        rpo_seconds = 0.0
    elif sure and disaster_at is not None:
        # a source that was struck twice, or lives, takes records after its (first) disaster, which may be lost, too
        sent = [attempt.sent_at for attempt in missing]
        rpo_seconds = max(disaster_at, *sent) - min(sent)
    first = None
    if disaster_at is not None:
        first = min((p.at for p in history.polls if p.cluster == history.target and p.at >= disaster_at), default=None)
    read_on_source = {poll.record for poll in history.polls if poll.cluster == history.source}
    read_on_target = {poll.record for poll in history.polls if poll.cluster == history.target}
    return Measurements(
        rpo_records=len(missing) if sure else None,
        rpo_seconds=rpo_seconds,
        rto_seconds=first - disaster_at if moved and first is not None and disaster_at is not None else None,
        acknowledged=sum(attempt.outcome is AttemptOutcome.ACKED for attempt in history.attempts),
        unknown=sum(attempt.outcome is AttemptOutcome.UNKNOWN for attempt in history.attempts),
        landed=None if HistoryPart.LANDED in history.incomplete else len(history.landed),
        reread=None if HistoryPart.POLLS in history.incomplete else len((read_on_source & read_on_target) - {None}),
    )


def measure_site(measured: Mapping[str, Measurements], *, moving: Sequence[str]) -> Measurements:
    """The measurements of all links together: the sum of records, the greatest of seconds.

    Args:
        measured: by link.
        moving: the links whose clients move to the target: the RTO is the greatest of theirs.
    """
    every = measured.values()
    return Measurements(
        rpo_records=total(one.rpo_records for one in every),
        rpo_seconds=greatest(one.rpo_seconds for one in every),
        rto_seconds=greatest(measured[link].rto_seconds for link in moving),
        acknowledged=sum(one.acknowledged for one in every),
        unknown=sum(one.unknown for one in every),
        landed=total(one.landed for one in every),
        reread=total(one.reread for one in every),
    )


def check_result(name: str, link: str, finding: AnomalyCheck) -> CheckResult:
    """The outcome of a link's check, for the result."""
    outcome: Verdict = "unknown" if finding.held is None else "passed" if finding.held else "failed"
    return CheckResult(
        check=name,
        link=link,
        outcome=outcome,
        anomalies=finding.anomalies,
        reason=finding.reason,
        witnesses=[
            WitnessRecord(
                cluster=one.cluster,
                partition=one.partition,
                offset=one.offset,
                record=None if one.record is None else str(one.record),
                text=one.text,
            )
            for one in finding.witnesses
        ],
    )


def objective_results(objectives: Objectives, measured: Measurements) -> list[ObjectiveResult]:
    """Each objective that is set, with the measured value."""
    found = []
    pairs: tuple[tuple[ObjectiveName, float | None, float | None], ...] = (
        ("rpo_records", objectives.rpo_records, measured.rpo_records),
        ("rpo_seconds", objectives.rpo_seconds, measured.rpo_seconds),
        ("rto_seconds", objectives.rto_seconds, measured.rto_seconds),
    )
    for name, objective, value in pairs:
        if objective is None:
            continue
        outcome: Literal["met", "missed", "unknown"]
        outcome = "unknown" if value is None else "met" if value <= objective else "missed"
        found.append(ObjectiveResult(name=name, objective=objective, measured=value, outcome=outcome))
    return found


def outcome_of_branches(branches: Sequence[Sequence[StepResult]]) -> tuple[StepOutcome, str | None]:
    """The outcome of a parallel step, the worst of its steps', with the reasons of those that did not succeed.

    A step that never began leaves it unknown: not all of it was played.
    """
    steps = [step for branch in branches for step in branch]
    told = [f"{step.step} (line {step.line}): {step.reason}" for step in steps if step.outcome in ("failed", "unknown")]
    told = told or [f"{step.step} (line {step.line}): {step.reason}" for step in steps if step.outcome == "skipped"]
    outcome: StepOutcome
    outcome = "failed" if any(step.outcome == "failed" for step in steps) else "unknown" if told else "ok"
    return outcome, "; ".join(told) or None


def verdict(
    *,
    steady_state: SteadyStateResult,
    steps: Sequence[StepResult],
    checks: Sequence[CheckResult],
    objectives: Sequence[ObjectiveResult],
    interrupted: str | None = None,
) -> tuple[Verdict, ExitValue, list[str]]:
    """The verdict, the exit code, and the reasons in words (the verdict's own first)."""
    refuted = [f"{s.step} (line {s.line}) failed: {s.reason}" for s in steps if _refutes(s)]
    refuted += [f"{c.check}{of_link(c.link)}: {_count(c.anomalies)}" for c in checks if c.outcome == "failed"]
    unseen = [] if interrupted is None else [interrupted]
    if steady_state.reached is False:
        unseen.append(f"the steady state was not reached: {steady_state.reason}")
    unseen += [f"{s.step} (line {s.line}): {s.reason}" for s in steps if _hides(s)]
    unseen += [f"{c.check}{of_link(c.link)} couldn't be checked: {c.reason}" for c in checks if c.outcome == "unknown"]
    unseen += [f"{o.name} couldn't be measured" for o in objectives if o.outcome == "unknown"]
    missed = [
        f"{o.name} is {_number(o.measured)}, the objective is {_number(o.objective)}" for o in objectives if _missed(o)
    ]
    left = [f"rollback {s.step} (line {s.line}) failed: {s.reason}" for s in steps if _left_behind(s)]
    if refuted:
        return "failed", 1, [*refuted, *missed, *unseen, *left]
    if unseen:
        return "unknown", 8, [*unseen, *missed, *left]
    if missed:
        return "failed", 6, [*missed, *left]
    return ("unknown", 8, left) if left else ("passed", 0, [])


def _refutes(step: StepResult) -> bool:
    return step.section == "method" and step.outcome == "failed"


def _hides(step: StepResult) -> bool:
    untested = step.section == "setup" and step.outcome == "failed"
    return untested or (step.section != "rollbacks" and step.outcome == "unknown")


def _left_behind(step: StepResult) -> bool:
    return step.section == "rollbacks" and step.outcome in ("failed", "unknown")


def _missed(objective: ObjectiveResult) -> bool:
    return objective.outcome == "missed"


def _count(anomalies: int | None) -> str:
    return "1 anomaly" if anomalies == 1 else f"{anomalies} anomalies"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"
