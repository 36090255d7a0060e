"""Checks as people read them, the worst first: a mark, what was asked, the reason, what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from drkit.cli.views.layout import alike
from drkit.model.wording import counted
from drkit.observe.readiness.check import Check, CheckOutcome

_MARK = {
    CheckOutcome.FAIL: ("FAIL", "bold red"),
    CheckOutcome.UNKNOWN: ("unknown", "magenta"),
    CheckOutcome.WARN: ("warn", "yellow"),
    CheckOutcome.OK: ("ok", "green"),
}
_SHOWN = 5
"""So many checks of one name and outcome are shown: a link may have a problem with each of its topics."""
_WIDE = 100
"""From so many columns on, reasons are beside the names of checks."""
_INDENT = 8
"""As wide as `unknown`, with a blank."""


def check_mark(outcome: CheckOutcome) -> Text:
    """An outcome in its colour."""
    return Text(*_MARK[outcome])


def counted_marks(checks: Iterable[Check]) -> Text:
    """How many checks ended how, the worst first: `1 FAIL, 2 warn, 9 ok`."""
    counts = Counter(check.outcome for check in checks)
    said = [Text(f"{counts[outcome]:,} {word}", style) for outcome, (word, style) in _MARK.items() if counts[outcome]]
    return Text(", ").join(said)


def print_checks(console: Console, checks: Iterable[tuple[str, Check]]) -> None:
    """Checks, the worst first, each with what it is about (empty: the check's own name says it).

    On a narrow terminal the reason of a check that isn't ok is below its name: beside it there is no room.
    """
    order = list(_MARK)
    ordered = sorted(checks, key=lambda each: order.index(each[1].outcome))
    lines = [*_lines(ordered)]
    if console.width < _WIDE:
        _print_below(console, lines)
        return
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for outcome, name, reason in lines:
        table.add_row(Text() if outcome is None else check_mark(outcome), name, reason)
    console.print(table)


def _print_below(console: Console, lines: Iterable[tuple[CheckOutcome | None, str, Text]]) -> None:
    passed = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 1))
    passed.add_column(no_wrap=True, min_width=_INDENT - 2)
    passed.add_column(no_wrap=True)
    passed.add_column(overflow="fold")
    for outcome, name, reason in lines:
        if outcome is CheckOutcome.OK:
            passed.add_row(check_mark(outcome), name, reason)
            continue
        if outcome is not None:
            console.print(
                Text.assemble((f"{check_mark(outcome).plain:<{_INDENT - 1}} ", check_mark(outcome).style), name)
            )
        console.print(Padding(reason, (0, 0, 0, _INDENT)))
    console.print(passed)


def _lines(checks: Iterable[tuple[str, Check]]) -> Iterator[tuple[CheckOutcome | None, str, Text]]:
    """Outcome, name and reason of each line; None: a line about those above."""
    groups = alike(checks, lambda each: each[1].reason, apart=lambda each: (each[0], each[1].outcome, each[1].name))
    counts = Counter((check.outcome, check.name) for (_, check), *_others in groups)
    seen = Counter[tuple[CheckOutcome, str]]()
    for (about, check), *others in groups:
        same_name = (check.outcome, check.name)
        seen[same_name] += 1
        if seen[same_name] == _SHOWN + 1:
            yield (
                None,
                "",
                Text(f"… and {counts[same_name] - _SHOWN:,} more of this name: --output json has all", "dim"),
            )
        if seen[same_name] > _SHOWN:
            continue
        reason = Text(f"{about}: {check.reason}" if about else check.reason)
        if others:
            reason.append(f" (and {counted(len(others), 'check')} alike)", "yellow")
        if check.remedy and check.outcome is not CheckOutcome.OK:
            reason.append(f"\n→ {check.remedy}", "dim")
        yield check.outcome, check.name, reason
