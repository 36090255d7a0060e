"""An old primary with one broker dead, then two of three: what it still shows is used, nothing waits for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from drkit.failover.context.state_machine import Mode, State
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.lab import Lab
from drkit.model.errors import Refused
from drkit.model.link_state import Direction
from tests.support.clusters.guard import Guard
from tests.support.links.estates import mirror, own_link, texts

pytestmark = [pytest.mark.lab, pytest.mark.long]

PARTITIONS = range(6)


@pytest.fixture
def three(tmp_path: Path, lab_guard: Guard) -> Iterator[Lab]:
    """Three brokers on either side."""
    folder = tmp_path / "lab"
    lab_guard.watch(folder)
    lab = Lab.up(folder, brokers=3, store="sqlite", timeout_seconds=240)
    yield lab
    lab.down()


def test_half_of_the_old_primary_dead(three: Lab, tmp_path: Path, unique_name: str) -> None:
    own = own_link(three, tmp_path, unique_name)
    try:
        topic = own.create("primary", "t", partitions=len(PARTITIONS))  # one replica each, on all three brokers
        own.produce("primary", topic, texts("x", 20, PARTITIONS))
        group = own.commit("primary", "g", topic, dict.fromkeys(PARTITIONS, 15))
        mirror(own)
        own.produce("primary", topic, texts("late", 4, PARTITIONS))

        three.kill("primary-3")
        with own.estate() as estate, pytest.raises(Refused) as refused:
            run_failover(estate, make_plan(estate, PlanRequest("dr", mode=Mode.PLANNED)), accept_unfenced=True)
        assert refused.value.remedy
        assert own.store.link_control(own.link.id) is None, "nothing was changed"
        assert own.committed("dr", group) == {}

        three.kill("primary-2")  # the controllers' majority is gone too
        with own.estate() as estate:
            plan = make_plan(estate, PlanRequest("dr"))
            assert {position.target_offset for position in plan.positions} == {15}
            result = run_failover(estate, plan, accept_unfenced=True)
        assert result.error is None
        assert result.machine.state is State.CLOSED
        control = own.store.link_control(own.link.id)
        assert control is not None
        assert control.direction is Direction.SEALED
        assert own.committed("dr", group) == {(topic, partition): 15 for partition in PARTITIONS}
        assert result.evidence.fenced is False
        # of partitions whose broker is dead only what the mirror saw last is known: a lower bound of the 24 lost
        assert result.evidence.rpo_basis == "observed"
        assert result.evidence.rpo_records is None or 0 <= result.evidence.rpo_records <= 4 * len(PARTITIONS)
    finally:
        own.store.close()
