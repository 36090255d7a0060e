"""The primary doesn't answer when a failover begins, and is back before its positions are final."""

import pytest

from drkit.drill.environment.log_surgery import stopped
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.recovery.fence_command import why_unreached
from drkit.failover.run.service import run_failover
from drkit.failover.stages import failover_stages
from drkit.failover.stages.audited_loss import complete_evidence
from drkit.model.link_state import SOURCE_TRUNCATED
from tests.support.links.estates import mirror, texts
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


@pytest.fixture
def frozen(own, lab):
    """Freezes the primary, and lets it answer again."""

    def thaw():
        lab.resume("primary")
        with own.estate() as estate:
            wait_until(lambda: why_unreached(estate, "primary") is None, what="the primary")

    lab.pause("primary")
    yield thaw
    thaw()


def mirrored(own):
    topic = own.create("primary", "t", partitions=1)
    for batch in range(10):
        own.produce("primary", topic, texts(f"{batch}", 10, [0]))
    own.commit("primary", "g", topic, {0: 20})
    mirror(own)
    return topic


def away(own, before_stage):
    def watch(stage, record, _said):
        if record is None:
            before_stage(stage)

    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        assert not plan.source.reachable
        result = run_failover(estate, plan, accept_unfenced=True, watch=watch)
    assert result.error is None
    return result.evidence


def test_what_it_has_lost_is_recorded(own, lab, request):
    """The drain has seen nothing of it."""
    topic = mirrored(own)
    with stopped(lab, "primary-1") as disk:
        assert disk.cut(topic, 0, 60) == 60
    own.produce("primary", topic, texts("other", 10, [0]))
    thaw = request.getfixturevalue("frozen")
    evidence = away(own, lambda stage: thaw() if stage == "translate" else None)
    assert (evidence.rpo_records, evidence.rpo_lower_bound) == (10, False)
    (problem,) = own.store.problems(own.link.id)
    assert (problem.kind, problem.unsure_from) == (SOURCE_TRUNCATED, 60)


def test_what_is_written_after_the_loss_was_counted_is_not_claimed_to_be_nothing(own, request, monkeypatch):
    """It comes back between two of that stage's looks: there is nothing by which a last look could tell."""
    topic = mirrored(own)
    thaw = request.getfixturevalue("frozen")

    def strikes(stage):
        if stage == "translate":
            monkeypatch.setattr(failover_stages, "observe", returning)
        if stage == "commit":
            own.produce("primary", topic, {0: ["x", "y", "z"]})

    observe = failover_stages.observe

    def returning(*words, **named):
        thaw()
        return observe(*words, **named)

    evidence = away(own, strikes)
    assert (evidence.rpo_records, evidence.rpo_lower_bound) == (0, True)
    assert "answered only while the loss was counted" in evidence.rpo_reason
    with own.estate() as estate:
        loss = complete_evidence(estate, own.link)
    assert (loss.records, loss.lower_bound) == (3, False)
