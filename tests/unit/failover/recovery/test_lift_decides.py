"""`drkit fence --lift` of the cluster that clients don't use: the link is decided for it; what stays open is told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from drkit.failover.recovery import fence_command
from drkit.model.clock import now
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topology import Link, LinkId
from drkit.store import open_store

LINK = Link(LinkId("primary", "dr"), topics=("t",))
BACK = LINK.id.reversed()


class OpenFence:
    """A fence that lifts at once. `decisions`: the directions of the link and of its way back by then."""

    def __init__(self, store, decisions) -> None:
        self._store, self._decisions = store, decisions

    def __call__(self, _context, cluster):
        self._cluster = cluster
        return self

    def closed_before(self):
        return ()

    def open(self, *, thoroughly):
        assert thoroughly
        self._decisions += directions(self._store)
        return f"{self._cluster} is open"

    def denied_by_others(self, _expected):
        return (), ()

    def closed_for_others(self):
        return {}


def directions(store):
    return [None if (kept := store.link_control(each)) is None else kept.direction for each in (LINK.id, BACK)]


def lifted(store, monkeypatch, cluster, *decided):
    """What lifting says, and the directions of link and way back when the cluster is opened."""
    for link, direction in zip((LINK.id, BACK), decided, strict=False):
        store.set_link_control(LinkControl(link, direction, 1, now(), "r", "R"), expected_version=None)
    seen = []
    monkeypatch.setattr(fence_command, "ClusterFence", OpenFence(store, seen))
    monkeypatch.setattr(fence_command, "_also_let_in", lambda *_: "")
    context = SimpleNamespace(
        estate=SimpleNamespace(store=store), link=LINK, run="LIFT", say=print, lease=SimpleNamespace(check=lambda: None)
    )
    return fence_command._opened(context, cluster, next_links=()).reason, seen


@pytest.fixture
def store():
    made = open_store("sqlite:///:memory:")
    yield made
    made.close()


def test_of_a_reversed_link_the_way_back_ends_before_its_source_is_opened(store, monkeypatch):
    """Both were active: data flowed to and fro, and both clusters were open, without a word."""
    said, seen = lifted(store, monkeypatch, "primary", Direction.REVERSED, Direction.ACTIVE)
    assert seen == [Direction.ACTIVE, Direction.SEALED]
    assert "primary->dr was reversed: dr->primary is sealed now, nothing flows along it any more" in said
    assert "dr isn't closed to its clients, and what they write there now stays there: stop its clients" in said
    assert "drkit salvage --link 'primary->dr' --out DIR" in said


def test_of_a_link_that_was_failed_away_from_the_target_is_told_to_be_open_still(store, monkeypatch):
    said, seen = lifted(store, monkeypatch, "primary", Direction.SEALED)
    assert seen == [Direction.ACTIVE, None]
    assert "was reversed" not in said
    assert "dr isn't closed to its clients" in said


def test_where_the_target_is_to_serve_the_command_that_closes_the_source_is_named(store, monkeypatch):
    said, seen = lifted(store, monkeypatch, "dr", Direction.ACTIVE)
    assert seen == [Direction.SEALED, None]
    assert "primary isn't closed to its clients" in said
    assert said.endswith("drkit fence --link 'primary->dr' closes it")


@pytest.mark.parametrize(("cluster", "direction"), [("dr", Direction.REVERSED), ("primary", Direction.ACTIVE)])
def test_the_cluster_that_clients_use_anyway_is_opened_and_nothing_decided(store, monkeypatch, cluster, direction):
    said, seen = lifted(store, monkeypatch, cluster, direction, Direction.ACTIVE)
    assert seen == [direction, Direction.ACTIVE]
    assert said == f"{cluster} is open"
