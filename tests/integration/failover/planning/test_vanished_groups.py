"""A position counts as read on the source only where this look has read it there."""

import pytest

from drkit.failover.context.state_machine import Mode
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.model.offsets import Certainty
from tests.support.links.estates import mirror, mirroring, texts
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


def test_a_group_that_is_gone_on_the_source_is_not_exact_and_no_planned_move_takes_it(own):
    """It was planned as exact, with nothing read again, though its present commit was never read."""
    topic = own.create("primary", "t", partitions=1)
    own.produce("primary", topic, texts("r", 10, [0]))
    stays, gone = own.commit("primary", "stays", topic, {0: 4}), own.commit("primary", "gone", topic, {0: 6})
    mirror(own)
    with own.estate() as estate:
        estate.groups("primary").delete_groups([gone])
        planned = make_plan(estate, PlanRequest("dr", Mode.PLANNED))
        (told,) = [each for each in planned.obstacles if each.waived_by is None]
        assert told.what == f"primary has no committed offset any more of {gone}: deleted, expired or lost there"
        plan = make_plan(estate, PlanRequest("dr"))
        found = {each.group: each for each in plan.positions}
        assert (found[gone].translation, found[gone].reread, found[gone].reread_at_most) == (
            Certainty.CONSERVATIVE,
            None,
            4,
        )
        assert (found[stays].translation, found[stays].reread) == (Certainty.EXACT, 0)
        assert any(f"lacks committed offsets of {gone}" in warning for warning in plan.warnings)
        result = run_failover(estate, plan, accept_unfenced=True)
    assert result.error is None
    found = {each.group: each for each in result.positions}
    assert (found[gone].translation, found[gone].reread_at_most) == (Certainty.CONSERVATIVE, 4)
    assert found[stays].translation is Certainty.EXACT
    assert own.committed("dr", gone) == {(topic, 0): 6}


def test_the_remedies_lead_on(own):
    """The mirror forgets a group that was deleted; one that was lost is put where it continues."""
    topic = own.create("primary", "t", partitions=1)
    own.produce("primary", topic, texts("r", 10, [0]))
    deleted, lost = own.commit("primary", "deleted", topic, {0: 4}), own.commit("primary", "lost", topic, {0: 6})
    mirror(own)

    def hard():
        plan = make_plan(estate, PlanRequest("dr", Mode.PLANNED))
        return [each for each in plan.obstacles if each.waived_by is None]

    with own.estate() as estate:
        estate.groups("primary").delete_groups([deleted, lost])
        assert len(hard()) == 1
        own.commit("primary", "lost", topic, {0: 5})
        assert f"of {deleted}:" in hard()[0].what
        with mirroring(own):
            wait_until(lambda: not hard(), 60, "a plan without the deleted group")
