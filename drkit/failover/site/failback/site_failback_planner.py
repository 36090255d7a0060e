"""Plans a failback or reprotect of several links; reads their clusters concurrently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from drkit.failover.failback.failback_plan import FailbackPlan
from drkit.failover.failback.planner import make_failback_plan
from drkit.failover.plan.choose_links import LinkLeftOut
from drkit.failover.plan.failover_plan import Obstacle
from drkit.failover.run.state_machine import Kind
from drkit.failover.site.failback.site_failback_plan import SiteFailbackPlan
from drkit.failover.site.site_context import SiteContext
from drkit.model.clock import now
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more


def make_site_failback_plan(
    site: SiteContext, kind: Kind, left_out: Sequence[LinkLeftOut] = (), *, by_spark: bool = False
) -> SiteFailbackPlan:
    """Observe and plan every link.

    Args:
        site: the links, and connections for each.
        kind: failback or reprotect.
        left_out: matching links that are left as they are.
        by_spark: let Spark's tasks seed the old primaries.

    Raises:
        ConfigError, Refused: a link can't be planned at all; it is named.
        Unreachable: the store doesn't answer.
    """
    made_at = now()

    def planned(link: Link) -> FailbackPlan:
        with site.naming(link, f"bring the others back without it: drkit {kind}"):
            return make_failback_plan(
                site.of(link.id),
                None,
                link,
                for_good=kind is Kind.REPROTECT,
                by_spark=by_spark,
                together=[each.id for each in site.links],
            )

    plans = tuple(site.side_by_side(planned))
    return SiteFailbackPlan(kind, made_at, plans, tuple(left_out), tuple(_contended(plans)))


def _contended(plans: Sequence[FailbackPlan]) -> Iterator[Obstacle]:
    """Topics of an old primary that more than one link would bring back: the second would undo the first."""
    wanted: dict[tuple[str | None, str], list[LinkId]] = {}
    for plan in plans:
        for topic in plan.topics:
            wanted.setdefault((plan.target.cluster_id, topic.topic), []).append(plan.link)
    twice = {topic: links for (_, topic), links in wanted.items() if len(links) > 1}
    if twice:
        links = list(dict.fromkeys(str(link) for meant in twice.values() for link in meant))
        yield Obstacle(
            f"{and_more(sorted(twice))} would be brought back by more than one link: {and_more(links)}",
            "Each would replace the records that the other has brought back",
            f"Choose the cluster that they come from, by leaving the others out: --link '{links[0]}'",
        )
