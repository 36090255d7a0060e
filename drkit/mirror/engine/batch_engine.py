"""The batch engine: record batches fetched and produced as they are, on one event loop of its own thread.

    fetcher per source broker ──▶ admission ───▶ partition queue ───▶ sender per target broker
    (fetcher.py)                  (admission.py)  (partition_state.py)  (sender.py)

`leader_routing.py` decides which broker reads and writes each partition; `engine_state.py` holds shared state.
`buffer_bytes` bounds the memory, counted from the read to the acknowledgement.

Work is per batch, not per record; `drkit.mirror.engine.batch_splitter` says where and why a batch must be taken
apart, `drkit.mirror.engine.sender` how an append never duplicates a record.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, cast

import uvloop

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.client.data_client import DataClient
from drkit.kafka.transform.record_transform import Alteration
from drkit.mirror.engine.admission import Admission
from drkit.mirror.engine.engine_state import ByteLimit, EngineState
from drkit.mirror.engine.interface import (
    BatchBelow,
    Incident,
    IncidentKind,
    KeepRows,
    Notice,
    PartitionProgress,
    PartitionStart,
    StableEnd,
    gathered,
)
from drkit.mirror.engine.leader_routing import LeaderRouting
from drkit.mirror.engine.pacing.catch_up_rate import CatchUpRate
from drkit.mirror.engine.pacing.latency_probe import LatencyProbe
from drkit.mirror.engine.partition_state import BatchPartition, ProducerMemory
from drkit.mirror.resume.offset_alignment.align_partition import PartitionAligner, Trim
from drkit.model.digests import RangeDigest
from drkit.model.process import keeping_context
from drkit.model.statistics import EngineStatistics
from drkit.model.topology import DEFAULT_BUFFER_BYTES, CatchUpPolicy, TopicPartition

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.1
_TIMEOUT_SECONDS = 15.0
_PAUSE = 0.01
_CLOSE_SECONDS = 5.0
_NO_RIGHT = "the right to produce was lost"


class BatchEngine:
    """See the module docstring and `drkit.mirror.engine.interface.Engine`.

    Args:
        source: alias and configuration of the cluster to read.
        target: alias and configuration of the cluster to write.
        keep_rows: makes mapping rows durable; called on a thread of the engine.
        may_produce: whether this worker still holds the right to produce.
        trim: removes a target partition's filler below an offset.
        committed: leave out aborted records (read_committed).
        buffer_bytes: how many bytes may be read and not yet acknowledged.
        throttle: the link's bandwidth limit.
        catch_up: how a backlog is copied; None: at full speed.
        rack: of this worker, for reading from a replica near it.
        range_digests: keep digests of what is forwarded.
        alteration: changes each record; None: batches are forwarded as they are.
        producer_memory: for how long the target's brokers remember a producer; None: nobody asks them.
    """

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
        throttle: ByteLimit | None = None,
        catch_up: CatchUpPolicy | None = None,
        rack: str = "",
        range_digests: bool = False,
        alteration: Alteration | None = None,
        producer_memory: ProducerMemory | None = None,
    ) -> None:
        self._alteration = alteration
        self._producer_memory = producer_memory
        self._keep_rows = keep_rows
        self._trim = trim
        self._rack = rack
        self._policy = catch_up or CatchUpPolicy(adaptive=False)
        self._keeps_digests = range_digests
        self._incidents: queue.Queue[Incident] = queue.Queue()
        self._notices: queue.SimpleQueue[Notice] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._jobs: set[asyncio.Task[None]] = set()
        self._connected = False
        self._starting: dict[TopicPartition, PartitionStart] = {}
        self._ordering = threading.Lock()
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()  # it copies less than asyncio's: see bench/
        self._flow: EngineState | None = None
        self._ready = threading.Event()
        live = partial(self._live, source, target, committed, buffer_bytes, may_produce, throttle)
        self._thread = threading.Thread(
            target=keeping_context(self._run), args=(live,), name="drkit-batches", daemon=True
        )
        self._thread.start()
        self._ready.wait()

    # -- what is mirrored --------------------------------------------------------------------------

    def start(self, partitions: Sequence[PartitionStart]) -> None:
        """See `Engine.start`."""
        starts = list(partitions)
        with self._ordering:
            self._starting.update((start.tp, start) for start in starts)
        self._call(self._start, starts)

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

    def share_target(self, workers: int, *, in_use: bool) -> None:
        """See `Engine.share_target`."""
        self._call(self._share_target, workers, in_use)

    # -- progress ----------------------------------------------------------------------------------

    def positions(self) -> dict[TopicPartition, PartitionProgress]:
        """See `Engine.positions`. May be called from any thread."""
        return {tp: partition.window.position for tp, partition in self._started().items()}

    def at_rest(self) -> dict[TopicPartition, PartitionProgress]:
        """See `Engine.at_rest`."""
        return {tp: partition.window.position for tp, partition in self._started().items() if not partition.busy}

    def stable_ends(self) -> dict[TopicPartition, StableEnd]:
        """See `Engine.stable_ends`."""
        return {tp: partition.stable for tp, partition in self._started().items() if partition.stable is not None}

    def batches_below(self, positions: Mapping[TopicPartition, PartitionProgress]) -> dict[TopicPartition, BatchBelow]:
        """See `Engine.batches_below`."""
        partitions = self._partitions()
        places = ((tp, partitions.get(tp), position.source_through) for tp, position in positions.items())
        return {tp: p.source_batches.below(through) for tp, p, through in places if p is not None}

    def range_digests(self, *, opened: bool) -> list[RangeDigest]:
        """See `Engine.range_digests`. Called by one thread, any."""
        ended = self._flow.ranges_ended if self._flow is not None else ()
        found = [ended.popleft() for _ in range(len(ended))] if ended else []
        if opened and self._keeps_digests:
            rows = (p.ranges.opened() for p in self._partitions().values() if p.ranges is not None)
            found += [row for row in rows if row is not None]
        return found

    def notices(self) -> list[Notice]:
        """See `Engine.notices`."""
        found = []
        while not self._notices.empty():
            found.append(self._notices.get())
        return found

    def moved(self) -> int:
        """See `Engine.moved`. May be called from any thread."""
        return self._flow.records if self._flow is not None else 0

    def in_flight(self) -> int:
        """See `Engine.in_flight`."""
        return sum(partition.outstanding + len(partition.queue) for partition in self._partitions().values())

    def unsettled(self) -> bool:
        """See `Engine.unsettled`. May be called from any thread."""
        return self._flow is not None and self._flow.unsettled()

    def statistics(self) -> EngineStatistics:
        """The engine's counters. May be called from any thread."""
        return self._flow.statistics() if self._flow is not None else EngineStatistics()

    def unasked(self) -> frozenset[TopicPartition]:
        """See `Engine.unasked`: in a backlog each has its turn after the others."""
        alterer = self._admission.alterer
        return frozenset(
            tp
            for tp, partition in self._partitions().items()
            if partition.takes_turns or (alterer is not None and alterer.takes_turns(partition))
        )

    def waits_for(self, tp: TopicPartition) -> str | None:  # noqa: PLR0911 - a reason each
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
        if partition.reader is None:
            return f"its leader on the source, which is not known, at source offset {partition.next_source}"
        if partition.aside:
            return f"its leader on the target, which does not answer, at source offset {partition.next_source}"
        alterer = self._admission.alterer
        if alterer is not None and alterer.asks(partition):
            return f"the link's callables to answer from source offset {partition.next_source} on"
        return f"the source to deliver from source offset {partition.next_fetch} on"

    def handed_over(self, tp: TopicPartition) -> PartitionStart | None:
        """Where another engine continues with a partition of this closed one; None where both logs must be read
        first."""
        partition = self._partitions().get(tp)
        return None if partition is None else partition.handed_over()

    # -- moving ------------------------------------------------------------------------------------

    def poll(self, wait_seconds: float) -> list[Incident]:
        """See `Engine.poll`: the work is done on the engine's own thread."""
        found = gathered(self._incidents, wait_seconds)
        if self._failure is not None:
            raise self._failure
        return found

    def serve(self, wait_seconds: float) -> list[Incident]:
        """See `Engine.serve`: without the right to produce nothing is sent anyway."""
        return self.poll(wait_seconds)

    def drain(self, timeout_seconds: float) -> bool:
        """See `Engine.drain`."""
        stopped = threading.Event()
        self._call(self._stop_reading, stopped)
        deadline = time.monotonic() + timeout_seconds
        stopped.wait(timeout_seconds)
        while self.in_flight() and time.monotonic() < deadline and self._failure is None:
            time.sleep(_PAUSE)
        return not self.in_flight()

    def abort_unsent(self) -> None:
        """See `Engine.abort_unsent`."""
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

    def _run(self, live: Callable[[], Coroutine[Any, Any, None]]) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(live())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        except BaseException as error:  # noqa: BLE001 - raised again by `poll`
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
        throttle: ByteLimit | None,
    ) -> None:
        """Connect, then supervise fetchers and senders until the engine is closed."""
        self._ended = asyncio.Event()
        flow = self._flow = EngineState(
            DataClient(*source, timeout_seconds=_TIMEOUT_SECONDS),
            DataClient(*target, timeout_seconds=_TIMEOUT_SECONDS),
            buffer_bytes=buffer_bytes,
            may_produce=may_produce,
            tell=self._incidents.put,
            notice=self._notices.put,
            committed=committed,
            throttle=throttle,
            catch_up=CatchUpRate(self._policy),
        )
        self._admission = Admission(flow, self._keep_rows, self._job, self._alteration)
        self._placement = LeaderRouting(flow, self._admission.admit, rack=self._rack)
        probe = LatencyProbe(flow, self._placement.backlog_nodes)
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
                self._job(self._placement.learn())
            while not self._ended.is_set():
                self._placement.tick()
                if probe.failure is not None:
                    raise probe.failure
                self._reap()
                await asyncio.wait([ended], timeout=_TICK_SECONDS)
        finally:
            connecting.cancel()
            ended.cancel()
            probe.close()
            await self._let_go(flow, connecting)

    async def _let_go(self, flow: EngineState, connecting: asyncio.Future[tuple[None, None]]) -> None:
        self._placement.close()
        if self._admission.alterer is not None:
            self._admission.alterer.close()
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(connecting, *self._jobs, return_exceptions=True)
        await flow.source.close()
        await flow.target.close()

    # -- orders, on the loop -----------------------------------------------------------------------

    def _start(self, starts: list[PartitionStart]) -> None:
        flow = self._mirrored()
        self._forget([start.tp for start in starts])
        for start in starts:
            digests = flow.ranges_ended if self._keeps_digests else None
            partition = BatchPartition(
                start, matches=not flow.markers_refused, digests=digests, memory=self._producer_memory
            )
            flow.limits.set(partition)
            flow.partitions[start.tp] = partition
            if start.fill_to is not None:
                self._job(PartitionAligner(partition, start.fill_from, start.fill_to, flow, self._trim).run())
            self._placement.add(partition)
            with self._ordering:
                if self._starting.get(start.tp) is start:
                    del self._starting[start.tp]
        if self._connected:
            self._job(self._placement.learn())

    def _set_held(self, tps: list[TopicPartition], held: bool) -> None:
        for tp in tps:
            partition = self._mirrored().partitions.get(tp)
            if partition is not None:
                partition.hold(held)
        self._stir()

    def _forget(self, tps: list[TopicPartition]) -> None:
        flow = self._mirrored()
        for tp in tps:
            partition = flow.partitions.pop(tp, None)
            if partition is None:
                continue
            flow.remove(partition)
            self._admission.forget(partition)
            self._placement.remove(partition)
        self._stir()

    def _share_target(self, workers: int, in_use: bool) -> None:
        flow, most = self._mirrored(), self._policy.max_bytes_per_second
        if flow.throttle is not None:
            flow.throttle.share(workers)
        flow.catch_up.bound(None if most is None else most / workers)
        flow.catch_up.use(in_use)

    def _stir(self) -> None:
        if self._admission.alterer is not None:
            self._admission.alterer.stir()

    def _stop_reading(self, stopped: threading.Event) -> None:
        self._set_held(list(self._mirrored().partitions), True)
        stopped.set()

    def _cut(self) -> None:
        flow = self._mirrored()
        for partition in list(flow.partitions.values()):
            if partition.outstanding or partition.queue:
                flow.halt_partition(partition, IncidentKind.UNCERTAIN, _NO_RIGHT)

    def _end(self, _: Future[None]) -> None:
        self._ended.set()

    # -- helpers -----------------------------------------------------------------------------------

    def _job(self, work: Coroutine[Any, Any, None]) -> None:
        self._jobs.add(self._loop.create_task(work))

    def _reap(self) -> None:
        """Let a defect end the engine."""
        if self._mirrored().failure is not None:
            raise cast("BaseException", self._mirrored().failure)
        for job in [job for job in self._jobs if job.done()]:
            self._jobs.discard(job)
            job.result()

    def _mirrored(self) -> EngineState:
        if self._flow is None:
            raise RuntimeError("the engine has not begun")
        return self._flow

    def _partitions(self) -> dict[TopicPartition, BatchPartition]:
        return dict(self._flow.partitions) if self._flow is not None else {}

    def _started(self) -> dict[TopicPartition, BatchPartition]:
        """Those that don't wait for the loop to start them: until then a former start's position is still there."""
        with self._ordering:
            starting = set(self._starting)  # first: what is started in between has its new position
        return {tp: partition for tp, partition in self._partitions().items() if tp not in starting}

    def _call(self, order: Callable[..., object], *arguments: object) -> None:
        """Run something on the loop, in the order of the calls."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(order, *arguments)
