"""A link that was failed over, with new records on dr: the start of failbacks."""

from __future__ import annotations

from drkit.failover.plan.planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from tests.support.links.estates import OwnLink, mirror, texts


def failed_over(own: OwnLink, *, accept_unfenced: bool) -> tuple[str, str]:
    """A topic and a group, with records that only the primary holds, and new ones on dr."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 10))
    group = own.commit("primary", "g", topic, {0: 3, 1: 10})
    mirror(own)
    own.produce("primary", topic, texts("only-here", 2))
    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        assert run_failover(estate, plan, accept_unfenced=accept_unfenced).error is None
    own.produce("dr", topic, texts("on-dr", 5))
    own.commit("dr", "g", topic, {0: 12, 1: 14})
    return topic, group
