"""What the last look at the cluster that groups left finds: what it can't see, what was opened; and which topics there
a mirror can't have written to."""

from types import SimpleNamespace

import pytest

from drkit.failover.context.evidence import evidence_of
from drkit.failover.context.state_machine import Facts, Loss, Mode
from drkit.failover.fencing.cluster_fence import FenceProof, TopicsOutsideFence
from drkit.failover.stages import late_writes
from drkit.failover.stages.late_writes import _is_alien
from drkit.model.errors import PartlyDone
from drkit.model.link_state import TopicState
from drkit.model.topology import Link, LinkId


def state(target_topic_id):
    return TopicState("t", "t", "source", target_topic_id, 1, 1, created_by_drkit=True)


@pytest.mark.parametrize(
    ("known", "topic_id", "at_work", "alien"),
    [
        (state("mirrored"), "mirrored", False, False),
        (state("mirrored"), "made anew", False, True),
        (state("mirrored"), "made anew", True, True),
        (state("mirrored"), None, False, False),  # not looked at
        (state(""), "created by the mirror", False, False),
        (None, "new", False, True),
        (None, "new", True, False),  # a mirror that runs may be about to write it down
    ],
)
def test_a_topic_that_the_mirror_never_saw_is_wholly_of_others(known, topic_id, at_work, alien):
    assert _is_alien(known, topic_id, at_work) is alien


def looking(monkeypatch, *, listed, denied=(), closed=None, fenced=True):
    """What the last look finds on a cluster that lists these topics, each with 10 records as at the last look."""
    info = SimpleNamespace(partitions=1, topic_id="id")

    def topics(names=None, *, denied=None, hides=frozenset(denied)):
        if denied is not None:
            denied |= hides & set(names)
        return {name: info for name in listed if names is None or name in names}

    admin = SimpleNamespace(topics=topics, end_offsets=lambda tps, **_: dict.fromkeys(tps, 10))
    store = SimpleNamespace(topic_states=lambda _link: {"mirrored": state("t"), "seen": state("t")})
    monkeypatch.setattr(late_writes, "close_topics_outside", lambda *_: closed)
    monkeypatch.setattr(late_writes, "_recreated", lambda *_: set())
    facts = Facts(
        mode=Mode.PLANNED,
        fenced=fenced,
        fence_reason="every broker refused a writer",
        ends={"seen:0": 10, "other:0": 10},
        loss=Loss(0, 0.0, None),
    )
    context = SimpleNamespace(
        facts=facts,
        link=Link(LinkId("primary", "dr"), topics=(".*",)),
        run="RUN",
        estate=SimpleNamespace(store=store, admin=lambda _alias, **_: admin),
    )
    return late_writes.find_late_writes(context, turned=False)


def test_where_everything_is_seen_and_nothing_was_written_nothing_is_said(monkeypatch):
    facts, said = looking(monkeypatch, listed=("seen", "other"))
    assert (facts.loss.lower_bound, facts.unseen, said) == (False, (), "")
    assert evidence_of(facts, None).fenced is True


@pytest.mark.parametrize("name", ["other", "mirrored"])
def test_a_topic_that_drkit_can_t_see_makes_the_loss_a_lower_bound_and_the_fence_unproven(monkeypatch, name):
    facts, said = looking(monkeypatch, listed={"seen", "other"} - {name}, denied={name})
    assert (facts.loss.records, facts.loss.lower_bound, facts.unseen) == (0, True, (name,))
    assert f"drkit can't see {name} on primary" in facts.loss.reason
    assert facts.loss.reason in said
    assert evidence_of(facts, None).fenced is None
    assert facts.fence_reason.startswith("every broker refused a writer; ")
    assert f"can't see {name} on primary: that nobody writes there isn't shown" in facts.fence_reason


def test_of_a_cluster_that_was_left_unfenced_only_the_loss_is_unsure(monkeypatch):
    facts, _ = looking(monkeypatch, listed={"seen"}, denied={"other"}, fenced=False)
    assert facts.loss.lower_bound is True
    assert evidence_of(facts, None).fenced is False


def test_a_topic_that_was_deleted_since_the_last_look_held_what_nobody_counts(monkeypatch):
    facts, said = looking(monkeypatch, listed={"seen"})
    assert facts.loss.lower_bound is True
    assert "; other was deleted on primary since the last look" in said
    assert evidence_of(facts, None).fenced is True, "nobody writes to it"


def test_what_somebody_opened_is_closed_again_though_nobody_wrote(monkeypatch):
    proof = FenceProof(proven=True, reason="closed anew", epoch=7, ends={})
    facts, said = looking(
        monkeypatch, listed=("seen",), denied={"other"}, closed=TopicsOutsideFence((), ("other",), 0, proof)
    )
    assert facts.fence_epoch == 7
    assert facts.fence_reason.startswith("closed anew; drkit can't see other")
    assert said.endswith("; opened by somebody behind the fence, and closed again: other")


def test_what_can_t_be_closed_again_stops_the_run(monkeypatch):
    proof = FenceProof(proven=False, reason="the writer is a super user")
    with pytest.raises(PartlyDone, match="clients may write there: the writer is a super user"):
        looking(monkeypatch, listed=("seen", "other"), closed=TopicsOutsideFence(("new",), (), 3, proof))
