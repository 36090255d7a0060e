"""What is sent before an earlier answer is there: pipelined where the broker refuses what doesn't follow, else not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import cast

from drkit.kafka.line import Reply, Told
from drkit.kafka.markers import MarkersAnswer
from drkit.kafka.messages import ProduceAnswer, Produced
from drkit.kafka.stream import Stream
from drkit.mirror.batch_flow import Flow
from drkit.mirror.batch_partition import FORGOTTEN_MS, BatchPartition
from drkit.mirror.batch_writer import Sender
from drkit.mirror.engine import Incident, PartitionStart
from drkit.mirror.pieces import Hole, Run
from drkit.model.topology import TopicPartition

NOW = int(time.time() * 1000)
OLD = NOW - 2 * FORGOTTEN_MS


class Broker:
    """A connection whose answers the test gives."""

    open = True

    def __init__(self) -> None:
        self.asked: list[Told] = []

    def tell(self, _: object, told: Told) -> None:
        self.asked.append(told)

    def answer(self, number: int, base_offset: int, error: int = 0) -> None:
        self.asked[number](Reply(ProduceAnswer([Produced("t", 0, error, base_offset, 0, "")])))


class Target:
    """As much of a `Stream` as a sender asks for."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def connection(self, *_: object) -> Broker:
        return self._broker

    def refresh(self) -> None:
        pass


def run(source: int, stamp: int) -> Run:
    return Run(source, source + 10, 10, 0, stamp, stamp, b"records")


def play(story: Callable[[Sender, BatchPartition, Broker], Awaitable[None]]) -> list[Incident]:
    told: list[Incident] = []

    async def work() -> None:
        broker = Broker()
        target = cast("Stream", Target(broker))
        flow = Flow(
            target,
            target,
            buffer_bytes=1_000_000,
            may_produce=lambda: True,
            tell=told.append,
            notice=lambda *_: None,
            committed=True,
            throttle=None,
        )
        sender = Sender(flow, 1)
        start = PartitionStart(TopicPartition("t", 0), "t", 1, 0, 0, 0, 1_000_000, producer_id=5, preserve=True)
        partition = flow.partitions[start.tp] = BatchPartition(start)
        try:
            await story(sender, partition, broker)
        finally:
            sender.close()

    asyncio.run(work())
    return told


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def offered(sender: Sender, partition: BatchPartition, *stamps: int) -> None:
    partition.admit(run(10 * number, stamp) for number, stamp in enumerate(stamps))
    sender.offer(partition)
    sender.pump()
    await settle()


def test_the_first_batch_goes_alone_then_they_are_pipelined() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        await offered(sender, partition, NOW, NOW, NOW, NOW)
        assert len(broker.asked) == 1, "a broker that knows no sequence yet would take any"
        broker.answer(0, 0)
        await settle()
        assert len(broker.asked) == 4

    assert play(story) == []


def test_after_a_refused_first_batch_nothing_lands_in_its_place() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        await offered(sender, partition, NOW, NOW)
        broker.answer(0, -1, error=19)  # NOT_ENOUGH_REPLICAS
        await settle()
        assert len(broker.asked) == 1

    (incident,) = play(story)
    assert "NOT_ENOUGH_REPLICAS" in incident.reason


def test_old_records_go_one_batch_at_a_time() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        await offered(sender, partition, NOW, OLD, NOW, NOW, NOW)
        broker.answer(0, 0)
        await settle()
        assert len(broker.asked) == 2, "nothing follows the old one before it is answered"
        broker.answer(1, 10)
        await settle()
        assert len(broker.asked) == 3, "nor the first new one: the old one's producer may be forgotten"
        broker.answer(2, 20)
        await settle()
        assert len(broker.asked) == 5

    assert play(story) == []


def test_a_marker_is_under_way_alone() -> None:
    """A broker that is just becoming the leader refused markers, and took the batch behind them in their place."""

    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        partition.known = True
        partition.admit([run(0, NOW), run(10, NOW), Hole(25), run(25, NOW), run(35, NOW)])
        sender.offer(partition)
        sender.pump()
        await settle()
        assert len(broker.asked) == 2
        broker.answer(0, 0)
        await settle()
        assert len(broker.asked) == 2
        broker.answer(1, 10)
        await settle()
        assert len(broker.asked) == 3, "the first marker"
        broker.asked[2](Reply(MarkersAnswer([])))
        await settle()
        assert len(broker.asked) == 4, "the other four"
        assert partition.window.position.source_through == 20
        broker.asked[3](Reply(MarkersAnswer([])))
        await settle()
        assert len(broker.asked) == 6
        assert partition.window.position == (25, 25)

    assert play(story) == []


def test_behind_a_refused_marker_nothing_is_sent() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        partition.known = True
        partition.admit([Hole(35), run(35, NOW)])
        sender.offer(partition)
        sender.pump()
        await settle()
        broker.asked[0](Reply(MarkersAnswer([("t", 0, 6)])))  # NOT_LEADER_OR_FOLLOWER
        await settle()
        assert len(broker.asked) == 1

    (incident,) = play(story)
    assert "NOT_LEADER" in incident.reason


def test_nothing_is_offered_again_to_a_broker_that_leads_no_longer() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        await offered(sender, partition, NOW, NOW)
        sender.withdraw(partition)
        broker.answer(0, 0)
        await settle()
        assert len(broker.asked) == 1
        assert partition.outstanding == 0

    assert play(story) == []


def test_what_needs_a_row_waits_for_it_behind_what_is_queued() -> None:
    """Write-ahead: also where the sender already has the partition, for something that needs no row."""

    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        await offered(sender, partition, NOW, NOW)
        rows, _, _ = partition.admit([run(500_000, NOW), Hole(500_020), run(500_020, NOW)])
        assert [(row.source_offset, row.target_offset) for row in rows] == [(500_000, 20)]
        broker.answer(0, 0)
        await settle()
        broker.answer(1, 10)
        await settle()
        assert len(broker.asked) == 2
        partition.keeping = False  # the row is durable
        sender.offer(partition)
        sender.pump()
        await settle()
        assert len(broker.asked) == 3

    assert play(story) == []


def test_an_answer_that_comes_when_it_is_closed_sends_nothing_more() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        await offered(sender, partition, NOW, NOW, NOW)
        sender.close()
        broker.answer(0, 0)
        await settle()
        assert len(broker.asked) == 1
        assert partition.window.position.source_through == 0

    assert play(story) == []
