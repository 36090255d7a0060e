"""Admission: read batches get target offsets and sequence numbers, and wait until their mapping rows are durable.

`BatchPartition.admit` (`partition_state.py`) numbers the appends of one partition; this module does a whole response.

A thread beside the event loop stores the rows. Their partition waits meanwhile, with the batches read of it; the others
continue. Nothing more is asked of it by then but the request under way, so what waits there, beside `buffer_bytes`, is
less than one answer of each fetcher: a quarter of `buffer_bytes`, and at most 48 MiB. Where the link alters records,
`transform/transform_thread.py` comes first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any

from drkit.kafka.protocol.records import Damaged
from drkit.kafka.transform.record_transform import Alteration, AlterationFailed
from drkit.mirror.engine.batch_splitter import Piece, SourceGap, TooLarge, pieces
from drkit.mirror.engine.buffer_accounting import apart
from drkit.mirror.engine.engine_state import EngineState
from drkit.mirror.engine.fetcher import Read
from drkit.mirror.engine.interface import (
    TRIED_AGAIN,
    UNREADABLE_REMEDY,
    Incident,
    IncidentKind,
    KeepRows,
    Notice,
    Stopped,
    Withdrawn,
)
from drkit.mirror.engine.partition_state import BatchPartition, Writer
from drkit.mirror.transform.transform_thread import AlterationThread, AlteredPart
from drkit.model.errors import DrkitError
from drkit.model.link_state import OFFSETS_DIFFER
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import TopicPartition

log = logging.getLogger(__name__)


_MEND = f"Correct the callable and restart the mirror, or wait until its dependencies are back. {TRIED_AGAIN}"

_TRANSLATED = "Nothing is lost: offsets are translated from there on (`drkit translate`)"

Job = Callable[[Coroutine[Any, Any, None]], None]
"""Starts work beside the loop; a defect in it ends the engine."""


class Admission:
    """See the module docstring. Used on the engine's event loop.

    Args:
        flow: state shared within the engine.
        keep_rows: makes mapping rows durable; blocks.
        job: starts work beside the loop.
        alteration: what the link changes in records; None: nothing.
    """

    def __init__(self, flow: EngineState, keep_rows: KeepRows, job: Job, alteration: Alteration | None = None) -> None:
        self._flow = flow
        self._keep_rows = keep_rows
        self._job = job
        self._stash: dict[BatchPartition, list[Read]] = {}
        self.alterer = None if alteration is None else AlterationThread(flow, alteration, self._admit_part, job)

    def forget(self, partition: BatchPartition) -> None:
        """Note that a partition left the engine."""
        self._stash.pop(partition, None)

    def admit(self, found: list[Read]) -> None:
        """Queue read batches; where mapping rows are needed, store them first."""
        waiting: dict[BatchPartition, None] = {}
        rows: list[OffsetMapping] = []
        touched: set[Writer] = set()
        for read in found:
            partition = read.partition
            if self.alterer is not None:
                if self._follows(read):
                    self.alterer.take(read)
                continue
            if partition in self._stash:
                # storing its rows may take long: don't hold a whole response for its small part of it
                self._stash[partition].append(read._replace(batches=apart(read.batches)))
                continue
            due = self._take(read)
            if due:
                rows.extend(due)
                waiting[partition] = None
            elif (sender := partition.offer()) is not None:
                touched.add(sender)
        if rows:
            self._stash.update((partition, []) for partition in waiting)
            self._job(self._keep(rows, list(waiting)))
        for sender in touched:
            sender.pump()

    def _take(self, read: Read) -> list[OffsetMapping]:
        """Split one partition's batches and queue the pieces; returns the needed rows."""
        partition = read.partition
        if not self._follows(read):
            return []
        found: list[Piece] = []
        ended: Damaged | TooLarge | None = None
        try:
            rules = partition.rules(committed=self._flow.committed)
            for piece in pieces(read.batches, read.aborted, partition.next_source, rules):
                found.append(piece)  # noqa: PERF402 - pieces before an error are kept
        except (Damaged, TooLarge) as error:
            ended = error
        return self._queue(read, AlteredPart(found, ended, last=True))

    async def _admit_part(self, read: Read, part: AlteredPart) -> bool:
        """See `drkit.mirror.transform.transform_thread.AdmitPart`."""
        partition = read.partition
        rows = self._queue(read, part)
        if rows:
            self._stash[partition] = []
            await self._keep(rows, [partition])
            return partition not in self._stash
        if (sender := partition.offer()) is not None:
            sender.pump()
        return True

    def _follows(self, read: Read) -> bool:
        """Whether the batches come next for a partition that continues.

        A partition that ends before a record that can't be appended doesn't continue: if anything were queued after
        that record, it would look like a hole of the source.
        """
        flow, partition = self._flow, read.partition
        if not partition.active or partition.ending is not None:
            return False
        if not partition.follows(
            read.begin, read.batches[-1].last_offset + 1
        ):  # never: the offsets between would look like a hole of the source
            reason = f"what was read from source offset {read.begin} on doesn't follow {partition.next_admit}"
            flow.halt_partition(partition, IncidentKind.UNCERTAIN, reason)
            return False
        return True

    def _queue(self, read: Read, part: AlteredPart) -> list[OffsetMapping]:
        """Assign offsets to pieces and queue them; returns the needed rows."""
        flow, partition = self._flow, read.partition
        rows, queued, reasons = partition.admit(part.pieces)
        flow.memory.wait(list(islice(reversed(partition.queue), queued)))
        flow.merged += reasons.pop("merged", 0)
        flow.forwarded += reasons.pop("forwarded", 0)
        if reasons:
            flow.rebuilt.update(reasons)
        if part.error is not None:
            flow.halt_after_queue(partition, _incident(partition, part.error))
        if (why := partition.take_deviation()) is not None:
            flow.notice(Notice(partition.tp, OFFSETS_DIFFER, why, _TRANSLATED))
        return rows

    async def _keep(self, rows: list[OffsetMapping], waiting: list[BatchPartition]) -> None:
        """Make rows durable, then let their partitions continue, or report why they are halted; withdrawn ones wait
        until they are forgotten."""
        withdrawn: frozenset[TopicPartition] = frozenset()
        claims = {partition.tp: partition.claim for partition in waiting}
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._keep_rows, rows, claims)
        except Stopped:
            return
        except Withdrawn as found:
            withdrawn = found.tps
        except DrkitError as error:
            log.warning("mapping rows could not be kept: %s", error)
            for partition in waiting:
                self._stash.pop(partition, None)
                partition.rows_refused()
            self._flow.uncertain(waiting, f"its mapping rows could not be kept: {error}")
            return
        for partition in waiting:
            if partition.tp in withdrawn:
                continue
            stashed = self._stash.pop(partition, [])
            partition.rows_kept()
            self._flow.settle(partition)
            if not partition.active:
                continue
            if (sender := partition.offer()) is not None:
                sender.pump()
            if stashed:
                self.admit(stashed)


def _incident(partition: BatchPartition, error: AlterationFailed | Damaged | TooLarge) -> Incident:
    """Why a partition is halted before something that can't be appended, and what to do."""
    tp = partition.tp
    if isinstance(error, AlterationFailed):
        return Incident(tp, IncidentKind.REJECTED, str(error), _MEND)
    if isinstance(error, SourceGap):
        reason = (
            f"the source has nothing at offsets {error.first} to {error.end - 1} of {tp}, though later ones are there"
        )
        return Incident(tp, IncidentKind.GAP, reason, gap=(error.first, error.end))
    if isinstance(error, Damaged):
        reason = f"the source's records of {tp} from offset {partition.next_source} on can't be read: {error}"
        return Incident(tp, IncidentKind.UNREADABLE, reason, UNREADABLE_REMEDY)
    remedy = f"Raise max.message.bytes of {partition.target_topic} on the target above its size. {TRIED_AGAIN}"
    reason = f"the target takes batches of {partition.limit} bytes only: {error}, of {partition.tp}"
    return Incident(tp, IncidentKind.REJECTED, reason, remedy)
