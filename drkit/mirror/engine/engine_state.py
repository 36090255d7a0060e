"""State that the fetchers and senders of the batch engine share: partitions, memory in use, failures.

Everything here is touched by the engine's event loop only; the counters may be read from any thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Protocol

from drkit.kafka.client.data_client import DataClient
from drkit.mirror.engine.buffer_accounting import BufferAccounting
from drkit.mirror.engine.catch_up_rate import CatchUpRate
from drkit.mirror.engine.interface import Incident, IncidentKind, Notice
from drkit.mirror.engine.partition_queue import Append, BatchPartition, Markers
from drkit.model.digests import RangeDigest
from drkit.model.statistics import EngineStatistics
from drkit.model.topology import CatchUpPolicy, TopicPartition


class ByteLimit(Protocol):
    """A bandwidth limit: how long to wait before so many bytes may go."""

    def take(self, size: int) -> float:
        """Account for `size` bytes that go now; returns seconds to wait before the next ones."""

    def share(self, workers: int) -> None:
        """So many workers share it."""


class BatchLimits:
    """Sizes of batches that targets took less of than their topics' limits say: known until a limit is changed.

    A broker that compresses batches again counts what it makes of them; a partition that is restarted mustn't begin
    with what was refused.
    """

    def __init__(self) -> None:
        self._lowered: dict[TopicPartition, tuple[int, int]] = {}

    def lower(self, partition: BatchPartition, limit: int) -> None:
        """Larger batches were refused."""
        partition.lower_limit(limit)
        self._lowered[partition.tp] = partition.most, partition.limit

    def set(self, partition: BatchPartition) -> None:
        """Begin with what is known."""
        most, limit = self._lowered.get(partition.tp, (partition.most, partition.limit))
        if most == partition.most:
            partition.lower_limit(limit)


class EngineState:
    """See the module docstring.

    Args:
        source, target: the connections.
        buffer_bytes: how much memory may be taken by what is read and not yet acknowledged.
        may_produce: whether this worker still holds the right to.
        tell: called with an incident once its partition is settled.
        notice: called with what an operator should know of a partition that continues.
        committed: read_committed.
        throttle: the link's bandwidth limit, None where it has none.
        catch_up: how fast a backlog is copied; as fast as can be where it isn't said.
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
        self.busy_seconds = self.throttled_seconds = 0.0
        self.rebuilt: Counter[str] = Counter()
        self.markers_refused = False
        self.limits = BatchLimits()
        self.ranges_ended: deque[RangeDigest] = deque()
        """Range digests of ranges that ended, until somebody takes them."""
        self.moving: set[BatchPartition] = set()
        """Partitions that are to be read from another broker now."""
        self.failure: BaseException | None = None
        self.notice = notice
        self._tell = tell

    @property
    def room(self) -> int:
        """Bytes that may still be read; what waits for a broker that doesn't answer is counted apart."""
        return self.buffer_bytes - self.memory.held + min(self.aside, self.buffer_bytes)

    def hold_bytes(self, size: int) -> None:
        """So many bytes of no answer's memory are kept."""
        self.memory.held += size

    def free_bytes(self, size: int) -> None:
        """So many of them aren't kept any more."""
        self.memory.held -= size
        self.see_room()

    def make_room(self) -> None:
        """Memory is short: give up answers of which only little waits."""
        self.memory.compact()
        self.see_room()

    def see_room(self) -> None:
        """Memory was freed: whoever waits for room may read on."""
        if self.room > 0:
            self.room_made.set()

    def free(self, items: Iterable[Append | Markers]) -> None:
        """These are acknowledged, or dropped."""
        for item in items:
            self.memory.free(item)
        self.see_room()

    def halt_partition(self, partition: BatchPartition, kind: IncidentKind, reason: str, remedy: str = "") -> None:
        """Halt a partition: what it had queued is dropped; the first reason about the target stays."""
        self.free(partition.halt(Incident(partition.tp, kind, reason, remedy)))
        self.settle(partition)

    def halt_after_queue(self, partition: BatchPartition, kind: IncidentKind, reason: str, remedy: str = "") -> None:
        """Halt a partition once its queue is written: the next record of the source can't be appended."""
        partition.halt_after(Incident(partition.tp, kind, reason, remedy))
        self.settle(partition)

    def settle(self, partition: BatchPartition) -> None:
        """Report a halted partition, once none of its requests is outstanding."""
        if partition.incident is None and partition.ending is None:
            return  # after each acknowledgement
        incident = partition.settled()
        if incident is not None and self.partitions.get(partition.tp) is partition:
            self._tell(incident)

    def uncertain(self, partitions: Iterable[BatchPartition], reason: str) -> None:
        """What the target holds of these isn't known."""
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
