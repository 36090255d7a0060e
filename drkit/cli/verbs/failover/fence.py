"""`drkit fence`: fence what a failover had to leave unfenced, once it answers; `--lift` opens what drkit closed."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from drkit.cli.verbs.failover.failover import YesOption
from drkit.cli.wiring.context import ConfigOption, Invocation, LinksOption, OutputOption, VerboseOption, command
from drkit.cli.wiring.output import OutputMode
from drkit.cli.wiring.run_outcome import confirm
from drkit.model.errors import ConfigError, ExitCode
from drkit.model.topology import Link

if TYPE_CHECKING:
    from drkit.failover.fencing.fence_proof import FenceProof
    from drkit.failover.run.cluster_context import ClusterContext

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
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="C", help="With --lift: this one (default: the one clients are to use)."),
    ] = None,
    yes: YesOption = False,
    link: LinksOption = None,
    config: ConfigOption = None,
    output: OutputOption = OutputMode.HUMAN,
    verbose: VerboseOption = False,
) -> None:
    """Deny clients of clusters that were failed away from, and show that they are denied; or lift a fence."""
    from drkit.failover.fencing.fence_command import fence_again, links_left
    from drkit.failover.fencing.fence_context import answers
    from drkit.failover.run.cluster_context import ClusterContext

    with command(config, output, verbose) as run, ClusterContext(run.config, run.store()) as estate:
        if lift:
            if wait:
                raise ConfigError("--wait and --lift exclude each other", remedy="Give one of them")
            _lift(run, estate, _links_with(run.links_like(link), cluster), cluster, yes=yes)
            return
        if cluster is not None:
            raise ConfigError("--cluster goes with --lift only", remedy="Leave it out")
        left = links_left(estate, run.links_like(link))
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


def _links_with(links: list[Link], cluster: str | None) -> list[Link]:
    found = [each for each in links if cluster in {None, each.id.source, each.id.target}]
    if not found:
        raise ConfigError(
            f"--cluster: {cluster} is no cluster of {', '.join(str(each.id) for each in links)}",
            remedy="Name the source or the target of a link",
        )
    return found


def _lift(run: Invocation, estate: ClusterContext, links: list[Link], cluster: str | None, *, yes: bool) -> None:
    """Open a cluster, link by link: the one named, else the one that clients are to use."""
    from drkit.failover.fencing.fence_command import lift_fence, serving

    found = []
    for each in links:
        serves = serving(estate, each)
        opened = cluster or serves
        meant = yes
        if opened != serves and not yes and sys.stdin.isatty():
            meant = confirm(run, opened, f"{opened} serves, without what was written to {serves} since", yes=False)
        found.append((each, opened, *lift_fence(estate, each, opened, run.writer.log.print, meant=meant)))
    run.writer.emit(
        {
            "links": [
                {**_document(each, name, proof), "cluster": opened, "fenced": proof.proven}
                for each, opened, name, proof in found
            ]
        },
        lambda console: _show_lifted(console, found),
    )
    if any(proof.proven for _, _, _, proof in found):
        run.exit(ExitCode.PARTLY_DONE)


def _show_lifted(console: Console, found: list[tuple[Link, str, str, FenceProof]]) -> None:
    for _, cluster, run, proof in found:
        word = "[bold red]STILL FENCED[/]" if proof.proven else "[green]open[/]"
        console.print(f"{cluster}  {word}: {escape(proof.reason)}  [dim]run {run}[/]", soft_wrap=True)


def _document(link: Link, run: str, proof: FenceProof) -> dict[str, Any]:
    return {
        "link": str(link.id),
        "cluster": link.id.source,
        "fenced": proof.proven,
        "reason": proof.reason,
        "run": run,
        "epoch": proof.epoch,
    }


def _show(console: Console, found: list[tuple[Link, str, FenceProof]]) -> None:
    for link, run, proof in found:
        word = "[green]fenced[/]" if proof.proven else "[bold yellow]UNFENCED[/]"
        console.print(f"{link.id.source}  {word}: {escape(proof.reason)}  [dim]run {run}[/]", soft_wrap=True)
