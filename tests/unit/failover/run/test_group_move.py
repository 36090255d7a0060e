"""Which failover moved a group, where the group stood, and where it continues; what says so, and what is doubtful."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from drkit.config import Config
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import PATHS, Facts, Kind, Mode, Run, StageOutcome, State
from drkit.failover.journal.journal import Journal, StageRecord
from drkit.failover.journal.run_record import begin, label_of, load_run
from drkit.failover.plan.failback_plan import failback_plan_json
from drkit.failover.plan.failover_plan import plan_json
from drkit.failover.run import group_move
from drkit.failover.run.group_move import (
    _committed_by,
    _gone_back,
    _moved_at,
    _on_source,
    _on_target,
    _partitions,
    _place,
    _record,
    find_move,
)
from drkit.failover.snapshot.past_positions import PastPosition
from drkit.model.audit.group_audit import After, SourceEvidence
from drkit.model.errors import Refused, Unreachable
from drkit.model.link_state import Direction, LinkControl, TopicState
from drkit.model.offsets import Certainty
from drkit.model.runs import RunSummary
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.store import open_store
from tests.unit.failover.plan.test_plan import a_plan
from tests.unit.failover.plan.worlds import AT, Log, position, world
from tests.unit.failover.site.test_site_failback_plan import a_link_plan

LINK = LinkId("primary", "dr")
LINKED = Link(LINK, topics=("t", "u"))
TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
(MOVED,) = a_plan().positions


@pytest.fixture
def estate():
    config = Config.model_validate(
        {
            "clusters": {name: {"bootstrap_servers": f"127.0.0.1:{9 + n}"} for n, name in enumerate(("primary", "dr"))},
            "store": {"url": "sqlite:///:memory:"},
            "links": [{"source": "primary", "target": "dr", "topics": [".*"]}],
        }
    )
    store = open_store("sqlite:///:memory:")
    with ClusterContext(config, store, patience_seconds=0.05) as context:
        yield context
    store.close()


def a_run(estate, run, *, through="close", group="billing", link=LINK, begun=AT):
    """A failover of a group, or several, that came so far; `through` None: its plan was written and no more."""
    groups = (group,) if isinstance(group, str) else group
    committed = [position(max(0, 3 - number), group=each) for number, each in enumerate(groups)]
    seen = world([Log("rrrrrr", through=4).view()], committed, link=Link(link, topics=(".*",)))
    plan = a_plan(seen)
    journal = Journal(estate.store, run)
    facts = Facts(mode=Mode.UNPLANNED, unfenced_accepted=True)
    begin(journal, plan, facts, begun, plan_json(plan), {})
    state = State.PLANNED
    for step in PATHS[Kind.FAILOVER] if through is not None else ():
        if step.stage == "translate":
            journal.positions("translate", plan.positions)
        journal.outcome(StageRecord(step.stage, StageOutcome.OK, "", 0.0), facts)
        state = step.reaches
        if step.stage == through:
            break
    estate.store.put_run(RunSummary(run, "failover", state, begun, begun, label_of(plan)))
    return run


# -- which failover --------------------------------------------------------------------------------


def test_the_newest_failover_that_moved_the_group(estate):
    a_run(estate, "A", begun=AT)
    a_run(estate, "B", begun=AT + timedelta(hours=1))
    a_run(estate, "C", begun=AT + timedelta(hours=2), group="other")
    a_run(estate, "D", begun=AT + timedelta(hours=3), through="translate")
    a_run(estate, "E", begun=AT + timedelta(hours=4), link=LinkId("west", "dr"))
    estate.store.put_run(RunSummary("F", "failover", "planned", AT + timedelta(hours=5), AT, "primary->dr unplanned"))
    estate.store.put_run(RunSummary("G", "audit", "clean", AT + timedelta(hours=6), AT, "primary->dr"))
    assert _record(estate, "billing", None, None).run == "E"
    assert _record(estate, "billing", None, " primary->dr ").run == "B"
    assert _record(estate, "other", None, None).run == "C"
    with pytest.raises(Refused, match="no failover has moved a group nobody"):
        _record(estate, "nobody", None, None)
    with pytest.raises(Refused, match="no failover has moved a group billing"):
        _record(estate, "billing", None, "east->dr")


def test_a_failover_that_is_named_must_be_one_that_moved_the_group(estate):
    a_run(estate, "A", through="commit")
    assert _record(estate, "billing", "A", "primary->dr").run == "A"
    with pytest.raises(Refused, match="failover A is of primary->dr, not of west->dr"):
        _record(estate, "billing", "A", "west->dr")
    with pytest.raises(Refused, match="failover A is not about a group nobody") as caught:
        _record(estate, "nobody", "A", None)
    assert caught.value.remedy == "Its groups are: billing"
    a_run(estate, "B", through="translate")
    with pytest.raises(Refused, match="failover B is translated: it has committed nothing yet") as caught:
        _record(estate, "billing", "B", None)
    assert "drkit resume B" in caught.value.remedy


def test_one_group_of_several_and_ten_of_many_are_named(estate):
    names = [f"g{number:02d}" for number in range(12)]
    a_run(estate, "A", group=names)
    for name in (names[0], names[-1]):
        assert _record(estate, name, "A", None).run == _record(estate, name, None, None).run == "A"
    with pytest.raises(Refused) as caught:
        _record(estate, "nobody", "A", None)
    assert caught.value.remedy == f"Its groups are: {', '.join(names[:10])}"


def test_a_run_of_another_kind_moves_no_group_to_compare(estate):
    back = a_link_plan(LINK, groups=("billing",))
    facts = Facts(mode=Mode.PLANNED)
    begin(Journal(estate.store, "BACK"), back, facts, AT, failback_plan_json(back), {})
    with pytest.raises(Refused, match="run BACK is a failback, not a failover"):
        _record(estate, "billing", "BACK", None)


def test_a_group_was_moved_once_its_positions_are_committed(estate):
    a_run(estate, "A")
    record = load_run(estate.store, "A")
    assert _committed_by(record)
    states = {state: _committed_by(replace(record, machine=replace(record.machine, state=state))) for state in State}
    assert {state for state, moved in states.items() if moved} == {
        State.COMMITTED,
        State.SWITCHED,
        State.VERIFIED,
        State.CLOSED,
    }


def test_after_the_link_was_turned_back_records_can_t_be_told_any_more(estate):
    a_run(estate, "A")
    with pytest.raises(Refused, match=r"primary->dr was turned back after A[.]"):
        find_move(estate, "billing")
    control = LinkControl(LINK, Direction.ACTIVE, 1, AT, "", "A", frozenset())
    estate.store.set_link_control(control, expected_version=None)
    with pytest.raises(Refused, match=r"primary->dr was turned back after A[.]"):
        find_move(estate, "billing", "A", "primary->dr")
    estate.store.set_link_control(replace(control, direction=Direction.SEALED, version=2), expected_version=1)
    later = RunSummary("B", "failback", "closed", AT + timedelta(hours=1), AT, "primary->dr planned to primary")
    estate.store.put_run(later)
    with pytest.raises(Refused, match="primary->dr was turned back after A by B"):
        find_move(estate, "billing")


@pytest.mark.parametrize(
    ("otherwise", "found"),
    [
        ({}, "B"),
        ({"kind": "reprotect"}, "B"),
        ({"kind": "failover"}, None),
        ({"state": "audited"}, None),
        ({"started_at": AT}, None),
        ({"detail": "west->dr planned to west"}, None),
    ],
)
def test_which_run_turned_the_link_back(estate, otherwise, found):
    record = load_run(estate.store, a_run(estate, "A"))
    later = RunSummary("B", "failback", "closed", AT + timedelta(hours=1), AT, "primary->dr planned to primary")
    estate.store.put_run(replace(later, **otherwise))
    assert _gone_back(estate, record) == found


def test_a_group_moved_when_the_old_primary_was_fenced_else_when_the_run_began(estate):
    record = load_run(estate.store, a_run(estate, "A"))
    assert _moved_at(record) == AT
    fenced = replace(record.machine.facts, fenced_at=AT + timedelta(seconds=9))
    assert _moved_at(replace(record, machine=Run(Kind.FAILOVER, State.CLOSED, fenced))) == AT + timedelta(seconds=9)


@pytest.fixture
def brought_back(estate):
    """A failover of two groups whose link is being brought back: the old primary isn't asked any more."""
    a_run(estate, "A", group=("billing", "other"))
    control = LinkControl(LINK, Direction.REVERSED, 1, AT, "", "A", frozenset())
    estate.store.set_link_control(control, expected_version=None)
    return estate


def test_a_move_has_the_positions_of_its_group_alone(brought_back, monkeypatch):
    """The target's coordinator (a cluster's alone) says that the group has read on; by no moment, so no timeline."""
    asked = []
    monkeypatch.setattr(group_move, "_on_target", lambda _, alias, group: asked.append((alias, group)) or {TP: 9})
    monkeypatch.setattr(group_move, "_past", lambda *_: pytest.fail("no past position was asked for"))
    (place,) = find_move(brought_back, "billing").places
    assert asked == [("dr", "billing")]
    assert (place.source_offset, place.before, place.target_offset, place.target_now) == (
        MOVED.source_offset,
        SourceEvidence.JOURNAL,
        MOVED.target_offset,
        9,
    )
    moved = find_move(brought_back, "other")
    assert (moved.group, moved.run, moved.moved_at, moved.link) == ("other", "A", AT, LINK)
    assert [place.source_offset for place in moved.places] == [2]
    assert moved.unreadable == "primary is being brought back: it no longer holds what it held at the failover"


def test_a_source_that_is_gone_is_said_and_a_target_must_answer(estate):
    sealed = LinkControl(LINK, Direction.SEALED, 1, AT, "", "A", frozenset())
    offsets, why = _on_source(estate, estate.link(LINK), "billing", sealed)
    assert offsets is None
    assert why.startswith("primary did not answer: ")
    with pytest.raises(Unreachable):
        _on_target(estate, "dr", "billing")


# -- where it was and where it continues ---------------------------------------------------------


def placed(planned=MOVED, *, on_source=None, on_target=None, past=None, tp=TP):
    return _place(tp, LINKED, "billing", planned, on_source, on_target or {}, past)


def test_what_the_source_says_now_stands_before_what_was_journaled():
    found = placed(on_source={TP: 5}, on_target={TP: 4})
    assert (found.source_offset, found.before, found.target_offset, found.after) == (
        5,
        SourceEvidence.SOURCE,
        3,
        After.FAILOVER,
    )
    assert found.source_seen_at is not None
    assert (found.target_now, found.why) == (4, ())
    assert (found.topic, found.target_topic, found.partition) == ("t", "t", 0)


@pytest.mark.parametrize("on_source", [None, {OTHER: 7}])
def test_else_the_journal_s_position_with_its_age(on_source):
    found = placed(on_source=on_source)
    assert (found.source_offset, found.before, found.source_seen_at) == (3, SourceEvidence.JOURNAL, AT)
    assert found.why == (
        "its source position is the one seen at 2026-11-20T04:03:00.000Z: what it committed after that is not known",
    )


@pytest.mark.parametrize("planned", [None, replace(MOVED, source_offset=None)])
def test_a_group_that_had_committed_nothing_there(planned):
    found = placed(planned)
    assert (found.source_offset, found.before, found.source_seen_at) == (None, None, None)
    assert found.why[0] == "it had committed nothing here on the source"


def test_by_the_timeline_it_stood_where_it_had_committed_then():
    then = PastPosition(2, "", Certainty.EXACT, None, AT - timedelta(minutes=1))
    found = placed(past={TP: {"billing": then}})
    assert (found.source_offset, found.before, found.source_seen_at, found.why) == (
        2,
        SourceEvidence.TIMELINE,
        then.seen_at,
        (),
    )
    doubtful = placed(past={TP: {"billing": replace(then, reason="it may have been further")}})
    assert (doubtful.source_offset, doubtful.why) == (2, ("it may have been further",))


@pytest.mark.parametrize(
    ("past", "why"),
    [
        ({}, "the timeline has no position of it here"),
        ({TP: {"other": PastPosition(2, "", Certainty.EXACT, None, AT)}}, "the timeline has no position of it here"),
        ({TP: {"billing": PastPosition(None, "", Certainty.UNAVAILABLE, "it began later", None)}}, "it began later"),
        (
            {TP: {"billing": PastPosition(None, "", Certainty.UNAVAILABLE, None, None)}},
            "the timeline has no position of it here",
        ),
    ],
)
def test_what_the_timeline_does_not_know_is_not_known(past, why):
    found = placed(past=past)
    assert (found.source_offset, found.before, found.why) == (None, None, (why,))


@pytest.mark.parametrize(("now", "moved_back"), [(2, True), (3, False), (9, False), (None, False)])
def test_a_group_that_was_moved_back_on_the_target_since_is_told(now, moved_back):
    found = placed(on_source={TP: 3}, on_target={} if now is None else {TP: now})
    assert (found.target_offset, found.target_now) == (3, now)
    assert [f"it is at {now} on dr now: it was moved back" in why for why in found.why] == [True] * moved_back


def test_what_the_failover_did_not_move_continues_where_the_target_has_it():
    left = replace(MOVED, target_offset=None, reason="no mapping")
    found = placed(left, on_source={TP: 3}, on_target={TP: 8})
    assert (found.target_offset, found.after, found.target_now) == (8, After.TARGET, 8)
    assert found.why == ("the failover did not move it here: no mapping",)
    never = placed(None, on_source={TP: 3}, on_target={TP: 8})
    assert never.why == ("the failover did not move it here: it had no position to move",)
    for silent in (replace(left, reason=None), replace(left, reason="")):
        assert placed(silent, on_source={TP: 3}, on_target={TP: 8}).why == never.why


def test_where_neither_has_a_position_the_consumer_decides():
    found = placed(None, on_source={TP: 3})
    assert (found.target_offset, found.after, found.target_now) == (None, None, None)
    assert "its auto.offset.reset decides where it reads" in found.why[-1]


def test_partitions_are_those_of_every_topic_that_it_has_a_position_on(estate):
    state = TopicState("t", "t", "s-id", "t-id", 1, 3, True)
    estate.store.put_topic_states(LINK, [state])
    on_source = {TopicPartition("u", 4): 1, TopicPartition("elsewhere", 0): 1}
    found = _partitions(estate, LINKED, {TopicPartition("t", 2): MOVED}, on_source)
    assert found == [*(TopicPartition("t", n) for n in range(3)), TopicPartition("u", 4)]
