"""What an abandoned failback says of committed offsets that no cluster has, and of a live cluster that was replaced."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from drkit.failover.context.state_machine import Kind, StageOutcome
from drkit.failover.journal.journal import StageRecord
from drkit.failover.journal.run_record import load_run
from drkit.failover.recovery.abandon import abandon_run
from drkit.failover.recovery.way_out import ComponentCondition
from drkit.model.clock import now
from drkit.model.link_state import Direction, LinkControl
from drkit.model.runs import RunSummary
from tests.unit.failover.run import test_left_since
from tests.unit.failover.run.test_left_since import LINK, interrupted_before
from tests.unit.failover.run.test_runner import FOUND
from tests.unit.failover.site.test_site_failback_plan import position

estate = test_left_since.estate

CARRIED = tuple(replace(position(group), target_offset=1) for group in ("a", "b", "c"))


def stopped_before(estate, stage, *, committed=None, scrubbed=True):
    """A failback that carries three groups' offsets. `committed`: its commit was begun, and noted these groups."""
    run = interrupted_before(estate, stage)
    record = load_run(estate.store, run)
    journal, facts = record.journal, record.machine.facts
    if scrubbed:
        facts = replace(facts, scrubbed={"orders": "new"})
    journal.carried("scrub", CARRIED)
    journal.established("scrub", facts)
    journal.positions("translate", CARRIED)
    if committed is not None:
        journal.intent("commit")
        journal.committed("commit", committed)
    estate.store.put_run(RunSummary(run, Kind.FAILBACK, record.machine.state, now(), now(), f"{LINK} planned"))
    return run


def said_of_offsets(estate, run):
    return [said for said in abandon_run(estate, run, lambda _: None).stands if "positions.json" in said]


def test_of_a_commit_that_was_begun_the_groups_that_it_has_not_put_anywhere_are_named(estate):
    """The old primary dies after one of three groups."""
    (said,) = said_of_offsets(estate, stopped_before(estate, "commit", committed=["b"]))
    assert "2 committed offsets of a, c went with the topics that were deleted on primary" in said
    assert "1 other is committed there anew" in said


@pytest.mark.parametrize("committed", [None, []], ids=["not begun", "begun"])
def test_before_the_first_group_is_committed_all_are_named(estate, committed):
    (said,) = said_of_offsets(estate, stopped_before(estate, "commit", committed=committed))
    assert "3 committed offsets of a, b, c went with the topics" in said


def test_a_commit_that_is_finished_leaves_nothing_to_say(estate):
    run = stopped_before(estate, "commit", committed=["a", "b", "c"])
    record = load_run(estate.store, run)
    facts = replace(record.machine.facts, **FOUND["commit"])
    record.journal.outcome(StageRecord("commit", StageOutcome.OK, "", 0.0), facts)
    assert said_of_offsets(estate, run) == []


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (None, "may have gone with topics of primary: the run was about to delete them, and primary does not answer"),
        ({}, "went with the topics that were deleted on primary"),
        ({"orders": "another"}, "went with the topics that were deleted on primary"),
        ({"orders": "T"}, None),
    ],
    ids=["silent", "gone", "another one", "there"],
)
def test_what_can_t_be_seen_is_not_said_to_have_happened(estate, monkeypatch, there, said):
    run = stopped_before(estate, "scrub", scrubbed=False)
    record = load_run(estate.store, run)
    record.journal.established("scrub", replace(record.machine.facts, deleting=True))
    if there is not None:
        topics = {name: SimpleNamespace(topic_id=topic_id) for name, topic_id in there.items()}
        asked = estate.admin
        seen = SimpleNamespace(topics=lambda _names: topics)
        monkeypatch.setattr(estate, "admin", lambda alias, **more: seen if alias == "primary" else asked(alias, **more))
        monkeypatch.setattr("drkit.failover.recovery.abandon.why_unreached", lambda *_: None)
        monkeypatch.setattr("drkit.failover.recovery.abandon.replaced_clusters", lambda *_: {})
        monkeypatch.setattr("drkit.failover.recovery.abandon.ClusterFence", _NoFence)
    told = said_of_offsets(estate, run)
    assert [said in each for each in told] == ([True] if said else [])


@pytest.mark.parametrize(
    ("dr", "way_back"),
    [
        (ComponentCondition.REPLACED, Direction.SEALED),
        (ComponentCondition.EMPTY, Direction.SEALED),
        (ComponentCondition.UP, Direction.ACTIVE),
    ],
)
def test_nothing_flows_from_a_cluster_that_was_replaced_or_emptied(estate, monkeypatch, dr, way_back):
    """The drain had sealed the way back: made active again, it would read what never served."""
    run = stopped_before(estate, "commit")
    for link, direction in ((LINK, Direction.REVERSED), (LINK.reversed(), Direction.SEALED)):
        estate.store.set_link_control(LinkControl(link, direction, 1, now(), "", run), expected_version=None)
    strangers = {} if dr is ComponentCondition.UP else {"dr": dr}
    monkeypatch.setattr("drkit.failover.recovery.abandon.why_unreached", lambda *_: None)
    monkeypatch.setattr("drkit.failover.recovery.abandon.replaced_clusters", lambda *_: strangers)
    monkeypatch.setattr("drkit.failover.recovery.abandon.ClusterFence", _NoFence)
    stands = " ".join(abandon_run(estate, run, lambda _: None).stands)
    assert estate.store.link_control(LINK.reversed()).direction is way_back
    told = "drkit fence --lift --cluster primary --yes --link 'primary->dr'" in stands
    assert told is bool(strangers)


class _NoFence:
    def __init__(self, *_):
        pass

    def open(self):
        return ""

    def closed_for_others(self):
        return {}
