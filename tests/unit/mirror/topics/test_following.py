"""What a worker that doesn't lead may mirror: as the one that leads has brought it in step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.kafka.admin.cluster_admin import TopicInfo
from drkit.mirror.health.problems import Problems
from drkit.mirror.topics import topic_sync
from drkit.mirror.topics.topic_sync import TopicSync
from drkit.model.link_state import FOLLOWED_SETTINGS, TopicState
from drkit.model.topics.removing import FollowedSettings
from drkit.model.topics.standby import ALIGNING
from drkit.model.topology import Link, LinkId
from drkit.store import open_store

LINK = Link(LinkId("primary", "dr"), topics=("t",))
STATE = TopicState("t", "t", "s", "d", 1, 1, created_by_drkit=True)
COMPACTED = {"cleanup.policy": "compact"}
LONG = {"cleanup.policy": "delete", "retention.ms": "604800000"}
SHORT = LONG | {"retention.ms": "3600000"}


class World:
    """Two clusters with one compacted topic, of which this worker is told by the store."""

    def __init__(self) -> None:
        self.store = open_store("sqlite:///:memory:")
        self.store.put_topic_states(LINK.id, [STATE])
        self.partitions = {"s": 1, "d": 1}
        self.settings = {"s": COMPACTED, "d": COMPACTED}
        self.put: list[dict[str, dict[str, str]]] = []
        self.problems = Problems(self.store, LINK.id, lambda _: None)
        source, target = self.cluster("s"), self.cluster("d")
        self.lease_epoch = 1
        self.sync = TopicSync(LINK, source, target, self.store, self.problems, lease_epoch=lambda: self.lease_epoch)

    def looks(self) -> tuple[int, bool]:
        """How many partitions may be mirrored, and whether nothing is left to bring in step."""
        self.problems.follow()
        return len(self.sync.follow()["t"].tps()), self.sync.in_step

    def cluster(self, topic_id: str) -> Any:
        def topics(*_: Any, **__: Any) -> dict[str, TopicInfo]:
            return {"t": TopicInfo("t", topic_id, self.partitions[topic_id], 1, internal=False)}

        return SimpleNamespace(
            topics=topics,
            topic_configs=lambda *_, **__: {"t": self.settings[topic_id]},
            set_many_topic_configs=lambda wanted: self.put.append(wanted) or {},
            start_offsets=lambda _: {},
            brokers=lambda: [1],
            sessions=lambda: {1: 1},
            reads_by_topic_id=True,
        )


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    with closing(made.store):
        yield made


def test_partitions_that_were_just_added_are_awaited_unless_a_problem_says_why_they_are_missing(world: World) -> None:
    """Else a run that catches up would end without them."""
    assert world.looks() == (1, True)
    world.partitions["s"] = 3
    assert world.looks() == (1, False)
    leads = Problems(world.store, LINK.id, lambda _: None)
    for number in (1, 2):
        leads.put("target_partition_missing", "t", number, "refused", "allow it", halted=True)
        assert world.looks() == (1, number == 2), "each of them"
    leads.settle("t", kinds=frozenset({"target_partition_missing"}), everywhere=True)
    world.partitions["d"] = 3
    assert world.looks() == (3, True)


def test_what_whoever_leads_notes_is_read_at_each_look(world: World) -> None:
    """Once it leads itself, it would compact a topic that is being aligned."""
    assert not world.sync.follow()["t"].alignable
    world.store.put_notes(LINK.id, ALIGNING, {"t": ""})
    assert world.sync.follow()["t"].alignable


def test_what_another_one_noted_is_read_by_one_that_leads_again_though_it_saw_nothing_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cut off from the store, or stood still, while another one led, which followed a shorter retention."""
    monkeypatch.setattr(topic_sync, "why_maybe_set_back", lambda *_: None)
    world.settings["s"] = world.settings["d"] = LONG
    world.sync.sync()
    world.store.put_notes(LINK.id, FOLLOWED_SETTINGS, {"t": FollowedSettings("s", SHORT).note()})
    world.settings["s"] = SHORT
    world.lease_epoch = 3
    world.sync.sync()
    assert world.store.problems(LINK.id) == [], "it is no change"
    assert world.put[-1]["t"]["retention.ms"] == "3600000"
