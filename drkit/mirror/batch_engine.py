"""The batch engine: record batches fetched and produced as they are, on one event loop of its own thread.

    fetcher per source broker ──▶ pieces ──▶ partition queue ──▶ sender per target broker
    (drkit.mirror.batch_reader)   (.pieces)  (.batch_partition)  (.batch_writer)

Admission is where a run gets its place: the target offset, the sequence number, the mapping row where
the delta changes. Rows are made durable on a thread beside the loop; their partition waits, the
others go on. What is in memory is bounded by `buffer_bytes`, counted from the read to the
acknowledgement.

Work is per batch, not per record; where a batch must be taken apart, and why, is in
`drkit.mirror.pieces`. How an append is kept from doubling a record is in `drkit.mirror.batch_writer`.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import cast

from drkit.config.schema import ClusterConfig
from drkit.kafka.records import Damaged
from drkit.kafka.stream import Stream
from drkit.mirror.alignment import Trim, fillers
from drkit.mirror.batch_flow import Flow, Throttle
from drkit.mirror.batch_partition import BatchPartition
from drkit.mirror.batch_reader import Fetcher, Read
from drkit.mirror.batch_writer import Sender
from drkit.mirror.engine import Incident, IncidentKind, KeepRows, PartitionStart, Position, Stopped
from drkit.mirror.pieces import Piece, TooLarge, pieces
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.offsets import OffsetMapping
from drkit.model.statistics import EngineStatistics
from drkit.model.topology import TopicPartition

log = logging.getLogger(__name__)

DEFAULT_BUFFER_BYTES = 32 * 1024 * 1024
_TICK_SECONDS = 0.1
_LEADERLESS_SECONDS = 3.0
_TIMEOUT_SECONDS = 15.0
_CLOSE_SECONDS = 5.0
_NO_RIGHT = "the right to produce was lost"
_RETRY = "Then `drkit link resume` the topic: it is tried again"


class BatchEngine:
    """See the module docstring and `drkit.mirror.engine.Engine`.

    Args:
        source: alias and configuration of the cluster to read.
        target: alias and configuration of the cluster to write.
        keep_rows: makes mapping rows durable; called on a thread of the engine's.
        may_produce: whether this worker still holds the right to produce.
        trim: removes a target partition's records below an offset (after an alignment).
        committed: leave out aborted records (read_committed).
        buffer_bytes: how much may be read and not yet acknowledged.
        throttle: the link's bandwidth limit.
        rack: of this worker, for reading from a replica near it.
    """

    name = "batch"

    def __init__(
        self,
        source: tuple[str, ClusterConfig],
        target: tuple[str, ClusterConfig],
        *,
        keep_rows: KeepRows,
        may_produce: Callable[[], bool],
        trim: Trim,
        committed: bool = True,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
        throttle: Throttle | None = None,
        rack: str = "",
    ) -> None:
        self._keep_rows = keep_rows
        self._trim = trim
        self._rack = rack
        self._incidents: queue.SimpleQueue[Incident] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._fetchers: dict[int, Fetcher] = {}
        self._senders: dict[int, Sender] = {}
        self._read_by: dict[BatchPartition, Fetcher] = {}
        self._written_by: dict[BatchPartition, Sender] = {}
        self._stash: dict[BatchPartition, list[Read]] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._draining = False
        self._connected = False
        self._loop = asyncio.new_event_loop()
        self._flow: Flow | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run,
            args=(source, target, committed, buffer_bytes, may_produce, throttle),
            name="drkit-batches",
            daemon=True,
        )
        self._thread.start()
        self._ready.wait()

    # -- what is mirrored --------------------------------------------------------------------------

    def start(self, partitions: Sequence[PartitionStart], *, gently: int = 0) -> None:  # noqa: ARG002 - the target names the batch it refuses
        """See `Engine.start`."""
        self._call(self._start, list(partitions))

    def hold(self, tps: Iterable[TopicPartition]) -> None:
        """See `Engine.hold`."""
        self._call(self._set_held, list(tps), True)

    def release(self, tps: Iterable[TopicPartition]) -> None:
        """See `Engine.release`."""
        self._call(self._set_held, list(tps), False)

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """See `Engine.forget`."""
        gone = list(tps)
        if gone:
            self._call(self._forget, gone)

    # -- progress ----------------------------------------------------------------------------------

    def positions(self) -> dict[TopicPartition, Position]:
        """See `Engine.positions`. May be called from any thread."""
        return {tp: partition.window.position for tp, partition in self._partitions().items()}

    def leader_epochs(self) -> dict[TopicPartition, int]:
        """The source's leader epoch of the last batch read, where one was. May be called from any thread."""
        return {tp: p.leader_epoch for tp, p in self._partitions().items() if p.leader_epoch >= 0}

    def moved(self) -> int:
        """See `Engine.moved`. May be called from any thread."""
        return self._flow.records if self._flow is not None else 0

    def in_flight(self) -> int:
        """See `Engine.in_flight`."""
        return sum(partition.outstanding + len(partition.queue) for partition in self._partitions().values())

    def statistics(self) -> EngineStatistics:
        """What it has done and is doing. May be called from any thread."""
        return self._flow.statistics() if self._flow is not None else EngineStatistics()

    def waits_for(self, tp: TopicPartition) -> str | None:
        """What a partition waits for; None where it isn't mirrored here. May be called from any thread."""
        partition = self._partitions().get(tp)
        if partition is None:
            return None
        if partition.incident is not None:
            return f"an answer to: {partition.incident.reason}"
        if partition.outstanding:
            return f"the target's acknowledgement of target offset {partition.window.position.target_end}"
        if partition.queue:
            return f"its turn to be written from target offset {partition.window.position.target_end} on"
        if partition.asleep:
            return f"its mapping rows to be kept, or its leader, at source offset {partition.next_source}"
        return f"the source to deliver from source offset {partition.next_fetch} on"

    # -- moving ------------------------------------------------------------------------------------

    def round(self, wait_seconds: float) -> list[Incident]:
        """See `Engine.round`: the work is done on the engine's own thread."""
        found: list[Incident] = []
        try:
            found.append(self._incidents.get(timeout=wait_seconds))
            while True:
                found.append(self._incidents.get_nowait())
        except queue.Empty:
            pass
        if self._failure is not None:
            raise self._failure
        return found

    def serve(self, wait_seconds: float) -> list[Incident]:
        """See `Engine.serve`: without the right to produce nothing is sent anyway."""
        return self.round(wait_seconds)

    def drain(self, timeout_seconds: float) -> bool:
        """See `Engine.drain`."""
        self._call(self._stop_reading)
        deadline = time.monotonic() + timeout_seconds
        while self.in_flight() and time.monotonic() < deadline and self._failure is None:
            self._ready.clear()
            self._call(self._ready.set)
            self._ready.wait(_TICK_SECONDS)
            time.sleep(0.01)
        return not self.in_flight()

    def cut(self) -> None:
        """See `Engine.cut`."""
        self._call(self._cut)

    def close(self) -> None:
        """See `Engine.close`."""
        if self._loop.is_closed():
            return
        ending: Future[None] = Future()
        self._call(self._end, ending)
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            log.warning("the batch engine's thread is still busy at the end")

    # -- the loop ----------------------------------------------------------------------------------

    def _run(
        self,
        source: tuple[str, ClusterConfig],
        target: tuple[str, ClusterConfig],
        committed: bool,
        buffer_bytes: int,
        may_produce: Callable[[], bool],
        throttle: Throttle | None,
    ) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._live(source, target, committed, buffer_bytes, may_produce, throttle))
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        except BaseException as error:  # noqa: BLE001 - raised again by `round`
            self._failure = error
        finally:
            self._ready.set()
            self._loop.close()

    async def _live(
        self,
        source: tuple[str, ClusterConfig],
        target: tuple[str, ClusterConfig],
        committed: bool,
        buffer_bytes: int,
        may_produce: Callable[[], bool],
        throttle: Throttle | None,
    ) -> None:
        """Connect, then look after fetchers and senders until the engine is closed."""
        self._ended = asyncio.Event()
        flow = self._flow = Flow(
            Stream(*source, timeout_seconds=_TIMEOUT_SECONDS),
            Stream(*target, timeout_seconds=_TIMEOUT_SECONDS),
            buffer_bytes=buffer_bytes,
            may_produce=may_produce,
            tell=self._incidents.put,
            committed=committed,
            throttle=throttle,
        )
        self._ready.set()
        connecting = asyncio.gather(flow.source.connect(), flow.target.connect())
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait(
                cast("list[asyncio.Future[object]]", [connecting, ended]), return_when=asyncio.FIRST_COMPLETED
            )
            if connecting.done():
                connecting.result()
                self._connected = True
            while not self._ended.is_set():
                await self._tick(flow)
                await asyncio.wait([ended], timeout=_TICK_SECONDS)
        finally:
            connecting.cancel()
            ended.cancel()
            await self._let_go(flow, connecting)

    async def _let_go(self, flow: Flow, connecting: asyncio.Future[tuple[None, None]]) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()
        for sender in self._senders.values():
            sender.close()
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(connecting, *self._jobs, return_exceptions=True)
        await flow.source.close()
        await flow.target.close()

    async def _tick(self, flow: Flow) -> None:
        """Follow leaders, notice brokers that don't answer, send what waited for the right to."""
        source_topics = {tp.topic for tp in flow.partitions}
        target_topics = {partition.target_topic for partition in flow.partitions.values()}
        await flow.source.track(source_topics)
        await flow.target.track(target_topics)
        for partition in list(flow.partitions.values()):
            if partition.incident is None:
                self._place(flow, partition)
        for sender in self._senders.values():
            stuck = sender.stuck
            sender.tick()
            if sender.stuck != stuck:
                self._set_aside(flow)
        for fetcher in self._fetchers.values():
            if fetcher.failure is not None:
                raise fetcher.failure
        for job in [job for job in self._jobs if job.done()]:
            self._jobs.discard(job)
            job.result()

    def _place(self, flow: Flow, partition: BatchPartition) -> None:
        """Have a partition read and written by the brokers that lead it now."""
        reader = flow.source.leader(*partition.tp)
        fetcher = None if reader is None else self._fetchers.get(reader)
        if reader is not None and fetcher is None:
            fetcher = self._fetchers[reader] = Fetcher(flow, reader, self._admit, rack=self._rack)
        before = self._read_by.get(partition)
        if fetcher is not before:
            if before is not None:
                before.remove(partition.tp)
            self._read_by.pop(partition, None)
            if fetcher is not None:
                self._read_by[partition] = fetcher
                fetcher.add(partition)
        writer = flow.target.leader(partition.target_topic, partition.tp.partition)
        sender = None if writer is None else self._senders.get(writer)
        if writer is not None and sender is None:
            sender = self._senders[writer] = Sender(flow, writer)
        was = self._written_by.get(partition)
        if sender is not was:
            if was is not None:
                was.withdraw(partition)
            self._written_by.pop(partition, None)
            if sender is not None:
                self._written_by[partition] = sender
                sender.offer(partition)
                sender.pump()
        if fetcher is None:
            flow.source.refresh()
        self._mind_leaderless(flow, partition, led=sender is not None)

    def _mind_leaderless(self, flow: Flow, partition: BatchPartition, *, led: bool) -> None:
        """What is queued for a partition that nobody leads doesn't stay in memory for long."""
        if led:
            partition.stuck_since = None
            return
        flow.target.refresh()
        partition.stuck_since = partition.stuck_since or time.monotonic()
        if partition.queue and time.monotonic() - partition.stuck_since > _LEADERLESS_SECONDS:
            flow.stand_still(
                partition,
                IncidentKind.UNCERTAIN,
                f"no broker leads {partition.target_topic}:{partition.tp.partition} on the target",
            )

    def _set_aside(self, flow: Flow) -> None:
        """What waits for brokers that don't answer is counted apart, and no more of it is read."""
        aside = 0
        for partition, sender in self._written_by.items():
            if sender.stuck:
                aside += partition.pending_bytes
            if partition.aside != sender.stuck:
                partition.aside = sender.stuck
                self._touch(partition)
        flow.aside = aside
        if flow.room > 0:
            flow.room_made.set()

    # -- admission ---------------------------------------------------------------------------------

    def _admit(self, found: list[Read]) -> None:
        """Queue what was read; where rows are due, keep them first."""
        waiting: list[BatchPartition] = []
        rows: list[OffsetMapping] = []
        touched: set[Sender] = set()
        for read in found:
            partition = read.partition
            if partition in self._stash:
                self._stash[partition].append(read)  # its rows are being kept
                continue
            due = self._take(read)
            if due:
                rows.extend(due)
                waiting.append(partition)
            elif (sender := self._written_by.get(partition)) is not None:
                sender.offer(partition)
                touched.add(sender)
        if rows:
            for partition in waiting:
                self._stash[partition] = []
                partition.asleep = True
                self._touch(partition)
            self._job(self._keep(rows, waiting))
        for sender in touched:
            sender.pump()

    def _take(self, read: Read) -> list[OffsetMapping]:
        """Take one partition's batches apart as far as needed, and queue them; returns the rows due."""
        flow, partition = self._mirrored(), read.partition
        if partition.incident is not None or not partition.wanted:
            return []
        found: list[Piece] = []
        ended: tuple[IncidentKind, str, str] | None = None
        try:
            rules = partition.rules(committed=flow.committed)
            for piece in pieces(read.batches, read.aborted, partition.next_source, rules):
                found.append(piece)  # noqa: PERF402 - what came before an error is kept
        except Damaged as error:
            reason = f"the source's records of {partition.tp} can't be read: {error}"
            ended = (IncidentKind.UNREADABLE, reason, "")
        except TooLarge as error:
            remedy = f"Raise max.message.bytes of {partition.target_topic} on the target above its size. {_RETRY}"
            reason = f"the target takes batches of {partition.limit} bytes only: {error}, of {partition.tp}"
            ended = (IncidentKind.REJECTED, reason, remedy)
        rows, size, reasons = partition.admit(found)  # what came before an error is good
        flow.hold_bytes(size)
        flow.merged += reasons.pop("merged", 0)
        flow.forwarded += reasons.pop("forwarded", 0)
        flow.rebuilt.update(reasons)
        partition.leader_epoch = read.batches[-1].leader_epoch
        if ended is not None:
            flow.end_after(partition, *ended)
        return rows

    async def _keep(self, rows: list[OffsetMapping], waiting: list[BatchPartition]) -> None:
        """Make rows durable, then let their partitions go on."""
        try:
            await self._loop.run_in_executor(None, self._keep_rows, rows)
        except Stopped:
            return
        except DrkitError as error:
            log.warning("mapping rows could not be kept: %s", error)
            self._mirrored().uncertain(waiting, f"its mapping rows could not be kept: {error}")
            for partition in waiting:
                self._stash.pop(partition, None)
            return
        for partition in waiting:
            stashed = self._stash.pop(partition, [])
            partition.asleep = False
            if partition.incident is not None or not partition.wanted:
                continue
            sender = self._written_by.get(partition)
            if sender is not None:
                sender.offer(partition)
                sender.pump()
            self._touch(partition)
            if stashed:
                self._admit(stashed)

    # -- orders, on the loop -----------------------------------------------------------------------

    def _start(self, starts: list[PartitionStart]) -> None:
        flow = self._mirrored()
        self._forget([start.tp for start in starts])
        for start in starts:
            partition = BatchPartition(start, matches=not flow.markers_refused)
            flow.partitions[start.tp] = partition
            if start.fill_to is not None:
                partition.asleep = True
                flow.hold_bytes(fillers(partition, start.fill_to))
                self._job(self._align(partition, start.fill_to))
        if self._connected:
            self._job(self._tick(flow))

    async def _align(self, partition: BatchPartition, fill_to: int) -> None:
        """Wait until the filler has landed, remove it, then begin to read."""
        flow = self._mirrored()
        target = TopicPartition(partition.target_topic, partition.tp.partition)
        while partition.window.position.target_end < fill_to:
            if partition.incident is not None or not partition.wanted:
                return
            await asyncio.sleep(_TICK_SECONDS / 4)
        try:
            await self._loop.run_in_executor(None, self._trim, target, fill_to)
        except Unreachable as error:
            flow.stand_still(partition, IncidentKind.UNCERTAIN, str(error))
        except DrkitError as error:
            remedy = f"{error.remedy or 'Remove the cause named'}. {_RETRY}"
            flow.stand_still(partition, IncidentKind.REJECTED, f"{target} can't be aligned: {error.what}", remedy)
        else:
            partition.asleep = False
            self._touch(partition)

    def _set_held(self, tps: list[TopicPartition], held: bool) -> None:
        for tp in tps:
            partition = self._mirrored().partitions.get(tp)
            if partition is not None and partition.held != held:
                partition.held = held
                self._touch(partition)

    def _forget(self, tps: list[TopicPartition]) -> None:
        flow = self._mirrored()
        for tp in tps:
            partition = flow.partitions.pop(tp, None)
            if partition is None:
                continue
            partition.wanted = False
            partition.window.stop("forgotten")
            flow.free_bytes(partition.drop_queue())
            self._stash.pop(partition, None)
            if (fetcher := self._read_by.pop(partition, None)) is not None:
                fetcher.remove(tp)
            if (sender := self._written_by.pop(partition, None)) is not None:
                sender.withdraw(partition)

    def _stop_reading(self) -> None:
        self._draining = True
        self._set_held(list(self._mirrored().partitions), True)

    def _cut(self) -> None:
        flow = self._mirrored()
        for partition in list(flow.partitions.values()):
            if partition.outstanding or partition.queue:
                flow.stand_still(partition, IncidentKind.UNCERTAIN, _NO_RIGHT)

    def _end(self, _: Future[None]) -> None:
        self._ended.set()

    # -- helpers -----------------------------------------------------------------------------------

    def _touch(self, partition: BatchPartition) -> None:
        if (fetcher := self._read_by.get(partition)) is not None:
            fetcher.touch(partition)

    def _job(self, work: object) -> None:
        self._jobs.add(self._loop.create_task(work))  # type: ignore[arg-type]  # coroutines

    def _mirrored(self) -> Flow:
        if self._flow is None:
            raise RuntimeError("the engine has not begun")
        return self._flow

    def _partitions(self) -> dict[TopicPartition, BatchPartition]:
        return dict(self._flow.partitions) if self._flow is not None else {}

    def _call(self, order: Callable[..., object], *arguments: object) -> None:
        """Have something done on the loop, in the order of the calls."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(order, *arguments)
