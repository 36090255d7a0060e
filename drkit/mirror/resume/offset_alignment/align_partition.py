"""Advances a fresh target partition to the offset where its source begins, with batches of filler.

Each batch of filler is removed as soon as it is acknowledged, so at no time more than one is visible, and a mirror or a
cluster that dies meanwhile leaves no more than that. Filler is appended like any record, with the link's producer id
and sequence: a late worker's is refused, and a crash in between continues where the log ends.

The topic must be `cleanup.policy=delete` meanwhile: a compacted one refuses records without a key, and DeleteRecords
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
from drkit.mirror.engine.partition_queue import BatchPartition
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.topology import TopicPartition

Trim = Callable[[TopicPartition, int, int, int], None]
"""Removes filler of a target partition: as `drkit.kafka.client.filler.FillerTrimmer.trim`."""

_KEEP = "To keep them: `drkit link resume` it with --accept-recreated; then offsets differ"
_LANDED_SECONDS = 0.002
_RIGHT_SECONDS = 0.1


class PartitionAligner:
    """Aligns one partition. Used on the engine's event loop.

    Args:
        partition: started with filler to be appended, so it isn't read yet.
        begin, end: the target offsets that are filled: from where the alignment was begun, up to the source's start.
        flow: what the engine shares.
        trim: blocks, so it runs on a thread beside.
    """

    def __init__(self, partition: BatchPartition, begin: int, end: int, flow: EngineState, trim: Trim) -> None:
        self._partition = partition
        self._begin = begin
        self._end = end
        self._flow = flow
        self._trim = trim

    async def run(self) -> None:
        """Fill and trim until the target ends and begins at the end; then the partition is read."""
        partition, flow = self._partition, self._flow
        target = TopicPartition(partition.target_topic, partition.tp.partition)
        try:
            await self._trimmed(target)  # what an earlier start left: before more is put on top of it
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
            remedy = "Undo what prevents the deletion of records there; it is tried again by itself"
            flow.halt_partition(partition, IncidentKind.UNCERTAIN, f"{target} can't be aligned: {error.what}", remedy)
        else:
            if partition.active:
                partition.filled()

    async def _filled(self) -> None:
        """Append one batch of filler, as large as the target topic takes, and wait until it has landed."""
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
        """Remove what is filled so far."""
        partition = self._partition
        while not self._flow.may_produce():  # noqa: ASYNC110 - a question to a clock; who may not write may not delete
            await asyncio.sleep(_RIGHT_SECONDS)
        below = partition.next_target
        work = partial(self._trim, target, partition.producer_id, self._begin, below)
        await asyncio.get_running_loop().run_in_executor(None, work)
        partition.filler_removed()
