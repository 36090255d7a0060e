"""A failback that is resumed after its live cluster was itself failed away from: it would bring back old records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drkit.config import Config
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import PATHS, Facts, Kind, Mode, StageOutcome
from drkit.failover.journal.journal import Journal, StageRecord, new_run_id
from drkit.failover.journal.run_record import begin
from drkit.failover.plan.failback_plan import failback_plan_json
from drkit.failover.run.service import resume_run
from drkit.model.clock import now
from drkit.model.errors import PartlyDone
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topology import LinkId
from drkit.store import open_store
from tests.unit.failover.run.test_runner import FOUND
from tests.unit.failover.site.test_site_failback_plan import a_link_plan

LINK, ONWARDS = LinkId("primary", "dr"), LinkId("dr", "dr2")


@pytest.fixture
def estate():
    config = Config.model_validate(
        {
            "clusters": {
                alias: {"bootstrap_servers": f"127.0.0.1:{port}"}
                for alias, port in (("primary", 9), ("dr", 10), ("dr2", 11))
            },
            "store": {"url": "sqlite:///:memory:"},
            "links": [{"source": link.source, "target": link.target, "topics": ["orders"]} for link in (LINK, ONWARDS)],
        }
    )
    store = open_store("sqlite:///:memory:")
    with ClusterContext(config, store, timeout_seconds=0.2, patience_seconds=0.05) as context:
        context.anchors._gone |= {"primary", "dr"}  # nothing is anchored there
        yield context
    store.close()


def interrupted_before(estate, stage):
    """A failback that was killed before a stage."""
    plan, facts = a_link_plan(LINK), Facts(mode=Mode.PLANNED, cluster_confirmed="id-primary", unfenced_accepted=True)
    journal = Journal(estate.store, new_run_id())
    begin(journal, plan, facts, plan.made_at, failback_plan_json(plan), {})
    for step in PATHS[Kind.FAILBACK]:
        if step.stage == stage:
            break
        facts = replace(facts, **FOUND[step.stage])
        journal.intent(step.stage)
        journal.outcome(StageRecord(step.stage, StageOutcome.OK, "", 0.0), facts)
    return journal.run


@pytest.mark.parametrize("stage", ["scrub", "reverse", "fence"])
@pytest.mark.parametrize("direction", [Direction.SEALED, Direction.ACTIVE])
def test_a_resume_looks_whether_clients_still_use_the_live_cluster(estate, stage, direction):
    run = interrupted_before(estate, stage)
    control = LinkControl(ONWARDS, direction, 1, now(), "failed over to dr2", run="01JOTHER")
    assert estate.store.set_link_control(control, expected_version=None)
    error = resume_run(estate, run, None).error
    assert isinstance(error, PartlyDone)
    refused = "dr was failed away from, too, by dr->dr2: orders" in error.what
    assert refused == (direction is Direction.SEALED), error
    if refused:
        assert "drkit failback --link 'dr->dr2'" in error.remedy
        assert f"drkit resume {run}" in error.remedy
