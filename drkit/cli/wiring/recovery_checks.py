"""How to recover from what a link is in: for doctor, and for the page of a link that was failed over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from drkit.failover.recovery.way_out import NOTHING_LOST, Component
from drkit.model.errors import DrkitError
from drkit.model.topology import Link
from drkit.observe.readiness.check import Check, CheckOutcome

if TYPE_CHECKING:
    from drkit.failover.recovery.component_conditions import Unfinished
    from drkit.failover.run.cluster_context import ClusterContext


UNFINISHED = "unfinished run"
"""Name of the check of a run that isn't over."""


def recovery_checks(estate: ClusterContext, link: Link, unfinished: Sequence[Unfinished]) -> Iterator[Check]:
    """How to recover: from each run of the link that isn't over, and from a cluster that is gone without one."""
    from drkit.failover.recovery.component_conditions import advise

    yield from _open_site_runs(estate, link, unfinished)
    left: list[Unfinished | None] = [*unfinished]
    for each in left or [None]:
        advice = advise(estate, link, each)
        if each is None and not advice.broken:
            return
        if each is None and advice.way.costs == NOTHING_LOST:
            serves = link.id.source if advice.way.serves is Component.SOURCE else link.id.target
            why = f"{'; '.join(advice.broken)}: clients stay on {serves}, as they are"
            yield Check("way out", CheckOutcome.OK, why, advice.first)
            return
        name = "way out" if each is None else UNFINISHED
        what = [*advice.broken] if each is None else [_unfinished(each), *advice.broken]
        control = estate.store.link_control(link.id)
        held = each is not None and control is not None and control.run == each.run
        outcome = CheckOutcome.FAIL if held else CheckOutcome.WARN
        yield Check(name, outcome, f"{'; '.join(what)} (costs: {advice.way.costs})", advice.do)


def _unfinished(run: Unfinished) -> str:
    if run.site is None:
        return f"run {run.run} is {run.machine.state}"
    return f"site run {run.site} isn't over: its run of this link ({run.run}) is {run.machine.state}"


def _open_site_runs(estate: ClusterContext, link: Link, unfinished: Sequence[Unfinished]) -> Iterator[Check]:
    """Site runs that are not over although nothing of this link is left half done: it was not begun, or is closed."""
    from drkit.failover.site.site_record import load_site, unfinished_sites

    named = {each.site for each in unfinished}
    for summary in unfinished_sites(estate.store):
        if summary.run in named:
            continue
        try:
            record = load_site(estate.store, summary.run)
        except (DrkitError, ValueError, KeyError, TypeError):  # `drkit runs` says what is wrong with its journal
            continue
        if link.id not in record.plan.links or link.id in record.elsewhere or record.finished:
            continue
        if (damaged := record.damaged.get(link.id)) is not None:
            yield Check(UNFINISHED, CheckOutcome.WARN, f"site run {summary.run}: {damaged.what}", damaged.remedy)
            continue
        child = record.children.get(link.id)
        here = "was not begun for this link" if child is None else f"is {child.machine.state} for this link"
        what = f"site run {summary.run} isn't over; it {here}"
        yield Check(UNFINISHED, CheckOutcome.WARN, what, f"drkit resume {summary.run}")
