"""Plans and runs of failover and failback, as people see them. 80 columns are enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.rule import Rule
from rich.status import Status
from rich.table import Table
from rich.text import Text

from drkit.cli.views.layout import Hanging, OneRow, alike
from drkit.cli.views.positions_view import number, print_positions, print_without_place
from drkit.failover.context.salvage_folders import salvaged_where
from drkit.failover.context.state_machine import Kind, StageOutcome, State
from drkit.failover.positions.group_commands import without_place
from drkit.failover.snapshot.snapshot import ClusterView
from drkit.model.clock import iso
from drkit.model.wording import bounds, counted

if TYPE_CHECKING:
    from drkit.cli.output import EventLines, OutputWriter
    from drkit.failover.context.evidence import Evidence, Judgement
    from drkit.failover.context.state_machine import Facts
    from drkit.failover.journal.journal import StageRecord
    from drkit.failover.journal.run_record import Plan
    from drkit.failover.plan.failback_plan import FailbackPlan
    from drkit.failover.plan.failover_plan import FailoverPlan, Obstacle
    from drkit.failover.positions.consistent_cut import ConsistentCut
    from drkit.failover.run.runner import RunResult

_ROWS = 20
_LIMITS = 3
_LABEL = 12
"""How wide the names at the left of results are."""
STAGE_MARKS = {
    StageOutcome.OK: ("✓", "bold green"),
    StageOutcome.SKIPPED: ("-", "dim"),
    StageOutcome.FAILED: ("✗", "bold red"),
    StageOutcome.UNKNOWN: ("?", "bold yellow"),
}


def print_plan(console: Console, plan: Plan, unwaived: Sequence[Obstacle] = (), *, about_to_run: bool = False) -> None:
    """The plan: topology before and after, what each stage will do, groups by cost, what is lost.

    `about_to_run`: the flags that it needs were given, or are asked for.
    """
    from drkit.failover.plan.failback_plan import FailbackPlan
    from drkit.failover.plan.failover_plan import FailoverPlan

    console.print(Rule(f"[bold]{plan.kind} plan[/]  [dim]{plan.digest[:12]}[/]", align="left", style="dim"))
    if isinstance(plan, FailoverPlan):
        _failover_head(console, plan)
    else:
        _failback_head(console, plan)
    _stage_plans(console, plan)
    if isinstance(plan, FailbackPlan) and plan.topics and not plan.level:
        _scrub_table(console, plan)
    if isinstance(plan, FailoverPlan):
        if plan.cut is not None:
            _cut(console, plan.cut)
        print_positions(console, plan.positions)
        _expected_loss(console, plan)
    elif plan.kind is Kind.FAILBACK:
        groups = len({position.group for position in plan.positions})
        console.print(
            f"{counted(len(plan.positions), 'position')} of {counted(groups, 'group')} move back; "
            f"where to is known once {plan.target.alias} is up to date"
        )
    for first, *others in alike(plan.warnings, str):
        more = f" [dim](and {counted(len(others), 'warning')} alike: --output json has all)[/]" if others else ""
        console.print(Hanging.markup(f"[yellow]![/] {escape(first)}{more}", 2))
    for obstacle in unwaived:
        print_obstacle(console, obstacle)
    if isinstance(plan, FailoverPlan) and not about_to_run:
        print_needs(console, plan.obstacles, unwaived)


def print_obstacle(console: Console, obstacle: Obstacle, whose: str = "") -> None:
    """What stands against a run, and what to do; `whose`: the link, for a run of several."""
    text = f"[red]✗[/] {escape(whose)}{escape(obstacle.what)}\n  [bold]do:[/] {escape(obstacle.remedy)}"
    console.print(Hanging.markup(text, 2))


def print_needs(console: Console, obstacles: Sequence[Obstacle], unwaived: Sequence[Obstacle]) -> None:
    """The last line of a plan that isn't run now: whether it would be refused, and the flags that it needs."""
    refused = [obstacle for obstacle in obstacles if obstacle in unwaived]
    needs = " ".join(sorted({o.waived_by for o in obstacles if o.waived_by and o not in unwaived}))
    if refused:
        also = f"; then it also needs {needs}" if needs else ""
        console.print(f"[bold red]A run is refused[/] until what ✗ marks is solved or accepted{also}")
    elif needs:
        console.print(f"[bold]A run needs:[/] {needs}")


def print_result(
    console: Console,
    result: RunResult,
    plan: Plan,
    judgement: Judgement,
    *,
    plan_shown: bool = False,
) -> None:
    """A run at its end, or where it stopped: groups (unless the plan showed the same ones) and evidence."""
    from drkit.failover.plan.failover_plan import same_decision

    if result.positions and not (plan_shown and same_decision(result.positions, plan.positions)):
        print_positions(console, result.positions)
    state = result.machine.state
    style = "bold green" if result.error is None else "bold yellow"
    console.print(Rule(f"[{style}]{plan.kind} {state}[/]  [dim]run {result.run}[/]", align="left", style="dim"))
    facts = result.machine.facts
    fence = _fence_said(state, facts)
    if plan.kind is not Kind.REPROTECT:
        print_evidence(console, replace(result.evidence, fenced=None) if fence else result.evidence, judgement)
    if fence:
        console.print(Hanging.markup(f"fenced      {fence}", _LABEL))
    if facts.salvage_path:
        console.print(f"salvaged    {escape(salvaged_where(facts))}", soft_wrap=True)
    if facts.audit_detail:
        console.print(f"audit       {facts.audit}: {escape(facts.audit_detail)}")
    if facts.endpoint and result.error is None:
        console.print(f"clients     [bold]{escape(facts.endpoint)}[/] ({plan.target.alias})")
    if state is State.CLOSED and plan.kind is Kind.FAILOVER and result.evidence.fenced is False:
        _fence_later(console, plan)
    if state is State.CLOSED:
        print_mirror_to_start(console, plan)
    if state is State.CLOSED:
        print_without_place(console, without_place(result.positions, plan.endpoint), plan.target.alias)


def _fence_said(state: State, facts: Facts) -> str:
    """What a run's fence is, where that is neither yes nor no; empty where it is."""
    if facts.unseen:
        return f"[bold yellow]not known[/]: {escape(facts.fence_reason or '')}"
    opened = is_given_up(state) and facts.fenced is False
    return f"no longer: {escape(facts.fence_reason)}" if opened and facts.fence_reason else ""


def is_given_up(state: State) -> bool:
    """Whether a run was taken back or abandoned: its fence is what that left, and no precaution that is missing."""
    return state in {State.CANCELLED, State.ABANDONED}


def print_mirror_to_start(console: Console, plan: Plan) -> None:
    """The mirror that a failback or reprotect leaves for the operator to start: the run's own one has ended."""
    if plan.kind in {Kind.FAILBACK, Kind.REPROTECT}:
        flow = plan.link.reversed() if plan.kind is Kind.REPROTECT else plan.link
        console.print(f"next        drkit mirror --link '{flow}': until it runs, nothing is mirrored", soft_wrap=True)


def _fence_later(console: Console, plan: Plan) -> None:
    """What to do about a cluster that was left unfenced because it didn't answer."""
    from drkit.failover.plan.failover_plan import FailoverPlan

    if isinstance(plan, FailoverPlan) and not plan.source.reachable:
        line = (
            f"next        drkit fence --link '{plan.link}': once {plan.source.alias} answers, it closes it to clients"
        )
        console.print(Hanging.markup(escape(line), _LABEL))


def print_rehearsal(console: Console, result: RunResult, plan: FailoverPlan, unwaived: Sequence[Obstacle]) -> None:
    """What a rehearsal found: where groups would be put, what would be lost, what would stand in the way."""
    print_positions(console, plan.positions)
    style = "bold green" if result.error is None else "bold yellow"
    console.print(Rule(f"[{style}]rehearsal {result.machine.state}[/]  [dim]run {result.run}[/]", align="left"))
    _expected_loss(console, plan)
    if result.evidence.rto_seconds is not None:
        console.print(
            f"from launch to verified [bold]{result.evidence.rto_seconds:.1f} s[/] [dim](no fence, no drain)[/]"
        )
    for warning in plan.warnings:
        console.print(f"[yellow]![/] {escape(warning)}")
    for obstacle in unwaived:
        print_refused_now(console, obstacle)


def print_refused_now(console: Console, obstacle: Obstacle, whose: str = "") -> None:
    """What a rehearsal would be refused for if it were a run; `whose`: as in `print_obstacle`."""
    what = f"a real run is refused now: {escape(whose + obstacle.what)}"
    console.print(f"[red]✗[/] {what}\n  [bold]do:[/] {escape(obstacle.remedy)}")


def print_evidence(console: Console, evidence: Evidence, judgement: Judgement) -> None:
    """RPO, RTO and the fence, in numbers; objectives that were missed, and those that can't be judged."""
    more = bounds(lower=evidence.rpo_lower_bound, upper=evidence.rpo_upper_bound)
    rpo = "not known" if evidence.rpo_records is None else f"{counted(evidence.rpo_records, 'record')}{more}"
    age = "" if not evidence.rpo_seconds else f", the oldest up to {evidence.rpo_seconds:.1f} s old"
    basis = f"  [dim]{evidence.rpo_basis} {iso(evidence.observed_at)}[/]" if evidence.observed_at else ""
    console.print(Hanging.markup(f"lost (RPO)  [bold]{rpo}[/]{age}{basis}", _LABEL))
    if evidence.removed_unread:
        removed = f"{counted(evidence.removed_unread, 'offset')} that groups had not read were removed there before"
        console.print(Hanging.markup(f"unread      [bold]{removed}[/]", _LABEL))
    rto = "-" if evidence.rto_seconds is None else f"{evidence.rto_seconds:.1f} s"
    console.print(f"took (RTO)  [bold]{rto}[/]")
    if evidence.fenced is not None:
        console.print("fenced      " + ("[green]yes[/]" if evidence.fenced else "[bold yellow]no (UNFENCED)[/]"))
    for sentence in judgement.missed:
        console.print(Hanging.markup(f"[bold red]missed[/]      {escape(sentence)}", _LABEL))
    for sentence in judgement.unproven:
        console.print(Hanging.markup(f"[bold red]not judged[/]  {escape(sentence)}", _LABEL))
    if more and not judgement.unproven and evidence.rpo_reason:
        console.print(Hanging.markup(f"[dim]{' ' * _LABEL}{escape(evidence.rpo_reason)}[/]", _LABEL))


def stage_line(record: StageRecord, stage: str, link: str = "") -> str:
    """How a stage ended, in a line; `link`: its link, as wide as its column."""
    mark, style = STAGE_MARKS[record.outcome]
    shown = f"{escape(link)}  " if link else ""
    return f"[{style}]{mark}[/] {shown}[bold]{stage:<10}[/]{escape(record.reason)} [dim]{record.seconds:.1f} s[/]"


def write_stage_event(
    events: EventLines, stage: str, outcome: StageOutcome | None, text: str, seconds: float | None = None
) -> None:
    """A stage as an event; `outcome` and `seconds` are None while it runs. The thread's context has link and run."""
    level = "info" if outcome in {None, StageOutcome.OK, StageOutcome.SKIPPED} else "error"
    events.event(level, f"{stage}: {text}", {}, stage=stage, outcome=outcome, seconds=seconds)


_LINE_SECONDS = 30.0
"""The shortest time between two lines of a log on how far a stage is."""


class StagePrinter:
    """Shows stages as they happen, on stderr: a spinner while one runs, a line when it ended. The block ends it.

    In a log, a line stands for the spinner: when a stage begins, then at most one in `_LINE_SECONDS`.
    """

    def __init__(self, writer: OutputWriter, clock: Callable[[], float] = time.monotonic) -> None:
        self._writer = writer
        self._console = writer.log
        self._clock = clock
        self._status: Status | None = None
        self._running: str | None = None
        self._line_at = 0.0

    def __call__(self, stage: str, record: StageRecord | None, text: str, link: str = "") -> None:
        """One thing that happened to a stage; `link`: as in `stage_line`."""
        if record is None:
            shown = f"{link}  {stage}" if link and self._writer.events is None else stage
            self._begin(shown, text)
            return
        self.stop()
        line = stage_line(record, stage, link)
        if self._writer.events is not None:
            write_stage_event(self._writer.events, stage, record.outcome, record.reason, record.seconds)
        elif self._console.is_terminal:
            self._console.print(Hanging.markup(line, _LABEL))
        else:  # a line of a log
            self._console.print(line, soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the spinner."""
        self._running = None
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _begin(self, stage: str, text: str) -> None:
        if not self._console.is_terminal:
            at = self._clock()
            if stage != self._running or at - self._line_at >= _LINE_SECONDS:
                self._running, self._line_at = stage, at
                if self._writer.events is None:
                    self._console.print(Text(f"… {stage:<10}{text}".rstrip()), soft_wrap=True)
                else:
                    write_stage_event(self._writer.events, stage, None, text)
            return
        line = OneRow(Text.assemble((stage, "bold"), " ", (text, "dim")))
        if self._status is None:
            self._status = self._console.status(line)
            self._status.start()
        else:
            self._status.update(line)


def _failover_head(console: Console, plan: FailoverPlan) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_row("[dim]how[/]", escape(how_in_words(plan)))
    arrow = "──▶" if plan.control in {"active", "paused"} else "─✗─"
    grid.add_row("[dim]before[/]", _cluster(plan.source).append(f" {arrow} ").append_text(_cluster(plan.target)))
    after = Text(plan.source.alias, style="dim").append(" ─✗─ sealed   ", style="dim")
    after.append(plan.target.alias, style="bold").append(f" ◀ clients at {plan.endpoint}")
    grid.add_row("[dim]after[/]", after)
    _directories(grid, plan)
    console.print(grid)


def how_in_words(plan: FailoverPlan, over: str = "") -> str:
    """By what groups are placed; `over`: what a consistent cut is over, where that is more than one link."""
    if plan.cut is not None:
        return f"{plan.mode}, consistent{over}: every topic is complete up to {iso(plan.cut.instant)}"
    if plan.at is not None:
        what = "groups as they stood at" if plan.at.by_commits else "at"
        return f"{plan.mode}, {what} {plan.at.local} [{plan.at.timezone}] = {iso(plan.at.instant)}"
    return f"{plan.mode}, by mapping"


def _failback_head(console: Console, plan: FailbackPlan) -> None:
    grid = Table.grid(padding=(0, 2))
    before = _cluster(plan.target).append(" ─✗─ ").append_text(_cluster(plan.live)).append(" ◀ clients")
    after = Text(plan.target.alias, style="bold").append(" ──▶ ").append(plan.live.alias)
    after.append(f"   clients at {plan.endpoint}")
    if plan.kind is Kind.REPROTECT:
        after = Text(plan.live.alias, style="bold").append(" ◀ clients   ──▶ ").append(plan.target.alias)
    grid.add_row("[dim]before[/]", before)
    grid.add_row("[dim]after[/]", after)
    _directories(grid, plan)
    deletes = f"on {plan.target.alias}, cluster id [bold]{plan.target.cluster_id}[/]"
    if plan.level:
        deletes = f"nothing {deletes}: it holds nothing that isn't on {plan.live.alias}"
    elif not plan.deletes:
        deletes = f"nothing {deletes}: it holds nothing of the link"
    else:
        deletes = f"{counted(len(plan.topics), 'topic')} {deletes}"
    grid.add_row("[dim]deletes[/]", deletes)
    console.print(grid)


def _directories(grid: Table, plan: Plan) -> None:
    """What each directory says now, and what it will say."""
    for view in plan.directories:
        now = view.active or "nothing yet"
        if view.reason:
            now = "not known"
        grid.add_row("[dim]directory[/]", f"{escape(view.name)}: {escape(now)} → [bold]{escape(plan.target.alias)}[/]")


def _stage_plans(console: Console, plan: Plan) -> None:
    grid = Table.grid(padding=(0, 2))
    for step, stage in enumerate(plan.stages, 1):
        grid.add_row(f"[dim]{step:>2}[/]", f"[bold]{stage.name}[/]", escape(stage.explanation))
    console.print(grid)


def _cut(console: Console, cut: ConsistentCut) -> None:
    """What set the instant, and what each topic has beyond it."""
    for limit in cut.limits[:_LIMITS]:
        console.print(Padding(f"[dim]·[/] {escape(f'{limit.topic}:{limit.partition}: {limit.why}')}", (0, 0, 0, 1)))
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("beyond the instant", max_width=40, no_wrap=True, overflow="ellipsis")
    table.add_column("on the target", justify="right", no_wrap=True)
    table.add_column("missing", justify="right", no_wrap=True)
    for topic in cut.beyond[:_ROWS]:
        table.add_row(escape(topic.topic), number(topic.on_target), number(topic.missing))
    console.print(table)
    if len(cut.beyond) > _ROWS:
        console.print(f"[dim]… and {len(cut.beyond) - _ROWS} more topics[/]")


def _scrub_table(console: Console, plan: FailbackPlan) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("deleted and recreated", max_width=34, no_wrap=True, overflow="ellipsis")
    for name in ("partitions", "offsets", "only here"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for topic in sorted(plan.topics, key=lambda topic: (-topic.only_here, -topic.records))[:_ROWS]:
        table.add_row(
            escape(topic.topic),
            str(topic.partitions),
            number(topic.records),
            number(topic.only_here or None),
            f"[yellow]{escape(topic.gap)}[/] on {plan.live.alias}" if topic.gap else "",
        )
    console.print(table)
    if len(plan.topics) > _ROWS:
        console.print(f"[dim]… and {len(plan.topics) - _ROWS} more topics[/]")


def _expected_loss(console: Console, plan: FailoverPlan) -> None:
    loss = plan.loss
    if loss.records is None:
        console.print(f"expected loss [bold yellow]not known[/]: {escape(loss.reason or '')}")
        return
    style = "bold green" if loss.records == 0 and not loss.lower_bound else "bold yellow"
    age = f", the oldest up to {loss.seconds:.1f} s old" if loss.seconds else ""
    more = bounds(lower=loss.lower_bound, upper=loss.upper_bound)
    console.print(f"expected loss [{style}]{counted(loss.records, 'record')}{more}[/]{age} [dim](as last observed)[/]")


def _cluster(view: ClusterView) -> Text:
    text = Text(view.alias, style="bold")
    if view.reachable:
        return text.append(f" ({view.brokers} broker{'' if view.brokers == 1 else 's'})", style="green")
    return text.append(" (unreachable)" if view.denied is None else " (drkit can't work with it)", style="bold red")
