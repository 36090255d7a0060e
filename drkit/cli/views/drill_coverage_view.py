"""How the coverage of drills looks to people: states down, what is struck across."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from drkit.model.clock import iso
from drkit.model.wording import counted

if TYPE_CHECKING:
    from drkit.drill.coverage import CoverageCell, CoverageResult

_COLOURS = {"passed": "green", "failed": "red", "unknown": "yellow"}
NEVER = "[dim]never[/]"


def show_coverage(console: Console, result: CoverageResult) -> None:
    """The table, what its colours mean, and every cell that was struck."""
    targets = list(dict.fromkeys(cell.on for cell in result.cells))
    table = Table(box=None, pad_edge=False)
    table.add_column("state", no_wrap=True)
    for target in targets:
        table.add_column(target, overflow="fold")
    for state in result.states:
        here = [cell for cell in result.cells if cell.state == state]
        table.add_row(state, *(_shown([cell for cell in here if cell.on == target]) for target in targets))
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
    for line in _struck(result.cells):
        console.print(line, soft_wrap=True)
    for each in result.unread:
        console.print(f"[yellow]not counted[/]  {escape(each.name)}: {escape(each.reason)}", soft_wrap=True)


def _shown(cells: Sequence[CoverageCell]) -> str:
    """What can be done to one target in one state: the faults that were struck or are planned."""
    if all(cell.impossible for cell in cells):
        return "[dim]·[/]"
    words = [word for cell in cells if (word := _word(cell))]
    return " ".join(words) or NEVER


def _word(cell: CoverageCell) -> str:
    if cell.last is not None:
        return f"[{_COLOURS[cell.last.verdict]}]{cell.do}[/]"
    return f"[dim]({cell.do})[/]" if cell.experiments else ""


def _struck(cells: Sequence[CoverageCell]) -> Iterator[str]:
    for cell in cells:
        if cell.last is not None:
            last = cell.last
            verdict = f"[{_COLOURS[last.verdict]}]{last.verdict}[/]"
            times = counted(cell.struck, "time")
            when = f"{times}, last {iso(last.at)} {verdict}"
            yield f"  {cell.fault} ({cell.state})  {when}  {escape(last.title)}  [dim]{last.run}[/]"
