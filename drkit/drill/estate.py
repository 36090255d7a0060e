"""Rehearsals on a real estate: they inject no fault, move no group, and write no record except for canaries.

    canary      a canary of the link arrives at the target while the step looks (`canary = true` of the link)
    rehearse    `drkit failover --rehearse`: positions committed for shadow groups, read back, removed; judged by its
                journal, as its evidence is

Experiments, which inject faults, run only on labs. A rehearsal is a run in the store, with its own journal and
evidence; so is the drill, which holds the drills' lease.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from drkit.config import Config
from drkit.drill.environment.child_processes import Finished, environment, run_command
from drkit.drill.environment.environment import document
from drkit.drill.experiment.faults import Fault
from drkit.drill.experiment.reader import ExperimentFile
from drkit.drill.experiment.steps import Move, Reprotect, describe
from drkit.drill.judge.result import Document, ExitValue, Instant, StepOutcome, Verdict
from drkit.drill.results.archive import ALL_DRILLS, begin_in_store, drill_lease, keep_run, lost, new_run
from drkit.model.clock import now
from drkit.model.errors import DrkitError, ExitCode, Refused
from drkit.model.process import working_on
from drkit.model.topology import Link
from drkit.observe.drill_history import DRILL
from drkit.observe.status import link_statuses
from drkit.store.api import Store

CANARY_SECONDS = 10.0
"""How long one is waited for: the mirror sends one each second, and saves what arrived every 3 s."""
_LOOK_SECONDS = 1.0
REHEARSAL_SECONDS = 900.0
Say = Callable[[str], None]
Judge = Callable[[str], tuple[str, list[str]]]
"""Gives the verdict of a run's evidence, with its reasons; may raise DrkitError."""
_CODES: dict[Verdict, ExitValue] = {"passed": 0, "failed": 1, "unknown": 8}


class EstateStep(Document):
    """One step. `skipped`: it was not played, and doesn't count; `reason` says why."""

    step: str
    outcome: StepOutcome
    reason: str | None
    seconds: float


class EstateDrill(Document):
    """The document of `drkit drill run --target estate --output json`.

    `rehearsals`: those of `drkit failover --rehearse --output json`, verbatim.
    """

    run: str
    title: str
    target: Literal["estate"]
    to: list[str]
    verdict: Verdict
    exit_code: ExitValue
    reasons: list[str]
    started_at: Instant
    ended_at: Instant
    seconds: float
    steps: list[EstateStep]
    rehearsals: list[dict[str, Any]]


def refuse_experiments(files: Sequence[ExperimentFile]) -> None:
    """Raise Refused: experiments inject faults, and drkit injects none on an estate."""
    for file in files:
        for place, step in file.experiment.each_step():
            if isinstance(step, Fault | Move | Reprotect):
                raise Refused(
                    f"{file.path}:{file.line(*place)}: `{describe(step)}` is not allowed on an estate",
                    meaning="On an estate drills only rehearse, with shadow groups and canaries; nothing was changed",
                    remedy="Leave the file out to rehearse, or play it on a lab: without --target estate",
                )
        raise Refused(
            f"{file.path} is an experiment, and experiments run only on labs",
            meaning="Its workload would write to clusters that others use; nothing was changed",
            remedy="Leave the file out to rehearse, or play it on a lab: without --target estate",
        )


def rehearse_estate(
    config: Config, path: Path, store: Store, links: Sequence[Link], judge: Judge, say: Say
) -> EstateDrill:
    """Rehearse a failover to each target of these links.

    Args:
        config: the estate's configuration.
        path: its file.
        store: its store; the result is written to it.
        links: the links to rehearse.
        judge: judges a rehearsal.
        say: called with a readable line about each step.

    Raises:
        Refused: another drill is running.
        Unreachable: the store doesn't answer.
    """
    at, began = now(), time.monotonic()
    targets = list(dict.fromkeys(link.id.target for link in links))
    run, title = new_run(at), f"Rehearsal on the estate, to {', '.join(targets)}"
    steps: list[EstateStep] = []
    rehearsals: list[dict[str, Any]] = []
    with working_on(run=run), drill_lease(store, DRILL) as lease:
        if (unknown := begin_in_store(store, run, title, at)) is not None:
            say(f"the store doesn't remember that it begins: {unknown}")
        for name, play in _steps(config, path, store, links, targets, rehearsals, judge):
            say(f"{name} …")
            started = time.monotonic()
            lease_lost = lost(lease)
            outcome, reason = ("unknown", lease_lost) if lease_lost is not None else play()
            steps.append(
                EstateStep(step=name, outcome=outcome, reason=reason, seconds=round(time.monotonic() - started, 3))
            )
            say(f"{name}: {outcome}{'' if reason is None else f' ({reason})'}")
            if lease_lost is not None:
                break
        verdict, reasons = judged(steps)
        drill = EstateDrill(
            run=run,
            title=title,
            target="estate",
            to=targets,
            verdict=verdict,
            exit_code=_CODES[verdict],
            reasons=reasons,
            started_at=at,
            ended_at=now(),
            seconds=round(time.monotonic() - began, 3),
            steps=steps,
            rehearsals=rehearsals,
        )
        body = drill.model_dump(mode="json", include={"run", "title", "verdict", "steps"})
        runs = [run for each in rehearsals for run in runs_of(each)]
        problem = keep_run(config, store, run, title, verdict, (at, drill.ended_at), {**body, "rehearsals": runs})
    if problem is not None:
        say(f"the store doesn't remember {ALL_DRILLS}: {problem}")
    return drill


def judged(steps: Sequence[EstateStep]) -> tuple[Verdict, list[str]]:
    """The verdict of all steps, with reasons. A failure outweighs what was not seen; at least one step must run."""
    failed = [f"{each.step}: {each.reason}" for each in steps if each.outcome == "failed"]
    unseen = [f"{each.step}: {each.reason}" for each in steps if each.outcome == "unknown"]
    left_out = [f"{each.step} was not played: {each.reason}" for each in steps if each.outcome == "skipped"]
    if failed:
        return "failed", [*failed, *unseen, *left_out]
    if unseen or all(each.outcome == "skipped" for each in steps):
        return "unknown", [*unseen, *left_out]
    return "passed", left_out


Played = tuple[StepOutcome, str | None]


def _steps(
    config: Config,
    path: Path,
    store: Store,
    links: Sequence[Link],
    targets: Sequence[str],
    rehearsals: list[dict[str, Any]],
    judge: Judge,
) -> Iterator[tuple[str, Callable[[], Played]]]:
    for link in links:
        yield f"canary of {link.id}", partial(canary_arrives, config, store, link)
    for to in targets:
        chosen = [str(link.id) for link in links if link.id.target == to]
        yield f"rehearse a failover to {to}", partial(_rehearse, path, to, chosen, rehearsals, judge)


def canary_arrives(config: Config, store: Store, link: Link) -> Played:
    """Whether a canary of the link arrives from now on, as its workers report: what arrived before shows nothing."""
    if not link.canary:
        return "skipped", f"{link.id} has no canary; set canary = true of the link"
    deadline = time.monotonic() + CANARY_SECONDS
    first, before = dict[tuple[str, datetime], datetime](), dict[tuple[str, datetime], int]()
    while True:
        try:
            status = link_statuses(config, store, [link])[0]
        except DrkitError as error:
            return "unknown", error.what
        workers = [(each, each.latency) for each in status.statistics if each.latency is not None]
        for each, latency in workers:
            run = each.worker, each.started_at
            if each.at == first.setdefault(run, each.at):
                continue  # it was saved before the step began
            if latency.arrived > before.setdefault(run, latency.arrived) and latency.p99 is not None:
                return "ok", f"arrives within {latency.p99:.3f} s (p99)"
        if time.monotonic() >= deadline:
            break
        time.sleep(_LOOK_SECONDS)
    if not workers:
        return "unknown", f"no worker of {link.id} reports its canary; the link is {status.state}"
    waiting = max(latency.waiting_seconds for _, latency in workers)
    if waiting > CANARY_SECONDS:
        return "failed", f"a canary has been on its way for {waiting:.0f} s; the link is {status.state}"
    return (
        "unknown",
        f"none arrived within {CANARY_SECONDS:g} s, and none is known to be late; the link is {status.state}",
    )


def _rehearse(path: Path, to: str, links: Sequence[str], rehearsals: list[dict[str, Any]], judge: Judge) -> Played:
    """Run `drkit failover --rehearse` as a separate process: on Ctrl-C it can still remove its shadow groups."""
    arguments = ["-m", "drkit", "failover", "--rehearse", "--to", to, "--config", str(path), "--output", "json"]
    for each in links:
        arguments += ["--link", each]
    with tempfile.TemporaryDirectory(prefix="drkit-rehearsal-") as folder:
        log = Path(folder) / "rehearsal.log"
        finished = run_command(arguments, log, Path.cwd(), REHEARSAL_SECONDS, env=environment(configured=True))
        found = document(finished.stdout)
        if found is not None:
            rehearsals.append(found)
        return judge_rehearsal(finished, found, judge)


def runs_of(rehearsal: dict[str, Any]) -> list[str]:
    """The runs of a rehearsal's document: of several links each has one."""
    return [each["run"] for each in rehearsal.get("links", [rehearsal]) if each.get("run") is not None]


def judge_rehearsal(finished: Finished, found: dict[str, Any] | None, judge: Judge) -> Played:
    """The outcome by a rehearsal's exit code, and where that is 0 by its evidence; 3: it succeeded, but a real run
    would be refused."""
    if finished.exit_code == ExitCode.OK and found is not None:
        return _by_evidence(runs_of(found), judge)
    refusals = [str(each.get("what", each)) for each in (found or {}).get("refusals", ())]
    error = (found or {}).get("error") or {}
    why = "; ".join(refusals) or error.get("what") or finished.log.removeprefix("; ")
    if finished.exit_code is None:
        return "failed", f"it did not end within {REHEARSAL_SECONDS:g} s"
    if finished.exit_code == ExitCode.REFUSED:
        return "failed", f"a failover would be refused now: {why}"
    outcome: StepOutcome = "unknown" if finished.exit_code == ExitCode.UNKNOWN else "failed"
    return outcome, f"exit code {finished.exit_code}: {why}"


def _by_evidence(runs: Sequence[str], judge: Judge) -> Played:
    """The worst verdict of these runs: exit code 0 says that nothing failed, not that anything was compared."""
    if not runs:
        return "unknown", "it names no run"
    try:
        judged = {run: judge(run) for run in runs}
    except DrkitError as error:
        return "unknown", error.what
    for outcome in ("failed", "unknown"):
        said = [f"{run}: {'; '.join(reasons)}" for run, (verdict, reasons) in judged.items() if verdict == outcome]
        if said:
            return outcome, "; ".join(said)
    return "ok", None
