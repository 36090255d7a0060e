"""Which tombstones count as a group's deletion, by their places in the coordinators' log, and which log shows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Self

import pytest

from drkit.kafka.admin.logs.leader_epochs import LogBatch
from drkit.kafka.groups.offsets_topic import OffsetsTopicEnds
from drkit.mirror.groups import deleted_groups
from drkit.mirror.groups.deleted_groups import DeletedGroups
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store
from drkit.store.api import Store

AT = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """A log of one partition, of batches of one record; `tombstones`: the offsets of those of the group g. What of it
    was written after the copy that it was set back to is another one's (`copy`)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
        self.end, self.at, self.copies = 10, 0.0, 0
        self.copied = 0
        self.answers = True
        self.parted: list[TopicPartition] = []
        self.tombstones: set[int] = set()
        monkeypatch.setattr(deleted_groups, "LogReader", Reader)
        monkeypatch.setattr(DeletedGroups, "_removed", self.removed)
        self._store = store
        self.start_mirror()

    def start_mirror(self) -> None:
        topics: Any = SimpleNamespace(
            topics=lambda names: dict.fromkeys(names, SimpleNamespace(partitions=1)),
            end_offsets=lambda tps, **_: dict.fromkeys(tps, self.end),
            batches_at=lambda offsets: {tp: self.batch(at) for tp, at in offsets.items() if self.answers},
        )
        cluster: Any = SimpleNamespace()
        link = LinkId("primary", "dr")
        self.deleted = DeletedGroups(link, cluster, topics, self._store, lambda: self.parted, lambda: self.at)

    def batch(self, offset: int) -> LogBatch | None:
        crc = self.copies if offset >= self.copied else 0
        return LogBatch(offset, offset, 0, crc) if offset < self.end else None

    def set_back(self, end: int) -> None:
        self.copies, self.copied, self.end = self.copies + 1, end, end

    def removed(self, _reader: object, _part: int, begin: int, end: int) -> Iterator[tuple[set[str], int]]:
        for offset in range(begin, end):
            yield ({"g"} if offset in self.tombstones else set()), offset + 1

    def listed(self, *groups: str, complete: bool = True) -> None:
        self.deleted.back(groups, {0: self.end}, complete=complete)

    def captured(self, *groups: str, at: datetime = AT, missing: tuple[str, ...] = ()) -> None:
        ends = OffsetsTopicEnds(1, {0: self.end})
        self.deleted.note_log(dict.fromkeys(groups, at), ends, missing)


class Reader:
    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with closing(open_store("sqlite:///:memory:")) as store:
        yield World(monkeypatch, store)


def test_a_tombstone_of_before_a_listing_that_had_the_group_is_not_its_end(world: World) -> None:
    """One of its offsets expired; then the log was cut, with all that the group had committed since."""
    world.tombstones = {8}
    world.listed("g")
    world.listed("g")
    world.captured("g")
    world.listed()
    assert world.deleted.among({"g": AT}) == set()
    world.end = 12
    world.tombstones = {11}
    assert world.deleted.among({"g": AT}) == {"g"}


def test_also_where_a_listing_lacked_it_because_a_coordinator_was_down(world: World) -> None:
    world.tombstones = {8}
    world.listed("g")
    world.listed("g")
    world.captured("g")
    world.listed(complete=False)
    world.listed(complete=False)
    world.listed()
    assert world.deleted.among({"g": AT}) == set()


def test_one_since_the_look_before_the_last_listing_is(world: World) -> None:
    world.listed("g")
    world.tombstones, world.end = {10}, 11
    world.listed("g")
    world.captured("g")
    world.listed()
    assert world.deleted.among({"g": AT}) == {"g"}


def test_a_mirror_that_starts_reads_from_where_the_log_ended_before_an_earlier_one_captured_the_group(
    world: World,
) -> None:
    world.listed("g")
    world.captured("g")
    world.tombstones, world.end = {8, 11}, 12
    world.start_mirror()
    world.listed()
    assert world.deleted.among({"g": AT}) == {"g"}
    world.tombstones = {8}
    world.start_mirror()
    world.listed()
    assert world.deleted.among({"g": AT}) == set()


@pytest.mark.parametrize("starts", [True, False])
@pytest.mark.parametrize("end", [3, 9])
def test_none_counts_in_a_log_that_was_set_back_below_what_was_captured(world: World, starts: bool, end: int) -> None:
    """There the group expires by a commit as old as the disks; whether the log has grown again or not."""
    world.listed("g")
    world.listed("g")
    world.captured("g")
    world.set_back(end)
    world.tombstones, world.end = {end}, end + 1
    if starts:
        world.start_mirror()
    world.listed()
    assert world.deleted.among({"g": AT}) == set()
    world.tombstones, world.end = {11}, 12
    assert world.deleted.among({"g": AT}) == set()
    world.at += deleted_groups._LOOK_FOR_SECONDS
    assert world.deleted.among({"g": AT}) == set()
    assert world.deleted.lost() == {"g"}


def test_none_counts_where_the_log_may_have_been_set_back_behind_what_was_noted(world: World) -> None:
    """The mirror was killed after it had stored a position, and before it could note what the log holds."""
    world.listed("g")
    world.captured("g")
    world.tombstones, world.end = {11}, 12
    world.start_mirror()
    world.listed()
    assert world.deleted.among({"g": AT + timedelta(seconds=1)}) == set()


def test_a_leader_that_does_not_answer_at_first_is_asked_again(world: World) -> None:
    world.listed("g")
    world.captured("g")
    world.tombstones, world.end = {11}, 12
    world.start_mirror()
    world.listed()
    world.answers = False
    assert world.deleted.among({"g": AT}) == set()
    world.answers = True
    assert world.deleted.among({"g": AT}) == {"g"}


def test_what_others_commit_hides_no_deletion_that_is_not_decided_yet(world: World) -> None:
    """A look missed the group, and other groups of its partition were captured; then the mirror starts anew."""
    world.listed("g", "h")
    world.captured("g", "h")
    world.tombstones, world.end = {11}, 12
    world.listed("h")
    world.captured("h", missing=("g",))
    world.start_mirror()
    world.listed("h")
    assert world.deleted.among({"g": AT}) == {"g"}


def test_none_counts_while_a_partition_has_parted_from_its_source(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A source that was set back lets groups expire by the age of its disks."""
    world.listed("g")
    world.listed("g")
    world.captured("g")
    world.parted, world.tombstones, world.end = [TopicPartition("t", 3)], {11}, 12
    world.listed()
    for _ in range(3):
        world.at += deleted_groups._LOOK_FOR_SECONDS
        assert world.deleted.among({"g": AT}) == set()
    assert world.deleted.lost() == set()
    assert caplog.text.count("primary no longer has g, but t:3 may hold other records there") == 1
    world.parted = []
    assert world.deleted.among({"g": AT}) == {"g"}
