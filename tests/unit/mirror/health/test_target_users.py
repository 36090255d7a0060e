"""Who else uses the target, by the ends of logs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from drkit.kafka.admin.cluster_admin import ClusterAdmin, TopicInfo
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC, partition_of
from drkit.mirror.health.target_users import TargetUsers
from drkit.model.topology import Link, LinkId, TopicPartition, worker_group

LINK = Link(LinkId("primary", "dr"), (".*",))
OWN = partition_of(worker_group(LINK.id), 50)


class Target:
    """As much of a `ClusterAdmin` as is asked."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, int] = {}
        self.asked: list[int] = []

    def topics(self) -> dict[str, TopicInfo]:
        counts: dict[str, int] = {}
        for tp in self.ends:
            counts[tp.topic] = max(counts.get(tp.topic, 0), tp.partition + 1)
        return {name: TopicInfo(name, "", count, 1, internal=False) for name, count in counts.items()}

    def end_offsets(self, tps: Iterable[TopicPartition], **_: object) -> dict[TopicPartition, int]:
        chosen = list(tps)
        self.asked.append(len(chosen))
        return {tp: self.ends[tp] for tp in chosen if tp in self.ends}


class Scene:
    """A target and who watches it."""

    def __init__(self, link: Link = LINK) -> None:
        self.at = 0.0
        self.target = Target()
        self.users = TargetUsers(link, cast("ClusterAdmin", self.target), lambda: {"flights"}, lambda: self.at)

    def moves(self, topic: str, partition: int = 0) -> bool:
        """Whether others are seen once the end of this partition moves."""
        tp = TopicPartition(topic, partition)
        self.target.ends.setdefault(tp, 5)
        self.users.look()
        self.target.ends[tp] += 1
        self.users.look()
        return self.users.in_use


def test_a_record_of_somebody_elses_topic_shows_a_user() -> None:
    assert Scene().moves("payments", 3)


def test_a_commit_shows_one() -> None:
    assert Scene().moves(OFFSETS_TOPIC, (OWN + 1) % 50)


def test_what_drkit_writes_itself_shows_none() -> None:
    scene = Scene()
    scene.target.ends = {TopicPartition(OFFSETS_TOPIC, number): 7 for number in range(50)}
    assert not scene.moves("flights")
    assert not scene.moves("__drkit_state.primary.dr.00000000")
    assert not scene.moves("drkit.canary.primary.dr")
    assert not scene.moves(OFFSETS_TOPIC, OWN)


def test_nothing_is_known_before_two_looks() -> None:
    scene = Scene()
    scene.target.ends[TopicPartition("payments", 0)] = 5
    scene.users.look()
    assert not scene.users.known
    assert not scene.users.in_use
    scene.users.look()
    assert scene.users.known
    assert not scene.users.in_use


def test_a_user_is_remembered_for_a_minute() -> None:
    scene = Scene()
    assert scene.moves("payments")
    scene.at += 59
    scene.users.look()
    assert scene.users.in_use
    scene.at += 2
    assert not scene.users.in_use


def test_of_very_many_partitions_some_are_looked_at_in_turns() -> None:
    scene = Scene()
    scene.target.ends = {TopicPartition("payments", number): 5 for number in range(5_000)}
    for _ in range(6):
        scene.users.look()
        for tp in scene.target.ends:
            scene.target.ends[tp] += tp.partition == 4_999
    assert max(scene.target.asked) == 2_000
    assert scene.users.in_use


def test_a_target_whose_topics_have_other_writers_is_in_use() -> None:
    scene = Scene(Link(LinkId("primary", "dr"), (".*",), shares_target=True))
    scene.users.look()
    assert scene.users.known
    assert scene.users.in_use
    assert scene.target.asked == []
