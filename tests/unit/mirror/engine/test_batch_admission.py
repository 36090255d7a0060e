"""What is admitted follows what was admitted before: a gap that nobody read is no hole of the source."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drkit.kafka.client.data_client import DataClient
from drkit.kafka.protocol.coalescing import scan
from drkit.kafka.protocol.records import RawRecord
from drkit.kafka.transform.record_transform import Alteration, AlterationFailed
from drkit.mirror.engine.admission import Admission
from drkit.mirror.engine.batch_splitter import pieces
from drkit.mirror.engine.engine_state import EngineState
from drkit.mirror.engine.fetcher import Read
from drkit.mirror.engine.interface import Incident, IncidentKind, PartitionStart, Withdrawn
from drkit.mirror.engine.partition_state import Append, BatchPartition
from drkit.mirror.transform import transform_thread
from drkit.model.digests import RangeDigest
from drkit.model.errors import DrkitError
from drkit.model.offsets import OffsetMapping, SourceBatch
from drkit.model.topology import TopicPartition
from tests.support.links.batches import batch_bytes


def read(partition: BatchPartition, begin: int, base: int) -> Read:
    data = memoryview(batch_bytes([(1, None, b"v", [])] * 10, base_offset=base))
    return Read(partition, begin, scan(data)[0], ())


def test_a_read_that_was_dropped_is_noticed() -> None:
    told: list[Incident] = []
    stream = cast("DataClient", None)
    flow = EngineState(
        stream,
        stream,
        buffer_bytes=1_000_000,
        may_produce=lambda: True,
        tell=told.append,
        notice=lambda *_: None,
        committed=True,
        throttle=None,
    )
    admission = Admission(flow, lambda *_: None, lambda work: work.close())
    start = PartitionStart(TopicPartition("t", 0), "t", 1, 0, 0, 0, 1_000_000, preserve=True)
    partition = flow.partitions[start.tp] = BatchPartition(start)
    admission.admit([read(partition, 0, 0)])
    admission.admit([read(partition, 10, 15)])  # a hole: asked for 10, the source's next record is 15
    assert told == []
    assert partition.next_source == 25
    admission.admit([read(partition, 35, 35)])
    (incident,) = told
    assert incident.kind is IncidentKind.UNCERTAIN
    assert "doesn't follow 25" in incident.reason
    assert partition.next_source == 25


def test_a_range_digest_keeps_the_source_batch_that_ends_it() -> None:
    """Its checksum as it was read, not that of what is appended: the producer is another one there."""
    ended: deque[RangeDigest] = deque()
    partition = BatchPartition(PartitionStart(TopicPartition("t", 0), "t", 1, 0, 5, 5, 1_000_000), digests=ended)
    counts = (30, 40, 50)
    logs = [
        batch_bytes([(1, None, b"v%d" % count, [])] * count, base_offset=sum(counts[:at]))
        for at, count in enumerate(counts)
    ]
    batches = [each for data in logs for each in scan(memoryview(data))[0]]
    partition.admit(pieces(batches, (), 0, partition.rules(committed=True)))
    through, crcs = 5, [each.crc for each in batches]
    for item in list(partition.queue):
        assert isinstance(item, Append)
        through += item.count
        assert partition.acknowledge(item, through - 1) is None
    assert partition.ranges is not None
    row = partition.ranges.opened()
    assert row is not None
    assert (row.source_end, row.records, row.source_batch) == (120, 120, SourceBatch(119, crcs[-1]))


def test_what_is_read_behind_a_record_that_can_not_be_appended_is_no_reason_to_pass_it_over() -> None:
    """The next read was under way when it was found, and what came before it is not written yet: between that and the
    record stands nothing but what the target refuses, and no hole of the source."""
    flow, told = a_flow()
    partition = added(flow)
    admission = Admission(flow, lambda *_: None, lambda work: work.close())
    large = memoryview(batch_bytes([(1, None, bytes(2_000_000), [])], base_offset=10))
    admission.admit([read(partition, 0, 0), Read(partition, 10, scan(large)[0], ()), read(partition, 11, 11)])
    assert partition.next_source == 10
    assert [item.source_first for item in partition.queue if isinstance(item, Append)] == [0]
    assert told == [], "it is told once what came before is written"


def test_partitions_go_on_though_one_read_with_them_was_withdrawn() -> None:
    """Rows of one answer's partitions are kept together: what is taken away meanwhile mustn't stop the others."""
    stream = cast("DataClient", None)
    flow = EngineState(
        stream,
        stream,
        buffer_bytes=1_000_000,
        may_produce=lambda: True,
        tell=lambda _: None,
        notice=lambda *_: None,
        committed=True,
        throttle=None,
    )
    first, second = (
        BatchPartition(PartitionStart(TopicPartition("t", number), "t", 1, 0, 0, -1, 1_000_000)) for number in range(2)
    )
    kept: list[TopicPartition] = []

    def keep(rows: Sequence[OffsetMapping], _: Mapping[TopicPartition, int]) -> None:
        kept.extend(TopicPartition(row.topic, row.partition) for row in rows)
        raise Withdrawn([first.tp])

    jobs: list[Coroutine[Any, Any, None]] = []
    admission = Admission(flow, keep, jobs.append)
    for partition in (first, second):
        flow.partitions[partition.tp] = partition
    admission.admit([read(first, 0, 0), read(second, 0, 0)])
    assert (first.asleep, second.asleep) == (True, True)
    (job,) = jobs
    asyncio.run(job)
    assert kept == [first.tp, second.tp]
    assert (first.asleep, second.asleep) == (True, False)
    assert (first.keeping, second.keeping) == (True, False)
    admission.admit([read(first, 10, 10)])
    assert first.next_admit == 10, "nothing of it continues"
    admission.forget(first)


@pytest.mark.parametrize("refusal", [None, DrkitError("the store takes none")], ids=["stored", "refused"])
def test_a_partition_that_halts_while_its_rows_are_being_stored_is_told_once_that_has_ended(
    refusal: DrkitError | None,
) -> None:
    """Else the next start would read the mapping before the row is there: nothing would ever remove it."""
    flow, told = a_flow()
    start = PartitionStart(TopicPartition("t", 0), "t", 1, 0, 0, -1, 1_000_000, claim=7)
    partition = flow.partitions[start.tp] = BatchPartition(start)

    def keep(_: Sequence[OffsetMapping], claims: Mapping[TopicPartition, int]) -> None:
        assert claims == {partition.tp: 7}, "those of its start"
        assert told == [], "the store was away until now"
        if refusal is not None:
            raise refusal

    jobs: list[Coroutine[Any, Any, None]] = []
    admission = Admission(flow, keep, jobs.append)
    admission.admit([read(partition, 0, 0)])
    flow.halt_partition(partition, IncidentKind.UNCERTAIN, "the target's broker 1 didn't answer")
    assert told == []
    asyncio.run(jobs[0])
    assert [incident.reason for incident in told] == ["the target's broker 1 didn't answer"]


class Asked:
    """An alteration that leaves some records out, raises at one, and keeps what it was asked about."""

    def __init__(self, *, without: range = range(0), raises_at: int = -1) -> None:
        self.offsets: list[int] = []
        self._without = without
        self._raises_at = raises_at

    def records(self, _: TopicPartition, records: Iterable[RawRecord]) -> Iterator[RawRecord]:
        for record in records:
            self.offsets.append(record.offset)
            if record.offset == self._raises_at:
                raise AlterationFailed("it raised", record.offset)
            if record.offset not in self._without:
                yield record


def altered(
    flow: EngineState, asked: Asked, keep_rows: Any = lambda *_: None
) -> tuple[Admission, list[asyncio.Task[None]]]:
    """An admission on the running loop whose link alters records."""
    jobs: list[asyncio.Task[None]] = []
    loop = asyncio.get_running_loop()
    admission = Admission(flow, keep_rows, lambda work: jobs.append(loop.create_task(work)), cast("Alteration", asked))
    return admission, jobs


def test_altered_records_are_admitted_in_order_and_their_rows_kept_first() -> None:
    kept: list[OffsetMapping] = []

    async def work() -> None:
        flow, told = a_flow()
        asked = Asked(without=range(3, 5))
        partition = added(flow)
        admission, jobs = altered(flow, asked, lambda rows, _: kept.extend(rows))
        admission.admit([read(partition, 0, 0)])
        admission.admit([read(partition, 10, 10)])
        assert flow.memory.held > 0
        await asyncio.gather(*jobs)
        admission.alterer.close()  # type: ignore[union-attr]  # there is one
        assert asked.offsets == list(range(20))
        assert sum(item.count for item in partition.queue if isinstance(item, Append)) == 18
        assert (partition.next_source, partition.next_target, partition.keeping) == (20, 18, False)
        assert flow.memory.held == partition.queued_bytes
        assert told == []

    asyncio.run(work())
    assert [(row.source_offset, row.target_offset) for row in kept] == [(5, 3)]


def test_a_callable_that_raises_ends_a_partition_behind_what_came_before() -> None:
    async def work() -> None:
        flow, told = a_flow()
        partition = added(flow)
        admission, jobs = altered(flow, Asked(raises_at=13))
        admission.admit([read(partition, 0, 0), read(partition, 10, 10), read(partition, 20, 20)])
        await asyncio.gather(*jobs)
        assert partition.next_source == 13
        assert partition.ending is not None
        assert partition.ending.kind is IncidentKind.REJECTED
        assert told == []  # what came before is to be written first
        assert flow.memory.held == partition.queued_bytes

    asyncio.run(work())


def test_records_of_a_partition_that_is_held_or_gone_wait() -> None:
    async def work() -> None:
        flow, _ = a_flow()
        asked = Asked()
        partition = added(flow)
        admission, jobs = altered(flow, asked)
        partition.hold(True)
        admission.admit([read(partition, 0, 0)])
        await asyncio.sleep(0)
        assert asked.offsets == []
        assert admission.alterer is not None
        assert admission.alterer.asks(partition)
        partition.forget()
        admission.alterer.stir()
        await asyncio.gather(*jobs)
        assert asked.offsets == []
        assert flow.memory.held == 0

    asyncio.run(work())


def test_what_waits_for_callables_takes_turns_while_they_alter_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread asks them all: a backlog of slow ones takes minutes, and nothing stands still."""
    clock = SimpleNamespace(at=50.0)
    monkeypatch.setattr(transform_thread, "time", SimpleNamespace(monotonic=lambda: clock.at))

    async def work() -> None:
        flow, _ = a_flow()
        admission, jobs = altered(flow, Asked())
        alterer = admission.alterer
        assert alterer is not None
        first, second = added(flow), added(flow, number=1)
        second.hold(True)
        admission.admit([read(second, 0, 0)])
        await asyncio.sleep(0)
        assert not alterer.takes_turns(second), "none has returned yet"
        admission.admit([read(first, 0, 0)])
        await jobs[1]
        assert alterer.takes_turns(second)
        assert not alterer.takes_turns(first), "it waits for the target"
        clock.at += 10
        assert not alterer.takes_turns(second), "one doesn't return"
        second.forget()
        alterer.stir()
        await jobs[0]
        alterer.close()

    asyncio.run(work())


def a_flow() -> tuple[EngineState, list[Incident]]:
    told: list[Incident] = []
    stream = cast("DataClient", None)
    flow = EngineState(
        stream,
        stream,
        buffer_bytes=1_000_000,
        may_produce=lambda: True,
        tell=told.append,
        notice=lambda *_: None,
        committed=True,
        throttle=None,
    )
    return flow, told


def added(flow: EngineState, number: int = 0) -> BatchPartition:
    start = PartitionStart(TopicPartition("t", number), "t", 1, 0, 0, 0, 1_000_000)
    partition = flow.partitions[start.tp] = BatchPartition(start)
    return partition
