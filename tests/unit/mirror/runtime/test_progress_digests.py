"""Range digests on their way to the store: kept with watermarks, under the worker's claims, and removed in time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from drkit.mirror import progress as module
from drkit.mirror.engine.interface import BatchBelow, PartitionProgress
from drkit.mirror.progress import MirrorProgress
from drkit.mirror.workers.partition_claims import ClaimedMappings, PartitionClaims
from drkit.model.digests import RangeDigest
from drkit.model.errors import Fenced, Unreachable
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store
from drkit.store.api import Store

AT = datetime(2026, 11, 20, 4, 0, tzinfo=UTC)
LINK = LinkId("primary", "dr")
TP, OTHER = TopicPartition("flights", 0), TopicPartition("flights", 1)


def row(start: int, size: int = 10, tp: TopicPartition = TP, epoch: int = 1) -> RangeDigest:
    return RangeDigest(*tp, epoch, start, start + size, start, 1, size, 7, 8)


class Engine:
    """Gives out what a test puts there."""

    def __init__(self) -> None:
        self.ended: list[RangeDigest] = []
        self.open: list[RangeDigest] = []

    def positions(self) -> dict[TopicPartition, PartitionProgress]:
        return {TP: PartitionProgress(5, 5), OTHER: PartitionProgress(5, 5)}

    def batches_below(self, _: object) -> dict[TopicPartition, BatchBelow]:
        return {}

    def range_digests(self, *, opened: bool) -> list[RangeDigest]:
        found, self.ended = self.ended, []
        return found + (self.open if opened else [])


class World:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.holdings = PartitionClaims(LINK, store)
        self.engine = Engine()
        held = ClaimedMappings(store, self.holdings)
        self.progress = MirrorProgress(LINK, None, None, held, self.engine, committed=True, range_digests=True)  # type: ignore[arg-type]  # no clusters are asked

    def begin(self, *, epoch: int = 1, target_start: int = 0) -> None:
        self.holdings.take([(TP, epoch), (OTHER, epoch)])
        marks = [Watermark(*tp, epoch, 0, 0, 0, 0, target_start, AT) for tp in (TP, OTHER)]
        self.progress.track((mark, "flights") for mark in marks)

    def kept(self, tp: TopicPartition = TP, epoch: int = 1) -> list[RangeDigest]:
        return [replace(each, generation=0) for each in self.store.range_digests(LINK, tp, epoch)]


@pytest.fixture
def world() -> Iterator[World]:
    store = open_store("sqlite:///:memory:")
    yield World(store)
    store.close()


def test_ranges_that_ended_are_kept_at_once_and_open_ones_now_and_then(world, monkeypatch) -> None:
    world.begin()
    world.engine.open = [row(20, 3)]
    world.engine.ended = [row(0), row(10), row(0, tp=OTHER)]
    world.progress.save()
    assert world.kept() == [row(0), row(10), row(20, 3)]
    assert world.kept(OTHER) == [row(0, tp=OTHER)]
    world.engine.open = [row(20, 9)]
    world.progress.save()
    assert world.kept()[-1] == row(20, 3)
    monkeypatch.setattr(module, "_OPEN_SECONDS", 0.0)
    world.progress.save()
    assert world.kept()[-1] == row(20, 9)


def test_at_the_end_what_is_open_is_kept(world) -> None:
    world.begin()
    world.progress.save()
    world.engine.open = [row(0, 4)]
    world.progress.save(everything=True)
    assert world.kept() == [row(0, 4)]


def test_what_the_store_did_not_take_is_kept_later(world, monkeypatch) -> None:
    world.begin()
    world.engine.ended = [row(0)]

    def down(*_: object) -> None:
        raise Unreachable("the store is down")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "put_range_digests", down)
        with pytest.raises(Unreachable):
            world.progress.save()
    world.progress.save()
    assert world.kept() == [row(0)]


def test_what_another_worker_has_taken_over_is_dropped_and_the_rest_is_kept(world) -> None:
    world.begin()
    world.store.claim(LINK, [(TP, 1)], world.store.next_generation(LINK))
    world.engine.ended = [row(0), row(0, tp=OTHER)]
    with pytest.raises(Fenced):
        world.progress.save()
    world.holdings.drop([TP])
    world.progress.forget([TP])
    world.progress.save()
    assert world.kept() == []
    assert world.kept(OTHER) == [row(0, tp=OTHER)]


def test_what_is_of_an_earlier_topic_is_dropped_and_the_new_ones_is_kept(world) -> None:
    """The topic was recreated before the last range of the old one was kept: nobody has fenced this worker off."""
    world.begin()
    world.progress.forget([TP, OTHER])
    world.holdings.drop([TP, OTHER])
    world.begin(epoch=2)
    world.engine.ended = [row(0), row(10, epoch=2), row(0, tp=OTHER, epoch=2)]
    world.progress.save()
    assert world.kept() == []
    assert world.kept(epoch=2) == [row(10, epoch=2)]
    assert world.kept(OTHER, epoch=2) == [row(0, tp=OTHER, epoch=2)]


def test_what_lies_below_the_targets_start_or_is_an_earlier_topics_is_removed(world) -> None:
    world.begin()
    world.engine.ended = [row(0), row(10)]
    world.progress.save()
    world.begin(epoch=2, target_start=15)
    world.engine.ended = [row(12, epoch=2), row(20, epoch=2)]
    world.progress.save()
    assert world.kept() == []
    assert world.kept(epoch=2) == [row(20, epoch=2)]


def test_nothing_is_removed_where_nothing_can_lie_below(world, monkeypatch) -> None:
    """A transaction for each of ten thousand partitions that begin would be felt."""
    removed: list[tuple[int, int]] = []
    forget = world.store.forget_range_digests

    def noted(link, tp, epoch, below, claims=None) -> None:
        removed.append((epoch, below))
        forget(link, tp, epoch, below, claims)

    monkeypatch.setattr(world.store, "forget_range_digests", noted)
    world.begin()
    world.progress.save()
    assert removed == []
    world.begin(target_start=7)
    world.progress.save()
    assert removed == [(1, 7), (1, 7)]
