"""State that the fetchers and senders of the batch engine share: partitions, memory in use, failures.

Only the engine's event loop changes it; the counters may be read from any thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Protocol

from drkit.kafka.client.data_client import DataClient
from drkit.mirror.engine.buffer_accounting import BufferAccounting
from drkit.mirror.engine.interface import Incident, IncidentKind, Notice
from drkit.mirror.engine.pacing.catch_up_rate import CatchUpRate
from drkit.mirror.engine.partition_state import Append, BatchPartition, Markers
from drkit.model.digests import RangeDigest
from drkit.model.statistics import EngineStatistics
from drkit.model.topology import CatchUpPolicy, TopicPartition


def ended_by(task: asyncio.Task[None]) -> BaseException | None:
    """The defect that ended a task which only the engine's end may end; None while it works. Cancelled by anything
    else, it would stand still without a word."""
    if not task.done():
        return None
    return RuntimeError("a task of the engine was cancelled") if task.cancelled() else task.exception()


class ByteLimit(Protocol):
    """A bandwidth limit: how long to wait before sending that many bytes."""

    def take(self, size: int) -> float:
        """Account for `size` bytes sent now; returns the seconds to wait before the next ones."""

    def share(self, workers: int) -> None:
        """Set how many workers share it."""


class BatchLimits:
    """Batch sizes that targets refused although their topics' limits allow them; kept until a limit is changed.

    A broker that recompresses batches counts the recompressed size. A restarted partition must not try the refused size
    again.
    """

    def __init__(self) -> None:
        self._lowered: dict[TopicPartition, tuple[int, int]] = {}

    def lower(self, partition: BatchPartition, limit: int) -> None:
        """Note that larger batches were refused."""
        partition.lower_limit(limit)
        self._lowered[partition.tp] = partition.most, partition.limit

    def set(self, partition: BatchPartition) -> None:
        """Apply the known limit to a partition."""
        most, limit = self._lowered.get(partition.tp, (partition.most, partition.limit))
        if most == partition.most:
            partition.lower_limit(limit)


class EngineState:
    """See the module docstring.

    Args:
        source, target: the connections.
        buffer_bytes: how many bytes may be read and not yet acknowledged.
        may_produce: whether this worker still holds the right to produce.
        tell: called with an incident once its partition is settled.
        notice: called with facts that an operator should know about a partition that continues.
        committed: read_committed.
        throttle: the link's bandwidth limit, or None.
        catch_up: how fast a backlog is copied; default: at full speed.
    """

    def __init__(
        self,
        source: DataClient,
        target: DataClient,
        *,
        buffer_bytes: int,
        may_produce: Callable[[], bool],
        tell: Callable[[Incident], None],
        notice: Callable[[Notice], None],
        committed: bool,
        throttle: ByteLimit | None,
        catch_up: CatchUpRate | None = None,
    ) -> None:
        self.source = source
        self.target = target
        self.buffer_bytes = buffer_bytes
        self.may_produce = may_produce
        self.committed = committed
        self.throttle = throttle
        self.catch_up = catch_up or CatchUpRate(CatchUpPolicy(adaptive=False))
        self.partitions: dict[TopicPartition, BatchPartition] = {}
        self.memory = BufferAccounting()
        self.aside = 0
        self.room_made = asyncio.Event()
        self.records = self.bytes = self.forwarded = self.merged = self.markers = 0
        self.fetches = self.fetched_bytes = self.produces = 0
        self.in_flight_records = 0
        self.wrote_at = 0.0  # when the last request was sent to the target, or a limit lets it be sent
        self.busy_seconds = self.throttled_seconds = 0.0
        self.rebuilt: Counter[str] = Counter()
        self.markers_refused = False
        self.limits = BatchLimits()
        self.ranges_ended: deque[RangeDigest] = deque()
        """Digests of ranges that ended, until they are taken."""
        self.unanswered: set[TopicPartition] = set()
        """Partitions of which an append or a marker went without an answer, and none was acknowledged since."""
        self.removed: set[BatchPartition] = set()
        """Partitions that left the engine with requests in flight; some of these may be answered since."""
        self.moving: set[BatchPartition] = set()
        """Partitions to be read from another broker now."""
        self.failure: BaseException | None = None
        self.notice = notice
        self._tell = tell

    @property
    def room(self) -> int:
        """Bytes that may still be read; batches that wait for an unresponsive broker count apart."""
        return self.buffer_bytes - self.memory.held + min(self.aside, self.buffer_bytes)

    def hold_bytes(self, size: int) -> None:
        """Account for bytes kept outside of responses."""
        self.memory.held += size

    def free_bytes(self, size: int) -> None:
        """Account for such bytes freed."""
        self.memory.held -= size
        self.see_room()

    def make_room(self) -> None:
        """Memory is short: free responses of which only a small part waits."""
        self.memory.compact()
        self.see_room()

    def see_room(self) -> None:
        """Memory was freed: let waiting readers continue."""
        if self.room > 0:
            self.room_made.set()

    def free(self, items: Iterable[Append | Markers]) -> None:
        """Free items that are acknowledged or dropped."""
        for item in items:
            self.memory.free(item)
        self.see_room()

    def halt_partition(self, partition: BatchPartition, kind: IncidentKind, reason: str, remedy: str = "") -> None:
        """Halt a partition and drop its queue; the first reason about the target stays."""
        self.free(partition.halt(Incident(partition.tp, kind, reason, remedy)))
        self.settle(partition)

    def halt_after_queue(self, partition: BatchPartition, incident: Incident) -> None:
        """Halt a partition once its queue is written, because the next source record can't be appended."""
        partition.halt_after(incident)
        self.settle(partition)

    def settle(self, partition: BatchPartition) -> None:
        """Report a halted partition once none of its requests is outstanding and no row of it is being stored."""
        if partition.incident is None and partition.ending is None:
            return  # the usual case, called after each acknowledgement
        incident = partition.settled()
        if incident is not None and self.partitions.get(partition.tp) is partition:
            self._tell(incident)

    def remove(self, partition: BatchPartition) -> None:
        """A partition leaves the engine. What it has in flight may still reach the target."""
        self.free(partition.forget())
        self.removed = {each for each in (*self.removed, partition) if each.outstanding}

    def unsettled(self) -> bool:
        """See `Engine.unsettled`. May be called from any thread."""
        in_flight = (*list(self.partitions.values()), *self.removed)
        return bool(self.unanswered) or any(partition.outstanding for partition in in_flight)

    def uncertain(self, partitions: Iterable[BatchPartition], reason: str) -> None:
        """Halt these because the target's content is unknown."""
        for partition in partitions:
            self.halt_partition(partition, IncidentKind.UNCERTAIN, reason)

    def statistics(self) -> EngineStatistics:
        """The counters. May be called from any thread."""
        return EngineStatistics(
            records=self.records,
            bytes=self.bytes,
            batches_forwarded=self.forwarded,
            batches_rebuilt=dict(self.rebuilt),
            batches_merged=self.merged,
            markers_matched=self.markers,
            in_flight_records=self.in_flight_records,
            in_flight_bytes=self.memory.held,
            fetch_requests=self.fetches,
            fetch_bytes=self.fetched_bytes,
            produce_requests=self.produces,
            partitions_behind=sum(partition.behind for partition in list(self.partitions.values())),
            catch_up_bytes_per_second=self.catch_up.rate,
            target_latency_seconds=self.catch_up.latency,
            throttled_seconds=self.throttled_seconds,
        )
