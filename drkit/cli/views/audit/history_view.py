"""What earlier audits found, one line each, oldest first: for `drkit audit history` and `drkit runs --trend`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drkit.cli.wiring.context import Invocation
from drkit.model.audit.audit_result import FindingKind
from drkit.model.clock import iso

if TYPE_CHECKING:
    from drkit.observe.audit_history import AuditOfLink

_KINDS = tuple(kind.value for kind in FindingKind)
_STYLES = {"clean": "green", "incomplete": "yellow", "deviated": "bold red", "failed": "bold red"}


def emit_trend(run: Invocation, found: Sequence[AuditOfLink]) -> None:
    """Say what these audits found, one after the other (docs/schemas/audit-history.schema.json)."""
    run.writer.emit({"audits": [_document(each) for each in found]}, lambda console: _print(console, found))


def _document(each: AuditOfLink) -> dict[str, Any]:
    return {
        "run": each.run,
        "link": each.link,
        "began": iso(each.began),
        "verdict": each.verdict,
        "totals": each.totals,
        "error": each.detail or None,
    }


def _print(console: Console, found: Sequence[AuditOfLink]) -> None:
    if not found:
        console.print("[dim]no audit is recorded yet; `drkit audit` makes one[/]")
        return
    kinds = [kind for kind in _KINDS if any(each.totals and each.totals.get(kind) for each in found)]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("began", "link", "verdict"):
        table.add_column(name, no_wrap=name != "link")
    for name in ("matched", *kinds):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found:
        totals = each.totals
        cells = ["-" if totals is None else f"{totals.get(kind, 0):,}" for kind in ("matched", *kinds)]
        verdict = Text(each.verdict, _STYLES.get(each.verdict, ""))
        table.add_row(f"{each.began:%Y-%m-%d %H:%M}", each.link, verdict, *cells)
    console.print(table)
    for each in found:
        if each.detail:
            console.print(Text(f"{each.run}: {each.detail}", "dim"), soft_wrap=True)
