"""Checks as people read them: a mark, what was asked, the reason, what to do."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drkit.observe.readiness.check import Check, CheckOutcome

_MARK = {
    CheckOutcome.OK: ("ok", "green"),
    CheckOutcome.WARN: ("warn", "yellow"),
    CheckOutcome.FAIL: ("FAIL", "bold red"),
    CheckOutcome.UNKNOWN: ("unknown", "magenta"),
}


def check_mark(outcome: CheckOutcome) -> Text:
    """An outcome in its colour."""
    return Text(*_MARK[outcome])


def print_checks(console: Console, checks: Iterable[tuple[str, Check]]) -> None:
    """Checks as a table, each with what it is about (empty: the check's own name says it)."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for about, check in checks:
        reason = Text(f"{about}: {check.reason}" if about else check.reason)
        if check.remedy and check.outcome is not CheckOutcome.OK:
            reason.append(f"\n→ {check.remedy}", "dim")
        table.add_row(check_mark(check.outcome), check.name, reason)
    console.print(table)
