"""A link that gets a fresh record has followed no settings yet: else a later failback takes those set since for older
ones.

The store is a real one; no cluster is asked.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from drkit.failover.stages import failback_stages
from drkit.failover.stages.failback_stages import Reverse, ReverseLink
from drkit.model.clock import now
from drkit.model.link_state import FOLLOWED_SETTINGS, SETTINGS_HELD, Direction, Problem
from drkit.model.topics.removing import FollowedSettings, HeldSettings
from drkit.model.topics.standby import SOURCE_SETTINGS
from tests.unit.failover.stages import test_stood_still
from tests.unit.failover.stages.test_stood_still import BACK, LINK, TOPIC, decided

context = test_stood_still.context


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch):
    """What the stages do on the clusters, and with the records themselves."""
    fence = SimpleNamespace(open=lambda: "", admit_mirror=lambda: "")
    for name, found in {
        "check_way_back_is_free": None,
        "kept_for_unread": (),
        "restore_configs": None,
        "reverse_record": SimpleNamespace(),
        "save_reversed": None,
        "to_be_aligned": None,
        "trimmed_again": "",
        "ClusterFence": fence,
        "release": "",
        "publish": SimpleNamespace(reason=""),
    }.items():
        monkeypatch.setattr(failback_stages, name, lambda *_, found=found, **__: found)
    monkeypatch.setattr(failback_stages, "find_late_writes", lambda context, **_: (context.facts, ""))


@pytest.mark.parametrize(
    ("stage", "link", "direction"),
    [
        (Reverse(LINK, (TOPIC,), level=True), BACK, Direction.SEALED),
        (ReverseLink(LINK, "primary:9092", "primary", (TOPIC,)), LINK, Direction.REVERSED),
    ],
    ids=["the way back", "the configured link"],
)
def test_what_was_followed_and_held_before_is_forgotten(context, stage, link, direction):
    store = context.estate.store
    decided(store, LINK, direction)
    store.put_notes(link, FOLLOWED_SETTINGS, {"t": FollowedSettings("id", {"retention.ms": "7"}).note()})
    store.put_notes(link, SETTINGS_HELD, {"t": HeldSettings({"retention.ms": "5"}).note()})
    store.put_notes(link, SOURCE_SETTINGS, {"t": "{}"})
    store.put_problem(link, Problem(SETTINGS_HELD, "t", None, "shorter", "accept it", False, now()))
    stage.execute(context)
    assert (store.notes(link, FOLLOWED_SETTINGS), store.notes(link, SETTINGS_HELD)) == ({}, {})
    assert store.problems(link) == []
    assert store.notes(link, SOURCE_SETTINGS) == {"t": "{}"}
