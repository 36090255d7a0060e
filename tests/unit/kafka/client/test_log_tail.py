"""Following the ends of partitions: all of them, in order, and what is taken is what was said to be taken."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from drkit.config import ClusterConfig
from drkit.kafka.client import log_tail
from drkit.kafka.client.log_tail import LogTail
from drkit.kafka.protocol.data_requests import Fetched
from drkit.kafka.protocol.record_batch import header
from drkit.kafka.protocol.records import RawRecord, build
from drkit.model.errors import DrkitError
from drkit.model.topology import TopicPartition
from tests.support.wait import wait_until

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


class Broker:
    """A cluster of one broker that answers fetches from logs of one-record batches."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, int] = {A: 5, B: 5}
        self.errors: dict[TopicPartition, int] = {}
        self.breaks = 0
        self.asked: list[dict[TopicPartition, int]] = []
        self.closed = False

    async def connect(self) -> None:
        await asyncio.sleep(0)

    async def close(self) -> None:
        self.closed = True

    def track(self, _topics: object) -> None:
        return None

    def leader(self, *_tp: object) -> int:
        return 1

    def refresh(self) -> None:
        pass

    async def connection(self, _node: int, _purpose: str) -> Broker:
        return self

    def send(self, places: dict[TopicPartition, int]) -> asyncio.Future[object]:
        self.asked.append(places)
        return asyncio.ensure_future(self._answer(places))

    async def _answer(self, places: dict[TopicPartition, int]) -> object:
        for _ in range(10):  # parked until something is there
            if any(self.logs[tp] > at or tp in self.errors for tp, at in places.items()) or self.breaks:
                break
            await asyncio.sleep(0.005)
        if self.breaks:
            self.breaks -= 1
            raise OSError("the connection broke")
        return SimpleNamespace(partitions=[self._part(tp, at) for tp, at in places.items()])

    def _part(self, tp: TopicPartition, at: int) -> Fetched:
        error, self.errors = self.errors.get(tp, 0), {k: v for k, v in self.errors.items() if k != tp}
        records = b"" if error else b"".join(one(offset) for offset in range(at, self.logs[tp]))
        return Fetched(*tp, error, self.logs[tp], self.logs[tp], 0, (), -1, memoryview(records))


def one(offset: int) -> bytes:
    built = build([RawRecord(offset, 0, b"\1\1\0")], 0)
    head = header(
        attributes=0,
        count=1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records=built.payload,
    )
    return offset.to_bytes(8, "big") + head[8:] + bytes(built.payload)


class Follower:
    def __init__(self) -> None:
        self.taken: dict[TopicPartition, list[int]] = defaultdict(list)
        self.lost: dict[TopicPartition, str] = {}
        self.rests: list[tuple[frozenset[TopicPartition], int]] = []
        self.refuses = threading.Event()

    def take(self, tp: TopicPartition, batches: list[object]) -> None:
        if self.refuses.is_set():
            raise DrkitError("not understood")
        self.taken[tp] += [batch.base_offset for batch in batches]

    def rest(self, reached: frozenset[TopicPartition], asked: int) -> None:
        self.rests.append((reached, asked))


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()

    def fetch(places: dict[str, list[object]], **_options: object) -> dict[TopicPartition, int]:
        return {TopicPartition(topic, each.partition): each.offset for topic, all_ in places.items() for each in all_}

    monkeypatch.setattr(log_tail, "DataClient", lambda *_args, **_options: broker)
    monkeypatch.setattr(log_tail, "Fetch", fetch)
    return broker


@pytest.fixture
def follower() -> Follower:
    return Follower()


@pytest.fixture
def tail(broker: Broker, follower: Follower) -> Iterator[LogTail]:
    tail = LogTail(
        "a",
        ClusterConfig(bootstrap_servers="127.0.0.1:1"),
        follower.take,
        follower.lost.__setitem__,
        follower.rest,
    )
    tail.start()
    yield tail
    tail.close()
    assert tail.failure is None
    assert broker.closed


def test_all_that_comes_is_taken_in_order_whatever_breaks(tail: LogTail, broker: Broker, follower: Follower) -> None:
    tail.follow({A: 2})
    wait_until(lambda: follower.taken[A] == [2, 3, 4], what="the first batches")
    tail.follow({A: 0, B: 5})
    for end in range(6, 40):
        broker.logs = {A: end, B: end}
        broker.breaks += end % 7 == 0
        broker.errors |= {A: 6} if end % 11 == 0 else {}
        wait_until(lambda end=end: tail.positions() == {A: end, B: end}, what=f"all up to {end}")
    assert follower.taken == {A: list(range(2, 39)), B: list(range(5, 39))}
    assert not follower.lost


def test_it_says_what_was_reached_and_when_that_was_asked_for(
    tail: LogTail, broker: Broker, follower: Follower
) -> None:
    broker.logs[A] = 7
    tail.follow({A: 0, B: 0})
    wait_until(lambda: len(follower.rests) > 5, what="some answers")
    assert all(reached == {A, B} for reached, _ in follower.rests[1:])
    assert all(asked <= number for number, (_, asked) in enumerate(follower.rests))
    assert follower.rests[5][1] >= 4, "each is asked for after the one before came"


def test_what_can_not_be_followed_is_dropped_and_told(tail: LogTail, broker: Broker, follower: Follower) -> None:
    tail.follow({A: 0, B: 0})
    wait_until(lambda: tail.positions() == {A: 5, B: 5}, what="all")
    broker.errors[A] = 1
    wait_until(lambda: A in follower.lost, what="an offset out of range")
    follower.refuses.set()
    broker.logs[B] = 6
    wait_until(lambda: B in follower.lost, what="what was refused")
    assert tail.positions() == {}
