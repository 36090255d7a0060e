"""The mirror's engine boundary, with Spark's tasks behind it: the session on the driver decides, tasks move records.

    session ── start, hold, forget ──▶ SparkEngine ── a job for each task ──▶ Spark
            ◀── positions, incidents ─             ◀── heartbeats ─── tasks (`drkit.seed.task`)

Everything that makes a mirror exact stays on the driver: topics, claims, positions, mapping rows, watermarks. This
engine assigns partitions range by range, never one to two tasks at a time (`drkit.seed.ledger`). A partition whose
task is lost (an executor died, a connection was cut) becomes an incident of kind UNCERTAIN once that task can no longer
produce: the session checks both clusters, as after a crash of its own, and starts the partition again.

Partitions end at the session's goals: the mirror copies later records. Before each further range the source is compared
with what was read last: nothing reads a partition between two of them.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from drkit.mirror.engine.interface import (
    BatchBelow,
    Goals,
    Incident,
    KeepRows,
    Notice,
    PartitionProgress,
    PartitionStart,
    StableEnd,
    Stopped,
    gathered,
)
from drkit.model.digests import RangeDigest
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.offsets import OffsetMapping, SourceBatch
from drkit.model.statistics import EngineStatistics
from drkit.model.topology import TopicPartition
from drkit.seed.ledger import RANGE_OFFSETS, SeedLedger, share_out
from drkit.seed.protocol import VALID_SECONDS, DriverServer, rows_from

_TICK_SECONDS = 0.05
_LOST_IN_A_ROW = 5
_DIED = ("Python worker exited unexpectedly", "ExecutorLostFailure", "Connection reset")
_PATIENCE_SECONDS = 180.0


class Jobs(Protocol):
    """Runs tasks on Spark. `bind`, `port`: the driver's listening address."""

    bind: str
    port: int

    def slots(self) -> int:
        """How many tasks can run concurrently now."""

    def submit(self, task: str, port: int, key: bytes, ended: Callable[[BaseException | None], None]) -> None:
        """Run a task; `ended` is called on another thread at its end, with the error if it failed."""

    def close(self) -> None:
        """Stop the running tasks."""


Changed = Callable[[Mapping[TopicPartition, SourceBatch]], Collection[TopicPartition]]
"""Returns those of the source's partitions that hold something else in the place of these batches. Raises
Unreachable."""


class SparkEngine:
    """See the module docstring and `drkit.mirror.engine.interface.Engine`.

    Args:
        jobs: runs tasks.
        goals: where each partition ends; nothing is copied before they are set.
        changed: whether the source still holds what was read.
        keep_rows: makes mapping rows durable.
        may_produce: whether the session holds the right to produce.
        range_offsets: the most offsets of one partition for one task.
        bytes_per_second: the link's bandwidth limit, for all tasks together.
    """

    def __init__(
        self,
        jobs: Jobs,
        goals: Goals,
        changed: Changed,
        *,
        keep_rows: KeepRows,
        may_produce: Callable[[], bool],
        range_offsets: int = RANGE_OFFSETS,
        bytes_per_second: float | None = None,
    ) -> None:
        self._jobs = jobs
        self._goals = goals
        self._changed = changed
        self._keep_rows = keep_rows
        self._may_produce = may_produce
        self._range = range_offsets
        self._limit = bytes_per_second
        self._lock = threading.RLock()
        self._ledger = SeedLedger()
        self._failure: BaseException | None = None
        self._why: BaseException | None = None  # the last failure of a task, as reported by Spark
        self._cut_off = self._late = False
        self._closing = threading.Event()
        self._key = secrets.token_bytes(32)
        self._board = DriverServer(jobs.bind, jobs.port, self._key, self._answer, self._gone)
        self._scheduler = threading.Thread(target=self._schedule, name="drkit-seed", daemon=True)
        self._scheduler.start()

    # -- mirrored partitions -----------------------------------------------------------------------

    def start(self, partitions: Sequence[PartitionStart]) -> None:
        """See `Engine.start`."""
        with self._lock:
            self._ledger.start(partitions)

    def hold(self, tps: Iterable[TopicPartition]) -> None:
        """See `Engine.hold`."""
        with self._lock:
            self._ledger.hold(tps)

    def release(self, tps: Iterable[TopicPartition]) -> None:
        """See `Engine.release`."""
        with self._lock:
            self._ledger.release(tps)

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """See `Engine.forget`."""
        with self._lock:
            self._ledger.forget(tps)

    # -- progress ----------------------------------------------------------------------------------

    def positions(self) -> dict[TopicPartition, PartitionProgress]:
        """See `Engine.positions`. May be called from any thread."""
        with self._lock:
            return self._ledger.positions()

    def at_rest(self) -> dict[TopicPartition, PartitionProgress]:
        """See `Engine.at_rest`: none is known to rest, since tasks tell later what they have written."""
        return {}

    def stable_ends(self) -> dict[TopicPartition, StableEnd]:
        """See `Engine.stable_ends`: its tasks don't tell."""
        return {}

    def batches_below(self, positions: Mapping[TopicPartition, PartitionProgress]) -> dict[TopicPartition, BatchBelow]:
        """See `Engine.batches_below`."""
        with self._lock:
            return self._ledger.batches_below(positions)

    def range_digests(self, *, opened: bool) -> list[RangeDigest]:  # noqa: ARG002 - there are none
        """See `Engine.range_digests`: a bulk seed has none: its tasks come and go."""
        return []

    def notices(self) -> list[Notice]:
        """See `Engine.notices`."""
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._ledger.notices.get_nowait())
        return found

    def moved(self) -> int:
        """See `Engine.moved`. May be called from any thread."""
        return self.statistics().records

    def in_flight(self) -> int:
        """See `Engine.in_flight`."""
        with self._lock:
            return self._ledger.in_flight()

    def unsettled(self) -> bool:
        """See `Engine.unsettled`: a task that was lost may still write, and one that ended says whether it may."""
        return self._late or self.in_flight() > 0

    def statistics(self) -> EngineStatistics:
        """See `Engine.statistics`."""
        with self._lock:
            return self._ledger.statistics()

    def unasked(self) -> set[TopicPartition]:
        """See `Engine.unasked`."""
        with self._lock:
            return self._ledger.unasked()

    def waits_for(self, tp: TopicPartition) -> str | None:
        """See `Engine.waits_for`."""
        with self._lock:
            return self._ledger.waits_for(tp)

    # -- moving ------------------------------------------------------------------------------------

    def share_target(self, workers: int, *, in_use: bool) -> None:
        """See `Engine.share_target`: a seed's limit is shared out over its tasks."""

    def poll(self, wait_seconds: float) -> list[Incident]:
        """See `Engine.poll`: the work is done by tasks."""
        found = gathered(self._ledger.incidents, wait_seconds)
        if self._failure is not None:
            raise self._failure
        return found

    def serve(self, wait_seconds: float) -> list[Incident]:
        """See `Engine.serve`: without the right to produce tasks produce nothing."""
        return self.poll(wait_seconds)

    def drain(self, timeout_seconds: float) -> bool:
        """See `Engine.drain`."""
        self.hold(self.positions())
        deadline = time.monotonic() + timeout_seconds
        while self.in_flight() and time.monotonic() < deadline and self._failure is None:
            time.sleep(_TICK_SECONDS)
        return not self.in_flight()

    def abort_unsent(self) -> None:
        """See `Engine.abort_unsent`."""
        self._cut_off = True

    def close(self) -> None:
        """See `Engine.close`."""
        self._closing.set()
        self._scheduler.join()
        self._jobs.close()
        self._board.close()

    # -- assignment --------------------------------------------------------------------------------

    def _schedule(self) -> None:
        try:
            while not self._closing.wait(_TICK_SECONDS):
                self._look_after_tasks()
                self._give_out()
        except BaseException as error:  # noqa: BLE001 - raised again by `poll`
            self._failure = self._failure or error

    def _look_after_tasks(self) -> None:
        with self._lock:
            self._ledger.find_lost()
            idle = self._ledger.idle_seconds()
        if idle > _PATIENCE_SECONDS:
            raise DrkitError(
                f"Spark has begun no task of the seed in {idle:.0f} s",
                meaning="The cluster has no free cores, or its executors don't reach the driver",
                remedy="Check Spark's master; give --spark-conf spark.cores.max=N and spark.driver.host=ADDRESS",
            )

    def _give_out(self) -> None:
        """Assign ready partitions to as many tasks as there are free slots."""
        with self._lock:
            if self._ledger.endless():
                self._ledger.set_ends(self._goals())
            ready = self._ledger.ready()
        if not ready or not self._may_produce():
            return
        slots = self._jobs.slots()
        with self._lock:
            tasks = share_out(self._ledger.ready(), slots - self._ledger.running(), self._range)
            read = self._ledger.last_batches(each.tp for ranges in tasks for each in ranges)
        try:
            changed = self._changed(read) if read else ()
        except Unreachable:
            return  # the session observes the source, too, and reports it
        with self._lock:
            self._ledger.changed(changed)
            left = {(each.tp, each.first) for each in self._ledger.ready()}
            still = [[each for each in ranges if (each.tp, each.first) in left] for ranges in tasks]
            names = [self._ledger.give(ranges) for ranges in still if ranges]
        for name in names:
            self._jobs.submit(name, self._board.port, self._key, partial(self._ended, name))

    # -- requests of tasks, on their connections' threads ------------------------------------------

    def _answer(self, said: Mapping[str, Any]) -> dict[str, Any]:
        name = said["task"]
        with self._lock:
            if self._closing.is_set() or not self._ledger.alive(name):
                return {"over": True, "kept": False}
            if said["ask"] == "work":
                work = self._ledger.take_up(name)
                return {"over": True} if work is None else {"work": work, **self._grant(name)}
            if said["ask"] == "rows":
                rows = rows_from(said["rows"])
                mine = self._ledger.keep(name, {_place(row) for row in rows})
            else:
                answer = self._ledger.heartbeat(name, said)
                if said["ask"] == "done":
                    self._ledger.done(name, said["handed"])
                    self._late = self._late or said["unsettled"]
                return {**answer, **self._grant(name)}
        return self._kept(rows, mine)

    def _kept(self, rows: Sequence[OffsetMapping], mine: Mapping[TopicPartition, int]) -> dict[str, Any]:
        """Make the rows of `mine` durable, under these claims. Without the lock: it may take as long as the store is
        down."""
        owned = [row for row in rows if _place(row) in mine]
        try:
            if owned:
                self._keep_rows(owned, mine)
        except Stopped:
            return {"kept": False}
        except DrkitError as error:
            return {"failed": str(error)}
        finally:
            with self._lock:
                self._ledger.kept(mine)
        return {"kept": True, "withdrawn": sorted({_place(row) for row in rows} - mine.keys())}

    def _grant(self, name: str) -> dict[str, Any]:
        """Let a task produce for a while, if the session may; returns its current share of the link's limit."""
        valid = self._ledger.grant(name, 0.0 if self._cut_off or not self._may_produce() else VALID_SECONDS)
        share = None if self._limit is None else self._limit / max(1, self._ledger.producing())
        return {"valid": valid, "share": share}

    def _ended(self, name: str, error: BaseException | None) -> None:
        """Spark reports the end of a task. One that failed before it had begun will fail again: that ends the seed.

        Not if its worker died, which may happen to any; nor if its connection was cut so long ago that it is
        forgotten, since Spark may be slow to notice.
        """
        with self._lock:
            known = self._ledger.knows(name)
            begun = self._ledger.taken_up(name)
        died = error is not None and _worker_died(error)
        if error is not None:
            self._why = error
            if known and not (begun or died):
                self._failure = self._failure or error
        self._gone(name, unbegun=died)

    def _gone(self, name: str, *, unbegun: bool = False) -> None:
        """A task is silent. `unbegun`: also one that had not begun."""
        with self._lock:
            mine = self._ledger.alive(name) and (unbegun or self._ledger.taken_up(name))
            if self._closing.is_set() or not mine:
                return
            self._ledger.gone(name)
            self._late = True
            if self._ledger.losses > _LOST_IN_A_ROW:
                self._failure = (
                    self._failure
                    or self._why
                    or DrkitError(
                        f"Spark lost {self._ledger.losses} seed tasks in a row, and nothing was copied meanwhile",
                        remedy="Check the executors' logs; run it again when the cause is removed",
                    )
                )


def _worker_died(error: BaseException) -> bool:
    """Whether Spark lost the process of a task, by its scheduler's message."""
    return any(words in str(error) for words in _DIED)


def _place(row: OffsetMapping) -> TopicPartition:
    return TopicPartition(row.topic, row.partition)
