"""What is sent before an earlier answer is there: pipelined where the broker refuses what doesn't follow, else not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from drkit.kafka.client.connection import Reply, ResponseCallback
from drkit.kafka.client.data_client import DataClient
from drkit.kafka.protocol.data_requests import (
    LogEnd,
    LogEndsRequest,
    LogEndsResponse,
    MarkersResponse,
    Produced,
    ProduceReply,
)
from drkit.mirror.engine import partition_state
from drkit.mirror.engine import sender as sender_module
from drkit.mirror.engine.batch_splitter import Hole, RecordRun
from drkit.mirror.engine.engine_state import EngineState
from drkit.mirror.engine.interface import Incident, IncidentKind, PartitionStart
from drkit.mirror.engine.partition_state import FORGOTTEN_MS, BatchPartition, ProducerMemory
from drkit.mirror.engine.sender import Sender
from drkit.model.topology import TopicPartition

NOW = int(time.time() * 1000)
OLD = NOW - 2 * FORGOTTEN_MS


class Broker:
    """A connection whose answers the test gives."""

    open = True

    def __init__(self) -> None:
        self.asked: list[ResponseCallback] = []
        self.end: int | None = 0
        """Where the log of `t:0` ends when it is asked for; None: that isn't answered at once."""
        self.ends: list[ResponseCallback] = []

    def send_with_callback(self, request: object, told: ResponseCallback) -> None:
        if not isinstance(request, LogEndsRequest):
            self.asked.append(told)
            return
        self.ends.append(told)
        if self.end is not None:
            asyncio.get_running_loop().call_soon(self.answer_end, len(self.ends) - 1, self.end)

    def answer_end(self, number: int, offset: int, error: int = 0) -> None:
        self.ends[number](Reply(LogEndsResponse([LogEnd("t", 0, error, offset)])))

    def answer(self, number: int, base_offset: int, error: int = 0, throttle_ms: int = 0, stamp: int = -1) -> None:
        self.asked[number](Reply(ProduceReply([Produced("t", 0, error, base_offset, stamp, 0, "")], throttle_ms)))


class Target:
    """As much of a `DataClient` as a sender asks for."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.refreshed = 0

    async def connection(self, *_: object) -> Broker:
        return self._broker

    def refresh(self) -> None:
        self.refreshed += 1


def run(source: int, stamp: int) -> RecordRun:
    return RecordRun(source, source + 10, 10, 0, stamp, stamp, b"records")


def after_a_quiet_day(monkeypatch: pytest.MonkeyPatch) -> int:
    """What a partition takes for the time from now on, in milliseconds."""
    later = NOW + FORGOTTEN_MS + 60_000
    clocks = {"time": lambda: later / 1000, "monotonic": lambda: time.monotonic() + FORGOTTEN_MS / 1000}
    monkeypatch.setattr(partition_state, "time", SimpleNamespace(**clocks))
    return later


def play(story: Callable[[Sender, BatchPartition, Broker], Awaitable[None]]) -> list[Incident]:
    told: list[Incident] = []

    async def work() -> None:
        broker = Broker()
        target = cast("DataClient", Target(broker))
        flow = EngineState(
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


def test_records_that_the_target_stamped_itself_are_not_taken_for_mirrored() -> None:
    """Somebody set message.timestamp.type to LogAppendTime there: what landed isn't what the source holds."""

    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        await offered(sender, partition, NOW, NOW)
        broker.answer(0, 0, stamp=NOW)
        await settle()
        assert partition.window.position.source_through == 0

    (incident,) = play(story)
    assert incident.kind is IncidentKind.MISPLACED
    assert "stamped 10 records from source offset 0 itself" in incident.reason


def test_what_a_partition_has_in_flight_when_it_leaves_may_reach_the_target_until_it_is_answered() -> None:
    """Else a worker that left so would be taken for one that left in order, and a failover would fence nobody off."""

    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        flow = sender._flow
        partition._newest = NOW
        await offered(sender, partition, NOW, NOW)
        del flow.partitions[partition.tp]
        flow.remove(partition)
        broker.answer(0, 0)
        await settle()
        assert flow.unsettled(), "the second isn't answered"
        broker.answer(1, -1, error=6)  # NOT_LEADER_OR_FOLLOWER
        await settle()
        assert not flow.unsettled()

    assert play(story) == []


def test_what_a_partition_had_in_flight_that_left_and_was_never_answered_may_reach_the_target() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        flow = sender._flow
        await offered(sender, partition, NOW)
        del flow.partitions[partition.tp]
        flow.remove(partition)
        broker.asked[0](Reply(None, ConnectionResetError()))
        await settle()
        assert partition.outstanding == 0
        assert flow.unsettled()

    assert play(story) == []


def test_an_answer_to_a_start_that_is_over_says_nothing_of_what_a_later_one_sent() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        flow = sender._flow
        await offered(sender, partition, NOW)
        flow.remove(partition)
        flow.unanswered.add(partition.tp)  # the later start's, through another broker
        broker.answer(0, 0)
        await settle()
        assert flow.unsettled()

    play(story)


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


def test_after_a_quiet_day_the_first_batch_goes_alone_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker has forgotten the producer since: had it refused the first, it would append the second in its place.
    Its log may have lost its end, too."""

    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        await offered(sender, partition, NOW)
        broker.answer(0, 0)
        await settle()
        later = after_a_quiet_day(monkeypatch)
        broker.end = 10
        partition.admit([run(10, NOW), run(20, later), run(30, later)])
        sender.offer(partition)
        sender.pump()
        await settle()
        assert (len(broker.ends), len(broker.asked)) == (2, 2), "after the log's end, alone"
        broker.answer(1, 10)
        await settle()
        assert len(broker.asked) == 3, "that one was written a day ago: it is forgotten, too"
        broker.answer(2, 20)
        await settle()
        assert len(broker.asked) == 4

    assert play(story) == []


def test_a_burst_after_a_quiet_day_of_which_the_first_batch_is_refused_brings_nothing_into_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        await offered(sender, partition, NOW)
        broker.answer(0, 0)
        await settle()
        later, broker.end = after_a_quiet_day(monkeypatch), 10
        partition.admit([run(10, later), run(20, later)])
        sender.offer(partition)
        sender.pump()
        await settle()
        broker.answer(1, -1, error=19)  # NOT_ENOUGH_REPLICAS
        await settle()
        assert len(broker.asked) == 2

    (incident,) = play(story)
    assert "NOT_ENOUGH_REPLICAS" in incident.reason


def test_a_marker_is_under_way_alone() -> None:
    """A broker that is just becoming the leader refused markers, and took the batch behind them in their place."""

    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        partition._newest = NOW
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
        broker.asked[2](Reply(MarkersResponse([])))
        await settle()
        assert len(broker.asked) == 4, "the other four"
        assert partition.window.position.source_through == 20
        broker.asked[3](Reply(MarkersResponse([])))
        await settle()
        assert len(broker.asked) == 6
        assert partition.window.position == (25, 25)

    assert play(story) == []


def test_behind_a_refused_marker_nothing_is_sent() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        partition._newest = NOW
        partition.admit([Hole(35), run(35, NOW)])
        sender.offer(partition)
        sender.pump()
        await settle()
        target = cast("Target", sender._flow.target)
        assert target.refreshed == 0
        broker.asked[0](Reply(MarkersResponse([("t", 0, 6)])))  # NOT_LEADER_OR_FOLLOWER
        await settle()
        assert len(broker.asked) == 1
        assert target.refreshed == 1, "else it would be offered to the same broker again, for a minute"

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
        partition.rows_kept()
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


def test_nothing_is_sent_before_the_log_ends_where_it_should() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        broker.end = None
        partition._newest = NOW
        await offered(sender, partition, NOW, NOW)
        assert (len(broker.ends), broker.asked) == (1, [])
        broker.answer_end(0, 0)
        await settle()
        assert len(broker.asked) == 2
        broker.answer(0, 0)
        broker.answer(1, 10)
        await settle()
        partition.admit([run(20, NOW)])
        sender.offer(partition)
        sender.pump()
        await settle()
        assert (len(broker.ends), len(broker.asked)) == (1, 3), "asked once a connection"

    assert play(story) == []


def test_a_log_that_ends_elsewhere_stops_the_partition_and_nothing_is_written() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        partition._newest = NOW
        broker.end = 7
        await offered(sender, partition, NOW)
        assert broker.asked == []

    (incident,) = play(story)
    assert incident.kind is IncidentKind.UNCERTAIN
    assert "ends at 7, not at 0" in incident.reason


def test_a_leader_that_doesnt_say_where_the_log_ends_stops_the_partition() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        broker.end = None
        await offered(sender, partition, NOW)
        broker.answer_end(0, -1, error=6)  # NOT_LEADER_OR_FOLLOWER
        await settle()
        assert broker.asked == []

    (incident,) = play(story)
    assert "NOT_LEADER" in incident.reason


def test_after_another_connection_the_end_is_asked_for_again() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        await offered(sender, partition, NOW)
        broker.answer(0, 0)
        await settle()
        partition._end_checked_on = object()  # what it was before the connection broke
        broker.end = 10
        partition.admit([run(10, NOW)])
        sender.offer(partition)
        sender.pump()
        await settle()
        assert (len(broker.ends), len(broker.asked)) == (2, 2)

    assert play(story) == []


def test_after_a_rest_the_end_is_asked_for_again_where_the_producer_may_be_forgotten() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        for number, (stamp, asked) in enumerate([(OLD, 1), (OLD, 2), (NOW, 3), (NOW, 3)]):
            broker.end = 10 * number
            partition._end_known_at -= 10
            partition.admit([run(10 * number, stamp)])
            sender.offer(partition)
            sender.pump()
            await settle()
            assert len(broker.ends) == asked, number
            broker.answer(number, 10 * number)
            await settle()

    assert play(story) == []


def test_for_as_long_as_a_quota_of_the_broker_says_nothing_more_is_sent() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        await offered(sender, partition, NOW, NOW)
        broker.answer(0, 0, throttle_ms=600_000)
        await settle()
        sender.tick()
        assert len(broker.asked) == 1
        assert sender._flow.throttled_seconds == 600
        sender._not_before = 0.0  # the time has come
        sender.tick()
        assert len(broker.asked) == 2

    assert play(story) == []


def test_what_is_ready_to_be_written_waits_for_its_turn_while_a_limit_lets_others_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At a link's limit the buffer's records take minutes: nothing stands still."""
    at = time.monotonic()
    monkeypatch.setattr(sender_module, "time", SimpleNamespace(monotonic=lambda: at))

    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        nonlocal at
        partition.written_by(sender)
        await offered(sender, partition, NOW)
        broker.answer(0, 0, throttle_ms=600_000)
        partition.admit([run(10, NOW)])
        sender.offer(partition)
        at += 609
        assert partition.takes_turns
        at += 1
        assert not partition.takes_turns, "the limit holds nothing back any more"
        sender.tick()
        broker.answer(1, 10)
        await settle()
        assert not partition.takes_turns, "all of it is written"

    assert play(story) == []


def test_records_that_land_elsewhere_stop_the_partition() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        await offered(sender, partition, NOW)
        broker.answer(0, 3)
        await settle()

    (incident,) = play(story)
    assert incident.kind is IncidentKind.MISPLACED


def test_a_batch_of_a_codec_that_nobody_knows_is_named_at_once_with_what_to_do() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        partition.admit([run(0, NOW)._replace(attributes=7)])
        sender.offer(partition)
        sender.pump()
        await settle()
        broker.answer(0, -1, error=-1)  # UNKNOWN_SERVER_ERROR
        await settle()

    (incident,) = play(story)
    assert incident.kind is IncidentKind.REJECTED
    assert "10 records from source offset 0 of t:0" in incident.reason
    assert "compressed by codec 7" in incident.reason
    assert "4 (zstd)" in incident.reason
    assert "bring the target's brokers to that release" in incident.remedy
    assert "kafka-delete-records" in incident.remedy


def test_the_same_answer_to_a_codec_that_is_known_tells_nothing_of_the_batch() -> None:
    async def story(sender: Sender, partition: BatchPartition, broker: Broker) -> None:
        partition.admit([run(0, NOW)._replace(attributes=4)])
        sender.offer(partition)
        sender.pump()
        await settle()
        broker.answer(0, -1, error=-1)
        await settle()

    (incident,) = play(story)
    assert incident.kind is IncidentKind.UNCERTAIN
    assert "codec" not in incident.reason


@pytest.mark.parametrize(
    ("setting", "remembered"),
    [(timedelta(days=1), FORGOTTEN_MS), (timedelta(days=7), FORGOTTEN_MS), (timedelta(minutes=10), 300_000)],
    ids=["Kafka's default", "longer", "shorter"],
)
def test_a_broker_surely_remembers_a_producer_for_half_of_what_it_is_set_to(
    setting: timedelta, remembered: int
) -> None:
    memory = ProducerMemory()
    assert memory.ms == FORGOTTEN_MS, "as long as no broker has told"
    memory.told(setting)
    assert memory.ms == remembered


def test_where_the_target_forgets_producers_within_minutes_a_partition_goes_by_that_at_once() -> None:
    """Ten minutes were half a day: a refused batch's successor was appended in its place."""
    memory = ProducerMemory()
    start = PartitionStart(TopicPartition("t", 0), "t", 1, 0, 0, 0, 1_000_000, producer_id=5, preserve=True)
    partition = BatchPartition(start, memory=memory)
    partition._newest = int(time.time() * 1000) - 400_000
    assert partition.known
    partition.outstanding = 1
    assert not partition.must_wait
    memory.told(timedelta(minutes=10))
    assert not partition.known
    assert partition.must_wait, "one batch is under way at a time"
