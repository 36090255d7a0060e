"""The plan of a failback or reprotect of several links, and its stages, as people see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table

from drkit.cli.views.failover_view import StagePrinter
from drkit.cli.views.site_view import print_remarks
from drkit.failover.run.state_machine import Kind
from drkit.model.wording import counted

if TYPE_CHECKING:
    from drkit.failover.plan.failover_plan import Obstacle
    from drkit.failover.run.journal.journal import StageRecord
    from drkit.failover.site.failback.site_failback_plan import SiteFailbackPlan
    from drkit.model.topology import LinkId

_ROWS = 20


def print_site_failback_plan(
    console: Console, plan: SiteFailbackPlan, standing: Sequence[tuple[LinkId | None, Obstacle]] = ()
) -> None:
    """What is deleted and brought back for each link, on which cluster, and what stands in the way."""
    title = f"[bold]{plan.kind} plan of {counted(len(plan.plans), 'link')}[/]  [dim]{plan.digest[:12]}[/]"
    console.print(Rule(title, align="left", style="dim"))
    console.print(f"[dim]how[/]  {_how(plan)}")
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
    _deleted(console, plan)
    print_remarks(console, plan, standing)


def _how(plan: SiteFailbackPlan) -> str:
    first = "salvage every link, then scrub, re-seed and audit one after the other"
    return first if plan.kind is Kind.REPROTECT else f"{first}, then move back one after the other"


def _deleted(console: Console, plan: SiteFailbackPlan) -> None:
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
    """Shows stages as they happen, one link after the other."""

    def __init__(self, console: Console) -> None:
        self._printer = StagePrinter(console)

    def __call__(self, link: LinkId, stage: str, record: StageRecord | None, text: str) -> None:
        """One thing that happened to a stage of a link."""
        self._printer(f"{escape(str(link))} {stage}", record, text)

    def stop(self) -> None:
        """End the spinner."""
        self._printer.stop()
