"""Which answers count: never one that was asked for before the partition was restarted, and none is lost."""

from __future__ import annotations

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaConnectionError

from drkit.kafka.client.data_client import DataClient
from drkit.kafka.protocol.fetch_produce import Fetched, FetchReply
from drkit.mirror.engine import fetcher
from drkit.mirror.engine.engine_state import EngineState
from drkit.mirror.engine.fetcher import Fetcher, Read
from drkit.mirror.engine.interface import Incident, IncidentKind, PartitionStart
from drkit.mirror.engine.partition_queue import BatchPartition
from drkit.model.topology import TopicPartition
from tests.support.batches import batch_bytes

TP = TopicPartition("t", 0)


class Broker:
    """A connection to a broker that answers when it is told to, and as many requests as it is to take."""

    def __init__(self, most: int = 100) -> None:
        self.open = True
        self.most = most
        self.asked: list[asyncio.Future[FetchReply]] = []
        self.requests: list[Any] = []
        self.used = asyncio.Event()

    def send(self, request: object) -> asyncio.Future[FetchReply]:
        if len(self.asked) >= self.most:
            raise KafkaConnectionError("closed")
        future: asyncio.Future[FetchReply] = asyncio.get_running_loop().create_future()
        self.asked.append(future)
        self.requests.append(request)
        self.used.set()
        return future

    def answer(self, base: int, records: int, *, session: int = 7, size: int = 1 << 20, partition: int = 0) -> None:
        """`size`: what the answer is said to be in bytes; after a large one the next request goes out at once."""
        data = memoryview(batch_bytes([(1, None, b"v", [])] * records, base_offset=base))
        end = base + records
        self.asked[-1].set_result(FetchReply(0, session, [Fetched("t", partition, 0, end, end, 0, (), -1, data)], size))


class Source:
    """As much of a `DataClient` as a fetcher asks for."""

    def __init__(self, *brokers: Broker) -> None:
        self._brokers = list(brokers)

    async def connection(self, *_: object) -> Broker | None:
        return self._brokers.pop(0) if self._brokers else None

    def refresh(self) -> None:
        pass


def started(offset: int) -> BatchPartition:
    return BatchPartition(PartitionStart(TP, "t", 1, offset, offset, 0, 1_000_000))


def play(story: Any, *brokers: Broker, admitted: list[Read] | None = None) -> list[tuple[int, int]]:
    """Run a story with a fetcher; returns (asked from, next offset) of what was admitted."""
    admitted = [] if admitted is None else admitted

    async def work() -> None:
        source = cast("DataClient", Source(*brokers))
        flow = EngineState(
            source,
            source,
            buffer_bytes=1_000_000,
            may_produce=lambda: True,
            tell=print,
            notice=print,
            committed=True,
            throttle=None,
        )
        fetcher = Fetcher(flow, 1, admitted.extend)
        try:
            await story(fetcher)
            await settle()
        finally:
            fetcher.close()

    asyncio.run(work())
    return [(read.begin, read.batches[-1].last_offset + 1) for read in admitted]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("session", [7, 0])
def test_reads_follow_each_other(session: int) -> None:
    broker = Broker()

    async def story(fetcher: Fetcher) -> None:
        fetcher.add(started(100))
        for number in range(3):
            await settle()
            assert len(broker.asked) == number + 1
            broker.answer(100 + 10 * number, 10, session=session)

    assert play(story, broker) == [(100, 110), (110, 120), (120, 130)]


def test_after_a_small_answer_what_came_goes_out_before_more_is_asked_for() -> None:
    broker, admitted = Broker(), list[Read]()

    async def story(fetcher: Fetcher) -> None:
        fetcher.add(started(100))
        await settle()
        broker.used.clear()
        broker.answer(100, 10, size=1_000)
        await asyncio.wait_for(broker.used.wait(), 30)
        assert [read.begin for read in admitted] == [100]
        broker.answer(110, 10)

    assert play(story, broker, admitted=admitted) == [(100, 110), (110, 120)]


@pytest.mark.parametrize(("cpu_seconds", "pause"), [(0.00051, 0.003), (0.1, 0.0065)])
def test_small_answers_take_a_share_of_a_core_and_wait_no_longer_than_the_pace(
    cpu_seconds: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By clocks of its own: an answer's CPU time says when the next request goes out."""
    broker, pauses = Broker(), list[float]()
    cpu = count(start=0.0, step=cpu_seconds)
    monkeypatch.setattr(fetcher, "time", SimpleNamespace(monotonic=lambda: 50.0, thread_time=lambda: next(cpu)))

    async def pace(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(fetcher, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": pace}))

    async def story(fetcher: Fetcher) -> None:
        fetcher.add(started(100))
        for number in range(3):
            await settle()
            broker.answer(100 + 10 * number, 10, size=1_000)

    play(story, broker)
    assert pauses[1:] == pytest.approx([pause, pause])


def test_what_was_asked_for_before_the_partition_was_started_anew_does_not_count() -> None:
    broker = Broker()

    async def story(fetcher: Fetcher) -> None:
        fetcher.add(started(100))
        await settle()
        broker.answer(100, 50)
        await settle()
        fetcher.remove(TP)  # its fate on the target is unknown; looked at, it continues from 110
        fetcher.add(started(110))
        broker.answer(150, 10)
        await settle()
        broker.answer(110, 40)

    assert play(story, broker) == [(100, 150), (110, 150)]


def test_what_was_read_is_admitted_where_the_next_request_fails() -> None:
    first, second = Broker(most=1), Broker()

    async def story(fetcher: Fetcher) -> None:
        fetcher.add(started(100))
        await settle()
        first.answer(100, 10)
        await asyncio.wait_for(second.used.wait(), 30)
        second.answer(110, 10)

    assert play(story, first, second) == [(100, 110), (110, 120)]


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "once its queue is written"])
def test_what_stands_still_leaves_the_session_though_others_are_read_on(at_once: bool) -> None:
    """Else the broker answers each request at once, with what nobody takes."""
    broker = Broker()

    async def story(fetcher: Fetcher) -> None:
        halted, other = started(100), BatchPartition(PartitionStart(TopicPartition("t", 1), "t", 1, 0, 0, 0, 1_000_000))
        for partition in (halted, other):
            fetcher.add(partition)
            partition.read_by(fetcher)
        await settle()
        broker.answer(100, 10)  # a large one: the next request is under way when it is found that it can't be appended
        await settle()
        incident = Incident(TP, IncidentKind.REJECTED, "it is too large")
        if at_once:
            halted.halt(incident)
        else:
            halted.halt_after(incident)
        broker.answer(0, 10, partition=1)
        await settle()
        assert broker.requests[-1]._forgotten == {"t": [0]}

    play(story, broker)
