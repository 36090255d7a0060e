"""Which topic on the target is the copy of a link, by the store's note, the patterns, or what is in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drkit.kafka.admin.topic_requests import TopicInfo
from drkit.kafka.client.small_topic import SmallTopicRecord
from drkit.model.link_state import TopicState
from drkit.model.topology import Link, LinkId
from drkit.state_topic import connection
from drkit.state_topic.copy_topic import AmbiguousCopy, copy_name, copy_under_other_aliases, find_copy, note_copy
from drkit.state_topic.records import StateKind, key_bytes, state_topic, value_bytes
from drkit.store import codec

FIRST = Link(LinkId("primary", "dr"), topics=("orders",))
EDITED = replace(FIRST, topics=("orders", "flights"))
STRANGER = replace(FIRST, topics=("billing",))


class Target:
    """The topics of the target with their ids, and the topics that each copy there names."""

    def __init__(self, ids: dict[str, str], copies: dict[str, dict[str, str]], source: str | None = "east-id") -> None:
        self._source = source
        self.ids = {**ids, **dict.fromkeys(copies, "copy")}
        self.copies = copies
        self.read: list[str] = []

    def topics(self, names=None, *, denied=None):
        assert denied is None
        return {name: TopicInfo(name, self.ids[name], 1, 1, False) for name in names or self.ids if name in self.ids}

    def read_several(self, _alias, _cluster, names):
        self.read += names
        return {name: self._records(self.copies[name]) for name in names}

    def _records(self, ids):
        found = {b'["topic","cut"]': b"{", b"no key of drkit's": b"1", b'["topic","removed"]': None}
        for topic, topic_id in ids.items():
            state = TopicState(topic, topic, "s", topic_id, 1, 1, created_by_drkit=True)
            found[key_bytes((StateKind.TOPIC, topic))] = value_bytes(codec.topic_state_row(state))
        if self._source is not None:
            found[key_bytes((StateKind.NOTE, "source", "cluster_id"))] = value_bytes(self._source)
        return {key: SmallTopicRecord(key, value, 0) for key, value in found.items()}


@pytest.fixture
def found(monkeypatch):
    """What is found for a link on a target."""

    def of(link, target, store=None):
        monkeypatch.setattr(connection, "read_several", target.read_several)
        return find_copy(link, store, target, None)

    return of


def test_edited_patterns_keep_the_copy_that_the_store_notes(store, found):
    assert copy_name(EDITED, store) == state_topic(EDITED)
    assert note_copy(FIRST, store, state_topic(FIRST))
    assert not note_copy(FIRST, store, state_topic(FIRST))
    assert copy_name(EDITED, store) == copy_name(EDITED.reversed(), store) == state_topic(FIRST)
    there = Target({"orders": "o"}, {state_topic(FIRST): {}, state_topic(EDITED): {"orders": "o"}})
    assert found(EDITED, there, store) == state_topic(FIRST)
    assert found(EDITED, Target({"orders": "o"}, {state_topic(EDITED): {"orders": "o"}}), store) is None, "it is gone"
    assert there.read == []


def test_without_a_note_the_copy_of_these_patterns_comes_first(store, found):
    there = Target({"orders": "o"}, {state_topic(FIRST): {"orders": "o"}, state_topic(EDITED): {}})
    assert found(EDITED, there, store) == state_topic(EDITED)
    assert there.read == []


def test_without_one_of_these_patterns_the_copy_with_a_topic_of_the_link_is_found(store, found):
    copies = {state_topic(FIRST): {"orders": "o"}, state_topic(STRANGER): {"billing": "b"}}
    for its_store in (store, None):
        assert found(EDITED, Target({"orders": "o", "billing": "b"}, copies), its_store) == state_topic(FIRST)
    elsewhere = replace(EDITED, id=LinkId("primary", "d"))
    assert found(elsewhere, Target({"orders": "o"}, copies)) is None
    assert found(replace(EDITED, topics=("other",)), Target({"orders": "o", "other": "x"}, copies)) is None


@pytest.mark.parametrize("ids", [{}, {"orders": "another"}])
def test_a_copy_of_topics_that_are_gone_from_the_target_is_of_no_use(found, ids):
    assert found(EDITED, Target(ids, {state_topic(FIRST): {"orders": "o"}})) is None


def test_nothing_is_read_where_the_target_has_no_topic_of_the_link(found):
    there = Target({"billing": "b"}, {state_topic(STRANGER): {"billing": "b"}})
    assert found(EDITED, there) is None
    assert there.read == []


def test_of_two_that_have_topics_of_the_link_none_is_taken(found):
    flights = state_topic(replace(FIRST, topics=("flights",)))
    there = Target({"orders": "o", "flights": "f"}, {state_topic(FIRST): {"orders": "o"}, flights: {"flights": "f"}})
    with pytest.raises(AmbiguousCopy, match="each have topics") as refused:
        found(EDITED, there)
    assert all(name in refused.value.what for name in (flights, state_topic(FIRST)))


@pytest.mark.parametrize(
    ("source_id", "copied_id", "seen"),
    [("east-id", "east-id", True), (None, "east-id", True), ("other-id", "east-id", False), ("east-id", None, False)],
)
def test_a_link_of_the_same_clusters_under_other_aliases_is_told_by_its_topics(monkeypatch, source_id, copied_id, seen):
    there = Target({"orders": "o"}, {state_topic(FIRST): {"orders": "o"}}, copied_id)
    monkeypatch.setattr(connection, "read_several", there.read_several)
    renamed = replace(FIRST, id=LinkId("east", "dr"))
    found = copy_under_other_aliases(renamed, there, None, lambda: source_id)
    assert found == (state_topic(FIRST) if seen else None)
    assert find_copy(renamed, None, there, None) is None


@pytest.mark.parametrize(("ids", "link"), [({"orders": "another"}, "east"), ({"orders": "o"}, "primary"), ({}, "east")])
def test_the_source_is_asked_for_nothing_where_no_other_link_mirrors_these_topics(monkeypatch, ids, link):
    there = Target(ids, {state_topic(FIRST): {"orders": "o"}})
    monkeypatch.setattr(connection, "read_several", there.read_several)
    renamed = replace(EDITED, id=LinkId(link, "dr"))
    assert copy_under_other_aliases(renamed, there, None, lambda: pytest.fail("asked")) is None
