"""Which tombstones count as a group's deletion, by their places in the coordinators' log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Self

import pytest

from drkit.mirror.groups import deleted_groups
from drkit.mirror.groups.deleted_groups import DeletedGroups
from drkit.model.topology import TopicPartition

AT = datetime(2026, 1, 1, tzinfo=UTC)
A_MINUTE_BEFORE = 5
"""The offset from which the log is read by time."""


class World:
    """A log of one partition; `tombstones`: the offsets of those of the group g."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.end, self.at = 10, 0.0
        self.parted: list[TopicPartition] = []
        self.tombstones: set[int] = set()
        topics: Any = SimpleNamespace(
            topics=lambda names: dict.fromkeys(names, SimpleNamespace(partitions=1)),
            offsets_for_times=lambda since: dict.fromkeys(since, A_MINUTE_BEFORE),
            end_offsets=lambda tps, **_: dict.fromkeys(tps, self.end),
        )
        monkeypatch.setattr(deleted_groups, "LogReader", Reader)
        monkeypatch.setattr(DeletedGroups, "_removed", self.removed)
        cluster: Any = SimpleNamespace()
        self.deleted = DeletedGroups("primary", cluster, topics, lambda: self.parted, lambda: self.at)

    def removed(self, _reader: object, _part: int, begin: int, end: int) -> Iterator[tuple[set[str], int]]:
        for offset in range(begin, end):
            yield ({"g"} if offset in self.tombstones else set()), offset + 1

    def listed(self, *groups: str, complete: bool = True) -> None:
        self.deleted.back(groups, {0: self.end}, complete=complete)


class Reader:
    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_tombstone_of_before_a_listing_that_had_the_group_is_not_its_end(world: World) -> None:
    """One of its offsets expired; then the log was cut, with all that the group had committed since."""
    world.tombstones = {8}
    world.listed("g")
    world.listed("g")
    world.listed()
    assert world.deleted.among({"g": AT}) == set()
    world.end = 12
    world.tombstones = {11}
    assert world.deleted.among({"g": AT}) == {"g"}


def test_also_where_a_listing_lacked_it_because_a_coordinator_was_down(world: World) -> None:
    world.tombstones = {8}
    world.listed("g")
    world.listed("g")
    world.listed(complete=False)
    world.listed(complete=False)
    world.listed()
    assert world.deleted.among({"g": AT}) == set()


def test_one_since_the_look_before_the_last_listing_is(world: World) -> None:
    world.listed("g")
    world.tombstones, world.end = {10}, 11
    world.listed("g")
    world.listed()
    assert world.deleted.among({"g": AT}) == {"g"}


def test_where_no_listing_is_known_time_says_from_where_on(world: World) -> None:
    world.tombstones = {8}
    world.listed()
    assert world.deleted.among({"g": AT}) == {"g"}


def test_a_log_that_was_cut_is_read_from_its_end_as_it_is_now(world: World) -> None:
    world.listed("g")
    world.end = 2
    world.listed("g")
    world.tombstones, world.end = {3}, 4
    world.listed()
    assert world.deleted.among({"g": AT}) == {"g"}


def test_none_counts_while_a_partition_has_parted_from_its_source(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A source that was set back lets groups expire by the age of its disks."""
    world.listed("g")
    world.listed("g")
    world.parted, world.tombstones, world.end = [TopicPartition("t", 3)], {11}, 12
    world.listed()
    for _ in range(3):
        world.at += deleted_groups._LOOK_FOR_SECONDS
        assert world.deleted.among({"g": AT}) == set()
    assert world.deleted.lost() == set()
    assert caplog.text.count("primary no longer has g, but t:3 may hold other records there") == 1
    world.parted = []
    assert world.deleted.among({"g": AT}) == {"g"}
