"""A journal that can't be written any more stops a run where it can be resumed, or before it changed anything."""

from dataclasses import replace

import pytest

from drkit.failover.context.state_machine import State
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import resume_run, run_failover
from drkit.model.errors import DrkitError, PartlyDone, Unreachable
from tests.support.links.estates import mirror, texts

pytestmark = pytest.mark.lab


class Failing:
    """The store, of which every append from a stage's event on fails."""

    def __init__(self, store, stage, event, error):
        self._store, self._at, self._error, self.down = store, (stage, event), error, False

    def __getattr__(self, name):
        return getattr(self._store, name)

    def append_entry(self, entry):
        self.down = self.down or (entry.stage, entry.event) == self._at
        if self.down:
            raise self._error
        return self._store.append_entry(entry)


FULL = DrkitError("the store is not written: its disk is full", remedy="Free space on that disk, then run this again")
DOWN = Unreachable("the store does not answer", remedy="Bring it back")


def test_a_full_disk_or_a_store_that_is_down_ends_in_a_stop_that_can_be_resumed(own):
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 6))
    group = own.commit("primary", "g", topic, {0: 3, 1: 6})
    mirror(own)

    def start(stage, event, error):
        failing = replace(own, store=Failing(own.store, stage, event, error))
        with failing.estate() as estate:
            return run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)

    for error in (FULL, DOWN):
        with pytest.raises(type(error), match=error.what):
            start("plan", "plan", error)
        assert own.store.link_control(own.link.id) is None, "nothing was changed"
        assert own.store.runs() == []

    result = start("translate", "places", FULL)
    assert isinstance(result.error, PartlyDone)
    assert result.machine.state is State.DRAINED
    assert "its disk is full" in result.error.what
    assert f"drkit resume {result.run}" in result.error.remedy
    assert own.committed("dr", group) == {}

    failing = replace(own, store=Failing(own.store, "commit", "outcome", DOWN))
    with failing.estate() as estate:
        stopped = resume_run(estate, result.run, None)
    assert isinstance(stopped.error, PartlyDone | Unreachable)
    assert own.committed("dr", group) == {(topic, 0): 3, (topic, 1): 6}, "done, and not journaled"
    with own.estate() as estate:
        done = resume_run(estate, result.run, None)
    assert done.error is None
    assert done.machine.state is State.CLOSED
