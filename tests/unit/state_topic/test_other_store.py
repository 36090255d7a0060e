"""Which members of a link's group keep another store than this process."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from drkit.model.clock import now
from drkit.model.topology import Link, LinkId, worker_group
from drkit.state_topic import other_store
from drkit.state_topic.copy_topic import note_copy
from drkit.state_topic.other_store import mirrors_of_any_store, mirrors_of_other_stores, worker_client_id
from drkit.state_topic.records import state_topic
from drkit.store import open_store
from drkit.store.api import Store
from drkit.store.workers import WorkerNote, put_worker

LINK = Link(LinkId("primary", "dr"), topics=("orders",))
OTHERS = Link(LinkId("primary", "dr"), topics=("flights",))
OWNER = "host-a:4711:1700000000000:ab12"
HERE, THERE = "sqlite:////srv/drkit.db", "sqlite:////home/me/drkit.db"
NODES, ONE_NODE = "cassandra://u:p@h1,h2:9042/drkit", "cassandra://u:p@h1:9042/drkit"


class Members:
    """The coordinator's answer, without the coordinator."""

    def __init__(self, *client_ids: str) -> None:
        self._client_ids = client_ids

    def client_ids(self, group: str) -> tuple[str, ...]:
        assert group == worker_group(LINK.id)
        return self._client_ids


class Back(Members):
    """The same of the way back."""

    def client_ids(self, group: str) -> tuple[str, ...]:
        assert group == worker_group(LINK.id.reversed())
        return self._client_ids


@pytest.fixture(autouse=True)
def _nobody_leaves(monkeypatch):
    """A dead member's session isn't waited for."""
    monkeypatch.setattr(other_store, "SESSION_SECONDS", -other_store._GRACE_SECONDS)


@pytest.fixture
def store(tmp_path):
    made = open_store(f"sqlite:///{tmp_path}/drkit.db")
    yield made
    made.close()


def noted(store: Store, seconds: float) -> None:
    at = now()
    put_worker(store, LINK.id, WorkerNote(OWNER, True, True, 1, at, at + timedelta(seconds=seconds)))


def elsewhere(store: Store, mine: str, theirs: str, link: Link = LINK) -> list[str]:
    return mirrors_of_other_stores(Members(worker_client_id(state_topic(link), theirs, OWNER)), LINK, store, mine)


def test_a_worker_that_this_store_has_no_note_of_keeps_another(store):
    assert elsewhere(store, HERE, THERE) == ["process 4711 on host-a"]
    assert elsewhere(store, ONE_NODE, NODES) == ["process 4711 on host-a"]


@pytest.mark.parametrize("seconds", [10, -1])
def test_a_store_of_the_same_address_is_the_same_where_it_has_the_workers_note(store, seconds):
    noted(store, seconds)
    assert elsewhere(store, HERE, HERE) == []
    assert elsewhere(store, NODES, "cassandra://h2:9042,h1/drkit") == []


def test_another_site_may_have_a_store_of_the_same_address(store):
    """A service's name, a path on a machine or a pod with the same name: both stores' addresses are equal."""
    assert elsewhere(store, HERE, HERE) == ["process 4711 on host-a"]
    assert elsewhere(store, NODES, NODES) == ["process 4711 on host-a"]


def test_a_worker_with_a_live_note_keeps_this_store_whatever_it_calls_it(store):
    noted(store, 10)
    assert elsewhere(store, HERE, THERE) == []
    assert elsewhere(store, ONE_NODE, NODES) == []


def test_a_note_that_has_expired_is_of_a_copied_file_or_of_a_worker_that_does_not_reach_the_nodes(store):
    noted(store, -1)
    assert elsewhere(store, HERE, THERE) == ["process 4711 on host-a"]
    assert elsewhere(store, ONE_NODE, NODES) == []


def test_another_configuration_between_the_same_clusters_and_strangers_do_not_count(store):
    assert elsewhere(store, HERE, THERE, OTHERS) == []
    strangers = Members("rdkafka", "", "drkit-mirror/", "drkit-mirror/00000000/x", "other/0/1/2")
    assert mirrors_of_other_stores(strangers, LINK, store, HERE) == []
    assert mirrors_of_any_store(strangers, LINK, state_topic(LINK)) == []


def test_a_worker_with_the_patterns_of_before_is_of_the_same_link(store):
    """Both stores note the copy that the first patterns named."""
    note_copy(LINK, store, state_topic(LINK))
    edited = replace(LINK, topics=("orders", "flights"))
    members = Members(worker_client_id(state_topic(LINK), THERE, OWNER))
    assert mirrors_of_other_stores(members, edited, store, HERE) == ["process 4711 on host-a"]
    back = mirrors_of_other_stores(
        Back(worker_client_id(state_topic(LINK), THERE, OWNER)), edited.reversed(), store, HERE
    )
    assert back == ["process 4711 on host-a"]


def test_for_a_store_that_is_to_be_filled_every_worker_counts():
    copy = state_topic(LINK)
    assert mirrors_of_any_store(Members(worker_client_id(copy, HERE, OWNER)), LINK, copy) == ["process 4711 on host-a"]
