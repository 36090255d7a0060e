"""Fills a fresh target partition with batches of filler up to the offset where its source begins.

Each batch of filler is removed once it is acknowledged, so at most one is ever visible, even if the mirror or a cluster
dies. Filler is appended like any record, with the link's producer id and sequence: so a late worker's is refused, and a
crash in between continues at the log's end.

The topic must have `cleanup.policy=delete` meanwhile: a compacted one refuses records without a key, and DeleteRecords
(`drkit.mirror.resume.offset_alignment.aligned_topics`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from drkit.kafka.client.filler import ZSTD, NotFiller, filler_count, filler_payload
from drkit.mirror.engine.batch_splitter import RecordRun
from drkit.mirror.engine.engine_state import EngineState
from drkit.mirror.engine.interface import IncidentKind
from drkit.mirror.engine.partition_state import BatchPartition
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.topology import TopicPartition

Trim = Callable[[TopicPartition, int, int, int], None]
"""Removes filler of a target partition, like `drkit.kafka.client.filler.FillerTrimmer.trim`."""

_KEEP = "To keep them: `drkit link resume` it with --accept-recreated; then offsets differ"
_LANDED_SECONDS = 0.002
_RIGHT_SECONDS = 0.1


class PartitionAligner:
    """Aligns one partition. Used on the engine's event loop.

    Args:
        partition: started with filler to append, so it isn't read yet.
        begin, end: the target offsets to fill: from the alignment's begin to the source's start.
        flow: state shared within the engine.
        trim: blocks, so it runs on another thread.
    """

    def __init__(self, partition: BatchPartition, begin: int, end: int, flow: EngineState, trim: Trim) -> None:
        self._partition = partition
        self._begin = begin
        self._end = end
        self._flow = flow
        self._trim = trim

    async def run(self) -> None:
        """Fill and trim until the target's log is empty at the end; then the partition is read."""
        partition, flow = self._partition, self._flow
        target = TopicPartition(partition.target_topic, partition.tp.partition)
        try:
            await self._trimmed(target)  # an earlier start's filler, before more is added
            while partition.active and partition.next_target < self._end:
                await self._filled()
                if partition.active:
                    await self._trimmed(target)
        except Unreachable as error:
            flow.halt_partition(partition, IncidentKind.UNCERTAIN, str(error))
        except NotFiller as error:
            remedy = f"{error.remedy}, then `drkit link resume` the topic. {_KEEP}"
            flow.halt_partition(partition, IncidentKind.NOT_ALIGNED, f"{error.what}. {error.meaning}", remedy)
        except DrkitError as error:
            remedy = "Remove whatever prevents the deletion of records there; drkit retries it automatically"
            flow.halt_partition(partition, IncidentKind.UNCERTAIN, f"{target} can't be aligned: {error.what}", remedy)
        else:
            if partition.active:
                partition.filled()

    async def _filled(self) -> None:
        """Append one batch of filler, as large as the target topic accepts, and wait until it is written."""
        partition = self._partition
        count = filler_count(partition.limit, self._end - partition.next_target)
        stamp, source = int(time.time() * 1000), partition.next_source
        run = RecordRun(source, source, count, ZSTD, stamp, stamp, filler_payload(count))
        self._flow.memory.wait([partition.fill(run)])
        if (sender := partition.offer()) is not None:
            sender.pump()
        while partition.active and (partition.queue or partition.outstanding):  # noqa: ASYNC110 - as senders, by the clock
            await asyncio.sleep(_LANDED_SECONDS)

    async def _trimmed(self, target: TopicPartition) -> None:
        """Remove the filler written so far."""
        partition = self._partition
        while not self._flow.may_produce():  # noqa: ASYNC110 - polls a clock; without the right to write it may not delete
            await asyncio.sleep(_RIGHT_SECONDS)
        below = partition.next_target
        work = partial(self._trim, target, partition.producer_id, self._begin, below)
        await asyncio.get_running_loop().run_in_executor(None, work)
        partition.filler_removed()
