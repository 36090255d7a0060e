"""How drills look to people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from drkit.cli.views.layout import Column, FittingTable, Hanging
from drkit.model.clock import iso
from drkit.model.wording import counted

if TYPE_CHECKING:
    from drkit.drill.chaos_toolkit import ExportResult
    from drkit.drill.coverage import CoverageCell, CoverageResult
    from drkit.drill.estate import EstateDrill
    from drkit.drill.judge.result import DrillHistory, DrillResult, ScheduleResult
    from drkit.drill.random_drill.play import RandomResult
    from drkit.drill.series import SeriesResult


_COLOURS = {
    "passed": "green",
    "met": "green",
    "ok": "green",
    "failed": "red",
    "missed": "red",
    "unknown": "yellow",
    "skipped": "dim",
    "not run": "yellow",
}

NEVER = "[dim]never[/]"
_LEAST_TITLE = 18


def show_result(console: Console, result: DrillResult) -> None:
    """One drill: verdict, what was measured, checks, steps."""
    console.print(f"[bold]{escape(result.title)}[/]  [dim]{result.run}[/]", soft_wrap=True)
    console.print(escape(result.hypothesis), soft_wrap=True)
    console.print()
    console.print(f"verdict: {_coloured(result.verdict)}  [dim](exit code {result.exit_code})[/]")
    for reason in result.reasons:
        console.print(f"  - {escape(reason)}", soft_wrap=True)
    console.print()
    console.print(_measured(result))
    if len(result.links) > 1:
        console.print(_links(result))
    console.print(_checks(result))
    for check in result.checks:
        for witness in check.witnesses:
            place = f"{witness.cluster}:{witness.partition}@{'?' if witness.offset is None else witness.offset}"
            said = f"  {check.check}: {witness.record or 'a record'} at {place}: {witness.text}"
            console.print(escape(said), soft_wrap=True)
    console.print(_steps(result))
    console.print(f"[dim]kept in {escape(result.folder)}[/]", soft_wrap=True)


def _measured(result: DrillResult) -> Table:
    table = Table(title="measured", title_justify="left", box=None, pad_edge=False)
    for name in ("what", "measured", "objective", ""):
        table.add_column(name, justify="right" if name in ("measured", "objective") else "left")
    judged = {objective.name: objective for objective in result.objectives}
    measured = result.measured
    for label, name, value in (
        ("RPO, records", "rpo_records", measured.rpo_records),
        ("RPO, seconds", "rpo_seconds", measured.rpo_seconds),
        ("RTO, seconds", "rto_seconds", measured.rto_seconds),
        ("records acknowledged", "", measured.acknowledged),
        ("sends without an answer", "", measured.unknown),
        ("records on the target", "", measured.landed),
        ("records read again", "", measured.reread),
    ):
        objective = next((o for key, o in judged.items() if key == name), None)
        table.add_row(
            label,
            _number(value),
            "" if objective is None else _number(objective.objective),
            "" if objective is None else _coloured(objective.outcome),
        )
    return table


def _links(result: DrillResult) -> Table:
    table = Table(title="\nlinks", title_justify="left", box=None, pad_edge=False)
    for name in ("link", "RPO, records", "RPO, seconds", "RTO, seconds", "acknowledged", "on the target", "read again"):
        table.add_column(name, justify="left" if name == "link" else "right")
    for each in result.links:
        measured = each.measured
        rto = _number(measured.rto_seconds) if each.moved else ""
        more = (measured.acknowledged, measured.landed, measured.reread)
        table.add_row(each.link, *map(_number, (measured.rpo_records, measured.rpo_seconds)), rto, *map(_number, more))
    return table


def _checks(result: DrillResult) -> Table:
    table = Table(title="\nchecks", title_justify="left", box=None, pad_edge=False)
    several = len(result.links) > 1
    for name in (*(["link"] if several else []), "check", "outcome", "anomalies", "reason"):
        table.add_column(name, justify="right" if name == "anomalies" else "left", overflow="fold")
    for check in result.checks:
        table.add_row(
            *([check.link] if several else []),
            check.check,
            _coloured(check.outcome),
            _number(check.anomalies),
            escape(check.reason or ""),
        )
    return table


def _steps(result: DrillResult) -> Table:
    table = Table(title="\nsteps", title_justify="left", box=None, pad_edge=False)
    for name in ("line", "step", "outcome", "seconds", "reason"):
        table.add_column(name, justify="right" if name in ("line", "seconds") else "left", overflow="fold")
    for step in result.steps:
        shown = [("", step), *(("  ", each) for branch in step.branches for each in branch)]
        for indent, each in shown:
            reason = escape(each.reason or "")
            name = f"{indent}{escape(each.step)}"
            table.add_row(str(each.line), name, _coloured(each.outcome), f"{each.seconds:.1f}", reason)
    return table


def show_history(console: Console, history: DrillHistory) -> None:
    """Kept drills, newest first, with their whole titles; then why those that didn't pass didn't."""
    if not history.drills:
        console.print("no drill was kept yet: drkit drill run primary-lost")
        return
    table = FittingTable(
        (
            Column("run"),
            Column("verdict"),
            Column("lost", right=True, needed=1),
            Column("RTO", right=True, needed=2),
            Column("title", folds=True, least=_LEAST_TITLE),
        )
    )
    for drill in history.drills:
        table.add(
            drill.run,
            Text(drill.verdict or "unknown", _COLOURS.get(drill.verdict or "unknown", "")),
            _number(drill.rpo_records),
            "" if drill.rto_seconds is None else f"{_number(drill.rto_seconds)} s",
            drill.title or "",
        )
    console.print(table)
    for drill in history.drills:
        if drill.reason:
            console.print(Hanging.markup(f"[dim]·[/] {drill.run}: {escape(drill.reason)}", 2))


def show_schedule(console: Console, schedule: ScheduleResult) -> None:
    """The coming times, and what ran."""
    console.print(f'{escape(schedule.file)} by "{schedule.cron}" ({schedule.timezone})', soft_wrap=True)
    for at in schedule.next_runs:
        console.print(f"  next  {at:%a %Y-%m-%d %H:%M %Z}  [dim]{iso(at)}[/]")
    for done in schedule.ran:
        verdict = _coloured(done.verdict or "unknown")
        console.print(f"  ran   {iso(done.started_at)}  {done.run or '-'}  {verdict}  exit code {done.exit_code}")
    for missing in schedule.left_out:
        console.print(f"  left out  {iso(missing.at)}  {escape(missing.reason)}", soft_wrap=True)


def show_estate(console: Console, drill: EstateDrill) -> None:
    """A drill on an estate: verdict, and each step."""
    console.print(f"[bold]{escape(drill.title)}[/]  [dim]{drill.run}[/]", soft_wrap=True)
    for step in drill.steps:
        reason = "" if step.reason is None else f"  {escape(step.reason)}"
        console.print(f"  {_coloured(step.outcome)}  {escape(step.step)}  {step.seconds:.1f} s{reason}", soft_wrap=True)
    for each in drill.rehearsals:
        if "run" in each:
            console.print(f"  [dim]rehearsal[/]  {each['run']}  [dim]drkit runs {each['run']}[/]", soft_wrap=True)
    console.print(f"verdict: {_coloured(drill.verdict)}  [dim](exit code {drill.exit_code})[/]")
    for reason in drill.reasons:
        console.print(f"  - {escape(reason)}", soft_wrap=True)


def show_export(console: Console, result: ExportResult) -> None:
    """The Chaos Toolkit experiment as JSON; where a file has it, the file."""
    if result.out is None:
        text = json.dumps(result.chaos_toolkit, indent=2, ensure_ascii=False)
        console.print(text, markup=False, soft_wrap=True)
        return
    made = f"{counted(result.actions, 'action')}, {counted(result.probes, 'probe')}"
    lacking = f"{counted(len(result.not_exported), 'part')} of the experiment not exported"
    console.print(f"{escape(result.out)}: {made}; {lacking}", soft_wrap=True)
    run = f"chaos run --hypothesis-strategy before-method-only --rollback-strategy always {escape(result.out)}"
    console.print(f"  run: {run}", soft_wrap=True)


def show_series(console: Console, series: SeriesResult) -> None:
    """Several drills: each with its verdict, then how often each experiment ended how."""
    table = Table(box=None, pad_edge=False)
    for name in ("run", "title", "verdict", "RPO records", "RTO seconds", "seconds", "reason"):
        right = name.startswith("R") or name == "seconds"
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=name == "run")
    for drill in series.series:
        table.add_row(
            drill.run or "-",
            escape(drill.title),
            _coloured(drill.verdict or "not run"),
            _number(drill.rpo_records) if drill.run else "",
            _number(drill.rto_seconds) if drill.run else "",
            "" if drill.seconds is None else f"{drill.seconds:.0f}",
            escape(drill.reason or ""),
        )
    console.print(table)
    console.print()
    for each in series.experiments:
        counts = {"passed": each.passed, "failed": each.failed, "unknown": each.unknown, "not run": each.not_run}
        said = ", ".join(f"{count} {_coloured(word)}" for word, count in counts.items() if count)
        console.print(f"{escape(each.title)}: {said}", soft_wrap=True)
    console.print(f"verdict: {_coloured(series.verdict)}  [dim](exit code {series.exit_code}, the worst)[/]")
    if series.ended_early is not None:
        console.print(f"[yellow]ended early[/]  {escape(series.ended_early)}", soft_wrap=True)


def show_random(console: Console, session: RandomResult) -> None:
    """A session of random drills, and what it found."""
    console.print(f"seed {session.seed}: {escape(session.ended_because)}", soft_wrap=True)
    for drill in session.random:
        verdict = f"{_coloured(drill.verdict)}  [dim]{drill.run}[/]"
        console.print(f"  {drill.number}  {verdict}  {escape(', '.join(drill.strikes))}", soft_wrap=True)
        if drill.reason is not None:
            console.print(f"     {escape(drill.reason)}", soft_wrap=True)
    for found in session.findings:
        console.print(f"[red]found[/] by {found.run}: {escape(', '.join(found.failed))}", soft_wrap=True)
        if found.left_out:
            console.print(f"  not needed for it: {escape(', '.join(found.left_out))}", soft_wrap=True)
        if found.cut_short is not None:
            console.print(f"  not cut down any further: {escape(found.cut_short)}", soft_wrap=True)
        console.print(f"  again: drkit drill run {escape(found.file)}", soft_wrap=True)
    console.print(f"verdict: {_coloured(session.verdict)}  [dim](exit code {session.exit_code}, the worst)[/]")


def _coloured(word: str) -> str:
    return f"[{_COLOURS.get(word, 'default')}]{word}[/]"


def _number(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def show_coverage(console: Console, result: CoverageResult) -> None:
    """The table, what its colours mean, and every cell that was struck."""
    targets = list(dict.fromkeys(cell.on for cell in result.cells))
    table = Table(box=None, pad_edge=False)
    table.add_column("state", no_wrap=True)
    for target in targets:
        table.add_column(target, overflow="fold")
    for state in result.states:
        here = [cell for cell in result.cells if cell.state == state]
        table.add_row(state, *(_cell([cell for cell in here if cell.on == target]) for target in targets))
    console.print(table)
    totals = result.totals
    console.print(
        f"\n{counted(totals.possible, 'cell')}: {totals.struck} struck, {totals.planned} planned by an experiment and "
        f"never struck (in brackets), {totals.never} never; of {counted(result.drills, 'kept drill')}",
        soft_wrap=True,
    )
    console.print(
        "the last verdict: [green]passed[/], [red]failed[/], [yellow]unknown[/]; ·: no drill can strike there"
    )
    for line in _last_drills(result.cells):
        console.print(line, soft_wrap=True)
    for each in result.unread:
        console.print(f"[yellow]not counted[/]  {escape(each.name)}: {escape(each.reason)}", soft_wrap=True)


def _cell(cells: Sequence[CoverageCell]) -> str:
    """What can be done to one target in one state: the faults that were struck or are planned."""
    if all(cell.impossible for cell in cells):
        return "[dim]·[/]"
    words = [word for cell in cells if (word := _fault_text(cell))]
    return " ".join(words) or NEVER


def _fault_text(cell: CoverageCell) -> str:
    if cell.last is not None:
        return f"[{_COLOURS[cell.last.verdict]}]{cell.do}[/]"
    return f"[dim]({cell.do})[/]" if cell.experiments else ""


def _last_drills(cells: Sequence[CoverageCell]) -> Iterator[str]:
    for cell in cells:
        if cell.last is not None:
            last = cell.last
            verdict = f"[{_COLOURS[last.verdict]}]{last.verdict}[/]"
            times = counted(cell.struck, "time")
            when = f"{times}, last {iso(last.at)} {verdict}"
            yield f"  {cell.fault} ({cell.state})  {when}  {escape(last.title)}  [dim]{last.run}[/]"
