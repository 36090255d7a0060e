"""What a mirror sees of partitions that wait for an operator: their logs as before, and none of it as mirrored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.mirror.engine.interface import PartitionProgress
from drkit.mirror.progress import MirrorProgress
from drkit.model.link_state import TopicState
from drkit.model.offsets import SourceBatch, Watermark
from drkit.model.topology import LinkId, TopicPartition

TP = TopicPartition("t", 0)
STATE = TopicState("t", "t", "here", "there", 1, 1, created_by_drkit=True)
THEN = datetime(2026, 11, 20, tzinfo=UTC)
MARK = Watermark(*TP, 1, 100, 100, 0, 110, 0, THEN, behind_since=THEN, leader_epoch=3, source_batch=SourceBatch(99, 7))


class Cluster:
    """One whose logs all end at `end`."""

    def __init__(self, end: int) -> None:
        self.start, self.end = 0, end

    def start_offsets(self, tps: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self.start)

    def end_offsets(self, tps: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self.end)


class World:
    """The progress of a mirror, whose engine runs what has a place in `positions`."""

    def __init__(self, *, runs: bool) -> None:
        self.positions = {TP: PartitionProgress(100, 100)} if runs else {}
        self.source, self.target = Cluster(110), Cluster(100)
        self.marks = {TP: MARK}
        engine: Any = SimpleNamespace(positions=lambda: dict(self.positions), batches_below=lambda _: {})
        store: Any = SimpleNamespace(put_watermarks=self.put, watermarks=lambda _: self.marks)
        clusters: Any = (self.source, self.target)
        self.progress = MirrorProgress(LinkId("a", "b"), *clusters, store, engine, committed=True)
        if runs:
            self.progress.track([(MARK, "t")])

    def put(self, _: LinkId, marks: list[Watermark]) -> None:
        self.marks |= {mark.tp: mark for mark in marks}

    def seen(self, end: int) -> Watermark:
        """What the store has after a look at a source that ends there."""
        self.source.end = end
        self.progress.observe()
        self.progress.save()
        return self.marks[TP]


@pytest.fixture(params=[True, False], ids=["halted while it ran", "never started"])
def world(request: pytest.FixtureRequest) -> World:
    made = World(runs=request.param)
    made.progress.halt({TP: STATE})
    return made


def test_the_end_of_a_source_that_lost_its_tail_is_kept_as_it_is(world: World) -> None:
    found = world.seen(60)
    assert (found.source_end, found.source_through, found.target_end, found.behind_since) == (60, 100, 100, None)
    assert (found.leader_epoch, found.source_batch) == (3, SourceBatch(99, 7)), "by these it is found, again and again"
    assert found.observed_at > THEN
    assert world.seen(80).source_end == 80
    grown = world.seen(120)
    assert (grown.source_end, grown.source_through, grown.behind_since) == (120, 100, grown.observed_at)


def test_one_halted_for_another_reason_falls_behind_as_before(world: World) -> None:
    found = world.seen(130)
    assert (found.source_end, found.behind_since) == (130, THEN)


def test_its_log_starts_are_judged_as_before(world: World) -> None:
    world.progress.just_seen()
    world.target.start = 10
    world.seen(60)
    (found,) = world.progress.just_seen()
    assert (found.tp, found.target_start) == (TP, 10)


def test_once_it_runs_again_or_another_worker_has_it_nothing_is_left_of_that(world: World) -> None:
    world.seen(60)
    world.positions[TP] = PartitionProgress(150, 150)
    world.progress.track([(replace(MARK, source_through=150, target_end=150, source_end=150), "t")])
    assert world.seen(140).source_end == 150, "the position was read later than the end"
    world.progress.halt({TP: STATE})
    world.positions.clear()
    world.progress.forget([TP])
    before = world.marks[TP]
    assert world.seen(200) == before
    assert world.progress.current() == []


def test_one_that_is_about_to_be_resumed_is_written_no_more(world: World) -> None:
    """Its topic may have been accepted as a new one: the old watermark must not replace the new one."""
    before = world.seen(60)
    world.progress.unhalt([TP, TopicPartition("runs", 0)])
    assert world.seen(80) == before
    world.progress.halt({TP: STATE})
    assert (world.seen(80).source_end, world.marks[TP].source_through) == (80, 100), "it is halted again"


def test_where_a_resume_has_set_a_watermark_back_the_run_before_it_writes_none_over_it() -> None:
    """The engine still has the old position until the partition starts again; killed in between, the mirror went on
    there (found by reading)."""
    world = World(runs=True)
    world.seen(110)
    world.progress.leave([TP])
    repaired = world.marks[TP] = replace(MARK, source_through=70, target_end=100)
    assert world.seen(130) == repaired
    world.positions[TP] = PartitionProgress(75, 105)
    world.progress.track([(repaired, "t")])
    assert (world.seen(130).source_through, world.marks[TP].target_end) == (75, 105)


def test_the_watermark_of_an_earlier_topic_of_that_name_stays() -> None:
    world = World(runs=False)
    world.progress.halt({TP: replace(STATE, epoch=2), TopicPartition("never", 0): STATE})
    assert world.seen(60) == MARK
