"""Filler that was removed and is visible again: removed once more, or told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from drkit.mirror.health.problems import Problems
from drkit.mirror.resume.offset_alignment.returned_filler import ReturnedFiller
from drkit.model.errors import Refused
from drkit.model.link_state import Alignment
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store
from drkit.store.api import Store
from drkit.store.link_notes import put_alignment

LINK = LinkId("primary", "dr")
TP = TopicPartition("t", 0)
MARK = Watermark("t", 0, 1, 70, 70, 50, 70, 50, datetime(2026, 11, 20, 4, 0, tzinfo=UTC))


class World:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.refuses = False
        self.trimmed: list[tuple[TopicPartition, int, int, int]] = []
        self.problems = Problems(store, LINK, lambda _: None)
        self.start = 0
        self.filler = ReturnedFiller(LINK, self, store, self.problems, self.trim)  # type: ignore[arg-type]  # all it asks
        put_alignment(store, LINK, Alignment(TP, 1, "t", "id", 7, 0, 50))

    def start_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self.start)

    def trim(self, target: TopicPartition, producer_id: int, begin: int, below: int) -> None:
        if self.refuses:
            raise Refused("something else lies there", remedy="")
        self.trimmed.append((target, producer_id, begin, below))

    def check(self, target_start: int, **other: int) -> int:
        """How often something was removed by then."""
        self.filler.check([replace(MARK, target_start=target_start, **other)])
        return len(self.trimmed)


@pytest.fixture
def world() -> Iterator[World]:
    store = open_store("sqlite:///:memory:")
    yield World(store)
    store.close()


def test_what_comes_back_is_removed_and_each_log_start_is_judged_once(world):
    assert [world.check(start) for start in (50, 50, 0, 0, 50, 0)] == [0, 0, 1, 1, 1, 2]
    assert world.trimmed[0] == (TP, 7, 0, 50)


def test_one_that_begins_finds_it_as_well(world):
    assert world.check(0) == 1


def test_an_alignment_under_way_is_left_to_who_fills(world):
    assert [world.check(0, target_end=end) for end in (0, 20, 50)] == [0, 0, 0]
    assert world.check(50, target_end=50) == 0
    assert world.check(0, target_end=50) == 1, "it was done"


def test_a_log_start_of_before_the_alignment_ended_is_nothing(world):
    world.start = 50
    assert world.check(0) == 0
    world.start = 0
    assert [world.check(start) for start in (50, 0)] == [0, 1]


def test_of_another_incarnation_nothing_is_removed(world):
    assert world.check(0, epoch=2) == 0


def test_what_cannot_be_removed_is_told_until_it_is_gone(world):
    world.refuses = True
    world.check(0)
    (problem,) = world.store.problems(LINK)
    assert (problem.kind, problem.halted) == ("filler_visible", False)
    assert "something else lies there" in problem.reason
    world.check(50)
    assert world.store.problems(LINK) == []
