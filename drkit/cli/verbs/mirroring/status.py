"""`drkit status`: links, lag, delta, freshness of group positions, the recovery point now."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from drkit.cli.wiring.context import (
    ConfigOption,
    Invocation,
    LinkOption,
    OutputOption,
    TimeoutOption,
    VerboseOption,
    command,
)
from drkit.cli.wiring.output import OutputMode
from drkit.model.clock import now
from drkit.model.offsets import Certainty
from drkit.model.wording import counted
from drkit.observe import formatting

if TYPE_CHECKING:
    from drkit.observe.status import GroupStatus, LinkStatus, PartitionStatus

_STATE_STYLE = {
    "mirroring": "bold green",
    "stopped": "bold yellow",
    "paused": "bold yellow",
    "degraded": "bold red",
    "sealed": "bold magenta",
    "reversed": "bold magenta",
}
_MAX_ROWS = 40
_NUMBER = re.compile(r"\d+")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("status")(status)


def status(
    link: LinkOption = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between looks with --watch.")] = 2.0,
    timeout: TimeoutOption = None,
    config: ConfigOption = None,
    output: OutputOption = OutputMode.HUMAN,
    verbose: VerboseOption = False,
) -> None:
    """Show links, lag in records and seconds, delta, group positions, the recovery point now."""
    from drkit.observe.status_document import status_document

    with command(config, output, verbose, lines=watch) as run:
        if watch:
            _watch(run, link, interval, timeout)
        else:
            statuses = _look(run, link, timeout)
            run.writer.emit(status_document(statuses), lambda console: _print(console, statuses, verbose=verbose))


def _look(run: Invocation, link: str | None, timeout: float | None) -> list[LinkStatus]:
    from drkit.observe.status import link_statuses

    return link_statuses(run.config, run.store(), run.links(link), timeout_seconds=timeout)


def _watch(run: Invocation, link: str | None, interval: float, timeout: float | None) -> None:
    """Show it again and again: a live picture for people, one JSON object a line for programs."""
    from drkit.observe.status_document import status_document

    try:
        if run.writer.mode is OutputMode.JSON:
            while True:
                run.writer.line(status_document(_look(run, link, timeout)))
                time.sleep(interval)
        with Live(console=run.writer.console, screen=run.writer.console.is_terminal, auto_refresh=False) as live:
            while True:
                statuses = _look(run, link, timeout)
                live.update(Group(*(render_link(each, verbose=run.verbose) for each in statuses)), refresh=True)
                time.sleep(interval)
    except KeyboardInterrupt:
        return


def _print(console: Console, statuses: Sequence[LinkStatus], *, verbose: bool) -> None:
    for each in statuses:
        console.print(render_link(each, verbose=verbose))


def render_link(status: LinkStatus, *, verbose: bool = False) -> RenderableType:
    """One link as a person reads it: a headline, partitions, groups, problems."""
    parts: list[RenderableType] = [_headline(status)]
    if status.partitions:
        parts.append(_partitions(status.partitions, verbose=verbose))
    if status.groups:
        parts.append(_groups(status.groups, verbose=verbose))
        parts.extend(Padding(Text(f"· {line}", "dim"), (0, 0, 0, 1)) for line in _reasons(status.groups))
    for problem in status.problems:
        where = " ".join(filter(None, ("!", formatting.place(problem))))
        halted = (" (halted)", "bold red") if problem.halted else ""
        parts.append(Text.assemble((where, "red"), halted, f" {problem.reason}. {problem.remedy}"))
    return Group(*parts, Text())


def _headline(status: LinkStatus) -> Text:
    point = status.recovery_point
    line = Text.assemble(
        (str(status.link.id), "bold"), "  ", (status.state, _STATE_STYLE.get(status.state, "bold")), "  "
    )
    if point.records is None:
        line.append(f"recovery point unknown: {point.reason}", "dim")
    else:
        lost = formatting.loss(point.records, lower_bound=point.lower_bound)
        line.append(f"{status.loss_means}: {lost}, {_seconds(point.seconds)}")
    for alias, reachable in (
        (status.link.id.source, status.source_reachable),
        (status.link.id.target, status.target_reachable),
    ):
        if not reachable:
            line.append(f"\n  {alias} does not answer: its offsets are as last seen", "red")
    if status.reason:
        line.append(f"\n  {status.reason}", "yellow")
    if len(status.workers) > 1:
        for each in status.workers:
            line.append(
                f"\n  worker {each.owner}: {counted(each.partitions, 'partition')}{', leads' if each.leads else ''}",
                "dim",
            )
    for worker in status.statistics:
        line.append(
            f"\n  {formatting.short(worker.worker)}: {formatting.throughput(worker)}, "
            f"{formatting.in_flight(worker.statistics)} in flight, {formatting.treatment(worker.statistics)}",
            "dim",
        )
        if worker.latency is not None:
            line.append(f"\n  end to end: {formatting.latency(worker.latency)}", "dim")
    return line


def _partitions(partitions: Sequence[PartitionStatus], *, verbose: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("partition", overflow="fold")
    for name in ("source end", "mirrored", "target end", "delta", "lag", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    shown = partitions if verbose else sorted(partitions, key=lambda p: -(p.lag_records or 0))[:_MAX_ROWS]
    for each in sorted(shown, key=lambda p: (p.topic, p.partition)):
        behind = bool(each.lag_records)
        table.add_row(
            f"{each.topic}:{each.partition}",
            _count(each.source_end),
            _count(each.mirrored_through),
            _count(each.target_end),
            _count(each.delta),
            Text(_count(each.lag_records), "yellow" if behind else "green" if each.lag_seconds == 0 else ""),
            _seconds(each.lag_seconds),
        )
    if len(shown) < len(partitions):
        table.add_row(Text(f"… {len(partitions) - len(shown)} more with less lag (--verbose)", "dim"))
    return table


def _groups(groups: Sequence[GroupStatus], *, verbose: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("group", overflow="fold")  # the end of a name tells partitions apart
    table.add_column("partition", overflow="fold")
    for name in ("source", "target"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("translation", no_wrap=True)
    table.add_column("captured", justify="right", no_wrap=True)
    at = now()
    worst_first = sorted(groups, key=lambda g: (g.translation is Certainty.EXACT, g.group, g.topic, g.partition))
    for each in worst_first if verbose else worst_first[:_MAX_ROWS]:
        exact = each.translation is Certainty.EXACT
        table.add_row(
            each.group,
            f"{each.topic}:{each.partition}",
            _count(each.source_offset),
            _count(each.target_offset),
            Text(each.translation.value, "" if exact else "yellow"),
            _age(each.captured_at, at),
        )
    if not verbose and len(groups) > _MAX_ROWS:
        table.add_row(Text(f"… {len(groups) - _MAX_ROWS} more (--verbose)", "dim"))
    return table


def _reasons(groups: Sequence[GroupStatus]) -> Iterator[str]:
    """Why positions are not exact; those that differ in numbers only as one of them."""
    alike: dict[str, list[GroupStatus]] = {}
    for each in groups:
        if each.reason:
            alike.setdefault(_NUMBER.sub("#", each.reason), []).append(each)
    for found in alike.values():
        first = found[0]
        more = "" if len(found) == 1 else f" (and {counted(len(found) - 1, 'position')} alike)"
        yield f"{first.group} {first.topic}:{first.partition}{more}: {first.reason}"


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return "? s" if value is None else f"{value:.1f} s"


def _age(then: datetime, at: datetime) -> str:
    return f"{max(0.0, (at - then).total_seconds()):.1f} s ago"
