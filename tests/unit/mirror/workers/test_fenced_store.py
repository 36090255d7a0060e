"""What a worker that was stopped within a look stores when it wakes up: nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from drkit.mirror.health.problems import Problems
from drkit.mirror.workers import worker as module
from drkit.mirror.workers.fenced_store import UNCONDITIONAL, fenced_stores
from drkit.mirror.workers.leader_lease import LeaderLease
from drkit.mirror.workers.worker import Worker
from drkit.model.clock import now
from drkit.model.errors import Unreachable
from drkit.model.link_state import RECORDS_RETURNED, Problem, TopicState
from drkit.model.offsets import GroupPosition
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import Store
from drkit.store.workers import lease_name, lose_workers

LINK = LinkId("primary", "dr")
TP = TopicPartition("flights", 0)
CONDITIONAL = {
    "next_generation": "each call another number",
    "claim": "by generation",
    "append_mappings": "by claims",
    "supersede_mappings": "by claims",
    "put_watermarks": "by claims",
    "put_range_digests": "by claims",
    "forget_range_digests": "by claims",
    "set_link_control": "compare-and-set",
    "acquire_lease": "compare-and-set",
    "release_lease": "by owner",
    "break_lease": "by owner",
    "append_entry": "compare-and-set",
    "put_run": "of runs, which have a lease of their own",
}


class Made:
    """A worker that began, and its stores."""

    def __init__(self, store: Store) -> None:
        self.lease = LeaderLease(store, LINK)
        self.worker = Worker(store, LINK, self.lease, joined=lambda: False, mirrored=lambda: 0, slept=lambda: None)
        self.worker.begin()
        self.own, self.leading = fenced_stores(store, LINK, lambda: self.worker)


@pytest.fixture
def make(store: Store) -> Iterator[Callable[[], Made]]:
    made: list[Made] = []

    def begin() -> Made:
        made.append(Made(store))
        return made[-1]

    yield begin
    for each in made:
        each.worker.end(settled=True)


def position(offset: int) -> GroupPosition:
    return GroupPosition("reads", *TP, offset, "", now())


def problem(reason: str) -> Problem:
    return Problem(RECORDS_RETURNED, *TP, reason, "", halted=False, since=now())


def state(epoch: int, topic_id: str) -> TopicState:
    return TopicState(TP.topic, TP.topic, topic_id, topic_id, epoch, 1, created_by_drkit=True)


def test_each_method_that_changes_a_store_has_a_condition_or_is_fenced():
    verbs = ("put_", "forget_", "clear_", "append_", "supersede_", "set_", "acquire_", "release_", "break_", "claim")
    changing = {name for name, _ in inspect.getmembers(Store, inspect.isfunction) if name.startswith(verbs)}
    assert changing - CONDITIONAL.keys() == UNCONDITIONAL


def test_the_leader_stores_and_another_worker_stores_what_is_its_own(store, make):
    first, second = make(), make()
    first.leading.put_group_positions(LINK, [position(5)])
    second.own.put_problem(LINK, problem("returned"))
    assert [each.offset for each in store.group_positions(LINK)] == [5]
    assert [each.reason for each in store.problems(LINK)] == ["returned"]
    with pytest.raises(Unreachable, match="doesn't lead any more"):
        second.leading.put_group_positions(LINK, [position(3)])
    assert second.leading.group_positions(LINK) == store.group_positions(LINK), "it may read"


@pytest.mark.parametrize("paused", [False, True], ids=["stopped", "in a paused machine"])
def test_a_worker_that_another_one_replaced_meanwhile_stores_nothing(store, make, monkeypatch, paused):
    """In a paused machine its own clock says that no time has passed."""
    first = make()
    first.leading.put_topic_states(LINK, [state(1, "a")])
    first.leading.put_group_positions(LINK, [position(5)])
    monkeypatch.setattr(type(store), "time", lambda _: now() + timedelta(seconds=20))
    second = make()
    assert first.worker.leads()
    second.leading.forget_topic(LINK, TP.topic)
    second.leading.put_topic_states(LINK, [state(1, "b")])
    second.leading.put_group_positions(LINK, [position(9)])
    second.own.put_problem(LINK, problem("returned"))
    if not paused:  # its clock ran on
        monkeypatch.setattr(module.time, "monotonic", lambda since=module.time.monotonic: since() + 20)
    late = [
        lambda: first.leading.put_group_positions(LINK, [position(5)]),
        lambda: first.leading.forget_group_positions(LINK, ["reads"]),
        lambda: first.leading.put_topic_states(LINK, [state(1, "a")]),
        lambda: first.leading.forget_topic(LINK, TP.topic),
        lambda: first.leading.forget_notes(LINK, "kind", ["name"]),
        lambda: first.own.clear_problem(LINK, problem("returned")),
        lambda: first.own.clear_problems(LINK, TP.topic),
    ]
    for write in late:
        with pytest.raises(Unreachable, match="drkit stores nothing about primary->dr"):
            write()
    assert [each.offset for each in store.group_positions(LINK)] == [9]
    assert store.topic_states(LINK)[TP.topic].source_topic_id == "b"
    assert [each.reason for each in store.problems(LINK)] == ["returned"]


@pytest.mark.parametrize("interruption", ["its note expired", "its note is gone", "another leads"])
def test_a_look_that_began_before_an_interruption_stores_nothing_after_it(store, make, monkeypatch, interruption):
    """A worker renews its note within a second of waking up: the note holds again, what the look has read doesn't."""
    made = make()
    made.own.put_problem(LINK, problem("returned"))

    def look() -> None:
        if interruption == "its note expired":
            monkeypatch.setattr(type(store), "time", lambda _: now() + timedelta(seconds=20))
        elif interruption == "its note is gone":
            lose_workers(store, LINK, [made.worker.owner], now())
        else:
            store.release_lease(lease_name(LINK), made.worker.owner)
            store.acquire_lease(lease_name(LINK), "elsewhere:1:1:ab:cd", 60.0, now())
        monkeypatch.setattr(module, "_RENEW_SECONDS", 0.0)
        made.worker.heartbeat()
        assert made.worker.may_write() is False
        made.own.clear_problem(LINK, problem("returned"))

    with pytest.raises(Unreachable, match="drkit stores nothing about primary->dr"):
        made.worker.one_look(look)
    assert [each.reason for each in store.problems(LINK)] == ["returned"]
    made.worker.one_look(lambda: made.own.clear_problem(LINK, problem("returned")))
    assert list(store.problems(LINK)) == []


def test_a_look_stores_as_long_as_its_note_was_renewed_in_time(store, make, monkeypatch):
    monkeypatch.setattr(module, "_RENEW_SECONDS", 0.0)
    made = make()

    def look() -> None:
        made.worker.heartbeat()
        made.own.put_problem(LINK, problem("returned"))
        made.leading.put_group_positions(LINK, [position(5)])

    made.worker.one_look(look)
    assert [each.reason for each in store.problems(LINK)] == ["returned"]


def test_a_worker_that_leads_no_more_forgets_no_problem_of_another_workers_topic(store, make):
    """Its own note holds: it continues with its share."""
    first, second = make(), make()
    problems = Problems(first.own, LINK, lambda _: None)
    problems.follow()
    second.own.put_problem(LINK, problem("returned"))
    problems.follow()
    store.release_lease(lease_name(LINK), first.worker.owner)
    second.worker.heartbeat()
    assert second.worker.leads()
    with pytest.raises(Unreachable, match="doesn't lead any more"):
        problems.through(first.leading).keep_only([])
    assert [each.reason for each in store.problems(LINK)] == ["returned"]
    assert problems.has(RECORDS_RETURNED, TP)


def test_once_its_note_holds_again_it_stores(store, make, monkeypatch):
    made = make()
    with monkeypatch.context() as later:
        later.setattr(type(store), "time", lambda _: now() + timedelta(seconds=20))
        with pytest.raises(Unreachable):
            made.own.put_problem(LINK, problem("early"))
    made.worker.heartbeat()
    made.own.put_problem(LINK, problem("then"))
    assert [each.reason for each in store.problems(LINK)] == ["then"]
