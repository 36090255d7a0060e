"""What is admitted follows what was admitted before: a gap that nobody read is no hole of the source."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, cast

from drkit.kafka.joined import scan
from drkit.kafka.stream import Stream
from drkit.mirror.batch_admission import Admission
from drkit.mirror.batch_flow import Flow
from drkit.mirror.batch_partition import BatchPartition
from drkit.mirror.batch_placement import Placement
from drkit.mirror.batch_reader import Read
from drkit.mirror.engine import Incident, IncidentKind, PartitionStart, Withdrawn
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import TopicPartition
from tests.support.batches import batch_bytes


class Nobody:
    """A placement of which nobody reads or writes anything yet."""

    def offer(self, _: BatchPartition) -> None:
        return None

    def touch(self, _: BatchPartition) -> None:
        return None


def read(partition: BatchPartition, begin: int, base: int) -> Read:
    data = memoryview(batch_bytes([(1, None, b"v", [])] * 10, base_offset=base))
    return Read(partition, begin, scan(data)[0], ())


def test_a_read_that_was_dropped_is_noticed() -> None:
    told: list[Incident] = []
    stream = cast("Stream", None)
    flow = Flow(
        stream,
        stream,
        buffer_bytes=1_000_000,
        may_produce=lambda: True,
        tell=told.append,
        notice=lambda *_: None,
        committed=True,
        throttle=None,
    )
    admission = Admission(flow, lambda _: None, lambda work: work.close())
    admission.attach(cast("Placement", Nobody()))
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


def test_partitions_go_on_though_one_read_with_them_was_withdrawn() -> None:
    """Rows of one answer's partitions are kept together: what is taken away meanwhile mustn't stop the others."""
    stream = cast("Stream", None)
    flow = Flow(
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

    def keep(rows: Sequence[OffsetMapping]) -> None:
        kept.extend(TopicPartition(row.topic, row.partition) for row in rows)
        raise Withdrawn([first.tp])

    jobs: list[Coroutine[Any, Any, None]] = []
    admission = Admission(flow, keep, jobs.append)
    admission.attach(cast("Placement", Nobody()))
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
    assert first.next_admit == 10, "nothing of it goes on"
    admission.forget(first)
