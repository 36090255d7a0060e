"""`drkit fence`: fence what a failover had to leave unfenced, once it answers; `--lift` opens what drkit closed."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from drkit.cli.context import ConfigOption, Invocation, LinkOption, OutputOption, VerboseOption, command
from drkit.cli.failover import YesOption
from drkit.cli.failover_run import confirm
from drkit.cli.output import OutputMode
from drkit.failover.estate import Estate
from drkit.failover.gate_context import answers
from drkit.failover.gate_proof import Proof
from drkit.failover.refence import cluster_to_lift, fence_again, lift_fence, links_left
from drkit.model.errors import ConfigError, ExitCode
from drkit.model.topology import Link

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 15.0


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("fence")(fence)


def fence(
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="SECONDS", min=0, help="Try again until it is fenced, at most so long."),
    ] = 0.0,
    lift: Annotated[
        bool, typer.Option("--lift", help="Open the cluster that clients are to use, whatever run closed it.")
    ] = False,
    yes: YesOption = False,
    link: LinkOption = None,
    config: ConfigOption = None,
    output: OutputOption = OutputMode.HUMAN,
    verbose: VerboseOption = False,
) -> None:
    """Deny clients of clusters that were failed away from, and show that they are denied; or lift a fence."""
    with command(config, output, verbose) as run, Estate(run.config, run.store()) as estate:
        if lift:
            if wait:
                raise ConfigError("--wait and --lift exclude each other", remedy="Give one of them")
            _lift(run, estate, run.links(link), yes=yes)
            return
        left = links_left(estate, run.links(link))
        done = {each.id: fence_again(estate, each, run.writer.log.print) for each in left}
        deadline, pause = time.monotonic() + wait, _FIRST_PAUSE
        while not all(proof.proven for _, proof in done.values()) and time.monotonic() < deadline:
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(pause * 2, _LONGEST_PAUSE)
            for each in left:
                if not done[each.id][1].proven and answers(estate, each.id.source):
                    done[each.id] = fence_again(estate, each, run.writer.log.print)
        found = [(each, *done[each.id]) for each in left]
        run.writer.emit(
            {"links": [_document(each, name, proof) for each, name, proof in found]},
            lambda console: _show(console, found),
        )
        if not all(proof.proven for _, _, proof in found):
            run.exit(ExitCode.PARTLY_DONE)


def _lift(run: Invocation, estate: Estate, links: list[Link], *, yes: bool) -> None:
    """Open the cluster that serves, link by link."""
    found = []
    for each in links:
        cluster, away = cluster_to_lift(estate, each)
        if away and not yes and sys.stdin.isatty():
            what = f"{cluster} serves again, without what was written to {each.id.target} since it was failed away from"
            confirm(run, cluster, what, yes=False)
            yes = True
        found.append((each, cluster, *lift_fence(estate, each, run.writer.log.print, alone=yes)))
    run.writer.emit(
        {
            "links": [
                {**_document(each, name, proof), "cluster": cluster, "fenced": proof.proven}
                for each, cluster, name, proof in found
            ]
        },
        lambda console: _show_lifted(console, found),
    )
    if any(proof.proven for _, _, _, proof in found):
        run.exit(ExitCode.PARTLY_DONE)


def _show_lifted(console: Console, found: list[tuple[Link, str, str, Proof]]) -> None:
    for _, cluster, run, proof in found:
        word = "[bold red]STILL FENCED[/]" if proof.proven else "[green]open[/]"
        console.print(f"{cluster}  {word}: {escape(proof.reason)}  [dim]run {run}[/]", soft_wrap=True)


def _document(link: Link, run: str, proof: Proof) -> dict[str, Any]:
    return {
        "link": str(link.id),
        "cluster": link.id.source,
        "fenced": proof.proven,
        "reason": proof.reason,
        "run": run,
        "epoch": proof.epoch,
    }


def _show(console: Console, found: list[tuple[Link, str, Proof]]) -> None:
    for link, run, proof in found:
        word = "[green]fenced[/]" if proof.proven else "[bold yellow]UNFENCED[/]"
        console.print(f"{link.id.source}  {word}: {escape(proof.reason)}  [dim]run {run}[/]", soft_wrap=True)
