"""The record engine: consumer batch reads, idempotent produce, one mapping row per change of the delta.

One consumer with manual assignment (its group id is only a formality: nothing is ever committed)
reads read_committed with end-of-partition events; an offset that the source doesn't have is an
error, never a reset. Each round takes what is there, finds the rows, keeps them, then hands over to
the writer (`drkit.mirror.record_writer`).

Per record the Python work is a handful of calls into the clients; everything per partition is
looked up once per run of records of one partition. Memory is bounded by the consumer's prefetch,
one chunk, and the producers' queues: together about the link's `buffer_bytes`.

Where the link filters, transforms or marks records, each is altered as it is admitted
(`drkit.mirror.transforms`); one that is left out is a hole, as a compacted one is.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from drkit.config.schema import ClusterConfig
from drkit.kafka.clients import confluent_config
from drkit.mirror.engine import Incident, IncidentKind, KeepRows, Notice, PartitionStart, Position
from drkit.mirror.partition import MirroredPartition
from drkit.mirror.producers import client_log
from drkit.mirror.record_writer import NO_RIGHT, PAUSE, AppendOdd, RecordWriter
from drkit.mirror.refusals import RETRY_NOW
from drkit.mirror.shared import SharedInFlight
from drkit.mirror.statistics import EngineStatistics
from drkit.mirror.throttle import Throttle
from drkit.mirror.transforms import Alteration, AlterationFailed
from drkit.model.digests import RangeDigest
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import DEFAULT_BUFFER_BYTES, TopicPartition

log = logging.getLogger(__name__)

_CHUNK = 10_000
_CHUNK_THROTTLED = 500
_LEAST_FETCH_BYTES = 1_000_000  # what librdkafka takes for the largest message
_MOST_FETCH_BYTES = 16 * 1024 * 1024
_CLOSE_SECONDS = 5.0
_TARGET_KINDS = frozenset({IncidentKind.UNCERTAIN, IncidentKind.REJECTED})
# librdkafka's own event names begin with an underscore
_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - as above
_OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})  # noqa: SLF001 - as above
_UNREADABLE = frozenset({KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.TOPIC_AUTHORIZATION_FAILED})  # noqa: SLF001 - as above


class RecordEngine:
    """See the module docstring and `drkit.mirror.engine.Engine`.

    Args:
        source: the cluster to read.
        target: the cluster to write.
        keep_rows: makes mapping rows durable.
        may_produce: whether this worker still holds the right to produce.
        append_odd: appends a record that librdkafka can't express.
        stop: set when the runtime is to end; waits end early then.
        compression: of the batches produced.
        alteration: what is done to each record; None: nothing.
        throttle: the link's bandwidth limit.
        buffer_bytes: about how much may be held in memory.
        shared: the target's partitions have other writers: no offset is expected, no mapping row kept.
        committed: read committed records only.
    """

    name = "record"

    def __init__(
        self,
        source: ClusterConfig,
        target: ClusterConfig,
        *,
        keep_rows: KeepRows,
        may_produce: Callable[[], bool],
        append_odd: AppendOdd,
        stop: threading.Event,
        compression: str = "lz4",
        linger_ms: int = 5,
        alteration: Alteration | None = None,
        throttle: Throttle | None = None,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
        shared: bool = False,
        committed: bool = True,
    ) -> None:
        throttle = throttle or Throttle(None)
        self._keep_rows = keep_rows
        self._alteration = alteration
        self._shared = shared
        self._chunk = _CHUNK_THROTTLED if throttle.limits else _CHUNK
        self._partitions: dict[TopicPartition, MirroredPartition] = {}
        self._standing: dict[TopicPartition, MirroredPartition] = {}
        self._consumer = Consumer(_consumer_config(source, buffer_bytes // 4, committed=committed), logger=client_log)
        self._writer = RecordWriter(
            target,
            stand_still=self._stand_still,
            partitions=lambda: list(self._partitions.values()),
            may_produce=may_produce,
            append_odd=append_odd,
            stop=stop,
            compression=compression,
            linger_ms=linger_ms,
            throttle=throttle,
            memory_bytes=buffer_bytes // 2,
        )

    # -- what is mirrored --------------------------------------------------------------------------

    def start(self, partitions: Sequence[PartitionStart], *, gently: int = 0) -> None:
        """See `Engine.start`."""
        self.forget(start.tp for start in partitions)
        fresh = [MirroredPartition(start, gently) for start in partitions]
        if self._shared:
            for partition in fresh:
                partition.window = SharedInFlight(partition.next_source, partition.next_target)
        self._partitions.update((partition.tp, partition) for partition in fresh)
        self._assign(fresh)

    def hold(self, tps: Iterable[TopicPartition]) -> None:
        """See `Engine.hold`."""
        held = [p for tp in tps if (p := self._partitions.get(tp)) is not None and not p.held]
        self._unassign(held)
        for partition in held:
            partition.held = True

    def release(self, tps: Iterable[TopicPartition]) -> None:
        """See `Engine.release`."""
        released = [p for tp in tps if (p := self._partitions.get(tp)) is not None and p.held]
        for partition in released:
            partition.held = False
        self._assign([partition for partition in released if partition.incident is None])

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """See `Engine.forget`."""
        gone = [p for tp in tps if (p := self._partitions.get(tp)) is not None]
        self._unassign(gone)
        for partition in gone:
            partition.window.stop("forgotten")
            del self._partitions[partition.tp]
            self._standing.pop(partition.tp, None)

    # -- progress ----------------------------------------------------------------------------------

    def positions(self) -> dict[TopicPartition, Position]:
        """See `Engine.positions`. May be called from any thread."""
        return {tp: partition.window.position for tp, partition in list(self._partitions.items())}

    def leader_epochs(self) -> dict[TopicPartition, int]:
        """See `Engine.leader_epochs`: librdkafka's consumer doesn't tell."""
        return {}

    def range_digests(self, *, opened: bool) -> list[RangeDigest]:  # noqa: ARG002 - there are none
        """See `Engine.range_digests`: records are put into batches anew, so it keeps none."""
        return []

    def notices(self) -> list[Notice]:
        """See `Engine.notices`: records that are told apart leave nothing to tell."""
        return []

    def moved(self) -> int:
        """See `Engine.moved`. May be called from any thread."""
        return self._writer.moved

    def in_flight(self) -> int:
        """See `Engine.in_flight`."""
        return sum(partition.outstanding for partition in self._partitions.values())

    def statistics(self) -> EngineStatistics:
        """What it has done and is doing. May be called from any thread."""
        return EngineStatistics(
            records=self._writer.moved,
            bytes=self._writer.bytes_moved,
            in_flight_records=self._writer.queued(),
            in_flight_bytes=self._writer.pending_bytes(),
        )

    def waits_for(self, tp: TopicPartition) -> str | None:
        """What a partition waits for; None where it isn't mirrored here. May be called from any thread."""
        partition = self._partitions.get(tp)
        if partition is None:
            return None
        if partition.incident is not None:
            return f"an answer to: {partition.incident.reason}"
        if partition.outstanding:
            return f"the target's acknowledgement of target offset {partition.window.position.target_end}"
        if partition.batch:
            return f"its mapping rows to be kept before source offset {partition.window.position.source_through}"
        return f"the source to deliver from source offset {partition.next_source} on"

    # -- moving ------------------------------------------------------------------------------------

    def round(self, wait_seconds: float) -> list[Incident]:
        """See `Engine.round`."""
        self._writer.poll(0)
        message = self._consumer.poll(wait_seconds)
        if message is not None:
            touched, rows = self._admit([message, *self._consumer.consume(self._chunk - 1, 0)])
            try:
                if rows:
                    self._keep_rows(rows)
                self._writer.write(touched)
            finally:
                for partition in touched:
                    partition.batch = []
            self._writer.poll(0)
        return self._take_incidents()

    def serve(self, wait_seconds: float) -> list[Incident]:
        """See `Engine.serve`."""
        self._writer.poll(wait_seconds)
        return self._take_incidents()

    def drain(self, timeout_seconds: float) -> bool:
        """See `Engine.drain`."""
        self._unassign(list(self._partitions.values()))
        deadline = time.monotonic() + timeout_seconds
        while (self.in_flight() or self._writer.queued()) and time.monotonic() < deadline:
            self._writer.poll(PAUSE)
        return not (self.in_flight() or self._writer.queued())

    def cut(self) -> None:
        """See `Engine.cut`."""
        self._writer.purge()
        for partition in self._partitions.values():
            if partition.outstanding:
                self._stand_still(partition, Incident(partition.tp, IncidentKind.UNCERTAIN, NO_RIGHT))

    def close(self) -> None:
        """See `Engine.close`."""
        self._writer.close()
        closer = threading.Thread(target=_close_consumer, args=(self._consumer,), name="drkit-close", daemon=True)
        closer.start()
        closer.join(_CLOSE_SECONDS)  # librdkafka's close can hang while brokers are down

    # -- reading -----------------------------------------------------------------------------------

    def _assign(self, partitions: Sequence[MirroredPartition]) -> None:
        if partitions:
            self._consumer.incremental_assign(
                [KafkaPartition(p.tp.topic, p.tp.partition, p.next_source) for p in partitions]
            )
            for partition in partitions:
                partition.reading = True

    def _unassign(self, partitions: Sequence[MirroredPartition]) -> None:
        reading = [partition for partition in partitions if partition.reading]
        if reading:
            self._consumer.incremental_unassign([KafkaPartition(p.tp.topic, p.tp.partition) for p in reading])
            for partition in reading:
                partition.reading = False

    def _admit(self, chunk: Sequence[Message]) -> tuple[list[MirroredPartition], list[OffsetMapping]]:
        """Sort a chunk into the partitions' batches; find the rows that must be durable first."""
        touched: dict[MirroredPartition, None] = {}
        rows: list[OffsetMapping] = []
        topic, number = "", -1
        partition: MirroredPartition | None = None
        next_target = delta = epoch = 0
        altered = self._alteration is not None
        append: Callable[[Message], None] = touched.clear  # type: ignore[assignment]  # set before its first use
        for message in chunk:
            if message.error() is not None:
                if partition is not None:
                    partition.next_target, partition.delta = next_target, delta
                    partition, number = None, -1  # the event may stop it: look again before its next record
                self._event(message)
                continue
            if partition is None or message.partition() != number or message.topic() != topic:
                if partition is not None:
                    partition.next_target, partition.delta = next_target, delta
                topic, number = str(message.topic()), int(message.partition() or 0)
                partition = self._partitions.get(TopicPartition(topic, number))
                if partition is None or not partition.reading:
                    partition, number = None, -1
                    continue
                touched[partition] = None
                append, epoch = partition.batch.append, partition.epoch
                next_target, delta = partition.next_target, partition.delta
            offset: int = message.offset()  # type: ignore[assignment]  # a record has an offset
            if altered and not self._keeps(partition, message):
                partition.next_target, partition.delta = next_target, delta
                number = -1  # it may stand still now: look again before its next record
                continue
            if next_target - offset != delta and not self._shared:
                delta = next_target - offset
                rows.append(OffsetMapping(topic, number, epoch, offset, next_target))
            next_target += 1
            append(message)
        if partition is not None:
            partition.next_target, partition.delta = next_target, delta
        return list(touched), rows

    def _keeps(self, partition: MirroredPartition, message: Message) -> bool:
        """Alter a record; false where it is left out, or where a callable can't answer for it."""
        try:
            if self._alteration is None or self._alteration.apply(message):
                return True
        except AlterationFailed as error:
            self._stand_before(partition, str(error))
        else:
            partition.end = int(message.offset() or 0) + 1
        return False

    def _stand_before(self, partition: MirroredPartition, reason: str) -> None:
        """Stop a partition before a record that a callable can't answer for; those before it are still mirrored."""
        self._unassign([partition])
        remedy = f"Mend the callable and start the mirror anew with it; or, where it was passing: {RETRY_NOW}"
        partition.incident = partition.incident or Incident(partition.tp, IncidentKind.REJECTED, reason, remedy)
        self._standing[partition.tp] = partition

    def _event(self, message: Message) -> None:
        """A consumer's event about a partition: its end, or why it can't be read."""
        topic, number, error = message.topic(), message.partition(), message.error()
        if topic is None or number is None or error is None:
            log.debug("source: %s", error)
            return
        partition = self._partitions.get(TopicPartition(topic, number))
        if partition is None or not partition.reading:
            return
        code = error.code()
        if code == _END:
            end = message.offset()
            if end is not None and end >= 0:
                partition.next_source = max(partition.next_source, end)
                if partition.batch:
                    partition.end = end  # counts once the records before it are handed over
                else:
                    partition.window.hole(end)
        elif code in _OUT_OF_RANGE:
            self._stand_still(partition, Incident(partition.tp, IncidentKind.OUT_OF_RANGE, error.str()))
        elif code in _UNREADABLE:
            reason = f"the source can't be read: {error.str()}"
            self._stand_still(partition, Incident(partition.tp, IncidentKind.UNREADABLE, reason))
        else:
            log.debug("source %s:%s: %s", topic, number, error)

    def _stand_still(self, partition: MirroredPartition, incident: Incident) -> None:
        """Stop a partition; the runtime hears of it once none of its reports is outstanding."""
        if self._partitions.get(partition.tp) is not partition:
            return  # a late report about an earlier start
        self._unassign([partition])
        if incident.kind in _TARGET_KINDS:
            partition.window.stop(incident.reason)
        if partition.incident is None or incident.kind in _TARGET_KINDS:
            partition.incident = incident
        self._standing[partition.tp] = partition

    def _take_incidents(self) -> list[Incident]:
        if not self._standing:
            return []
        ready = [partition for partition in self._standing.values() if partition.outstanding == 0]
        for partition in ready:
            del self._standing[partition.tp]
        return [partition.incident for partition in ready if partition.incident is not None]


def _consumer_config(source: ClusterConfig, prefetch_bytes: int, *, committed: bool) -> dict[str, Any]:
    return confluent_config(
        source,
        group_id="drkit-mirror",  # a formality of the client: no subscription, no commit
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        isolation_level="read_committed" if committed else "read_uncommitted",
        enable_partition_eof=True,
        auto_offset_reset="error",
        check_crcs=True,
        allow_auto_create_topics=False,
        max_poll_interval_ms=86_400_000,  # a dead target may keep the mirror waiting for long
        queued_max_messages_kbytes=prefetch_bytes // 1024,
        fetch_max_bytes=max(_LEAST_FETCH_BYTES, min(prefetch_bytes, _MOST_FETCH_BYTES)),
        fetch_wait_max_ms=200,  # the end of a partition, and so a trailing hole, is told after an empty fetch
        fetch_queue_backoff_ms=10,
        fetch_error_backoff_ms=200,
        reconnect_backoff_max_ms=1_000,
        retry_backoff_max_ms=1_000,
    )


def _close_consumer(consumer: Consumer) -> None:
    try:
        consumer.close()
    except (KafkaException, RuntimeError) as error:
        log.debug("closing the consumer: %s", error)
