"""Looks at many partitions: those that rest have their turn, those that move are seen each time."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from drkit.mirror.engine.interface import PartitionProgress
from drkit.mirror.health.truncation_watches import TargetEnds
from drkit.mirror.progress import MirrorProgress
from drkit.mirror.round_robin import MOST_LOOKS, RESTING_A_LOOK, Turns
from drkit.mirror.runtime.periodic_task import Periodic
from drkit.model.offsets import Watermark
from drkit.model.topology import Link, LinkId, TopicPartition

LINK = LinkId("a", "b")
PARTS = 4
TPS = sorted(TopicPartition(f"t-{number // 10}", number % 10) for number in range(PARTS * RESTING_A_LOOK))
THEN = datetime(2026, 11, 20, tzinfo=UTC)


def test_few_are_looked_at_each_time_and_many_in_turns() -> None:
    turns = Turns(100)
    assert turns.take(TPS[:100]) == TPS[:100]
    looks = [turns.take(TPS[:400]) for _ in range(4)]
    assert sorted(tp for look in looks for tp in look) == TPS[:400]
    assert turns.take(TPS[:400]) == looks[0]


def test_however_many_there_are_each_has_its_turn_within_ten_looks() -> None:
    turns = Turns(10)
    looks = [turns.take(TPS) for _ in range(MOST_LOOKS)]
    assert sorted(tp for look in looks for tp in look) == TPS


class Cluster:
    """Notes of which partitions it is asked. `end`: where each of its logs ends."""

    def __init__(self, end: int = 5) -> None:
        self.end = end
        self.asked: list[set[TopicPartition]] = []

    def start_offsets(self, tps: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    def end_offsets(self, tps: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        self.asked.append(set(tps))
        return dict.fromkeys(tps, self.end)

    log_ends = end_offsets


class World:
    """A mirror's progress on a link of many partitions, all of which rest except for those in `moving`."""

    def __init__(self) -> None:
        self.positions = dict.fromkeys(TPS, PartitionProgress(5, 5))
        self.source = Cluster()
        self.kept: list[list[Watermark]] = []
        engine: Any = SimpleNamespace(positions=lambda: self.positions, batches_below=lambda _: {})
        store: Any = SimpleNamespace(put_watermarks=lambda _, marks: self.kept.append(marks))
        clusters: Any = (self.source, Cluster())
        self.progress = MirrorProgress(LINK, *clusters, store, engine, committed=True)
        self.progress.track((Watermark(*tp, 1, 5, 5, 0, 5, 0, THEN), tp.topic) for tp in TPS)

    def ages(self) -> set[datetime]:
        return {mark.observed_at for mark in self.progress.current()}


def test_each_that_rests_is_seen_in_a_few_looks_and_each_that_moves_in_every_one() -> None:
    world = World()
    world.progress.observe()  # all are new
    assert world.source.asked == [set(TPS)] * 2, "high watermarks and last stable offsets"
    world.source.asked.clear()
    for look in range(PARTS):
        world.positions = world.positions | {TPS[0]: PartitionProgress(6 + look, 6 + look)}
        world.progress.observe()
    assert all(TPS[0] in asked and len(asked) < 2 * RESTING_A_LOOK for asked in world.source.asked)
    assert set.union(*world.source.asked) == set(TPS)


def test_one_that_is_behind_and_stands_still_is_seen_in_every_look_too() -> None:
    """With the idle ones it was seen so seldom that nobody could say whether it still stands."""
    world = World()
    world.progress.observe()
    world.positions = world.positions | {TPS[0]: PartitionProgress(4, 4)}
    world.progress.observe()
    world.source.asked.clear()
    for _ in range(PARTS):
        world.progress.observe()
    assert all(TPS[0] in asked and len(asked) < 2 * RESTING_A_LOOK for asked in world.source.asked)
    assert set.union(*world.source.asked) == set(TPS)


def test_where_all_are_behind_a_look_is_not_at_all_of_them() -> None:
    world = World()
    world.progress.observe()
    world.source.end = 9
    for _ in range(PARTS):
        world.progress.observe()
    world.source.asked.clear()
    world.progress.observe()
    assert all(len(asked) < 2 * RESTING_A_LOOK for asked in world.source.asked)


def test_what_was_seen_of_one_that_rests_is_dated_by_its_last_look_and_kept_only_where_it_says_more() -> None:
    world = World()
    world.progress.observe()
    (first,) = world.ages()
    world.progress.save(everything=True)
    world.kept.clear()
    world.progress.save()
    assert world.kept == []  # nothing has changed
    world.source.end = 9
    world.progress.observe()
    seen = {mark.tp: mark for mark in world.progress.current() if mark.source_end == 9}
    assert set(seen) == world.source.asked[-1]
    assert all(mark.observed_at > first and mark.behind_since == mark.observed_at for mark in seen.values())
    world.progress.save()
    assert [{mark.tp for mark in marks} for marks in world.kept] == [set(seen)]


def test_only_what_was_just_seen_is_to_be_judged_and_what_could_not_be_is_seen_again() -> None:
    world = World()
    assert {mark.tp for mark in world.progress.just_seen()} == set(TPS), "what was begun with was looked at"
    world.progress.observe()  # all are new
    world.progress.just_seen()
    assert world.progress.just_seen() == []
    world.positions = world.positions | {TPS[0]: PartitionProgress(6, 6)}
    world.progress.observe()
    marks = world.progress.just_seen()
    assert {mark.tp for mark in marks} == world.source.asked[-1]
    assert len(marks) < 2 * RESTING_A_LOOK
    assert next(mark for mark in marks if mark.tp == TPS[0]).source_through == 6
    world.progress.see_again(marks[:3])
    world.progress.forget([marks[0].tp])
    assert {mark.tp for mark in world.progress.just_seen()} == {mark.tp for mark in marks[1:3]}


def test_what_does_not_run_yet_is_judged_once_it_does() -> None:
    world = World()
    running, world.positions = world.positions, {}
    assert world.progress.just_seen() == []
    world.positions = running
    assert len(world.progress.just_seen()) == len(TPS)


def test_the_targets_ends_of_many_that_rest_are_asked_for_in_turns_and_a_loss_is_found() -> None:
    target = Cluster()
    at = dict.fromkeys(TPS, PartitionProgress(5, 5))
    ends = TargetEnds(Link(LINK, topics=("t-.*",)), target, lambda: at)  # type: ignore[arg-type]  # as it answers here
    assert ends.check(at, at) == []
    assert not any(ends.check(at, at) for _ in range(PARTS))
    assert set.union(*target.asked) == set(TPS)
    assert max(map(len, target.asked)) < 2 * RESTING_A_LOOK
    target.end = 4
    lost = [incident.tp for _ in range(PARTS) for incident in ends.check(at, at)]
    assert sorted(lost) == TPS
    target.end = 6
    assert not any(ends.check(at, at) for _ in range(PARTS))
    written = [incident.tp for _ in range(PARTS) for incident in ends.check(at, at)]
    assert sorted(written) == TPS, "above at two looks of its own turn"


def test_work_that_has_a_share_of_a_core_waits_for_as_long_as_it_needs() -> None:
    def nothing() -> None:
        """No work: only the pauses are asked about."""

    limited = Periodic("report", 1.0, nothing, threading.Event(), share=0.01)
    assert limited._pause(0.01, 0.01) == 1.0 - 0.01
    assert limited._pause(0.2, 0.1) == 0.1 / 0.01 - 0.2
    assert limited._pause(8.0, 0.01) == 24.0  # what takes long on a slow cluster pauses as ever
