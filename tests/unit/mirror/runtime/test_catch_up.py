"""When a run has caught up: its own partitions by its own word, those of other workers by what is on both sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.mirror.health.problems import Problems
from drkit.mirror.runtime.catch_up import CatchUp
from drkit.mirror.topics.topic_snapshot import ReadyTopic
from drkit.model.clock import now
from drkit.model.errors import Unreachable
from drkit.model.link_state import SOURCE_TOPIC_DELETED, TopicState
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store
from tests.support.wait import wait_until

LINK = LinkId("primary", "dr")
OURS, THEIRS = TopicPartition("t", 0), TopicPartition("t", 1)
READY = ReadyTopic(TopicState("t", "t", "s", "d", 1, 2, created_by_drkit=True), 2, 1_000_000, compacted=False)


class Cluster:
    """Every log begins and ends there."""

    def __init__(self) -> None:
        self.starts = dict.fromkeys((OURS, THEIRS), 0)
        self.ends = dict.fromkeys((OURS, THEIRS), 10)

    def end_offsets(self, tps: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return {tp: self.ends[tp] for tp in tps if tp in self.ends}

    log_ends = end_offsets

    def start_offsets(self, tps: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return {tp: self.starts[tp] for tp in tps if tp in self.starts}


class World:
    """This worker has mirrored its partition; another one keeps watermarks of the other."""

    def __init__(self) -> None:
        self.store = open_store("sqlite:///:memory:")
        self.source, self.target = Cluster(), Cluster()
        self.store.put_topic_states(LINK, [READY.state])
        self.at = now()
        self.kept = {OURS: 10}
        mine: Any = SimpleNamespace(kept_through=lambda: self.kept, positions=dict, moved=lambda: 0)
        source: Any = self.source
        target: Any = self.target
        self.problems = Problems(self.store, LINK, lambda _: None)
        self.catch_up = CatchUp(LINK, self.store, source, target, mine, mine, self.problems, 60.0, committed=True)

    def keeps(self, through: int) -> None:
        self.at += timedelta(seconds=1)
        mark = Watermark("t", 1, 1, through, through, 0, 10, 0, self.at)
        self.store.put_watermarks(LINK, [mark])

    def is_done(self) -> bool:
        self.catch_up.refresh()
        return self.catch_up.done(lambda: None)

    def catches_up(self) -> None:
        self.catch_up.begin(dict.fromkeys(READY.tps(), READY))
        self.keeps(10)
        assert not self.is_done(), "kept before, perhaps by one that is dead"
        self.keeps(10)
        assert self.is_done()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    with closing(made.store):
        yield made


def test_a_source_that_does_not_know_a_partition_yet_has_not_been_asked(world: World) -> None:
    """Else a partition that was just added would be no goal."""
    del world.source.ends[THEIRS]
    with pytest.raises(Unreachable, match="where t:1 ends"):
        world.catch_up.begin(dict.fromkeys(READY.tps(), READY))
    world.source.ends[THEIRS] = 10
    world.catches_up()


def test_what_counts_by_another_workers_word_is_looked_at_once_more(world: World) -> None:
    assert world.catch_up.look_again() == ([], [])
    world.catches_up()
    world.target.starts[THEIRS] = 4
    (mark,), lost = world.catch_up.look_again()
    assert (mark.tp, mark.source_start, mark.target_start, lost) == (THEIRS, 0, 4, [])


@pytest.mark.parametrize("what", ["its end", "what was mirrored", "the log", "its source"])
def test_what_another_worker_had_reached_and_is_no_longer_there_is_named(world: World, what: str) -> None:
    world.catches_up()
    if what == "its end":
        world.target.ends[THEIRS] = 9
    elif what == "what was mirrored":
        world.keeps(6)
    elif what == "the log":
        del world.target.starts[THEIRS]
    else:
        del world.source.starts[THEIRS]
    assert world.catch_up.look_again() == ([], [THEIRS])


def test_what_was_halted_and_moved_at_the_end_has_not_reached_its_goal(world: World) -> None:
    """The last acknowledgements settle its problem, which had made it count; it is somewhere below its goal."""
    world.kept = {OURS: 6}
    world.problems.put("record_rejected", *OURS, "too large", "", halted=True)
    world.catches_up()
    assert world.catch_up.missed() == []
    world.problems.settle(OURS.topic, kinds=frozenset({"record_rejected"}), partition=OURS.partition)
    world.catch_up.look_again()
    assert world.catch_up.missed() == [OURS]


@pytest.mark.parametrize("through", [6, 10])
def test_what_a_resume_stores_at_the_end_counts(world: World, through: int) -> None:
    """The target has lost its end, or nothing: the running mirror doesn't follow the partition any more."""
    world.catches_up()
    world.kept = {}
    world.store.put_watermarks(LINK, [Watermark(*OURS, 1, through, through, 0, 10, 0, now())])
    assert world.catch_up.missed() == ([OURS] if through < 10 else [])


def test_a_topic_that_is_deleted_on_the_way_has_no_goal_any_more(world: World) -> None:
    """Its partitions leave the engine: no watermark of them comes."""
    world.catch_up.begin(dict.fromkeys(READY.tps(), READY))
    world.kept = {}
    assert not world.is_done()
    world.problems.put(SOURCE_TOPIC_DELETED, "t", None, "the topic is gone", "", halted=False)
    wait_until(world.is_done, what="the goals to be dropped")
    assert world.catch_up.void == {"t"}


def test_what_is_mirrored_of_a_topic_accepted_on_the_way_reaches_no_goal_of_the_former_one(world: World) -> None:
    world.catch_up.begin(dict.fromkeys(READY.tps(), READY))
    world.kept = {OURS: 10, THEIRS: 10}
    world.store.put_topic_states(LINK, [replace(READY.state, epoch=2)])
    assert world.is_done()
    assert world.catch_up.void == {"t"}
