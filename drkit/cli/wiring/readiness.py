"""For doctor and the status page: what a failover's dry run decides, and how to recover from what a link is in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from drkit.failover.context.evidence import Evidence, expected_evidence
from drkit.failover.plan.site_context import SiteContext
from drkit.failover.plan.site_plan import expected_loss, standing
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.recovery.way_out import NOTHING_LOST, Component
from drkit.failover.site.site_planner import make_site_plan
from drkit.failover.snapshot.choose_links import links_into
from drkit.model.errors import DrkitError
from drkit.model.runs import ACCEPT_UNFENCED
from drkit.model.topology import Link
from drkit.observe.readiness.check import Check, CheckOutcome

if TYPE_CHECKING:
    from drkit.failover.context.cluster_context import ClusterContext
    from drkit.failover.plan.failover_plan import FailoverPlan, Obstacle
    from drkit.failover.recovery.component_conditions import Unfinished
    from drkit.model.topology import LinkId


ONLY_UNFENCED = frozenset({ACCEPT_UNFENCED})
"""What a dry run isn't refused for: a run asks for it, or is given the flag."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """A plan, or those of the links of a site run, and what stands in the way.

    `in_the_way`: obstacles, each of a link, or (None) of all of them.
    """

    plans: tuple[FailoverPlan, ...]
    in_the_way: tuple[tuple[LinkId | None, Obstacle], ...]
    loss: Evidence
    digest: str
    warnings: tuple[str, ...]

    @property
    def refused(self) -> bool:
        """Whether the command ends with 3."""
        return any(obstacle.waived_by not in ONLY_UNFENCED for _, obstacle in self.in_the_way)


def dry_run(estate: ClusterContext, to: str, patterns: Sequence[str]) -> DryRun:
    """Plan a failover to a cluster as the command does without further flags; `patterns` as `--link` gives them.

    Raises:
        Refused: it can't be planned: the command ends with 3.
        Unreachable: whether it can isn't known.
    """
    request = PlanRequest(to=to, catch_up=True)
    chosen = links_into(estate, to, patterns)
    if len(chosen.links) > 1 or estate.config.waves:
        with SiteContext(estate, chosen.links) as site:
            plan = make_site_plan(site, request, chosen.left_out)
        warnings = (*plan.own_warnings(), *_warnings_of(plan.plans))
        return DryRun(plan.plans, tuple(standing(plan)), expected_loss(plan), plan.digest, warnings)
    one = make_plan(estate, replace(request, link=chosen.links[0]))
    alone = tuple((None, each) for each in one.obstacles)
    return DryRun((one,), alone, expected_evidence(one.loss), one.digest, tuple(one.warnings))


def _warnings_of(plans: Iterable[FailoverPlan]) -> Iterator[str]:
    return (f"{plan.link}: {text}" for plan in plans for text in plan.warnings)


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
    from drkit.failover.journal.site_record import load_site, unfinished_sites

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
