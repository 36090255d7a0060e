"""Writing of the record engine: stretches handed to producers, their reports, and what goes wrong.

Only the last record of a stretch carries a delivery report (see `drkit.mirror.inflight`). A record
that librdkafka can't express (stamp 0: it would become "now") is appended by other means, after
everything before it has landed. When a producer dies, what it had in flight is uncertain: those
partitions stand still until the runtime has observed the target, and the refused request is then
sent record by record, so that the one at fault is named.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from drkit.config.schema import ClusterConfig
from drkit.kafka.admin import ClusterAdmin
from drkit.mirror.engine import Incident, IncidentKind, Stopped
from drkit.mirror.inflight import Mark
from drkit.mirror.partition import MirroredPartition
from drkit.mirror.producers import PRODUCER_ERRORS, Fatal, Producers, fatal
from drkit.mirror.refusals import RETRY, denied, rejection, size_of, size_with_headers, too_large
from drkit.mirror.shared import SharedInFlight
from drkit.mirror.throttle import Throttle
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.topology import TopicPartition

log = logging.getLogger(__name__)

PAUSE = 0.05
_ODD_TIMESTAMP = 0
_LEARN_SECONDS = 2.0
_UNKNOWN = frozenset({KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})  # noqa: SLF001 - librdkafka's names
NO_RIGHT = "the right to produce was lost"

AppendOdd = Callable[[str, int, Message], int]
"""Appends one record that librdkafka can't express to a target partition; returns its offset."""

StandStill = Callable[[MirroredPartition, Incident], None]


class RecordWriter:
    """Hands batches to producers and turns their reports into progress.

    Args:
        target: the cluster to write.
        stand_still: called when a partition can't go on.
        partitions: all partitions now mirrored.
        may_produce, append_odd, stop, compression, linger_ms, throttle: as `RecordEngine`'s.
        memory_bytes: how much the producers may hold, each.
    """

    def __init__(
        self,
        target: ClusterConfig,
        *,
        stand_still: StandStill,
        partitions: Callable[[], Sequence[MirroredPartition]],
        may_produce: Callable[[], bool],
        append_odd: AppendOdd,
        stop: threading.Event,
        compression: str,
        linger_ms: int,
        throttle: Throttle,
        memory_bytes: int,
    ) -> None:
        self._throttle = throttle
        self._stand_still = stand_still
        self._partitions = partitions
        self._may_produce = may_produce
        self._append_odd = append_odd
        self._stop = stop
        self._producers = Producers(target, compression=compression, linger_ms=linger_ms, memory_bytes=memory_bytes)
        self.moved = 0
        self.bytes_moved = 0
        self._pending_bytes: dict[int, int] = defaultdict(int)  # by producer: handed over, no report yet

    def write(self, touched: Sequence[MirroredPartition]) -> None:
        """Hand over the batches. A partition that can't go on stands still; the others go on."""
        for partition in touched:
            try:
                batch = partition.batch
                if partition.window.stopped is None:
                    self._wait_for_bandwidth(batch)
                if partition.window.stopped is not None:
                    continue
                if partition.gentle:
                    batch = self._produce_gently(partition, batch)
                if batch:
                    self._hand_over(partition, batch)
                if partition.end >= 0:
                    partition.window.hole(partition.end)
                    partition.next_source = max(partition.next_source, partition.end)
                    partition.end = -1
            except _Uncertain as error:
                self._stand_still(partition, Incident(partition.tp, IncidentKind.UNCERTAIN, str(error)))
            except _Rejected as error:
                self._stand_still(partition, error.incident)
            except Fatal as error:
                self._producer_failed(partition.batch_bytes, error, meanwhile=partition)

    def _wait_for_bandwidth(self, batch: Sequence[Message]) -> None:
        """Wait until the link's limit lets these records through; reports are served meanwhile."""
        if not batch or not self._throttle.limits:
            return
        due = time.monotonic() + self._throttle.take(sum(map(size_with_headers, batch)))
        while (left := due - time.monotonic()) > 0:
            self.poll(min(left, PAUSE))
            self._check_waiting()

    def _hand_over(self, partition: MirroredPartition, batch: Sequence[Message]) -> None:
        """Produce a stretch; its last record carries the delivery report."""
        if not self._may_produce():
            raise _Uncertain(NO_RIGHT)
        topic, number = partition.target_topic, partition.tp.partition
        producer = self._producers.get(partition.batch_bytes)
        produce = producer.produce
        last = batch[-1]
        source_next = int(last.offset() or 0) + 1
        mark = partition.window.send(source_next, partition.next_target)
        expected = partition.next_target - len(batch)
        size = 0
        try:
            for message in batch[:-1]:
                stamp = message.timestamp()[1]
                if stamp == _ODD_TIMESTAMP:
                    self._hand_over_odd(partition, message, partition.next_target - len(batch) + batch.index(message))
                    continue
                value, key, headers = message.value(), message.key(), message.headers()
                size += len(value or b"") + len(key or b"")
                try:
                    produce(topic, value, key, number, timestamp=stamp, headers=headers)
                except (BufferError, KafkaException):
                    again = partial(produce, topic, value, key, number, timestamp=stamp, headers=headers)
                    self._when_possible(producer, partition, message, again)
            size += size_of(last)
            if last.timestamp()[1] == _ODD_TIMESTAMP:
                landed = self._hand_over_odd(partition, last, partition.next_target - 1)
                self.moved += partition.window.acknowledge(mark, landed)
                self.bytes_moved += size
            else:
                report = partial(self._delivered, partition, mark, size)
                self._when_possible(
                    producer,
                    partition,
                    last,
                    partial(
                        produce,
                        topic,
                        last.value(),
                        last.key(),
                        number,
                        on_delivery=report,
                        timestamp=last.timestamp()[1],
                        headers=last.headers(),
                    ),
                )
                partition.outstanding += 1
                self._pending_bytes[partition.batch_bytes] += size
        except KafkaException as error:
            if error.args[0].fatal():
                raise fatal(error) from error
            raise _Uncertain(
                f"the producer refuses a record from target offset {expected} on: {error.args[0].str()}"
            ) from error
        partition.next_source = max(partition.next_source, source_next)

    def _when_possible(
        self, producer: Producer, partition: MirroredPartition, message: Message, produce: Callable[[], None]
    ) -> None:
        """Produce, waiting while the producer's queue is full (a slow or dead target), or until the
        producer has learned of a partition that was added."""
        deadline = time.monotonic() + _LEARN_SECONDS
        while True:
            empty = not len(producer)
            try:
                produce()
            except BufferError:
                if empty:
                    raise _Rejected(too_large(partition.tp, message)) from None
                self.poll(PAUSE)
            except KafkaException as error:
                if error.args[0].code() not in _UNKNOWN or time.monotonic() > deadline:
                    raise
                producer.list_topics(partition.target_topic, timeout=_LEARN_SECONDS)  # makes the producer learn of it
                self.poll(PAUSE)
            else:
                return
            self._check_waiting()

    def _check_waiting(self) -> None:
        """Called while waiting for the target: give up when told to stop, or without the right to produce."""
        if self._stop.is_set():
            raise Stopped
        if not self._may_produce():
            raise _Uncertain(NO_RIGHT)

    def _hand_over_odd(self, partition: MirroredPartition, message: Message, expected: int) -> int:
        """Append a record that librdkafka can't express, after everything before it has landed; returns where."""
        producer = self._producers.get(partition.batch_bytes)
        try:
            while producer.flush(PAUSE):
                self._check_waiting()
        except PRODUCER_ERRORS as error:
            raise fatal(error) from error
        landed = self._append(partition, message)
        if landed != expected and not isinstance(partition.window, SharedInFlight):
            raise _Uncertain(f"a record expected at target offset {expected} landed at {landed}")
        return landed

    def _append(self, partition: MirroredPartition, message: Message) -> int:
        try:
            return self._append_odd(partition.target_topic, partition.tp.partition, message)
        except Unreachable as error:
            raise _Uncertain(str(error)) from error
        except DrkitError as error:
            reason = f"the target refuses the record at source offset {message.offset()} of {partition.tp}: {error}"
            raise _Rejected(Incident(partition.tp, IncidentKind.REJECTED, reason, RETRY)) from error

    def _produce_gently(self, partition: MirroredPartition, batch: list[Message]) -> list[Message]:
        """Produce the first records one by one, each awaited, to find the one that the target refuses."""
        count = min(partition.gentle, len(batch))
        expected = partition.next_target - len(batch)
        for message in batch[:count]:
            source = int(message.offset() or 0)
            mark = partition.window.send(source + 1, expected + 1)
            self.moved += partition.window.acknowledge(mark, self._deliver_one(partition, message))
            self.bytes_moved += size_of(message)
            if partition.window.stopped is not None:
                raise _Uncertain(partition.window.stopped)
            partition.next_source = source + 1
            expected += 1
        partition.gentle -= count
        return batch[count:]

    def _deliver_one(self, partition: MirroredPartition, message: Message) -> int:
        """Produce one record and wait for its place on the target."""
        self._check_waiting()
        stamp = message.timestamp()[1]
        if stamp == _ODD_TIMESTAMP:
            return self._append(partition, message)
        answers: list[tuple[KafkaError | None, Message]] = []
        producer = self._producers.gentle()
        try:
            produce = partial(
                producer.produce,
                partition.target_topic,
                message.value(),
                message.key(),
                partition.tp.partition,
                on_delivery=lambda error, sent: answers.append((error, sent)),
                timestamp=stamp,
                headers=message.headers(),
            )
            self._when_possible(producer, partition, message, produce)
            while not answers:
                producer.poll(PAUSE)
                self._check_waiting()
        except PRODUCER_ERRORS as error:
            self._producers.discard_gentle()
            failed = fatal(error)
            if failed.denied:
                raise _Rejected(denied(partition.tp, failed)) from error
            raise _Uncertain(failed.reason) from error
        refusal, sent = answers[0]
        if refusal is not None:
            raise _Rejected(rejection(partition.tp, partition.target_topic, message, refusal))
        return int(sent.offset() or 0)

    def queued(self) -> int:
        """Records handed over whose fate isn't known yet, whether they carry a report or not."""
        return self._producers.queued()

    def pending_bytes(self) -> int:
        """Keys and values handed over whose delivery report hasn't come. May be called from any thread."""
        return sum(list(self._pending_bytes.values()))

    def purge(self) -> None:
        """Drop what hasn't been sent yet."""
        self._producers.purge()

    def close(self) -> None:
        """Let go of the producers."""
        self._producers.close()

    # -- reports and failures ----------------------------------------------------------------------

    def _delivered(
        self, partition: MirroredPartition, mark: Mark, size: int, error: KafkaError | None, message: Message
    ) -> None:
        """The delivery report of a stretch's last record."""
        partition.outstanding -= 1
        self._pending_bytes[partition.batch_bytes] -= size
        if error is not None:
            self._stand_still(partition, Incident(partition.tp, IncidentKind.UNCERTAIN, error.str()))
            return
        self.moved += partition.window.acknowledge(mark, int(message.offset() or 0))
        if partition.window.stopped is None:
            self.bytes_moved += size
        else:
            self._stand_still(partition, Incident(partition.tp, IncidentKind.UNCERTAIN, partition.window.stopped))

    def poll(self, wait_seconds: float) -> None:
        """Serve delivery reports of all producers, waiting at most so long."""
        sizes = self._producers.sizes()
        if not sizes and wait_seconds:
            self._stop.wait(wait_seconds)
        for size in sizes:
            try:
                self._producers.poll(size, wait_seconds / len(sizes))
            except Fatal as error:
                self._producer_failed(size, error)

    def _producer_failed(self, batch_bytes: int, error: Fatal, *, meanwhile: MirroredPartition | None = None) -> None:
        """A producer is dead: whatever it had in flight is uncertain. The refused request is retried gently."""
        log.warning("the producer gives up, in-flight records will be looked for on the target: %s", error.reason)
        self._producers.discard(batch_bytes)
        self._pending_bytes[batch_bytes] = 0  # none of its reports will come any more
        for partition in self._partitions():
            if partition.batch_bytes != batch_bytes or not (partition.outstanding or partition is meanwhile):
                continue
            partition.outstanding = 0
            if error.denied:
                self._stand_still(partition, denied(partition.tp, error))
                continue
            refused = error.topic is None or (error.topic, error.partition) == (
                partition.target_topic,
                partition.tp.partition,
            )
            gently = max(error.count, 1) if refused else 0
            self._stand_still(
                partition, Incident(partition.tp, IncidentKind.UNCERTAIN, error.reason, retry_gently=gently)
            )


class _Uncertain(Exception):
    """What became of a partition's records isn't known: it stands still and is observed again."""


class _Rejected(Exception):
    """The target refuses one record for good."""

    def __init__(self, incident: Incident) -> None:
        super().__init__(incident.reason)
        self.incident = incident


def append_odd(target: ClusterAdmin, topic: str, partition: int, message: Message) -> int:
    """Append a record that librdkafka can't express (see `drkit.kafka.append`)."""
    return target.append_record(
        TopicPartition(topic, partition),
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=[(str(header[0]), _bytes(header[1])) for header in message.headers() or []],
        timestamp=message.timestamp()[1],
    )


def _bytes(value: object) -> bytes | None:
    """What librdkafka hands out as key, value or header: bytes or nothing."""
    return None if value is None else bytes(value)  # type: ignore[call-overload]  # bytes already
