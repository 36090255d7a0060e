"""A transaction that stays open on the source is named: the mirror has caught up with all that it can read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.kafka.admin.logs.producers import CoordinatedTransaction, OpenTransaction, TransactionalId
from drkit.mirror.engine.interface import PartitionStart, StableEnd
from drkit.mirror.engine.partition_state import BatchPartition
from drkit.mirror.health.open_transactions import HANGS_SECONDS, SPARE_SECONDS, OpenTransactions
from drkit.mirror.health.problems import Problems
from drkit.model.clock import now
from drkit.model.errors import Refused, Unreachable
from drkit.model.link_state import TRANSACTION_OPEN
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store
from drkit.store.api import Store

TP = TopicPartition("t", 0)
LINK = LinkId("primary", "dr")
BEGAN = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)


class Source:
    """The source and its transactions. `stable`: the last stable offset; the log ends at 100. `held`: whether a
    coordinator has the transaction, in which state and with which time-out; `longest`: what brokers let one last."""

    def __init__(self) -> None:
        self.asked = 0
        self.silent = False
        self.stable = 40
        self.held: tuple[str, float] | None = None
        self.longest: float | None = HANGS_SECONDS - SPARE_SECONDS

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

    def coordinated(self, producer_ids: Iterable[int]) -> list[CoordinatedTransaction]:
        if self.held is None:
            return []
        state, timeout = self.held
        return [
            CoordinatedTransaction(TransactionalId("payments-1", each, state), timeout, frozenset({TP}), BEGAN)
            for each in producer_ids
        ]

    def longest_transaction(self) -> timedelta:
        if self.longest is None:
            raise Refused("may not", remedy="grant it")
        return timedelta(seconds=self.longest)


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
    assert "producer id 4711, epoch 3)" in reason
    assert "source offset 40 of t:0" in reason
    told = world.problem()
    assert "find-hanging --topic t --partition 0 --max-transaction-timeout 15" in told.remedy
    assert "kafka-transactions.sh abort --topic t --partition 0 --start-offset 40" in told.remedy
    assert not told.halted
    assert now() - told.since >= timedelta(seconds=HANGS_SECONDS)
    world.looks(40, HANGS_SECONDS + 100)
    assert world.source.asked == 1


def test_a_partition_that_begins_again_and_again_does_not_hide_one(world: World) -> None:
    """The engine begins a partition anew wherever a broker was away, and counts from then on."""
    for _ in range(3):
        assert world.looks(40, HANGS_SECONDS / 4) == []
        world.at += HANGS_SECONDS / 4
        world.watch.check({}, {TP})  # no answer said anything yet
    (reason,) = world.looks(40, 0.0)
    assert "source offset 40 of t:0" in reason
    assert world.looks(41, 0.0) == [], "another one"
    world.at += HANGS_SECONDS - 1
    assert world.looks(41, 0.0) == []


def test_one_that_its_coordinator_has_may_be_open_as_long_as_its_producer_asked_for(world: World) -> None:
    """Half an hour is nothing for a checkpoint of Flink: an abort in one partition would take acknowledged records."""
    world.source.held = ("Ongoing", 3_600.0)
    assert world.looks(40, HANGS_SECONDS) == []
    assert world.looks(40, 3_600.0) == []
    assert world.source.asked == 1, "not at each look"
    world.at += 3_600.0
    (reason,) = world.looks(40, 3_600.0 + SPARE_SECONDS)
    assert "transactional id payments-1" in reason
    assert "for more than 61 minutes" in reason
    assert "transactional id payments-1 ends it" in world.problem().remedy
    assert "abort" not in world.problem().remedy.replace("Don't abort it by hand", "")


def test_one_that_is_decided_is_not_to_be_aborted(world: World) -> None:
    world.source.held = ("PrepareCommit", 60.0)
    assert len(world.looks(40, HANGS_SECONDS)) == 1
    assert "has decided it (PrepareCommit)" in world.problem().remedy
    assert "transactions.sh abort" not in world.problem().remedy


def test_where_brokers_let_one_be_open_for_longer_it_hangs_later(world: World) -> None:
    world.source.longest = 7_200.0
    assert world.looks(40, 7_200.0) == []
    world.at += SPARE_SECONDS
    assert len(world.looks(40, 7_200.0 + SPARE_SECONDS)) == 1
    assert "--max-transaction-timeout 120" in world.problem().remedy


def test_where_nobody_shows_how_long_one_may_be_open_no_abort_is_advised(world: World) -> None:
    world.source.longest = None
    assert len(world.looks(40, HANGS_SECONDS)) == 1
    assert "abort" not in world.problem().remedy
    assert "DESCRIBE_CONFIGS" in world.problem().remedy
    world.source.longest = HANGS_SECONDS - SPARE_SECONDS
    world.at += 60.0
    world.looks(40, HANGS_SECONDS + 60.0)
    assert "transactions.sh abort" in world.problem().remedy


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


def test_a_mirror_that_starts_settles_one_that_ended_while_none_ran(world: World) -> None:
    world.looks(40, HANGS_SECONDS)
    world.start()
    assert world.looks(50, 1.0) == [], "another one is open"


def test_its_coordinator_says_when_it_began(world: World) -> None:
    world.source.held = ("Ongoing", 3_600.0)
    assert world.watch.began({TP: 40}) == {TP: (40, BEGAN)}
    assert world.watch.began({TP: 39}) == {}, "another one holds it back by now"
    assert world.watch.began({}) == {}


def test_where_nobody_says_when_it_began_they_are_asked_again_after_a_while(world: World) -> None:
    assert world.watch.began({TP: 40}) == {}
    world.source.held = ("Ongoing", 3_600.0)
    assert world.watch.began({TP: 40}) == {}
    world.at += 60.0
    world.source.silent = True
    assert world.watch.began({TP: 40}) == {}
    world.source.silent = False
    world.at += 60.0
    assert world.watch.began({TP: 40}) == {TP: (40, BEGAN)}


def test_one_of_which_nobody_says_whose_it_is_is_named_too(world: World) -> None:
    world.source.silent = True
    (reason,) = world.looks(40, HANGS_SECONDS)
    assert reason.startswith("a transaction has been open at source offset 40")
    assert "abort" not in world.problem().remedy


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
