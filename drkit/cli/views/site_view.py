"""Plans and runs of a site, as people see them: a line for each link, then what they come to together."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table

from drkit.cli.views.failover_view import (
    StagePrinter,
    how_in_words,
    is_given_up,
    print_evidence,
    print_mirror_to_start,
    print_needs,
    print_obstacle,
    print_refused_now,
    stage_line,
    write_stage_event,
)
from drkit.cli.views.positions_view import print_positions, print_without_place
from drkit.failover.context.salvage_folders import salvaged_where
from drkit.failover.context.state_machine import Kind, State
from drkit.failover.positions.group_commands import without_place
from drkit.model.wording import and_more, bounds, counted

if TYPE_CHECKING:
    from drkit.cli.output import OutputWriter
    from drkit.failover.context.evidence import Judgement
    from drkit.failover.context.state_machine import Loss
    from drkit.failover.journal.journal import StageRecord
    from drkit.failover.plan.failover_plan import FailoverPlan, Obstacle
    from drkit.failover.plan.site_failback_plan import SiteFailbackPlan
    from drkit.failover.plan.site_plan import AnySitePlan, SitePlan
    from drkit.failover.run.runner import RunResult
    from drkit.failover.site.site_result import LinkResult, SiteResult
    from drkit.model.topology import LinkId


_ROWS = 20


def print_site_plan(
    console: Console,
    plan: SitePlan,
    unwaived: Sequence[tuple[LinkId | None, Obstacle]] = (),
    *,
    about_to_run: bool = False,
) -> None:
    """The links with what each moves and would lose, what other links see of it, and its obstacles.

    `about_to_run`: the flags that it needs were given, or are asked for.
    """
    title = f"[bold]{plan.kind} plan of {counted(len(plan.plans), 'link')}[/]  [dim]{plan.digest[:12]}[/]"
    console.print(Rule(title, align="left", style="dim"))
    console.print(f"[dim]how[/]  {escape(how_in_words(plan.plans[0], ' over all links'))}")
    _links(console, plan)
    if plan.waves:
        _waves(console, plan)
    positions = [position for each in plan.plans for position in each.positions]
    print_positions(console, sorted(positions, key=attrgetter("group", "topic", "partition")))
    print_remarks(console, plan, unwaived)
    if not about_to_run:
        every = [*plan.obstacles, *(obstacle for each in plan.plans for obstacle in each.obstacles)]
        print_needs(console, every, [obstacle for _, obstacle in unwaived])


def print_remarks(console: Console, plan: AnySitePlan, unwaived: Sequence[tuple[LinkId | None, Obstacle]]) -> None:
    """Warnings of the run and of each link, what it means for other links, and its obstacles."""
    for warning in plan.own_warnings():
        console.print(f"[yellow]![/] {escape(warning)}", soft_wrap=True)
    for each in plan.plans:
        for warning in each.warnings:
            console.print(f"[yellow]![/] {escape(f'{each.link}: {warning}')}", soft_wrap=True)
    for other in plan.others:
        console.print(f"[dim]·[/] {escape(f'{other.link}: {other.effect}')}", soft_wrap=True)
    for link, obstacle in unwaived:
        whose = "" if link is None else f"{link}: "
        print_obstacle(console, obstacle, whose)


def print_site_result(console: Console, result: SiteResult, judgement: Judgement) -> None:
    """Where each link stands, and the evidence of all together."""
    style = "bold green" if result.error is None and result.state is State.CLOSED else "bold yellow"
    title = f"[{style}]{result.plan.kind} of {counted(len(result.links), 'link')} {result.state}[/]"
    console.print(Rule(f"{title}  [dim]run {result.run}[/]", align="left", style="dim"))
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("link", "state", "positions", "run"):
        table.add_column(name, justify="right" if name == "positions" else "left", no_wrap=name == "run")
    for each in result.links:
        verified = None if each.result is None else each.result.machine.facts.verified
        run = "" if each.result is None else each.result.run
        table.add_row(escape(str(each.link)), _state(each), "-" if verified is None else f"{verified:,}", run)
    console.print(table)
    if result.plan.kind is not Kind.REPROTECT:
        evidence = replace(result.evidence, fenced=None) if is_given_up(result.state) else result.evidence
        print_evidence(console, evidence, judgement)
    _print_destinations(console, result)


def _print_destinations(console: Console, result: SiteResult) -> None:
    """What was salvaged of each link, and where clients are to connect."""
    begun = [(each, each.result.machine.facts) for each in result.links if each.result is not None]
    for each, facts in begun:
        if facts.salvage_path:
            console.print(f"salvaged    {escape(f'{each.link}: {salvaged_where(facts)}')}", soft_wrap=True)
    if result.error is None:
        for endpoint, alias in dict.fromkeys((facts.endpoint, each.plan.target.alias) for each, facts in begun):
            if endpoint:
                console.print(f"clients     [bold]{escape(endpoint)}[/] ({alias})")
    for each in result.links:
        if each.result is not None and each.state is State.CLOSED:
            print_mirror_to_start(console, each.plan)
            left = without_place(each.result.positions, each.plan.endpoint)
            print_without_place(console, left, each.plan.target.alias)


def print_site_rehearsal(
    console: Console, plan: SitePlan, results: Sequence[RunResult], unwaived: Sequence[tuple[LinkId | None, Obstacle]]
) -> None:
    """What rehearsals of all links found, and what a real run would be refused for now."""
    print_site_plan(console, plan, about_to_run=True)
    for each, result in zip(plan.plans, results, strict=True):
        style = "bold green" if result.error is None else "bold yellow"
        rto = result.evidence.rto_seconds
        took = "" if rto is None else f"  from launch to verified {rto:.1f} s [dim](no fence, no drain)[/]"
        console.print(
            f"[{style}]rehearsal {result.machine.state}[/]  {escape(str(each.link))}{took}  [dim]run {result.run}[/]",
            soft_wrap=True,
        )
    for link, obstacle in unwaived:
        print_refused_now(console, obstacle, "" if link is None else f"{link}: ")


class SitePrinter:
    """Shows stages of all links as they end, on stderr. Called from any thread."""

    def __init__(self, writer: OutputWriter, links: Iterable[LinkId]) -> None:
        self._writer = writer
        self._width = _width(links)
        self._lock = threading.Lock()

    def __call__(self, link: LinkId, stage: str, record: StageRecord | None, _text: str) -> None:
        """One thing that happened to a stage of a link."""
        if record is None:
            return
        line = stage_line(record, stage, f"{link!s:<{self._width}}")
        with self._lock:
            if self._writer.events is not None:
                write_stage_event(self._writer.events, stage, record.outcome, record.reason, record.seconds)
            else:
                self._writer.log.print(line, soft_wrap=not self._writer.log.is_terminal)


def _width(links: Iterable[LinkId]) -> int:
    """That of the longest link, so that stages are in a column."""
    return max((len(str(link)) for link in links), default=0)


def _links(console: Console, plan: SitePlan) -> None:
    """What each link moves and would lose."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("link")
    for name in ("groups", "positions", "expected loss"):
        table.add_column(name, justify="right")
    table.add_column("source")
    for each in plan.plans:
        groups = {position.group for position in each.placed}
        table.add_row(
            escape(str(each.link)), f"{len(groups):,}", f"{len(each.placed):,}", _loss(each.loss), _source(each)
        )
    console.print(table)


def _waves(console: Console, plan: SitePlan) -> None:
    """The groups of each wave, and what is done after it."""
    assignment = plan.assignment
    for number, wave in enumerate(plan.waves):
        groups = sorted({group for link in plan.links for group in assignment.groups(link).get(number, ())})
        then = [f"call {command[0]}" for command in wave.after]
        then += [f"wait {wave.pause_seconds:g} s"] if wave.pause_seconds else []
        after = f"; then {', '.join(then)}" if then else ""
        words = f"wave {wave.name}: {and_more(groups) or 'no group'}{after}"
        console.print(f"[dim]{number + 1:>2}[/]  {escape(words)}", soft_wrap=True)


def _loss(loss: Loss) -> str:
    if loss.records is None:
        return "[bold yellow]not known[/]"
    style = "bold green" if loss.records == 0 and not loss.lower_bound else "bold yellow"
    return f"[{style}]{counted(loss.records, 'record')}{bounds(lower=loss.lower_bound, upper=loss.upper_bound)}[/]"


def _source(plan: FailoverPlan) -> str:
    if plan.source.reachable:
        return "[green]answers[/]"
    return "[bold red]unreachable[/]" if plan.source.denied is None else "[bold red]refuses drkit[/]"


def _state(link: LinkResult) -> str:
    if link.elsewhere is not None:
        return f"[dim]left alone: {escape(link.elsewhere)}[/]"
    return f"[green]{link.state}[/]" if link.state is State.CLOSED else f"[yellow]{link.state}[/]"


def print_site_failback_plan(
    console: Console, plan: SiteFailbackPlan, unwaived: Sequence[tuple[LinkId | None, Obstacle]] = ()
) -> None:
    """What is deleted and brought back for each link, on which cluster, and its obstacles."""
    title = f"[bold]{plan.kind} plan of {counted(len(plan.plans), 'link')}[/]  [dim]{plan.digest[:12]}[/]"
    console.print(Rule(title, align="left", style="dim"))
    console.print(f"[dim]how[/]  {_failback_order(plan)}")
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("link", "old primary", "cluster id"):
        table.add_column(name, no_wrap=name == "cluster id")
    for name in ("topics deleted", "offsets", "only here", "positions"):
        table.add_column(name, justify="right")
    for each in plan.plans:
        topics = each.topics if each.deletes else ()
        table.add_row(
            escape(str(each.link)),
            escape(each.target.alias),
            each.target.cluster_id or "",
            f"{len(topics):,}" if topics else "[green]none[/]",
            f"{sum(topic.records for topic in topics):,}",
            f"{each.only_here:,}",
            f"{len(each.positions):,}",
        )
    console.print(table)
    _print_deletions(console, plan)
    print_remarks(console, plan, unwaived)


def _failback_order(plan: SiteFailbackPlan) -> str:
    first = "salvage every link, then scrub, re-seed and audit one after the other"
    return first if plan.kind is Kind.REPROTECT else f"{first}, then move back one after the other"


def _print_deletions(console: Console, plan: SiteFailbackPlan) -> None:
    """The topics that are deleted and recreated, those with most on the old primary alone first."""
    rows = [(each.link, topic) for each in plan.plans if each.deletes for topic in each.topics]
    rows.sort(key=lambda row: (-row[1].only_here, -row[1].records))
    for link, topic in rows[:_ROWS]:
        gap = f"; {topic.gap} on {link.target}" if topic.gap else ""
        words = f"{link.source} {topic.topic}: {counted(topic.records, 'offset')}, {topic.only_here:,} only here{gap}"
        console.print(f"[dim]deleted and recreated[/]  {escape(words)}", soft_wrap=True)
    if len(rows) > _ROWS:
        console.print(f"[dim]… and {len(rows) - _ROWS} more topics[/]")


class LinkStagePrinter:
    """Shows stages as they happen, one link after the other: a `StagePrinter` that is told the link, too."""

    def __init__(self, writer: OutputWriter, links: Iterable[LinkId]) -> None:
        self._printer = StagePrinter(writer)
        self._width = _width(links)
        self.stop = self._printer.stop

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __call__(self, link: LinkId, stage: str, record: StageRecord | None, text: str) -> None:
        """One thing that happened to a stage of a link."""
        self._printer(stage, record, text, f"{link!s:<{self._width}}")
