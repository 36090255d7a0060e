"""`drkit abandon`: end a run that can neither continue nor be rolled back; the cluster that serves is opened."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from drkit.cli.output import NOTHING_CHANGED
from drkit.cli.verbs.failover.failover import YesOption
from drkit.cli.wiring.context import Invocation, verb
from drkit.cli.wiring.run_outcome import confirm
from drkit.model.errors import ExitCode

if TYPE_CHECKING:
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.recovery.abandon import AbandonReport, SiteAbandoned


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("abandon")(abandon)


@verb(unfinished=NOTHING_CHANGED)
def abandon(
    run: Invocation,
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The run; `drkit runs` lists them.")],
    yes: YesOption = False,
) -> None:
    """End a run in its current state, by the clusters, the link and the fence; works even if its journal is damaged.

    Nothing is deleted, and salvages stay. Asks at a terminal. Exits 0 where the cluster that serves is open, 7 where
    its fence is still in place, 3 where the run can be finished.
    """
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.journal.site_record import is_site
    from drkit.failover.recovery.abandon import abandon_run

    with ClusterContext(run.config, run.store()) as estate:
        if sys.stdin.isatty():  # a script means it: it has named the run
            confirm(run, run_id, "The run ends as it is and can't be resumed", yes=yes, ask="the run's id")
        run.begins_to_change("The run may be on its way to its end")
        if is_site(estate.store, run_id):
            _abandon_site(run, estate, run_id)
            return
        done = abandon_run(estate, run_id, run.say)
        run.writer.emit(_document(done), lambda console: _show(console, done))
        if done.open is False:
            run.exit(ExitCode.PARTLY_DONE)


def _abandon_site(run: Invocation, estate: ClusterContext, run_id: str) -> None:
    """End the run of each link; where one can be taken to its end, the site run isn't over."""
    from drkit.failover.recovery.abandon import abandon_site

    done = abandon_site(estate, run_id, run.say)
    run.writer.emit(
        {
            "run": run_id,
            "state": "abandoned" if not done.kept else "planned",
            "journal_problem": done.journal,
            "links": [_document(each) for each in done.reports],
            "not_abandoned": [
                {"link": str(link), "reason": error.what, "remedy": error.remedy or None} for link, error in done.kept
            ],
        },
        lambda console: _show_site(console, done),
    )
    if done.kept or any(each.open is False for each in done.reports):
        run.exit(ExitCode.PARTLY_DONE)


def _document(done: AbandonReport) -> dict[str, Any]:
    return {
        "run": done.run,
        "link": str(done.link),
        "state": "abandoned",
        "state_before": done.state_before,
        "serves": done.serves,
        "open": done.open,
        "did": list(done.did),
        "stands": list(done.stands),
        "journal_problem": done.journal,
        "journaled_in": done.journaled_in,
        "salvage_path": done.salvage_path,
    }


def _show_site(console: Console, done: SiteAbandoned) -> None:
    for each in done.reports:
        _show(console, each)
    for link, error in done.kept:
        console.print(f"[yellow]![/] {escape(f'{link}: {error}')}", soft_wrap=True)
    if not done.kept:
        console.print(f"site run {done.run} abandoned")


def _show(console: Console, done: AbandonReport) -> None:
    word = {True: "[green]open[/]", False: "[bold red]still fenced[/]", None: "[yellow]not known: no answer[/]"}
    console.print(f"run {done.run} abandoned (it was {done.state_before}); {done.serves} serves: {word[done.open]}")
    if done.journal is not None:
        console.print(f"[yellow]![/] its journal was not believed: {escape(done.journal)}", soft_wrap=True)
    for text in done.did:
        console.print(f"  [green]✓[/] {escape(text)}", soft_wrap=True)
    for text in done.stands:
        console.print(f"  [dim]·[/] {escape(text)}", soft_wrap=True)
