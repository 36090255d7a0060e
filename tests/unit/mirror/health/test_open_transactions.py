"""A transaction that stays open on the source is named: the mirror has caught up with all that it can read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.kafka.admin.logs.producers import OpenTransaction, TransactionalId
from drkit.mirror.engine.interface import PartitionStart, StableEnd
from drkit.mirror.engine.partition_state import BatchPartition
from drkit.mirror.health.open_transactions import HANGS_SECONDS, OpenTransactions
from drkit.mirror.health.problems import Problems
from drkit.model.clock import now
from drkit.model.errors import Unreachable
from drkit.model.link_state import TRANSACTION_OPEN
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store
from drkit.store.api import Store

TP = TopicPartition("t", 0)
LINK = LinkId("primary", "dr")


class Source:
    """The source and its transactions. `stable`: the last stable offset; the log ends at 100."""

    def __init__(self) -> None:
        self.asked = 0
        self.silent = False
        self.stable = 40

    def end_offsets(
        self, tps: Iterable[TopicPartition], *, committed: bool, partial: bool
    ) -> dict[TopicPartition, int]:
        assert partial
        return dict.fromkeys(tps, self.stable if committed else 100)

    def first_open(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, OpenTransaction]:
        self.asked += 1
        if self.silent:
            raise Unreachable("no answer")
        return {tp: OpenTransaction(40, 4711, 3) for tp in tps}

    def transactional_ids(self, producer_ids: Iterable[int]) -> list[TransactionalId]:
        return [TransactionalId("payments-1", each, "Ongoing") for each in producer_ids]


class World:
    def __init__(self, store: Store) -> None:
        self.at, self.source = 5_000.0, Source()
        self._store = store
        self.start()

    def start(self) -> None:
        source: Any = self.source
        self.problems = Problems(self._store, LINK, lambda _: None)
        self.problems.follow()
        self.watch = OpenTransactions(LINK, source, source, self.problems, lambda: self.at)

    def looks(self, offset: int, open_for: float | None) -> list[str]:
        since = None if open_for is None else self.at - open_for
        self.watch.check({TP: StableEnd(offset, since)}, {TP})
        return [each.reason for each in self._store.problems(LINK) if each.kind == TRANSACTION_OPEN]

    def problem(self) -> Any:
        return self._store.problems(LINK)[0]


@pytest.fixture
def world() -> Iterator[World]:
    with closing(open_store("sqlite:///:memory:")) as store:
        yield World(store)


def test_it_is_named_once_it_is_open_for_longer_than_brokers_let_one_be(world: World) -> None:
    assert world.looks(40, HANGS_SECONDS - 1) == []
    assert world.source.asked == 0
    (reason,) = world.looks(40, HANGS_SECONDS)
    assert "producer id 4711, epoch 3, transactional id payments-1" in reason
    assert "source offset 40 of t:0" in reason
    told = world.problem()
    assert "kafka-transactions.sh abort --topic t --partition 0 --start-offset 40" in told.remedy
    assert not told.halted
    assert now() - told.since >= timedelta(seconds=HANGS_SECONDS)
    world.looks(40, HANGS_SECONDS + 100)
    assert world.source.asked == 1


def test_it_is_over_once_the_last_stable_offset_moves(world: World) -> None:
    world.looks(40, HANGS_SECONDS)
    assert world.looks(50, 1.0) == [], "another one is open"
    world.source.stable = 50
    assert len(world.looks(50, HANGS_SECONDS)) == 1
    assert world.looks(60, None) == []


def test_what_was_open_at_the_last_answer_may_be_over(world: World) -> None:
    """The source was away since, say."""
    world.source.stable = 60
    assert world.looks(40, HANGS_SECONDS) == []
    world.source.stable = 100
    assert world.looks(100, HANGS_SECONDS) == []


def test_a_mirror_that_starts_leaves_it_until_it_sees_that_it_is_over(world: World) -> None:
    world.looks(40, HANGS_SECONDS)
    since = world.problem().since
    world.start()
    world.watch.check({}, {TP})
    assert len(world.looks(40, 1.0)) == 1
    assert world.problem().since == since
    assert world.looks(60, None) == []


def test_one_of_which_nobody_says_whose_it_is_is_named_too(world: World) -> None:
    world.source.silent = True
    (reason,) = world.looks(40, HANGS_SECONDS)
    assert reason.startswith("a transaction has been open at source offset 40")


def test_how_long_it_is_open_is_known_from_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: 7.0)
    monkeypatch.setattr("drkit.mirror.engine.partition_state.time", clock)
    partition = BatchPartition(PartitionStart(TP, "t", 1, 0, 0, 0, 1_000_000))
    assert partition.stable is None
    for stable, high, at, since in (
        (10, 10, 7, None),
        (10, 12, 8, 8),
        (10, 15, 9, 8),
        (13, 15, 10, 10),
        (15, 15, 11, None),
    ):
        clock.monotonic = lambda at=at: float(at)
        partition.seen_stable(stable, high)
        assert partition.stable == StableEnd(stable, since)
