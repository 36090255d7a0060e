"""Writes for the batch engine: one sender per target broker, requests pipelined on one connection.

A broker handles the requests of one connection in order, so several may be in flight and each partition still gets
its batches and markers in order. A Produce request carries one batch per partition, of as many partitions as are
ready.

Where no sequence number makes an append conditional (a marker; a broker that may not know the producer: its first
batch, also after a quiet day, and old records), no other request of the partition is in flight
(`BatchPartition.must_wait`).

A log may have lost its tail, and its broker the producer state: the broker then accepts any sequence number, and
records would get offsets below the expected ones. So before the first append on a connection, or in another leader's
term, the log's end is requested on the connection that will carry the append; it must be the expected offset. Where the
broker may have forgotten the producer, it is requested again after a rest. Where others write the target, the end says
nothing: there the leader must be that of the epoch in which the log was read.

Nothing is ever sent twice: each append carries the link's producer id and the next sequence number, which makes it
conditional. Where the outcome of a request is unknown, its partitions are halted until the runtime has read the target
(`drkit.mirror.resume.partition_resume`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from functools import partial
from typing import Any

from drkit.kafka.admin.admin_connection import describe, error_class
from drkit.kafka.client.connection import Connection, Reply, ResponseCallback
from drkit.kafka.client.data_client import StreamError
from drkit.kafka.protocol.data_requests import (
    SERVER_ERROR,
    LogEndsRequest,
    LogEndsResponse,
    MarkersResponse,
    Payload,
    Produce,
    Produced,
    ProduceReply,
    TopicIds,
    WriteTxnMarkers,
)
from drkit.kafka.protocol.records import KNOWN_CODECS, knows_codec
from drkit.mirror.engine.engine_state import EngineState
from drkit.mirror.engine.interface import (
    ANOTHER_TOPIC,
    TRIED_AGAIN,
    TURN_SECONDS,
    UNREADABLE_REMEDY,
    IncidentKind,
    Notice,
)
from drkit.mirror.engine.partition_state import Append, BatchPartition, Markers
from drkit.model.errors import BrokerTooOld
from drkit.model.wording import counted

log = logging.getLogger(__name__)

_REQUEST_BYTES = 1_048_576
_IN_FLIGHT = 8
_STUCK_SECONDS = 3.0
_PRODUCE_TIMEOUT_MS = 10_000

_TOO_LARGE = frozenset({10, 18})  # of the topic's max.message.bytes, of its segment.bytes
_SMALLEST_LIMIT = 1_024
_UNAUTHORIZED_CLUSTER = 31
_UNSUPPORTED_VERSION = 35
_REFUSED = {
    10: "Raise max.message.bytes of {topic} on the target above its size, or set its compression.type to "
    "producer there: batches that the broker compresses again may be larger",
    18: "Raise segment.bytes of {topic} on the target above its size",
    29: "Grant drkit's principal WRITE on {topic} on the target",
    32: "Raise message.timestamp.before.max.ms and message.timestamp.after.max.ms of {topic} on the target",
    44: "Remove the policy that refuses it on the target",
    76: "The target's brokers don't know the codec: bring them to a newer version",
    87: "Remove the cause named on the target",
    _UNAUTHORIZED_CLUSTER: "Grant drkit's principal IDEMPOTENT_WRITE on the target cluster",
}
"""Kafka's errors after which the same batch would be refused again, and what to do."""

_REPEATED = {
    **_REFUSED,
    19: "Bring the brokers back that hold replicas of {topic} on the target, or lower its min.insync.replicas there",
    20: "Bring the brokers back that hold replicas of {topic} on the target, or lower its min.insync.replicas there",
    56: "A broker of the target can't write its log: free space on its disk or replace it, then restart the broker",
    89: "The target throttles drkit's principal: raise its quota",
}
"""What to do where one of these keeps coming."""

Taken = list[tuple[BatchPartition, Append]]


class Sender:
    """Writes to one target broker.

    Args:
        flow: state shared within the engine.
        node: the broker.
    """

    def __init__(self, flow: EngineState, node: int) -> None:
        self.node = node
        self.stuck = False
        self._flow = flow
        self._led: set[BatchPartition] = set()
        self._topic_ids = TopicIds()
        self._ready: dict[BatchPartition, None] = {}
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._sent_at: deque[float] = deque()
        self._waiting_since: float | None = None
        self._not_before = 0.0
        self._wrote_at = 0.0
        self._closed = False

    def offer(self, partition: BatchPartition) -> None:
        """Note that a partition led by this broker has something to write."""
        if partition not in self._led:
            self._led.add(partition)
            if partition.target_topic_id:
                self._topic_ids.put(partition.target_topic, partition.target_topic_id)
        if partition.queue:
            self._ready[partition] = None

    def withdraw(self, partition: BatchPartition) -> None:
        """Note that another broker leads a partition, or that it is gone."""
        self._led.discard(partition)
        self._ready.pop(partition, None)

    def takes_turns(self, partition: BatchPartition) -> bool:
        """See `Writer.takes_turns`. May be called from any thread."""
        return partition in self._ready and time.monotonic() - self._wrote_at < TURN_SECONDS

    def pump(self) -> None:
        """Send whatever can be sent now."""
        if not self._ready or not self._flow.may_produce():
            return
        connection = self._connection
        if connection is None or not connection.open:
            self._connect()
            return
        while self._ready and len(self._sent_at) < _IN_FLIGHT and time.monotonic() >= self._not_before:
            self._send_some(connection)

    def tick(self) -> None:
        """Check whether the broker is slow to answer, then send what can be sent."""
        at = time.monotonic()
        if self._ready and (self._connection is None or not self._connection.open):
            self._waiting_since = self._waiting_since or at
        else:
            self._waiting_since = None
        since = self._sent_at[0] if self._sent_at else self._waiting_since
        self.stuck = since is not None and at - since > _STUCK_SECONDS
        self.pump()

    def close(self) -> None:
        """Send nothing more; the outcome of requests in flight stays unknown."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()

    # -- sending -----------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._make_connection())

    async def _make_connection(self) -> None:
        try:
            self._connection = await self._flow.target.connection(self.node, "produce")
        except BrokerTooOld as error:
            self._flow.failure = error
            return
        if self._connection is None:
            self._flow.target.refresh()
        else:
            self.pump()

    def _send_some(self, connection: Connection) -> None:
        """Send one Produce request, after the markers that come before it."""
        taken: Taken = []
        unchecked: list[BatchPartition] = []
        size = 0
        batches: dict[str, list[tuple[int, Payload]]] = {}
        for partition in list(self._ready):
            del self._ready[partition]
            if partition.queue and not partition.end_is_known(connection):
                unchecked.append(partition)
                continue  # offered again once what is outstanding is answered
            size += self._take(connection, partition, taken, batches)
            if size >= _REQUEST_BYTES:
                break
        self._ask_ends(connection, [each for each in unchecked if each.outstanding == 0])
        if not taken:
            return
        self._flow.produces += 1
        self._flow.in_flight_records += sum(item.count for _, item in taken)
        if self._flow.throttle is not None:
            self._not_before = time.monotonic() + self._flow.throttle.take(size)
        self._note_written()
        request = Produce(batches, timeout_ms=_PRODUCE_TIMEOUT_MS, topic_ids=self._topic_ids)
        self._hand_over(connection, request, partial(self._settle_batches, taken))
        for _, item in taken:
            self._flow.memory.sent(item)
        self._flow.see_room()

    def _take(
        self,
        connection: Connection,
        partition: BatchPartition,
        taken: Taken,
        batches: dict[str, list[tuple[int, Payload]]],
    ) -> int:
        """Send a partition's leading markers, and take the batch after them; returns its bytes."""
        queue = partition.queue
        while queue and isinstance(queue[0], Markers) and not partition.must_wait:
            self._send_markers(connection, partition, queue[0])
        item = queue[0] if queue else None
        size = 0
        if isinstance(item, Append) and not partition.must_wait:
            partition.take_append(item)
            batches.setdefault(partition.target_topic, []).append((partition.tp.partition, item.payload))
            taken.append((partition, item))
            size = item.size
        if queue and not partition.must_wait:
            self._ready[partition] = None
        return size

    def _ask_ends(self, connection: Connection, partitions: list[BatchPartition]) -> None:
        """Request the log ends of partitions without requests in flight; nothing of them is sent before the answer."""
        if not partitions:
            return
        asked: dict[str, list[tuple[int, int]]] = {}
        for partition in partitions:
            place = partition.tp.partition, partition.target_leader_epoch
            asked.setdefault(partition.target_topic, []).append(place)
            partition.ask_end()
        self._hand_over(connection, LogEndsRequest(asked), partial(self._settle_ends, connection, partitions))

    def _send_markers(self, connection: Connection, partition: BatchPartition, item: Markers) -> None:
        count, last = partition.take_markers(item)
        request = WriteTxnMarkers(partition.producer_id, 0, partition.target_topic, partition.tp.partition, count)
        self._hand_over(connection, request, partial(self._settle_markers, partition, item, last=last))

    def _hand_over(self, connection: Connection, request: Any, settle: ResponseCallback) -> None:
        """Send a request; settle it with its answer, or with the reason why it can't be sent."""
        self._sent_at.append(time.monotonic())
        told = partial(self._answered, settle)
        try:
            connection.send_with_callback(request, told)
        except (*StreamError, NotImplementedError) as error:
            asyncio.get_running_loop().call_soon(told, Reply(None, error))

    def _answered(self, settle: ResponseCallback, reply: Reply) -> None:
        self._sent_at.popleft()
        if self._closed:
            return  # the position stays
        try:
            settle(reply)
            self.pump()
        except BaseException as error:  # noqa: BLE001 - a defect ends the engine
            self._flow.failure = error

    # -- answers -----------------------------------------------------------------------------------

    def _settle_ends(self, connection: Connection, partitions: list[BatchPartition], reply: Reply) -> None:
        reason, ends = "", {}
        try:
            answer: LogEndsResponse = reply.result()
            ends = {(each.topic, each.partition): each for each in answer.partitions}
        except StreamError as error:
            reason = f"the target's broker {self.node} didn't answer: {_said(error)}"
        for partition in partitions:
            end = ends.get((partition.target_topic, partition.tp.partition))
            due = partition.window.position.target_end
            if not partition.end_answered(connection, end.offset if end is not None and end.error == 0 else None):
                self._flow.target.refresh()
                if end is None:
                    why = reason or "the answer omits it"
                elif end.error:
                    why = f"the target answered {describe(error_class(end.error))}"
                else:
                    why = f"the target's log ends at {end.offset}, not at {due}: nothing was written"
                self._flow.halt_partition(partition, IncidentKind.UNCERTAIN, why)
            self._flow.settle(partition)
            self._continue(partition)

    def _settle_batches(self, taken: Taken, reply: Reply) -> None:
        reason, results = "", {}
        try:
            answer: ProduceReply = reply.result()
            if answer.throttle_ms:
                self._throttled(answer.throttle_ms / 1000)
            results = {(each.topic, each.partition): each for each in answer.partitions}
        except StreamError as error:
            reason = f"the target's broker {self.node} didn't answer: {_said(error)}"
            self._flow.target.refresh()
        self._flow.free(item for _, item in taken)
        for partition, item in taken:
            partition.answered(item)
            self._flow.in_flight_records -= item.count
            result = results.get((partition.target_topic, partition.tp.partition))
            if result is None:
                self._flow.unanswered.add(partition.tp)
                self._flow.halt_partition(partition, IncidentKind.UNCERTAIN, reason or "the answer omits it")
            else:
                self._settle(partition, item, result)
            self._continue(partition)

    def _throttled(self, seconds: float) -> None:
        """Wait for a broker's quota: until then it handles nothing more on the connection."""
        self._flow.throttled_seconds += seconds
        self._not_before = max(self._not_before, time.monotonic() + seconds)
        self._note_written()

    def _note_written(self) -> None:
        """Note that a request was sent; or will be, as soon as a limit allows it."""
        self._wrote_at = max(time.monotonic(), self._not_before)
        self._flow.wrote_at = max(self._flow.wrote_at, self._wrote_at)

    def _continue(self, partition: BatchPartition) -> None:
        """One of its requests was answered: send what waited for that."""
        if partition in self._led and partition.incident is None:
            self.offer(partition)

    def _settle(self, partition: BatchPartition, item: Append, result: Produced) -> None:
        flow = self._flow
        if result.error == 0 and partition.incident is None:
            if partition.wanted:  # it came before this append, or its sequence number is a past one
                flow.unanswered.discard(partition.tp)
            if result.append_time >= 0 and not partition.filling and not partition.shared:
                partition.window.stop(_stamped(partition, item))
            misplaced = partition.acknowledge(item, result.base_offset + item.count - 1)
            if misplaced is None:
                flow.records += item.count
                flow.bytes += item.size
            else:
                flow.halt_partition(partition, IncidentKind.MISPLACED, misplaced)
        elif result.error in _REFUSED and not partition.filling and not self._may_be_cut(item, result):
            self._refused(partition, item, result)
        elif result.error == SERVER_ERROR and not knows_codec(item.codec):  # so brokers answer an unknown codec
            self._codec_refused(partition, item)
        elif result.error:
            name = describe(error_class(result.error))
            if self._may_be_cut(item, result):
                flow.limits.lower(partition, item.size // 2)
            flow.target.refresh()
            what = f"filler for target offset {item.mark.after.target_end}" if partition.filling else "records"
            reason = (
                f"the target answered {name} to {item.count} {what} from source offset {item.source_first} "
                f"({item.size} bytes) {result.message}"
            )
            remedy = _REPEATED.get(result.error, "").format(topic=partition.target_topic)
            kind = IncidentKind.TOPIC_GONE if result.error in ANOTHER_TOPIC else IncidentKind.UNCERTAIN
            flow.halt_partition(partition, kind, reason.strip(), remedy)
        flow.settle(partition)

    @staticmethod
    def _may_be_cut(item: Append, result: Produced) -> bool:
        """Whether a batch was refused for its size, and smaller batches of its records may be accepted."""
        return result.error in _TOO_LARGE and item.count > 1 and item.size > _SMALLEST_LIMIT

    def _refused(self, partition: BatchPartition, item: Append, result: Produced) -> None:
        name = describe(error_class(result.error))
        what = f"{item.count} records from" if item.count > 1 else "the record at"
        reason = (
            f"the target refuses {what} source offset {item.source_first} of {partition.tp} "
            f"({item.size} bytes): {name} {result.message}".rstrip()
        )
        remedy = f"{_REFUSED[result.error].format(topic=partition.target_topic)}. {TRIED_AGAIN}"
        self._flow.halt_partition(partition, IncidentKind.REJECTED, reason, remedy)

    def _codec_refused(self, partition: BatchPartition, item: Append) -> None:
        """Report a codec that neither the target nor drkit knows; a newer Kafka may have written it."""
        reason = (
            f"the target refuses {counted(item.count, 'record')} from source offset {item.source_first} of "
            f"{partition.tp} ({item.size} bytes): the batch says to be compressed by codec {item.codec}, which the "
            f"target's broker doesn't know, nor does drkit, which knows {KNOWN_CODECS}"
        )
        remedy = f"If a newer Kafka wrote it, bring the target's brokers to that release. {UNREADABLE_REMEDY}"
        self._flow.halt_partition(partition, IncidentKind.REJECTED, reason, remedy)

    def _settle_markers(self, partition: BatchPartition, item: Markers, reply: Reply, *, last: bool) -> None:
        flow = self._flow
        failed: str | None = None
        try:
            answer: MarkersResponse = reply.result()
            errors = {error for _, _, error in answer.errors if error}
            if errors:
                failed = f"the target answered {describe(error_class(min(errors)))} to a marker"
                flow.target.refresh()  # it may no longer lead the partition, though it answers with a log end
            if errors & {_UNAUTHORIZED_CLUSTER, _UNSUPPORTED_VERSION}:
                self._refuse_markers(partition, describe(error_class(min(errors))))
        except StreamError as error:
            failed = f"the target's broker {self.node} didn't answer: {_said(error)}"
            flow.unanswered.add(partition.tp)
            flow.target.refresh()
        except NotImplementedError:  # aiokafka: no common version of the request
            failed = "the target's brokers accept no markers from clients"
            self._refuse_markers(partition, "UNSUPPORTED_VERSION")
        partition.answered(item, last=last)
        if last:
            flow.free([item])
        if failed is not None:
            flow.halt_partition(partition, IncidentKind.UNCERTAIN, failed)
        elif last and partition.incident is None:
            partition.markers_written(item)
            flow.markers += item.count
        flow.settle(partition)
        self._continue(partition)

    def _refuse_markers(self, partition: BatchPartition, name: str) -> None:
        """From now on holes change the delta."""
        if not self._flow.markers_refused:
            self._flow.markers_refused = True
            reason = f"the target accepts no transaction markers from drkit ({name}): offsets differ after each hole"
            remedy = "Grant drkit's principal ALTER on the target cluster, or set offsets to translate"
            self._flow.notice(Notice(partition.tp, "markers_refused", reason, remedy))


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _stamped(partition: BatchPartition, item: Append) -> str:
    """That a broker gave records its own time, or had them already: what is there has to be read."""
    return (
        f"the target stamped {item.count} records from source offset {item.source_first} itself (is "
        f"message.timestamp.type of {partition.target_topic} LogAppendTime there?), or had them already"
    )
