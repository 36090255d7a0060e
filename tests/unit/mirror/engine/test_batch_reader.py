"""Which answers count: never one that was asked for before the partition was restarted, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaConnectionError

from drkit.kafka.client.data_client import DataClient
from drkit.kafka.protocol.data_requests import Fetched, FetchReply
from drkit.mirror.engine import fetcher
from drkit.mirror.engine.engine_state import EngineState
from drkit.mirror.engine.fetcher import Fetcher, Read
from drkit.mirror.engine.interface import Incident, IncidentKind, PartitionStart
from drkit.mirror.engine.pacing.catch_up_rate import CatchUpRate
from drkit.mirror.engine.partition_state import BatchPartition
from drkit.model.topology import CatchUpPolicy, TopicPartition
from tests.support.links.batches import batch_bytes

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

    def answer(
        self,
        base: int,
        records: int,
        *,
        session: int = 7,
        size: int = 1 << 20,
        partition: int = 0,
        more: int = 0,
        throttle_ms: int = 0,
        before: bytes = b"",
        log_start: int = 0,
    ) -> None:
        """`size`: what the answer is said to be in bytes; after a large one the next request goes out at once. `more`:
        so many records the source holds beyond these. `before`: what comes before them."""
        data = memoryview(before + (batch(base, records) if records else b""))
        end = base + records + more
        found = [Fetched("t", partition, 0, end, end, log_start, (), -1, data)]
        self.asked[-1].set_result(FetchReply(0, session, found, size, throttle_ms))


def batch(base: int, records: int) -> bytes:
    return batch_bytes([(1, None, b"v", [])] * records, base_offset=base)


class Source:
    """As much of a `DataClient` as a fetcher asks for."""

    def __init__(self, *brokers: Broker) -> None:
        self._brokers = list(brokers)

    async def connection(self, *_: object) -> Broker | None:
        return self._brokers.pop(0) if self._brokers else None

    def refresh(self) -> None:
        pass


def started(offset: int, *, fill_to: int | None = None) -> BatchPartition:
    return BatchPartition(PartitionStart(TP, "t", 1, offset, offset, 0, 1_000_000, fill_to=fill_to))


def play(
    story: Any,
    *brokers: Broker,
    admitted: list[Read] | None = None,
    told: list[Incident] | None = None,
    catch_up: CatchUpRate | None = None,
) -> list[tuple[int, int]]:
    """Run a story with a fetcher, of a backlog where `catch_up` is said; returns (asked from, next offset) of what was
    admitted. `told`: takes incidents of partitions that the story puts into `EngineState.partitions`.
    """
    admitted = [] if admitted is None else admitted
    incidents: list[Incident] = [] if told is None else told

    async def work() -> None:
        source = Source(*brokers)
        flow = engine_state(source, source, incidents, catch_up)
        fetcher = Fetcher(flow, 1, admitted.extend, backlog=catch_up is not None)
        try:
            await story(fetcher)
            await settle()
        finally:
            fetcher.close()

    asyncio.run(work())
    return [(read.begin, read.batches[-1].last_offset + 1) for read in admitted]


def engine_state(source: Source, target: Source, told: list[Incident], catch_up: CatchUpRate | None) -> EngineState:
    return EngineState(
        cast("DataClient", source),
        cast("DataClient", target),
        buffer_bytes=1_000_000,
        may_produce=lambda: True,
        tell=told.append,
        notice=print,
        committed=True,
        throttle=None,
        catch_up=catch_up,
    )


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


def test_a_broker_without_a_session_for_this_reader_is_asked_first_for_what_it_has_not_delivered_yet() -> None:
    """It fills its answer in the order of the request: the first partitions with a backlog would be the only ones."""
    broker = Broker()

    async def story(fetcher: Fetcher) -> None:
        for topic, partition in (("t", 0), ("t", 1), ("t", 2), ("u", 0)):
            place = TopicPartition(topic, partition)
            fetcher.add(BatchPartition(PartitionStart(place, topic, 1, 0, 0, 0, 1_000_000)))
        for number, delivered in enumerate((0, 1, 0)):
            await settle()
            broker.answer(10 * (number // 2), 10, session=0, partition=delivered, more=1_000)
        await settle()
        asked = [
            [(topic, [place.partition for place in places]) for topic, places in each._places.items()]
            for each in broker.requests
        ]
        assert asked == [
            [("t", [0, 1, 2]), ("u", [0])],
            [("u", [0]), ("t", [1, 2, 0])],
            [("u", [0]), ("t", [2, 0, 1])],
            [("u", [0]), ("t", [2, 1, 0])],
        ]

    play(story, broker)


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


PACES = pytest.mark.parametrize(
    ("cpu_seconds", "requests", "pause"),
    [(0.00051, 1, 0.003), (0.1, 1, 0.005), (0.00051, 3, 0.001), (0.00051, 0, 0.003)],
)
"""An answer's CPU time, and how many requests it became, say when the next is to be answered: small answers take a
share of a core and wait no longer than the pace, nor in vain."""


@PACES
def test_small_answers_are_gathered_by_the_broker(
    cpu_seconds: float, requests: int, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By clocks of its own, an answer each 20 ms."""
    broker = Broker()
    cpu, clock = count(start=0.0, step=cpu_seconds), SimpleNamespace(at=50.0)
    monkeypatch.setattr(fetcher, "time", SimpleNamespace(monotonic=lambda: clock.at, thread_time=lambda: next(cpu)))

    async def story(fetcher: Fetcher) -> None:
        fetcher.add(started(100))
        for number in range(4):
            await settle()
            clock.at += 0.02
            fetcher._flow.produces += requests
            broker.answer(100 + 10 * number, 10 if number < 3 else 0, size=1_000)

    play(story, broker)
    bytes_a_second = len(batch_bytes([(1, None, b"v", [])] * 10)) / 0.02
    gathered = round(pause * 1000), int(bytes_a_second * pause)
    assert waits(broker)[2:] == [gathered, gathered, (500, 1)], "after an empty answer the next record comes at once"


def waits(broker: Broker) -> list[tuple[int, int]]:
    """For how long (ms) and for how many bytes the broker was to wait with each answer."""
    heads = [request._head for request in broker.requests]
    return [(int.from_bytes(head[4:8], "big"), int.from_bytes(head[8:12], "big")) for head in heads]


@PACES
def test_requests_for_small_answers_wait_where_the_broker_would_have_to_look_too_often(
    cpu_seconds: float, requests: int, pause: float, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    broker = Broker()
    cpu = count(start=0.0, step=cpu_seconds)
    monkeypatch.setattr(fetcher, "time", SimpleNamespace(monotonic=lambda: 50.0, thread_time=lambda: next(cpu)))
    monkeypatch.setattr(fetcher, "_BROKER_LOOKS", 0)

    async def story(fetcher: Fetcher) -> None:
        fetcher.add(started(100))
        for number in range(3):
            await settle()
            fetcher._flow.produces += requests
            broker.answer(100 + 10 * number, 10, size=1_000)

    play(story, broker)
    assert pauses[1:] == pytest.approx([pause, pause])
    assert set(waits(broker)) == {(500, 1)}


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """For how long a fetcher waited between its requests; by clocks that stand still."""
    found: list[float] = []
    monkeypatch.setattr(fetcher, "time", SimpleNamespace(monotonic=lambda: 50.0, thread_time=lambda: 0.0))

    async def pause(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(fetcher, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": pause}))
    return found


@pytest.mark.parametrize("size", [1_000, 1 << 20])
def test_for_as_long_as_a_quota_of_the_broker_says_nothing_more_is_asked_for(size: int, pauses: list[float]) -> None:
    broker = Broker()

    async def story(fetcher: Fetcher) -> None:
        fetcher.add(started(100))
        await settle()
        broker.answer(100, 10, size=size, throttle_ms=340)
        await settle()
        assert fetcher._flow.throttled_seconds == pytest.approx(0.34)

    assert play(story, broker) == [(100, 110)]
    assert pauses == [0.34]


def test_a_backlog_is_asked_for_in_small_parts_no_faster_than_its_rate(pauses: list[float]) -> None:
    rate, broker = CatchUpRate(CatchUpPolicy(), lambda: 50.0), Broker()
    rate.bound(10_000_000)

    async def story(fetcher: Fetcher) -> None:
        fetcher.add(started(100))
        for number in range(2):
            await settle()
            broker.answer(100 + 10 * number, 10, size=500_000, more=1_000)

    assert play(story, broker, catch_up=rate) == [(100, 110), (110, 120)]
    assert pauses == pytest.approx([0.05, 0.1])
    (most,) = {int.from_bytes(request._head[12:16], "big") for request in broker.requests}
    assert most == 200_000, "20 ms of it"


@pytest.mark.parametrize("limited", [False, True])
def test_a_partition_that_has_caught_up_is_read_beside_the_backlog(limited: bool) -> None:
    rate, broker = CatchUpRate(CatchUpPolicy()), Broker()
    rate.bound(10**12 if limited else None)

    async def story(fetcher: Fetcher) -> None:
        partition = started(100)
        fetcher.add(partition)
        await settle()
        broker.answer(100, 10, more=5)
        await settle()
        assert partition.behind
        assert not fetcher._flow.moving
        assert rate._grown == 0
        broker.answer(110, 5, more=20)
        await settle()
        assert rate._grown > 0
        broker.answer(115, 20)
        await settle()
        assert not partition.behind
        assert fetcher._flow.moving == ({partition} if limited else set())

    play(story, broker, catch_up=rate)


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


def of_a_backlog(fetcher: Fetcher, numbers: int) -> list[BatchPartition]:
    """So many partitions that are behind, of which the fetcher reads from offset 0 on."""
    starts = [PartitionStart(TopicPartition("t", number), "t", 1, 0, 0, 0, 1_000_000) for number in range(numbers)]
    return [of_the_engine(fetcher, BatchPartition(start)) for start in starts]


async def deliver(broker: Broker, partition: int, number: int, *, size: int = 1 << 20, more: int = 100) -> None:
    await settle()
    broker.answer(10 * number, 10, partition=partition, more=more, size=size)
    await settle()


def test_one_that_is_behind_has_its_turn_after_the_others_and_stands_still_where_these_come_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long the others take, by the bandwidth: that is no reason to tell of it, or to restart."""
    broker = Broker()
    Clock(monkeypatch)

    async def story(fetcher: Fetcher) -> None:
        first, second, last = of_a_backlog(fetcher, 3)
        turns = []
        for number in range(4):
            for partition in (0, 1):
                await deliver(broker, partition, number)
                turns.append(last.takes_turns)
        assert turns == [True] * 4 + [False] * 4, "all others twice before it, and the first a third time"
        assert first.takes_turns
        assert second.takes_turns
        broker.answer(0, 10, partition=2, more=100)
        await settle()
        assert last.takes_turns

    play(story, broker)


@pytest.mark.usefixtures("pauses")
def test_what_an_answer_with_room_brings_nothing_of_does_not_wait_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of thousands of quiet partitions gets a record now and then, and none comes again before long."""
    broker = Broker()
    Clock(monkeypatch)

    async def story(fetcher: Fetcher) -> None:
        *_, last = of_a_backlog(fetcher, 5)
        for partition in range(4):
            assert last.takes_turns is (partition == 1)
            await deliver(broker, partition, 0, size=100, more=0)
        assert not last.takes_turns

    play(story, broker)


@pytest.mark.usefixtures("pauses")
def test_a_broker_that_reads_one_partition_of_its_remote_storage_a_request_lets_the_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker()
    Clock(monkeypatch)

    async def story(fetcher: Fetcher) -> None:
        *_, last = of_a_backlog(fetcher, 6)
        for partition in range(5):
            await deliver(broker, partition, 0, size=100)
        assert last.takes_turns

    play(story, broker)


_WAITS: dict[str, tuple[Callable[[BatchPartition], object], Callable[[BatchPartition], object]]] = {
    "paused": (lambda each: each.hold(True), lambda each: each.hold(False)),
    "its target's broker is silent": (lambda each: each.put_aside(True), lambda each: each.put_aside(False)),
    "its rows are slow": (lambda each: setattr(each, "keeping", True), lambda each: each.rows_kept()),
}


@pytest.mark.parametrize(("stop", "go_on"), _WAITS.values(), ids=_WAITS)
def test_what_was_not_read_for_a_while_has_its_turn_after_the_others(
    stop: Callable[[BatchPartition], object],
    go_on: Callable[[BatchPartition], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker()
    Clock(monkeypatch)

    async def story(fetcher: Fetcher) -> None:
        *_, last = of_a_backlog(fetcher, 3)
        stop(last)
        for number in range(4):
            for partition in (0, 1):
                await deliver(broker, partition, number)
        go_on(last)
        assert last.takes_turns
        last.rest(True)
        for number in range(4, 8):
            for partition in (0, 1):
                await deliver(broker, partition, number)
        last.rest(False)
        assert not last.takes_turns, "reads that fail don't hide that it stands"

    play(story, broker)


def test_nobody_waits_for_a_turn_where_nothing_comes_or_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, clock = Broker(), Clock(monkeypatch)

    async def story(fetcher: Fetcher) -> None:
        _, last = of_a_backlog(fetcher, 2)
        assert not last.takes_turns, "nothing came yet"
        await deliver(broker, 0, 0)
        last.hold(True)
        assert not last.takes_turns, "nobody reads it"
        last.hold(False)
        clock.at += 9
        assert last.takes_turns
        clock.at += 1
        assert not last.takes_turns
        fetcher._flow.hold_bytes(2_000_000)
        await deliver(broker, 0, 1)
        clock.at += 20
        assert not last.takes_turns, "nothing is written either"
        fetcher._flow.wrote_at = clock.at
        assert last.takes_turns, "there is no room for more until something is written"
        last.seen_end(last.next_fetch)
        assert last.takes_turns, "nobody asks meanwhile whether the source has more of it"

    play(story, broker)


def test_what_a_new_session_delivers_again_passes_over_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request names a topic once: its partitions that have had their turn come before those of other topics again."""
    broker = Broker()
    Clock(monkeypatch)

    async def story(fetcher: Fetcher) -> None:
        *_, last = of_a_backlog(fetcher, 3)
        for number in range(5):
            for partition in (0, 1):
                await deliver(broker, partition, number)
            assert last.takes_turns
            fetcher._forget_session()

    play(story, broker)


def test_a_new_session_begins_with_what_waits_for_longest() -> None:
    """Sessions that end again and again would let those at the end of a backlog wait for ever."""
    broker = Broker()

    async def story(fetcher: Fetcher) -> None:
        of_a_backlog(fetcher, 3)
        for partition in (0, 1):
            await deliver(broker, partition, 0)
        assert [tp.partition for tp in fetcher._places] == [2, 0, 1]

    play(story, broker)


class Clock:
    """A monotonic clock that stands still until it is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 50.0
        monkeypatch.setattr(fetcher, "time", SimpleNamespace(monotonic=lambda: self.at, thread_time=lambda: 0.0))


def of_the_engine(fetcher: Fetcher, partition: BatchPartition) -> BatchPartition:
    fetcher._flow.partitions[partition.tp] = partition
    fetcher.add(partition)
    partition.read_by(fetcher)
    return partition


@pytest.mark.parametrize(("seconds", "looked_at"), [(0.9, False), (1.1, True)])
def test_what_was_read_from_a_broker_that_was_away_is_looked_at_again(
    seconds: float, looked_at: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be one of a cluster that was set back, whose leader epochs are given out a second time."""
    first, second, clock, told = Broker(most=1), Broker(), Clock(monkeypatch), list[Incident]()

    async def story(fetcher: Fetcher) -> None:
        of_the_engine(fetcher, started(100))
        await settle()
        first.answer(100, 10)  # the next request fails: the connection is gone
        await settle()
        clock.at += seconds
        await asyncio.sleep(0.3)  # the fetcher's own pause
        assert bool(second.asked) is not looked_at

    assert play(story, first, second, told=told) == [(100, 110)]
    assert [(each.tp, each.kind) for each in told] == ([(TP, IncidentKind.SOURCE_AWAY)] if looked_at else [])


@pytest.mark.parametrize(("since", "looked_at"), [(None, False), (45.5, False), (44.5, True)])
def test_one_that_was_never_read_is_looked_at_again_where_its_comparison_is_long_ago(
    since: float | None, looked_at: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is paused from its start on: its source was set back meanwhile, unseen (found by a reader)."""
    broker, told = Broker(), list[Incident]()
    Clock(monkeypatch)  # at 50

    async def story(fetcher: Fetcher) -> None:
        of_the_engine(fetcher, BatchPartition(PartitionStart(TP, "t", 1, 100, 100, 0, 1_000_000, looked_at=since)))
        await settle()
        assert bool(broker.asked) is not looked_at

    play(story, broker, told=told)
    assert [(each.tp, each.kind) for each in told] == ([(TP, IncidentKind.SOURCE_AWAY)] if looked_at else [])


def test_a_partition_that_is_aligned_was_read_from_nobody_and_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, clock, told = Broker(most=1), Broker(), Clock(monkeypatch), list[Incident]()
    other = BatchPartition(PartitionStart(TopicPartition("t", 1), "t", 1, 0, 0, 0, 1_000_000))

    async def story(fetcher: Fetcher) -> None:
        of_the_engine(fetcher, started(100, fill_to=100))
        of_the_engine(fetcher, other)
        await settle()
        first.answer(0, 10, partition=1)
        await settle()
        clock.at += 5
        await asyncio.sleep(0.3)

    play(story, first, second, told=told)
    assert [each.tp for each in told] == [other.tp]


@pytest.mark.parametrize(("made", "looked_at"), [(49.0, False), (53.0, True)], ids=["before", "long after"])
def test_a_partition_that_comes_from_another_broker_was_read_while_this_one_was_connected(
    made: float, looked_at: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the cluster was not away. Where this connection was made long after, it may have been."""
    broker, clock, told = Broker(), Clock(monkeypatch), list[Incident]()

    async def story(fetcher: Fetcher) -> None:
        clock.at = made
        await settle()
        fetcher.add(BatchPartition(PartitionStart(TopicPartition("t", 1), "t", 1, 0, 0, 0, 1_000_000)))
        await settle()
        assert broker.asked, "it is connected"
        moved = started(100)
        moved.heard(50.0)
        of_the_engine(fetcher, moved)

    play(story, broker, told=told)
    assert [each.tp for each in told] == ([TP] if looked_at else [])


def asked_from(broker: Broker) -> list[int]:
    """The offsets of the requests that name the partition."""
    return [each.offset for request in broker.requests for each in request._places.get("t", ())]


def test_no_batch_begins_below_the_end_of_the_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its base offset is damaged, which no checksum covers: its records would get the offsets of others."""
    monkeypatch.setattr(fetcher, "_PAUSE", 0.0)
    broker, told = Broker(), list[Incident]()

    async def story(fetcher: Fetcher) -> None:
        of_the_engine(fetcher, started(90))
        await settle()
        broker.answer(90, 10)
        for _ in range(3):
            await settle()
            broker.answer(95, 10)

    assert play(story, broker, told=told) == [(90, 100)]
    assert [(each.kind, "source offset 95" in each.reason) for each in told] == [(IncidentKind.UNREADABLE, True)]


def test_at_a_start_a_batch_that_begins_below_is_read_with_what_is_there_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetcher, "_PAUSE", 0.0)
    broker, told = Broker(), list[Incident]()

    async def story(fetcher: Fetcher) -> None:
        of_the_engine(fetcher, started(100))
        await settle()
        broker.answer(95, 10)
        for _ in range(3):
            await settle()
            broker.answer(95, 10, before=batch(90, 10))

    assert play(story, broker, told=told) == []
    assert asked_from(broker) == [100, 95, 95, 95]
    assert [(each.kind, "source offset 90" in each.reason) for each in told] == [(IncidentKind.UNREADABLE, True)]


def test_one_in_which_a_partition_starts_is_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "_PAUSE", 0.0)
    broker, told = Broker(), list[Incident]()

    async def story(fetcher: Fetcher) -> None:
        of_the_engine(fetcher, started(100))
        await settle()
        broker.answer(95, 10)
        await settle()
        broker.answer(95, 10)
        await settle()
        broker.answer(105, 5)

    assert play(story, broker, told=told) == [(100, 105), (105, 110)]
    assert asked_from(broker)[:3] == [100, 95, 105]
    assert not told


def test_what_is_read_before_it_ends_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker answers with the batch before alone, as much as it may send."""
    monkeypatch.setattr(fetcher, "_PAUSE", 0.0)
    broker, told = Broker(), list[Incident]()

    async def story(fetcher: Fetcher) -> None:
        of_the_engine(fetcher, started(100))
        for base in (95, 90, 90, 95, 95, 95):
            await settle()
            broker.answer(base, 10)

    assert play(story, broker, told=told) == []
    assert asked_from(broker)[:4] == [100, 95, 90, 100]
    assert [(each.kind, "source offset 95" in each.reason) for each in told] == [(IncidentKind.UNREADABLE, True)]


def test_below_its_start_a_log_has_nothing_to_read() -> None:
    broker = Broker()

    async def story(fetcher: Fetcher) -> None:
        fetcher.add(started(100))
        await settle()
        broker.answer(95, 10, log_start=100)

    assert play(story, broker) == [(100, 105)]


def test_a_fetcher_that_something_cancels_is_a_defect_and_not_silent() -> None:
    broker = Broker()

    async def story(fetcher: Fetcher) -> None:
        fetcher.add(started(100))
        await settle()
        assert fetcher.failure is None
        broker.asked[-1].cancel()
        await settle()
        assert "was cancelled" in str(fetcher.failure)

    play(story, broker)
