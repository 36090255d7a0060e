"""The timeline of group positions, on both backends."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from drkit.model.clock import now
from drkit.model.groups import GroupCommit, GroupState
from drkit.model.link_state import TopicState
from drkit.model.topology import LinkId
from drkit.store import open_store
from drkit.store.cassandra.backend import CassandraStore
from tests.support.wait import wait_until

TODAY = now()
TOPIC = "flüge-✈-рейсы"


def state(group: str, seconds: float, *offsets: int, topic: str = TOPIC, lasts: float = 3600, **changes) -> GroupState:
    at = TODAY + timedelta(seconds=seconds)
    positions = tuple(GroupCommit(number, offset) for number, offset in enumerate(offsets))
    kept = {"before": None, "held_until": None, "expires_at": now() + timedelta(seconds=lasts), **changes}
    return GroupState(group, topic, at, positions, **kept)


def around(store, link: LinkId, seconds: float) -> dict[tuple[str, str], tuple[GroupState | None, GroupState | None]]:
    found = store.group_states_around(link, TODAY + timedelta(seconds=seconds))
    assert [(each.group, each.topic) for each in found] == sorted((each.group, each.topic) for each in found)
    return {(each.group, each.topic): (each.then, each.following) for each in found}


def test_the_states_around_a_moment(store, link):
    first, second, third = (state("g", at, at, 2**62) for at in (10, 20, 30))
    store.put_group_states(link, [second, first])
    store.put_group_states(link, [third])
    key = ("g", TOPIC)
    assert around(store, link, 9.999)[key] == (None, first)
    assert around(store, link, 10)[key] == (first, second)
    assert around(store, link, 29.999)[key] == (second, third)
    assert around(store, link, 99)[key] == (third, None)


def test_states_in_another_topic_of_that_name_arent_given(store, link):
    former, new = state("g", 10, 5, topic_id="1"), state("g", 20, 2, topic_id="3")
    only = state("h", 10, 5, topic_id="1")
    store.put_group_states(link, [former, new, only])
    mirrored = TopicState(TOPIC, TOPIC, "3", "2", 2, 6, created_by_drkit=True)
    store.put_topic_states(link, [mirrored])
    assert around(store, link, 15) == {("g", TOPIC): (None, new)}
    assert around(store, link, 25) == {("g", TOPIC): (new, None)}
    assert around(store, link, 5) == {}
    store.put_topic_states(link, [replace(mirrored, source_topic_id="1", epoch=1)])
    assert around(store, link, 15) == {("g", TOPIC): (former, None), ("h", TOPIC): (only, None)}


def test_all_of_a_state_comes_back(store, link):
    rich = GroupState(
        "gruppe-✈",
        TOPIC,
        TODAY + timedelta(seconds=40),
        (GroupCommit(0, 5, "a note, ü"), GroupCommit(7, 2**62), GroupCommit(11, 0)),
        TODAY + timedelta(seconds=1, microseconds=7),
        TODAY + timedelta(seconds=39),
        TODAY + timedelta(hours=25),
    )
    gone = GroupState("gone", "t", TODAY, (), None, None, TODAY + timedelta(hours=1))
    store.put_group_states(link, [rich, gone])
    found = around(store, link, 50)
    assert found["gruppe-✈", TOPIC] == (rich, None)
    assert found["gone", "t"] == (gone, None)


def test_groups_topics_and_links_are_apart(store, link):
    one, other, third = state("g", 1, 1), state("g", 2, 2, topic="t"), state("h", 3, 3)
    store.put_group_states(link, [one, other, third])
    store.put_group_states(link.reversed(), [state("g", 1, 9)])
    assert around(store, link, 5) == {("g", TOPIC): (one, None), ("g", "t"): (other, None), ("h", TOPIC): (third, None)}


def test_one_of_the_same_moment_is_replaced(store, link):
    store.put_group_states(link, [state("g", 1, 1)])
    again = state("g", 1, 2, lasts=7200)
    store.put_group_states(link, [again])
    store.put_group_states(link, [again])
    assert around(store, link, 5) == {("g", TOPIC): (again, None)}


def test_nothing_kept_is_nothing_found(store, link):
    store.put_group_states(link, [])
    assert around(store, link, 5) == {}
    assert store.forget_expired_states(link, now()) == 0


def test_a_state_goes_when_it_expires_and_the_others_stay(store, link):
    stays = state("g", 1, 1)
    seen: set[tuple[str, str]] = set()
    for lasts in (1.5, 6.0, 24.0):  # a busy machine may be later than the first
        store.put_group_states(link, [stays, state("g", 2, 2, lasts=lasts), state("h", 2, 2, lasts=lasts)])
        seen = set(around(store, link, 5))
        if len(seen) > 1:
            break
    assert seen == {("g", TOPIC), ("h", TOPIC)}

    def left() -> bool:
        store.forget_expired_states(link, now())
        return around(store, link, 5) == {("g", TOPIC): (stays, None)}

    wait_until(left, 60, "the expired states gone")


def test_what_has_expired_already_is_not_kept_for_ever(store, link):
    store.put_group_states(link, [state("g", 1, 1, lasts=-5)])
    store.forget_expired_states(link, now())
    assert around(store, link, 5) == {}


def test_many_states_are_forgotten_in_bites(store, link):
    if isinstance(store, CassandraStore):
        pytest.skip("there they go by themselves")
    states = [state("g", at / 10, at, lasts=-1) for at in range(12_000)]
    store.put_group_states(link, states)
    assert store.forget_expired_states(link, now()) == 12_000
    assert around(store, link, 2000) == {}


def test_forgetting_a_topic_or_a_link_forgets_its_timeline(store, link):
    other, mine = state("g", 1, 1, topic="other"), state("g", 1, 1)
    elsewhere = state("g", 1, 5)
    store.put_group_states(link, [other, mine])
    store.put_group_states(link.reversed(), [elsewhere])
    store.forget_topic(link, TOPIC)
    assert around(store, link, 5) == {("g", "other"): (other, None)}
    store.forget_link_data(link)
    assert around(store, link, 5) == {}
    assert around(store, link.reversed(), 5) == {("g", TOPIC): (elsewhere, None)}
    store.put_group_states(link, [mine])
    assert around(store, link, 5) == {("g", TOPIC): (mine, None)}


def test_another_process_sees_them(store, store_url, link):
    kept = state("g", 1, 1)
    store.put_group_states(link, [kept])
    with closing(open_store(store_url)) as other:
        assert around(other, link, 5) == {("g", TOPIC): (kept, None)}


def test_a_thousand_groups_of_fifty_partitions(store, link):
    states = [state(f"g-{number:04d}", at, *range(50)) for number in range(1000) for at in (1, 2)]
    store.put_group_states(link, states)
    found = around(store, link, 1.5)
    assert len(found) == 1000
    assert found["g-0999", TOPIC] == (states[-2], states[-1])
