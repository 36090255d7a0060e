"""The demo's end: the evidence, as a document and as a page of the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from drkit.demo.story import Claims, Findings, counted

_KINDS = ("matched", "unseen", "lost", "duplicated", "corrupted", "reordered", "foreign")


def evidence_document(findings: Findings, claims: Claims, seconds: float, error: str | None) -> dict[str, Any]:
    """`drkit demo --output json`; unknown values are null."""
    evidence = findings.failover.get("evidence", {})
    return {
        "verdict": "held" if error is None and claims.all_held else "failed",
        "error": error,
        "seconds": round(seconds, 1),
        "killed_at": findings.killed_at,
        "at": findings.at,
        "produced": findings.produced,
        "rpo": {
            "observed_records": evidence.get("rpo_records"),
            "observed_seconds": evidence.get("rpo_seconds"),
            "audited_records": findings.unseen,
        },
        "rto_seconds": evidence.get("rto_seconds"),
        "groups": [
            {"group": group, "planned_reread": planned, "read_again": findings.read_again.get(group)}
            for group, planned in sorted(_planned(findings).items())
        ],
        "audits": [
            {"when": when, "verdict": audit["verdict"], "totals": audit["totals"]}
            for when, audit in findings.audits.items()
        ],
        "claims": claims.document(),
    }


def print_evidence(console: Console, document: Mapping[str, Any]) -> None:
    """The last page: RPO, RTO, what each group reads again, verdicts, every claim."""
    held = document["verdict"] == "held"
    title = "the disaster was survived" if held else "NOT everything that the demo claims holds"
    body: list[RenderableType] = [_numbers(document), _groups(document), _audits(document), _claims(document)]
    if document["error"]:
        body.append(Text(str(document["error"]), "bold red"))
    style = "green" if held else "bold red"
    console.print(Panel(Group(*body), title=Text(f" {title} ", style), border_style=style, padding=(1, 2), width=80))


def _numbers(document: Mapping[str, Any]) -> Table:
    rpo = document["rpo"]
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    seconds = rpo["observed_seconds"]
    age = f", the oldest {seconds:.2f} s behind" if seconds and rpo["observed_records"] else ""
    table.add_row("RPO", f"{counted(rpo['observed_records'])} records by what the mirror had last seen{age} (at least)")
    table.add_row("", f"{counted(rpo['audited_records'])} records as counted when the primary came back")
    rto = document["rto_seconds"]
    table.add_row("RTO", "unknown" if rto is None else f"{rto:.1f} s from the command to verified positions")
    return table


def _groups(document: Mapping[str, Any]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("group")
    table.add_column("reads again: planned", justify="right")
    table.add_column("seen", justify="right")
    for each in document["groups"]:
        table.add_row(each["group"], counted(each["planned_reread"]), counted(each["read_again"]))
    return Padding(table, (1, 0, 0, 0))


def _audits(document: Mapping[str, Any]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("audit")
    table.add_column("verdict")
    table.add_column("found", overflow="fold")
    for each in document["audits"]:
        found = ", ".join(f"{each['totals'][kind]:,} {kind}" for kind in _KINDS if each["totals"][kind])
        table.add_row(each["when"], Text(each["verdict"], "green" if each["verdict"] == "clean" else "bold red"), found)
    return Padding(table, (1, 0, 0, 0))


def _claims(document: Mapping[str, Any]) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(overflow="fold")
    for each in document["claims"]:
        mark = Text("✔", "green") if each["held"] else Text("✘", "bold red")
        table.add_row(mark, Text.assemble(each["claim"], (f": {each['found']}", "dim")))
    return Padding(table, (1, 0, 0, 0))


def _planned(findings: Findings) -> dict[str, int | None]:
    """Records that each group reads again by the plan; None if one of its partitions is unknown."""
    totals: dict[str, int | None] = {}
    for each in findings.failover.get("groups", []):
        so_far = totals.get(each["group"], 0)
        known = so_far is not None and each["reread"] is not None
        totals[each["group"]] = so_far + each["reread"] if known else None
    return totals
