"""`drkit fence`: fence what a failover had to leave unfenced, once it answers."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from drkit.cli.context import ConfigOption, LinkOption, OutputOption, VerboseOption, command
from drkit.cli.output import OutputMode
from drkit.failover.estate import Estate
from drkit.failover.gate_proof import Proof
from drkit.failover.refence import answers, fence_again, links_left
from drkit.model.errors import ExitCode
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
    link: LinkOption = None,
    config: ConfigOption = None,
    output: OutputOption = OutputMode.HUMAN,
    verbose: VerboseOption = False,
) -> None:
    """Deny clients of clusters that were failed away from, and show that they are denied."""
    with command(config, output, verbose) as run, Estate(run.config, run.store()) as estate:
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
