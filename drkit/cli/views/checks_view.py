"""Checks as people read them, the worst first: a mark, what was asked, the reason, what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drkit.observe.readiness.check import Check, CheckOutcome

_MARK = {
    CheckOutcome.FAIL: ("FAIL", "bold red"),
    CheckOutcome.UNKNOWN: ("unknown", "magenta"),
    CheckOutcome.WARN: ("warn", "yellow"),
    CheckOutcome.OK: ("ok", "green"),
}
_ALIKE = 5
"""So many checks of one name and outcome are shown: a link may have a problem with each of its partitions."""


def check_mark(outcome: CheckOutcome) -> Text:
    """An outcome in its colour."""
    return Text(*_MARK[outcome])


def counted_marks(checks: Iterable[Check]) -> Text:
    """How many checks ended how, the worst first: `1 FAIL, 2 warn, 9 ok`."""
    counts = Counter(check.outcome for check in checks)
    said = [Text(f"{counts[outcome]:,} {word}", style) for outcome, (word, style) in _MARK.items() if counts[outcome]]
    return Text(", ").join(said)


def print_checks(console: Console, checks: Iterable[tuple[str, Check]]) -> None:
    """Checks as a table, each with what it is about (empty: the check's own name says it)."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    order = list(_MARK)
    ordered = sorted(checks, key=lambda each: order.index(each[1].outcome))
    counts = Counter((check.outcome, check.name) for _, check in ordered)
    seen = Counter[tuple[CheckOutcome, str]]()
    for about, check in ordered:
        alike = (check.outcome, check.name)
        seen[alike] += 1
        if seen[alike] == _ALIKE + 1:
            more = Text(f"… and {counts[alike] - _ALIKE:,} more of this name: --output json has all", "dim")
            table.add_row("", "", more)
        if seen[alike] > _ALIKE:
            continue
        reason = Text(f"{about}: {check.reason}" if about else check.reason)
        if check.remedy and check.outcome is not CheckOutcome.OK:
            reason.append(f"\n→ {check.remedy}", "dim")
        table.add_row(check_mark(check.outcome), check.name, reason)
    console.print(table)
