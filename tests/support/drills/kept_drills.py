"""Writes drills to their archive like the runner, without a lab: for tests of their evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from drkit.drill.experiment.reader import ExperimentFile, load_experiment
from drkit.drill.experiment.steps import Move, describe, describe_strike
from drkit.drill.judge.checkers import judge
from drkit.drill.judge.history import (
    Attempt,
    AttemptOutcome,
    ClientHistory,
    ConfirmedPosition,
    Landed,
    LinkHistory,
    Poll,
    RecordId,
    Returned,
)
from drkit.drill.judge.result import DrillResult, LinkResult, SteadyStateResult, StepResult, StrikeResult
from drkit.drill.judge.verdict import check_result, measure, measure_site, objective_results, verdict
from drkit.drill.results.archive import Drills
from drkit.drill.results.recording import ORIGIN, first_origin, write_experiment, write_history, write_origin
from drkit.drill.runner import no_histories

BEGAN = 1000.0
AT = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)
TITLE = "The primary is lost"
EXPERIMENT = """\
title: {title}
hypothesis: Nothing acknowledged is lost but the tail{lab}
steady_state:
  conditions:
    - {{ condition: consumed, cluster: primary, at_least: 1 }}
method:
{workloads}
  - do: kill
    node: primary
  - do: failover
    accept_unfenced: true{strikes}
  - do: move_clients
    to: dr{back}
checks: [lost, duplicated, skipped_by_group]
objectives:
  rpo_records: 5
  rto_seconds: {rto}
rollbacks:
  - do: restart
    node: primary
"""
WORKLOAD_TIME = (0.5, 1.0)
TIMES = ((15.0, 1.5), (17.0, 1.5), (18.6, 0.3), (25.0, 2.0))
"""The start and the duration of each step after the workloads, which start together."""
BACK, BACK_TIME = "\n  - do: failback\n    accept_unfenced: true", (20.5, 1.5)
STRUCK_AFTER = 17.4


@dataclass(frozen=True)
class InnerRun:
    """A run inside a drill: its journal, anchors and entry in the list of runs, its document, its clusters."""

    files: dict[str, bytes]
    document: dict[str, Any]
    clusters: list[dict[str, Any]]


@dataclass(frozen=True)
class Ends:
    """An early end of a drill: so many steps went as planned, followed by these.

    `disaster`: seconds after its start; `moved`: whether the clients were moved.
    """

    steps: int
    steady: SteadyStateResult
    after: tuple[StepResult, ...] = ()
    interrupted: str | None = None
    disaster: float | None = 15.0
    moved: bool = False


def a_history(lose: int = 0) -> ClientHistory:
    """20 records, one per second; the disaster at 15 s; all are on dr except for `lose` in the middle."""
    ids = [RecordId("k", number) for number in range(20)]
    attempts = tuple(
        Attempt(record, "primary", 0, BEGAN + n, 7, AttemptOutcome.ACKED, n, BEGAN + n + 0.1)
        for n, record in enumerate(ids)
    )
    kept = [record for n, record in enumerate(ids) if not 5 <= n < 5 + lose]
    landed = tuple(Landed(0, offset, record, 7) for offset, record in enumerate(kept))
    polls = tuple(Poll("consumer-1", 1, "primary", 0, n, record, BEGAN + n + 1) for n, record in enumerate(ids[:12]))
    polls += tuple(
        Poll("consumer-2", 1, "dr", 0, offset, record, BEGAN + 20) for offset, record in enumerate(kept) if offset >= 8
    )
    return ClientHistory("primary", "dr", attempts, polls, (ConfirmedPosition("dr", 0, 8, BEGAN + 19),), landed)


def brought_back(history: ClientHistory, *, without: int = 0) -> ClientHistory:
    """A failback brought all back but the last `without` records; the group is at the end on primary."""
    end = len(history.landed)
    return replace(
        history,
        positions=(*history.positions, ConfirmedPosition("primary", 0, end - without, BEGAN + 21.9)),
        returned=Returned(BEGAN + 21.8, history.landed[: end - without]),
    )


def keep(
    drills: Drills,
    run: str,
    history: ClientHistory,
    *,
    rto: float = 60.0,
    number: int = 0,
    title: str = TITLE,
    inner: InnerRun | None = None,
    ends: Ends | None = None,
    strikes: str = "",
    others: Sequence[ClientHistory] = (),
) -> str:
    """Write a drill like the runner.

    Args:
        drills: where it is kept.
        run: its name.
        history: of the link that fails over, from primary to dr; where it has `returned`, a failback follows.
        rto: the objective.
        number: its day.
        title: the experiment's.
        inner: the run of its failover.
        ends: an early end.
        strikes: more lines of its failover.
        others: of further links, with the policy prefix, which nothing strikes.
    """
    path = drills.path.parent / "x.yaml"
    path.write_text(experiment_text(title, rto, strikes, others, back=history.returned is not None))
    file = load_experiment(path)
    folder = drills.begin(run, path)
    write_experiment(folder, file)
    write_origin(folder, run, witness=None, began=BEGAN)
    if ends is None or ends.steps:  # else the lab did not start
        _add_lab(folder, run, inner)
    at = AT + timedelta(days=number)
    link = "primary->dr"
    reports = [
        {"type": "progress", "link": link, "at": (at + timedelta(seconds=n)).isoformat(), "lag_records": n}
        for n in (3, 9)
    ]
    (folder / "mirror.log").write_text("it says something\n" + "".join(json.dumps(row) + "\n" for row in reports))
    steps, steady = (
        planned_results(file),
        SteadyStateResult(reached=True, reason="1 record read from primary", seconds=1.0),
    )
    disaster_at: float | None = BEGAN + 15
    if ends is not None:
        steps, steady = [*steps[: ends.steps], *ends.after], ends.steady
        disaster_at = None if ends.disaster is None else BEGAN + ends.disaster
        if ends.interrupted is not None:
            history = no_histories(file.experiment)[0].history
    moved = ends is None or ends.moved
    alone = measure(history, disaster_at=disaster_at, moved=moved)
    histories = [LinkHistory(history, disaster_at, moved), *map(LinkHistory, others)]
    by_link = {link: alone} | {each.link: measure(each, disaster_at=None, moved=False) for each in others}
    measured = measure_site(by_link, moving=file.experiment.moving)
    checks = [
        check_result(name, each.history.link, judge(name, each.history))
        for each in histories
        for name in file.experiment.checks_of(each.history.link)
    ]
    objectives = objective_results(file.experiment.objectives, measured)
    interrupted = None if ends is None else ends.interrupted
    judged, code, reasons = verdict(
        steady_state=steady, steps=steps, checks=checks, objectives=objectives, interrupted=interrupted
    )
    result = DrillResult(
        run=run,
        title=title,
        hypothesis=file.experiment.hypothesis.strip(),
        file="x.yaml",
        verdict=judged,
        exit_code=code,
        reasons=reasons,
        started_at=at,
        ended_at=at + timedelta(seconds=30),
        seconds=30.0,
        steady_state=steady,
        steps=steps,
        checks=checks,
        objectives=objectives,
        measured=measured,
        links=[
            LinkResult(
                link=each.name,
                topic=file.experiment.workload(each.name).topic,
                target_topic=each.topic_on(each.target, file.experiment.workload(each.name).topic),
                group=file.experiment.workload(each.name).group,
                moved=moved and each.name == link,
                measured=by_link[each.name],
                failover=None if inner is None or each.name != link else inner.document,
            )
            for each in file.experiment.links
        ],
        failover=None if inner is None else inner.document,
        folder=str(folder),
    )
    write_history(folder, histories, interrupted=interrupted)
    drills.keep(result)
    return run


def experiment_text(
    title: str = TITLE,
    rto: float = 60.0,
    strikes: str = "",
    others: Sequence[ClientHistory] = (),
    *,
    back: bool = False,
) -> str:
    """The experiment's file (arguments as of `keep`)."""
    links = ["{ source: primary, target: dr }"]
    links += [f"{{ source: {each.source}, target: {each.target}, policy: prefix }}" for each in others]
    workloads = ["  - do: workload"]
    workloads += [f"  - {{ do: workload, link: {each.link}, group: other-{each.source} }}" for each in others]
    lab = f"\nlab: {{ links: [{', '.join(links)}] }}" if others else ""
    return EXPERIMENT.format(
        title=title, rto=rto, strikes=strikes, lab=lab, workloads="\n".join(workloads), back=BACK * back
    )


def name(number: int) -> str:
    """A drill's name; later ones have greater numbers."""
    return f"drill-20261120T04030{number}Z-00000{number}"


def _add_lab(folder: Path, run: str, inner: InnerRun | None) -> None:
    clusters = [{"alias": "primary", "cluster_id": "P"}, {"alias": "dr", "cluster_id": "D"}]
    origin = first_origin(run, witness=None, began=BEGAN) | {
        "clusters": clusters if inner is None else inner.clusters,
        "configuration_digest": "c" * 64,
        "lab": {"nodes": ["primary-1", "dr-1"], "machine": "here"},
        "journals_missing": None,
    }
    (folder / ORIGIN).write_text(json.dumps(origin))
    for name, content in ({} if inner is None else inner.files).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def planned_results(file: ExperimentFile) -> list[StepResult]:
    """All steps, in time and successful."""
    workloads = len(file.experiment.links)
    steps = [
        StepResult(
            section="rollbacks" if part == "rollbacks" else "setup" if place < workloads else "method",
            step=describe(step),
            line=file.line(part, place),
            outcome="ok",
            reason="done",
            seconds=0.0,
            strikes=_strikes(file, place, step) if isinstance(step, Move) else [],
        )
        for part, planned in (("method", file.experiment.method), ("rollbacks", file.experiment.rollbacks))
        for place, step in enumerate(planned)
    ]
    return [
        step.model_copy(update={"started_after_seconds": after, "seconds": seconds})
        for step, (after, seconds) in zip(steps, _times(workloads, len(steps)), strict=True)
    ]


def _times(workloads: int, steps: int) -> list[tuple[float, float]]:
    """The start and the duration of each step."""
    back = [BACK_TIME] * (steps - workloads - len(TIMES))
    after, seconds = WORKLOAD_TIME
    each = seconds / workloads
    return [*((after + number * each, each) for number in range(workloads)), *TIMES[:-1], *back, TIMES[-1]]


def _strikes(file: ExperimentFile, place: int, move: Move) -> list[StrikeResult]:
    return [
        StrikeResult(
            step=describe_strike(move, strike.at, fault),
            line=file.line("method", place, "strikes", number, "faults", one),
            outcome="ok",
            reason="done",
            seconds=0.1,
            started_after_seconds=STRUCK_AFTER,
        )
        for number, strike in enumerate(move.strikes)
        for one, fault in enumerate(strike.faults)
    ]
