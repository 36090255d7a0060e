"""What is removed from a target: told where retention doesn't explain it, once, until it is over or accepted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.kafka.client.purged_records import CLOCKS_MS, retention_of
from drkit.mirror.control import acknowledge
from drkit.mirror.health import purge_watch as module
from drkit.mirror.health.problems import Problems
from drkit.mirror.health.purge_watch import PurgeWatch
from drkit.model.clock import now
from drkit.model.errors import Unreachable
from drkit.model.link_state import TARGET_PURGED, Problem, TopicState
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topic_policy import TopicSettings
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.store.api import Store
from tests.support.links.retaining_cluster import RetainingCluster

AT = datetime(2026, 11, 20, 4, 0, tzinfo=UTC)
LINK = Link(LinkId("primary", "dr"), topics=("t",))
TP = TopicPartition("t", 0)
DAY_MS = 86_400_000
MARK = Watermark(
    "t", 0, 1, source_through=100, target_end=100, source_start=0, source_end=100, target_start=0, observed_at=AT
)


class World:
    def __init__(self, store: Store, link: Link = LINK) -> None:
        self.store = store
        self.source, self.target = RetainingCluster(), RetainingCluster()
        self.source.stamps = {offset: int(now().timestamp() * 1000) for offset in range(100)}
        self.problems = Problems(store, link.id, lambda _: None)
        self.link = link
        self.watch = self.anew()
        store.append_mappings(link.id, [OffsetMapping("t", 0, 1, 0, 0)])
        store.put_topic_states(link.id, [TopicState("t", "t", "s", "t", 1, 1, created_by_drkit=True)])

    def anew(self) -> PurgeWatch:
        """As after a restart of the mirror."""
        return PurgeWatch(self.link, self.source, self.target, self.store, self.problems)  # type: ignore[arg-type]  # as they answer here

    def check(self, target_start: int, *, source_start: int = 0) -> Problem | None:
        self.source.start = source_start
        self.watch.check([replace(MARK, target_start=target_start, source_start=source_start)])
        return next(iter(self.store.problems(LINK.id)), None)

    def take_over(self, target_start: int, *, source_start: int = 0) -> None:
        """As a partition is begun that another worker had."""
        self.problems.take_over([TP])
        self.watch.begin([replace(MARK, target_start=target_start, source_start=source_start)])

    def clear(self) -> None:
        """As `drkit link acknowledge` does, and as the mirror notices."""
        acknowledge(self.store, self.link, TARGET_PURGED, "t")
        self.problems.follow()


@pytest.fixture
def world(store: Store, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.0)
    return World(store)


def test_a_purge_is_told_with_its_offsets_and_the_way_on(world):
    assert world.check(0) is None
    problem = world.check(30)
    assert (problem.kind, problem.partition, problem.halted) == ("target_purged", 0, False)
    assert (problem.unsure_from, problem.unsure_until) == (0, 30)
    assert "source offsets 0 to 29" in problem.reason
    assert "--accept-recreated" in problem.remedy


def test_what_the_source_has_removed_too_is_over(world):
    world.check(30)
    assert world.check(30, source_start=12).unsure_from == 12
    assert world.check(30, source_start=30) is None


def test_nothing_is_asked_while_nothing_is_missing(world):
    for start in (0, 10, 20):
        world.check(start, source_start=start)
    assert world.source.asked == 0


def test_it_is_asked_again_only_now_and_then(store):
    world = World(store)
    for _ in range(5):
        world.check(30)
    assert world.source.asked == 1


def test_what_an_operator_has_accepted_is_not_told_again_but_what_goes_beyond_is(world):
    world.check(30)
    world.clear()
    assert world.check(30) is None
    problem = world.check(50)
    assert (problem.unsure_from, problem.unsure_until) == (30, 50)
    assert world.check(50).unsure_from == 30, "it stays what it is"
    world.clear()
    assert world.check(50) is None


def test_what_the_target_has_again_is_accepted_no_longer(world):
    """A broker that is killed may undo a purge; the next one is another loss."""
    world.check(30)
    world.clear()
    assert world.check(30) is None
    assert world.check(10) is None, "20 of 30 are back"
    assert world.check(30).unsure_from == 10
    world.clear()
    assert world.check(0) is None
    world.watch = world.anew()
    assert (world.check(30).unsure_from, world.check(30).unsure_until) == (0, 30)


def test_earlier_records_that_a_source_has_again_were_not_accepted(world):
    """Its broker crashed within a minute of a purge: what was named begins above them."""
    assert world.check(30, source_start=12).unsure_from == 12
    world.clear()
    assert world.check(30, source_start=12) is None
    problem = world.check(30)
    assert (problem.unsure_from, problem.unsure_until) == (0, 12)
    world.clear()
    assert world.check(30) is None
    assert world.check(30, source_start=12) is None


def test_what_lies_between_two_accepted_purges_was_not_accepted(world):
    """The source had removed it, too, and has it again (a stranger's finding)."""
    world.check(20)
    world.clear()
    assert world.check(20) is None
    assert world.check(80, source_start=60).unsure_from == 60
    world.clear()
    assert world.check(80, source_start=60) is None
    problem = world.check(80)
    assert (problem.unsure_from, problem.unsure_until) == (20, 60)
    world.clear()
    assert world.check(80) is None


def test_what_the_target_has_again_before_a_mirror_runs_is_accepted_no_longer(world):
    world.check(30)
    world.clear()
    world.watch = world.anew()
    world.watch.begin([MARK])
    assert world.check(30).unsure_from == 0


def test_what_was_over_only_for_a_moment_is_told_again(world):
    """A source that comes back from a copy of its disks shows nothing of its log at first: nobody accepted that."""
    world.check(30)
    shown, world.source.stamps = world.source.stamps, {}
    assert world.check(30) is None
    world.source.stamps = shown
    assert world.check(30).unsure_until == 30
    world.clear()
    assert world.check(30) is None, "now somebody did"
    assert world.check(30, source_start=40) is None
    assert world.check(50).unsure_from == 30, "and it stays accepted"
    world.check(50, source_start=60)
    assert world.check(50).unsure_from == 30, "a log that begins where it began before"


@pytest.mark.parametrize("knows_of_it", [True, False], ids=["it looked since", "at once"])
def test_what_another_worker_told_is_not_accepted_by_whoever_takes_the_partition_over(world, store, *, knows_of_it):
    other = World(store)
    other.problems.follow()
    world.check(30)
    if knows_of_it:
        other.problems.follow()
    other.take_over(30)
    assert [each.unsure_until for each in other.problems.missing()] == [30], "its own run says so"
    problem = other.check(50)
    assert (problem.unsure_from, problem.unsure_until) == (0, 50)
    other.clear()
    assert other.check(50) is None, "who has read it says so"
    world.take_over(50)
    assert world.check(60).unsure_from == 50
    assert world.check(60, source_start=60) is None


def test_what_is_over_is_settled_by_whoever_took_the_partition_over(world, store):
    other = World(store)
    world.check(30)
    other.take_over(30, source_start=30)
    assert store.problems(LINK.id) == []


def test_a_problem_that_somebody_cleared_otherwise_was_accepted_by_nobody(world, store):
    """A mirror that another one took for dead may still clear it."""
    world.check(30)
    store.clear_problems(LINK.id)
    world.problems.follow()
    assert world.check(30) is not None


def test_what_comes_back_on_the_source_below_the_first_mirrored_record_is_told(store):
    """DeleteRecords on the source, then a leader that never heard of it."""
    link = replace(LINK, topics=("t",))
    world = World(store, link)
    store.supersede_mappings(LINK.id, TP, 1, -1)
    store.append_mappings(LINK.id, [OffsetMapping("t", 0, 1, 40, 40)])
    assert world.check(40, source_start=40) is None
    problem = world.check(40, source_start=10)
    assert (problem.unsure_from, problem.unsure_until) == (10, 40)


def test_retention_by_age_explains_what_is_older(world):
    world.source.settings["retention.ms"] = str(DAY_MS)
    young = int(now().timestamp() * 1000)
    world.source.stamps = {offset: young - (2 * DAY_MS if offset < 20 else 0) for offset in range(100)}
    assert world.check(20) is None
    assert world.check(30).unsure_from == 20, "what is younger is missing"


def test_clocks_that_differ_a_little_are_no_purge(world):
    world.source.settings["retention.ms"] = str(DAY_MS)
    stamp = int(now().timestamp() * 1000) - DAY_MS + CLOCKS_MS // 2
    world.source.stamps = dict.fromkeys(range(100), stamp)
    assert world.check(30) is None


def test_retention_by_size_explains_what_leaves_the_log_as_large_as_it_says(world):
    world.source.settings["retention.bytes"] = "1000"
    world.target.size = 1_000
    assert world.check(30) is None
    assert world.check(100) is not None, "all of it is gone: no retention by size does that"


@pytest.mark.parametrize("size", [999, None])
def test_a_log_smaller_than_that_or_of_a_size_that_is_not_known_is_not_explained(world, size):
    world.source.settings["retention.bytes"] = "1000"
    world.target.size = size
    assert world.check(30) is not None


def test_a_compacted_topic_has_no_retention_and_what_compaction_took_is_not_missing(world):
    world.source.settings |= {"cleanup.policy": "compact", "retention.ms": "1"}
    world.source.stamps = dict.fromkeys(range(30, 100), 0)
    assert world.check(30) is None
    assert world.check(40).unsure_from == 30


def test_holes_at_the_end_of_what_is_missing_are_no_records(world):
    world.source.stamps = {}
    assert world.check(100) is None


def test_what_the_link_means_its_target_to_have_counts():
    source = {"cleanup.policy": "delete", "retention.ms": "1000", "retention.bytes": "-1"}
    target = {"cleanup.policy": "delete", "retention.ms": "10", "retention.bytes": "50"}
    follows = TopicSettings()
    assert retention_of(source, target, follows, "t").ms == 1_000, "what somebody set there doesn't"
    assert retention_of(source, target, follows, "t").size is None
    overridden = TopicSettings(overrides=(("retention.ms", "100"),))
    assert retention_of(source, target, overridden, "t").ms == 100
    excluded = TopicSettings(exclude=("retention.*",))
    assert retention_of(source, target, excluded, "t").ms == 10
    assert retention_of(source, target, excluded, "t").size == 50
    longer = TopicSettings(overrides=(("retention.ms", "5000"),))
    assert retention_of(source, target, longer, "t").ms == 1_000


def test_of_very_many_partitions_none_is_left_out(world, store, monkeypatch):
    """Where they begin all are judged; later as many at a time, and the others at the next looks."""
    monkeypatch.setattr(module, "_READ_AT_ONCE", 3)
    store.append_mappings(LINK.id, [OffsetMapping("t", number, 1, 0, 0) for number in range(1, 8)])
    marks = [replace(MARK, partition=number) for number in range(8)]

    def told() -> dict[int | None, int | None]:
        return {each.partition: each.unsure_until for each in store.problems(LINK.id)}

    world.watch.begin([*marks[:7], replace(marks[7], target_start=30)])
    assert told() == {7: 30}
    moved = [replace(mark, target_start=40) for mark in marks]
    left = world.watch.check(moved)
    assert [len(left), len(told())] == [5, 4]
    left = world.watch.check(left)
    assert [len(left), len(told())] == [2, 7]
    assert world.watch.check(left) == []
    assert told() == dict.fromkeys(range(8), 40)
    world.watch.judge([replace(mark, target_start=50) for mark in marks])
    assert told() == dict.fromkeys(range(8), 50)


def test_a_store_that_does_not_answer_ends_no_acceptance_and_forgets_none(world, store, monkeypatch):
    """What the target had again is looked at once more: it isn't accepted any longer."""
    world.check(30)
    world.clear()
    assert world.check(30) is None

    def silent(*_: Any) -> None:
        raise Unreachable("no store")

    with monkeypatch.context() as broken:
        broken.setattr(store, "put_notes", silent)
        with pytest.raises(Unreachable):
            world.check(10)
    assert world.check(10) is None
    assert world.check(30).unsure_from == 10


def test_a_partition_without_rows_is_not_judged():
    """Active-active under one name: its target has other writers, and no mapping."""
    watch = SimpleNamespace(next_mapping=lambda *_: None, last_valid_mapping=lambda *_: None, notes=lambda *_: {})
    none: Any = SimpleNamespace(settle=lambda *_, **__: None)
    PurgeWatch(LINK, none, none, watch, none).check([replace(MARK, target_start=50)])  # type: ignore[arg-type]  # nothing else is asked
