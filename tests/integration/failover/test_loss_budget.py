"""A loss that only shows behind the fence is compared with its budget, too: the run takes itself back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.failover.plan.loss_budget import OverBudget
from drkit.failover.plan.planner import PlanRequest, make_plan
from drkit.failover.plan.waivers import ACCEPT_LOSS
from drkit.failover.run.service import run_failover
from drkit.failover.run.state_machine import State
from drkit.lab import Lab
from drkit.model.link_state import Direction
from tests.support.estates import OwnLink, mirror, own_link, texts

pytestmark = pytest.mark.lab


@pytest.fixture
def own(lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[OwnLink]:
    mine = own_link(lab, tmp_path, unique_name, max_loss_records=1)
    yield mine
    mine.store.close()


def test_what_is_lost_since_the_plan_was_made_is_found_before_a_group_is_committed(own: OwnLink) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 10))
    group = own.commit("primary", "g", topic, {0: 4, 1: 10})
    mirror(own)
    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        assert not any(obstacle.waived_by == ACCEPT_LOSS for obstacle in plan.obstacles)
        own.produce("primary", topic, texts("late", 2))
        result = run_failover(estate, plan, accept_unfenced=True)
        assert isinstance(result.error, OverBudget)
        assert int(result.error.exit_code) == 3
        assert "4 records would be lost, and max_loss_records is 1" in result.error.what
        assert result.machine.state is State.CANCELLED
        control = own.store.link_control(own.link.id)
        assert control is not None
        assert control.direction is Direction.ACTIVE
        assert own.committed("dr", group) == {}
        assert [summary.state for summary in own.store.runs()] == ["cancelled"]

        refused = make_plan(estate, PlanRequest("dr", accept_loss=3))
        assert any(obstacle.waived_by == ACCEPT_LOSS for obstacle in refused.obstacles)
        done = run_failover(estate, make_plan(estate, PlanRequest("dr", accept_loss=4)), accept_unfenced=True)
    assert done.error is None
    assert done.evidence.rpo_records == 4
    assert own.committed("dr", group) == {(topic, 0): 4, (topic, 1): 10}
