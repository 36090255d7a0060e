"""The batch engine's thread for links that alter records: it calls the link's callables on read records.

A callable may be slow, or never return: meanwhile the event loop continues, with acknowledgements, connections and
the other partitions' requests. A partition's responses are altered one after the other, in parts; each part is
admitted, with its rows made durable, before the next.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from drkit.kafka.protocol.coalescing import CoalescedRun
from drkit.kafka.protocol.records import Damaged
from drkit.kafka.transform.record_transform import Alteration, AlterationFailed
from drkit.mirror.engine.batch_splitter import Piece, TooLarge
from drkit.mirror.engine.buffer_accounting import apart
from drkit.mirror.engine.engine_state import EngineState
from drkit.mirror.engine.fetcher import Read
from drkit.mirror.engine.interface import TURN_SECONDS
from drkit.mirror.engine.partition_state import BatchPartition
from drkit.mirror.transform.batch_rebuilder import altered_pieces
from drkit.model.process import keeping_context

_PART_SECONDS = 0.1


class AlteredPart(NamedTuple):
    """The result for a part of the read records. `error`: why there is nothing after it; `last`: it was the last."""

    pieces: list[Piece]
    error: AlterationFailed | Damaged | TooLarge | None
    last: bool


AdmitPart = Callable[[Read, AlteredPart], Coroutine[Any, Any, bool]]
"""Queues a part, after its rows are durable; False if the partition doesn't continue."""

Job = Callable[[Coroutine[Any, Any, None]], None]


class AlterationThread:
    """See the module docstring. Used on the engine's event loop.

    Args:
        flow: state shared within the engine.
        alteration: what the link changes in records.
        admit: takes the results.
        job: starts work beside the loop.
    """

    def __init__(self, flow: EngineState, alteration: Alteration, admit: AdmitPart, job: Job) -> None:
        self._flow = flow
        self._alteration = alteration
        self._admit = admit
        self._job = job
        self._waiting: dict[BatchPartition, deque[Read]] = {}
        self._thread = _Thread()
        self._stirred = asyncio.Event()
        self._returned_at = 0.0  # the last part
        self._closed = False

    def take(self, read: Read) -> None:
        """Alter a partition's read records, after those read before."""
        read = read._replace(batches=apart(read.batches))  # it may wait for long: free its response's memory
        self._flow.hold_bytes(_size(read))
        waiting = self._waiting.get(read.partition)
        if waiting is not None:
            waiting.append(read)
            return
        self._waiting[read.partition] = deque([read])
        self._job(self._alter(read.partition))

    def asks(self, partition: BatchPartition) -> bool:
        """Whether records of it wait for the callables. May be called from any thread."""
        return partition in self._waiting

    def takes_turns(self, partition: BatchPartition) -> bool:
        """Whether records of it wait for the callables, which alter others. May be called from any thread."""
        waits = partition in self._waiting and not (partition.queue or partition.outstanding or partition.asleep)
        return waits and time.monotonic() - self._returned_at < TURN_SECONDS

    def stir(self) -> None:
        """Partitions were released or forgotten: continue."""
        self._stirred.set()

    def close(self) -> None:
        """Start no more calls."""
        self._closed = True
        self.stir()
        self._thread.close()

    async def _alter(self, partition: BatchPartition) -> None:
        waiting = self._waiting[partition]
        try:
            while waiting:
                if not await self._alter_read(waiting[0]):
                    return
                self._flow.free_bytes(_size(waiting.popleft()))
        finally:
            del self._waiting[partition]
            self._flow.free_bytes(sum(map(_size, waiting)))

    async def _alter_read(self, read: Read) -> bool:
        """Alter and admit all of it; False if the partition doesn't continue."""
        partition = read.partition
        rules = partition.rules(committed=self._flow.committed)
        alter = partial(self._alteration.records, partition.tp)
        pieces = altered_pieces(read.batches, read.aborted, read.begin, rules, alter)
        while True:
            while partition.held and self._is_active(partition):
                self._stirred.clear()
                await self._stirred.wait()
            if not self._is_active(partition):
                return False
            part = await asyncio.wrap_future(self._thread.run(partial(_some, pieces)))
            self._returned_at = time.monotonic()
            if not self._is_active(partition) or not await self._admit(read, part):
                return False
            if part.last or part.error is not None:
                return part.error is None

    def _is_active(self, partition: BatchPartition) -> bool:
        return not self._closed and partition.wanted and partition.incident is None and partition.ending is None


def _some(pieces: Iterator[Piece]) -> AlteredPart:
    """The next records, for a moment's work."""
    found: list[Piece] = []
    until = time.monotonic() + _PART_SECONDS
    try:
        for piece in pieces:
            found.append(piece)
            if time.monotonic() > until:
                return AlteredPart(found, None, last=False)
    except (AlterationFailed, Damaged, TooLarge) as error:
        return AlteredPart(found, error, last=True)
    return AlteredPart(found, None, last=True)


def _size(read: Read) -> int:
    return sum(len(each.payload if isinstance(each, CoalescedRun) else each.whole) for each in read.batches)


class _Thread:
    """Runs calls one after the other. Nobody waits for it at the end: a callable may never return."""

    def __init__(self) -> None:
        self._due: queue.SimpleQueue[tuple[Future[AlteredPart], Callable[[], AlteredPart]] | None] = queue.SimpleQueue()
        threading.Thread(target=keeping_context(self._run), name="drkit-callables", daemon=True).start()

    def run(self, work: Callable[[], AlteredPart]) -> Future[AlteredPart]:
        """Queue a call."""
        future: Future[AlteredPart] = Future()
        self._due.put((future, work))
        return future

    def close(self) -> None:
        """End after the current call."""
        self._due.put(None)

    def _run(self) -> None:
        while (due := self._due.get()) is not None:
            future, work = due
            if not future.set_running_or_notify_cancel():
                continue
            try:
                part = work()
            except BaseException as error:  # noqa: BLE001 - a defect: it ends the engine
                future.set_exception(error)
            else:
                future.set_result(part)
