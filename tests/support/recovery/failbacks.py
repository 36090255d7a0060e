"""There and back again, as most tests of a failback have it: on a lab that fences nothing, with a link of their own."""

from __future__ import annotations

from collections.abc import Callable

from drkit.failover.context.interfaces import Ports
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.runner import RunResult
from drkit.failover.run.service import resume_run, run_failback, run_failover
from drkit.failover.snapshot.selection import Selection
from tests.support.links.estates import OwnLink


def fail_over(own: OwnLink, selection: Selection | None = None) -> RunResult:
    """A failover to dr, which succeeds."""
    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr", selection=selection or Selection()))
        result = run_failover(estate, plan, accept_unfenced=True)
    assert result.error is None, result.error
    return result


def fail_back(
    own: OwnLink,
    ports: Ports,
    *,
    before_fence: Callable[[], None] | None = None,
    accept_salvage_only: bool = False,
    for_good: bool = False,
) -> RunResult:
    """A failback to primary by a plan that is made now, to its end or to where it stops."""
    with own.estate() as estate:
        plan = make_failback_plan(estate, "primary", for_good=for_good)
        return run_failback(
            estate,
            plan,
            ports,
            cluster_id=plan.target.cluster_id or "",
            accept_unfenced=True,
            accept_salvage_only=accept_salvage_only,
            before_fence=before_fence,
        )


def resume(own: OwnLink, ports: Ports, *, accept_salvage_only: bool = False) -> RunResult:
    """The link's newest run, resumed."""
    with own.estate() as estate:
        run = own.store.runs()[0].run
        return resume_run(estate, run, ports, accept_unfenced=True, accept_salvage_only=accept_salvage_only)
