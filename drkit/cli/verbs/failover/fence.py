"""`drkit fence`: fences what a failover had to leave unfenced, once it answers; `--lift` opens what drkit closed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from drkit.cli.output import NOTHING_CHANGED
from drkit.cli.verbs.failover.failover import YesOption
from drkit.cli.wiring.context import (
    Invocation,
    LinkFailure,
    LinksOption,
    bounded,
    combined_error,
    failure_documents,
    verb,
)
from drkit.cli.wiring.run_outcome import confirm
from drkit.model.errors import ConfigError, DrkitError, ExitCode
from drkit.model.topology import Link, LinkId

if TYPE_CHECKING:
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.fencing.cluster_fence import FenceProof

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 15.0


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("fence")(fence)


@verb(unfinished=NOTHING_CHANGED)
def fence(
    run: Invocation,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0,
            callback=bounded,
            help="Keep trying until it is fenced, for at most this long.",
        ),
    ] = 0.0,
    lift: Annotated[
        bool, typer.Option("--lift", help="Open the cluster that clients should use, whichever run closed it.")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="C", help="With --lift: this cluster (default: the one clients should use)."),
    ] = None,
    yes: YesOption = False,
    link: LinksOption = None,
) -> None:
    """Deny clients of clusters that were failed away from, and show that they are denied; or lift a fence.

    Each link is fenced or opened on its own: if one fails, the others are still done, and the command exits 7.
    """
    from drkit.failover.context.cluster_context import ClusterContext

    if lift and wait:
        raise ConfigError("--wait and --lift exclude each other", remedy="Give one of them")
    if cluster is not None and not lift:
        raise ConfigError("--cluster needs --lift", remedy="Leave it out")
    links = _links_with(run.links_like(link), cluster)
    with ClusterContext(run.config, run.store()) as estate:
        if lift:
            _lift(run, estate, links, cluster, yes=yes)
        else:
            _close(run, estate, links, wait)


def _close(run: Invocation, estate: ClusterContext, links: list[Link], wait: float) -> None:
    """Fence what was failed away from, link by link; until all is, or the time is up."""
    from drkit.failover.recovery.fence_command import answers, fence_again, links_left

    left = links_left(estate, links)
    outcomes = _FenceOutcomes()

    def close(link: Link) -> None:
        again = f"drkit fence --link '{link.id}'"
        outcomes.attempt(link, link.id.source, again, lambda: fence_again(estate, link, run.say))

    run.begins_to_change("Some of the clusters may be closed to their clients, or closed in part", "drkit fence")
    for each in left:
        close(each)
    deadline, pause = time.monotonic() + wait, _FIRST_PAUSE
    while not all(outcomes.fenced(each.id) for each in left) and time.monotonic() < deadline:
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(pause * 2, _LONGEST_PAUSE)
        for each in left:
            if not outcomes.fenced(each.id) and answers(estate, each.id.source):
                close(each)
    error = outcomes.error()
    run.writer.emit(
        {
            "links": [_document(each, name, proof) for each, _, name, proof in outcomes.found],
            "failures": failure_documents(outcomes.failures),
        },
        lambda console: _show(console, outcomes.found),
    )
    proofs = [proof for _, _, _, proof in outcomes.found]
    impossible = [proof.impossible for proof in proofs if proof.impossible is not None]
    for lasting in impossible:
        run.writer.error(lasting)
    if error is None and len(impossible) == len(proofs):  # nothing was done, and nothing is left to be tried again
        run.exit(impossible[0].exit_code)
    _exit_with(run, error, unfinished=not all(proof.proven for proof in proofs))


class _FenceOutcomes:
    """The outcome of each link, in the order of the configuration: the run and what it showed, or an error."""

    def __init__(self) -> None:
        self._found: dict[LinkId, tuple[Link, str, str, FenceProof]] = {}
        self._failures: dict[LinkId, LinkFailure] = {}

    def attempt(self, link: Link, cluster: str, again: str, act: Callable[[], tuple[str, FenceProof]]) -> None:
        """Act on a link, once more where that was tried before."""
        try:
            self._found[link.id] = (link, cluster, *act())
            self._failures.pop(link.id, None)
        except DrkitError as error:
            if link.id not in self._found:
                self._failures[link.id] = LinkFailure(link.id, error, again)

    def fenced(self, link: LinkId) -> bool:
        """Whether a link's fence was shown to stand."""
        return link in self._found and self._found[link][3].proven

    @property
    def found(self) -> list[tuple[Link, str, str, FenceProof]]:
        """(link, cluster, run, proof) of each link that could be acted on."""
        return list(self._found.values())

    @property
    def failures(self) -> list[LinkFailure]:
        """The links that could not."""
        return list(self._failures.values())

    def error(self) -> DrkitError | None:
        """What the operator is told of those that failed.

        Raises:
            DrkitError: all did.
        """
        error = combined_error(self.failures, len(self._found))
        if error is not None and not self._found:
            raise error
        return error


def _exit_with(run: Invocation, error: DrkitError | None, *, unfinished: bool) -> None:
    """The exit code. `unfinished`: a fence that was to stand doesn't, or one that was to be lifted does."""
    if error is not None:
        run.writer.error(error)
    if unfinished:
        run.exit(ExitCode.PARTLY_DONE)
    if error is not None:
        run.exit(error.exit_code)


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
    from drkit.failover.recovery.fence_command import lift_fence, serving

    opened: dict[LinkId, tuple[str, bool]] = {}
    for each in links:  # all is asked before anything is opened
        serves = serving(estate, each)
        chosen, meant = cluster or serves, yes
        if chosen != serves and not yes and sys.stdin.isatty():
            what = f"{chosen} serves, without the records written to {serves} since ({each.id})"
            meant = confirm(run, chosen, what, yes=False)
        opened[each.id] = chosen, meant
    outcomes = _FenceOutcomes()
    run.begins_to_change("Some of the clusters may be open to their clients, or open in part")

    def open_cluster(link: Link, later: Sequence[Link]) -> None:
        chosen, meant = opened[link.id]
        next_links = [each.id for each in later if opened[each.id][0] == chosen]
        named = "" if cluster is None else f" --cluster {cluster}"
        outcomes.attempt(
            link,
            chosen,
            f"drkit fence --lift{named} --link '{link.id}'",
            lambda: lift_fence(estate, link, chosen, run.say, meant=meant, next_links=next_links),
        )

    for number, each in enumerate(links, 1):
        open_cluster(each, links[number:])
    error = outcomes.error()
    run.writer.emit(
        {
            "links": [
                {
                    **_document(each, name, proof),
                    "cluster": chosen,
                    "fenced": proof.proven,
                    "denied_by": list(proof.denied_by),
                }
                for each, chosen, name, proof in outcomes.found
            ],
            "failures": failure_documents(outcomes.failures),
        },
        lambda console: _show_lifted(console, outcomes.found),
    )
    _exit_with(run, error, unfinished=any(proof.proven or proof.denied_by for _, _, _, proof in outcomes.found))


def _show_lifted(console: Console, found: Sequence[tuple[Link, str, str, FenceProof]]) -> None:
    for _, cluster, run, proof in found:
        word = "[bold yellow]LIFTED, STILL CLOSED[/]" if proof.denied_by else "[green]open[/]"
        word = "[bold red]STILL FENCED[/]" if proof.proven else word
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


def _show(console: Console, found: Sequence[tuple[Link, str, str, FenceProof]]) -> None:
    for _, cluster, run, proof in found:
        word = "[green]fenced[/]" if proof.proven else "[bold yellow]UNFENCED[/]"
        console.print(f"{cluster}  {word}: {escape(proof.reason)}  [dim]run {run}[/]", soft_wrap=True)
