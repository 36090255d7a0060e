"""Shared by failover, failback and resume: approval, confirmation, dry runs, results and exit codes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from drkit.cli.views.failover_view import StagePrinter, print_plan, print_rehearsal, print_result
from drkit.cli.views.site_view import LinkStagePrinter
from drkit.cli.wiring.context import Invocation
from drkit.failover.context.state_machine import State
from drkit.model.clock import now
from drkit.model.errors import ConfigError, ExitCode, PartlyDone, Refused
from drkit.model.runs import ACCEPT_UNFENCED, Approval

if TYPE_CHECKING:
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.journal.run_record import Plan
    from drkit.failover.plan.failover_plan import FailoverPlan, Obstacle
    from drkit.failover.run.runner import RunResult


ApprovalOption = Annotated[
    list[Path] | None,
    typer.Option("--approval", metavar="FILE", help="A file that `drkit evidence approve` wrote; one per operator."),
]
EmergencyOption = Annotated[
    str | None,
    typer.Option("--emergency", metavar="REASON", help="Act alone although approvals are required; journaled."),
]


def give_approval(run: Invocation, estate: ClusterContext, files: list[Path] | None, emergency: str | None) -> None:
    """Take what the options say.

    Raises:
        ConfigError: they don't go together, or a file or key can't be read.
        Refused: the files are no approval of two operators.
    """
    rule = run.config.approvals
    if emergency is not None:
        if files:
            raise ConfigError("--approval and --emergency exclude each other", remedy="Give one of them")
        if not emergency.strip():
            raise ConfigError("--emergency: no reason is given", remedy="Say why you act alone; it is journaled")
        estate.approval = Approval(emergency=emergency.strip())
        if rule is not None:
            run.writer.log.print("[bold]![/] An emergency: you act alone, and the journal says so", soft_wrap=True)
    elif files:
        if rule is None:
            raise ConfigError("--approval: there is no [approvals]", remedy="Leave it out, or name the operators there")
        from drkit.evidence.approvals import read_approvals

        estate.approval = read_approvals(files, rule.operators, now())


def collect_rarely() -> None:
    """Let Python look for unreachable objects less often, in the short life of this command.

    A plan for a thousand groups is a million objects that all stay: looking through them again and again took a
    fifth of a failover's time.
    """
    gc.freeze()
    gc.set_threshold(500_000, 50, 50)


def confirm(run: Invocation, word: str, what: str, *, yes: bool, ask: str = "the cluster's name") -> bool:
    """Ask on a terminal until `word` is typed; whether it was asked.

    Raises:
        Refused: it wasn't typed, or nobody can be asked.
    """
    if yes:
        return False
    if not sys.stdin.isatty():
        raise Refused(
            f"stdin is not a terminal, and this needs a confirmation: {what}",
            meaning="Nothing was changed",
            remedy="If you mean it, give --yes",
        )
    typed = run.ask(f"[bold]{escape(what)}.[/] Type {ask} to continue: ")
    if typed != word:
        raise Refused("not confirmed", meaning="Nothing was changed", remedy="Run it again when you are sure")
    return True


def asking_before_fence(
    run: Invocation, printer: StagePrinter | LinkStagePrinter, *, yes: bool, pause: bool
) -> Callable[[str], None]:
    """What a failback asks before it closes a live cluster, given by its alias.

    Args:
        run: the invocation.
        printer: stopped before the question.
        yes: don't ask.
        pause: don't ask, stop.
    """

    def ask(live: str) -> None:
        told = PartlyDone(
            f"the failback waits before its fence: next {live} is closed to its clients",
            meaning=f"All before it is done and audited; {live} keeps serving: nothing has to be hurried. Nothing is "
            f"copied while it waits: what {live} takes meanwhile is copied once it is closed, and clients wait",
            remedy=f"Stop the producers of {live}, let its consumers finish, then drkit resume. If that is more than "
            "minutes away, start drkit mirror, which copies the way back now, and let it run until then",
        )
        if pause:
            raise told
        if yes or not sys.stdin.isatty():
            return
        printer.stop()
        words = f"[bold]Next {live} is closed to its clients: stop its producers now.[/] Type {live} to continue: "
        if run.ask(words) != live:
            raise told

    return ask


def cancel(run: Invocation, run_id: str | None, *, yes: bool) -> None:
    """Take a run back to where it began, and show it (None: the one that is unfinished)."""
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.journal.run_record import load_anchored_run, run_to_resume
    from drkit.failover.journal.site_record import site_to_resume
    from drkit.failover.run.service import cancel_run

    store = run.store()
    site = site_to_resume(store, run_id)
    if site is not None:
        from drkit.cli.wiring.site_outcome import resume_whole_site

        resume_whole_site(run, site, yes=yes)
        return
    wanted = run_to_resume(store, run_id)
    with StagePrinter(run.writer) as printer, ClusterContext(run.config, store) as estate:
        record = load_anchored_run(estate, wanted)
        source = record.plan.link.source
        if not record.machine.finished:
            does = f"Run {wanted} ({record.label}) is rolled back: {source} serves as before"
            confirm(run, source, does, yes=yes)
        run.begins_to_change("The run may be rolled back in part", f"drkit resume {wanted} --cancel")
        result = cancel_run(estate, wanted, watch=printer)
    finish(run, result, record.plan, plan_shown=False)


def show_dry_run(run: Invocation, plan: Plan, standing: list[Obstacle]) -> None:
    """A dry run's result; exit 3 where the same flags would be refused."""
    from drkit.failover.run.run_document import plan_document

    run.writer.emit(
        lambda: plan_document(plan, standing=standing),
        lambda console: print_plan(console, plan, standing),
    )
    if standing:
        run.exit(ExitCode.REFUSED)


def rehearse_plan(run: Invocation, estate: ClusterContext, plan: FailoverPlan, started_at: datetime) -> None:
    """Rehearse a plan; exit 3 where it went well, but a real run would be refused."""
    from drkit.failover.run.rehearsal import rehearse
    from drkit.failover.run.run_document import rehearsal_document
    from drkit.failover.run.service import standing_obstacles

    standing = standing_obstacles(plan, waived=frozenset({ACCEPT_UNFENCED}))
    with StagePrinter(run.writer) as printer:
        result = rehearse(estate, plan, started_at=started_at, watch=printer)
    run.writer.emit(
        rehearsal_document(result, plan, standing),
        lambda console: print_rehearsal(console, result, plan, standing),
    )
    if result.error is not None:
        run.fail(result.error)
    if standing:
        run.exit(ExitCode.REFUSED)


def has_ended(run: Invocation, run_id: str, state: State) -> None:
    """A run's stages are over, or have stopped, and say so themselves: what a signal means from here on."""
    if state is not State.CANCELLED:
        run.begins_to_change("The run's stages were over; only its result isn't written", f"drkit runs {run_id}")


def finish(run: Invocation, result: RunResult, plan: Plan, *, plan_shown: bool) -> None:
    """A run's result, and its exit code."""
    from drkit.failover.run.run_document import run_document

    judgement = result.judged(run.config.objectives)
    run.writer.emit(
        lambda: run_document(result, plan, judgement),
        lambda console: print_result(console, result, plan, judgement, plan_shown=plan_shown),
    )
    if result.error is not None:
        run.fail(result.error)
    if not judgement.met:
        run.exit(ExitCode.OBJECTIVE_MISSED)
