"""The two-person rule for runs over several links, on three real clusters: a, b and c."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drkit.config import load_config
from drkit.failover.context.state_machine import Kind, State
from drkit.failover.journal.journal import INTENT
from drkit.failover.journal.site_record import site_to_resume
from drkit.failover.plan.site_context import SiteContext
from drkit.failover.planning.failover_planner import PlanRequest
from drkit.failover.site.site_failback_run import FailbackMeans, make_site_failback_plan, run_site_failback
from drkit.failover.site.site_planner import make_site_plan
from drkit.failover.site.site_run import run_site
from drkit.failover.snapshot.choose_links import links_away, links_into
from drkit.model.errors import Refused
from drkit.model.link_state import Direction
from tests.support.commands.approving import approval, approved_by_both, operators
from tests.support.links.sites import LINKS, Site, configure

pytestmark = pytest.mark.lab

UNFENCED = "--accept-unfenced"


def test_a_site_moves_and_comes_back_by_two_signatures_and_one_operator_resumes_it(site: Site, tmp_path: Path) -> None:
    configure(site, operators(tmp_path))
    site.net.config = load_config(site.net.path)
    with site.estate() as estate, SiteContext(estate, links_into(estate, "c").links) as links:
        plan = make_site_plan(links, PlanRequest("c"))
        with pytest.raises(Refused, match="the failover to c is not approved"):
            run_site(links, plan, unfenced=plan.links)
        estate.approval = approval(site.net.config, tmp_path, plan.digest)
        with pytest.raises(Refused, match=f"uses {UNFENCED}, which was not approved"):
            run_site(links, plan, unfenced=plan.links)
    assert site.net.store.runs() == [], "nothing of it was begun"
    assert site.directions() == dict.fromkeys(LINKS, Direction.ACTIVE)

    files = approved_by_both(site.net.path, tmp_path, plan.digest, UNFENCED)
    site.killed("failover", "a->c", "translate", INTENT, "after", *files)
    run = site_to_resume(site.net.store, None)
    assert run is not None
    assert signed(site, run) == (plan.digest, ["ana", "ben"], [UNFENCED])
    result = site.resume(run)
    assert (result.error, result.state) == (None, State.CLOSED)
    site.is_moved()

    means = FailbackMeans(site.ports(), accept_unfenced=True)
    with site.estate() as estate, SiteContext(estate, links_away(estate, None).links) as links:
        back = make_site_failback_plan(links, Kind.FAILBACK)
        with pytest.raises(Refused, match="is not approved"):
            run_site_failback(links, back, means, cluster_ids=back.old_primaries)
        estate.approval = approval(site.net.config, tmp_path, plan.digest, UNFENCED)
        with pytest.raises(Refused, match="is not what ana and ben approved"):
            run_site_failback(links, back, means, cluster_ids=back.old_primaries)
        assert site.directions() == dict.fromkeys(LINKS, Direction.SEALED)
        estate.approval = approval(site.net.config, tmp_path, back.digest, UNFENCED)
        done = run_site_failback(links, back, means, cluster_ids=back.old_primaries)
    assert (done.error, done.state) == (None, State.CLOSED)
    assert signed(site, done.run) == (back.digest, ["ana", "ben"], [UNFENCED])
    assert site.directions() == dict.fromkeys(LINKS, Direction.ACTIVE)
    assert site.committed("both", "a", site.name) == {site.name: 7}


def signed(site: Site, run: str) -> tuple[str, list[str], list[str]]:
    """The digest, the operators and the flags that a site run's first entry names."""
    kept = json.loads(site.net.store.entries(run)[0].payload)["origin"]["approval"]
    return kept["digest"], kept["operators"], kept["allows"]
