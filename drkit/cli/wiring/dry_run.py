"""What `drkit failover --to C --dry-run` decides: for the page of `drkit serve`, and for doctor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from drkit.failover.plan.choose_links import links_into
from drkit.failover.plan.planner import PlanRequest, make_plan
from drkit.failover.plan.waivers import ACCEPT_UNFENCED
from drkit.failover.run.evidence import Evidence, expected_evidence
from drkit.failover.site.site_context import SiteContext
from drkit.failover.site.site_plan import expected_loss, standing
from drkit.failover.site.site_planner import make_site_plan

if TYPE_CHECKING:
    from drkit.failover.plan.failover_plan import FailoverPlan, Obstacle
    from drkit.failover.run.cluster_context import ClusterContext
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
