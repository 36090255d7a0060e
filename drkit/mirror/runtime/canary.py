"""The canary: sends one record a second through the link, and measures how long each takes to a reader.

The topic (`Link.canary_topic`) is on the source and has one partition; the mirror carries it like any other. One thread
sends to the source and reads from the target, so both times come from one clock. Only records that this run sent are
measured: their value names the run.

If the canary fails, the mirror continues; the reason is logged once, and the canary retries.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.config.client_config import client_log, confluent_config
from drkit.model.clock import iso, now
from drkit.model.errors import DrkitError
from drkit.model.process import keeping_context
from drkit.model.statistics import Latency, quantile
from drkit.model.topology import Link

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
WINDOW_SECONDS = 300.0
TOPIC_CONFIG = {"cleanup.policy": "delete", "retention.ms": "3600000", "segment.ms": "600000"}
_REPLICATION_DEFAULT = -1  # the broker's own
_AGAIN_SECONDS = 2.0
_POLL_SECONDS = 0.2
_SEND_TIMEOUT_MS = 10_000
_ASK_SECONDS = 5.0


class Arrivals:
    """What was sent and what has arrived. Pure; any thread may read it.

    Args:
        window_seconds: how far back latencies count.
    """

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window = window_seconds
        self._lock = threading.Lock()
        self._waiting: dict[int, float] = {}
        self._latencies: deque[tuple[float, float]] = deque()
        self._arrived = 0
        self._seconds = 0.0

    def sent(self, number: int, at: float) -> None:
        """A record was handed to the producer."""
        with self._lock:
            self._waiting[number] = at

    def failed(self, number: int) -> None:
        """Note that a record never reached the source."""
        with self._lock:
            self._waiting.pop(number, None)

    def arrived(self, number: int, at: float) -> None:
        """Note that the reader got a record (repeats don't matter). Earlier ones can't come any more: they are lost."""
        with self._lock:
            sent = self._waiting.pop(number, None)
            if sent is None:
                return
            self._arrived += 1
            self._seconds += at - sent
            self._latencies.append((at, at - sent))
            for earlier in [earlier for earlier in self._waiting if earlier < number]:
                del self._waiting[earlier]

    def latency(self, at: float) -> Latency:
        """The current latencies."""
        with self._lock:
            while self._latencies and self._latencies[0][0] < at - self._window:
                self._latencies.popleft()
            ascending = sorted(seconds for _, seconds in self._latencies)
            waiting = max(0.0, at - min(self._waiting.values())) if self._waiting else 0.0
            return Latency(
                quantile(ascending, 0.5),
                quantile(ascending, 0.99),
                len(ascending),
                self._window,
                waiting,
                self._arrived,
                self._seconds,
            )


class Canary:
    """The canary of one run, on a thread of its own.

    Args:
        link: a link that has a `canary_topic`.
        admin: the source's administration, to create the topic.
        source, target: the clusters.
        runs: whether it should send now (one worker of a link does).
        stop: ends it.
    """

    def __init__(
        self,
        link: Link,
        topic: str,
        admin: ClusterAdmin,
        source: ClusterConfig,
        target: ClusterConfig,
        *,
        runs: Callable[[], bool],
        stop: threading.Event,
    ) -> None:
        self._link = link
        self._topic = topic
        self._target_topic = link.target_topic(topic)
        self._admin = admin
        self._source = source
        self._target = target
        self._runs = runs
        self._stop = stop
        self._run = secrets.token_hex(8)
        self._number = 0
        self._arrivals = Arrivals()
        self._trouble: str | None = None
        self._thread = threading.Thread(target=keeping_context(self._work), name="drkit-canary", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait for its end (after `stop`); False if it hasn't ended."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def latency(self) -> Latency | None:
        """The current latencies; None while another worker's canary runs."""
        return self._arrivals.latency(time.monotonic()) if self._runs() else None

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                if self._runs():
                    self._send_and_measure()
            except (DrkitError, KafkaException) as error:
                if self._trouble is None and not self._stop.is_set():
                    self._trouble = str(error)
                    log.warning("%s: no latency is measured for now: %s", self._link.id, error)
            self._stop.wait(_AGAIN_SECONDS)

    def _send_and_measure(self) -> None:
        """Send and read until told to stop, or until something fails."""
        if self._topic not in self._admin.topics([self._topic]):
            self._admin.create_topic(
                self._topic, partitions=1, replication_factor=_REPLICATION_DEFAULT, config=TOPIC_CONFIG
            )
        consumer = Consumer(_consumer_config(self._target), logger=client_log)
        try:
            if not self._assign(consumer):
                return
            producer = Producer(
                confluent_config(self._source, linger_ms=0, acks="all", message_timeout_ms=_SEND_TIMEOUT_MS),
                logger=client_log,
            )
            try:
                self._send_and_read(producer, consumer)
            finally:
                producer.purge()
        finally:
            consumer.close()

    def _assign(self, consumer: Consumer) -> bool:
        """Read from the target's end, once the mirror has created the topic there; False when told to stop."""
        while not self._stop.is_set() and self._runs():
            place = KafkaPartition(self._target_topic, 0)
            try:
                _, end = consumer.get_watermark_offsets(place, timeout=_ASK_SECONDS)
            except KafkaException as error:
                if error.args[0].code() not in _NOT_YET:
                    raise
                self._stop.wait(_AGAIN_SECONDS)
                continue
            place.offset = end
            consumer.assign([place])
            return True
        return False

    def _send_and_read(self, producer: Producer, consumer: Consumer) -> None:
        due = time.monotonic()
        while not self._stop.is_set() and self._runs():
            if time.monotonic() >= due:
                self._send(producer)
                due = max(due + INTERVAL_SECONDS, time.monotonic())
            producer.poll(0)
            message = consumer.poll(min(_POLL_SECONDS, max(0.0, due - time.monotonic())))
            if message is not None:
                self._take(message, time.monotonic())

    def _send(self, producer: Producer) -> None:
        self._number += 1
        number = self._number
        body = json.dumps({"run": self._run, "number": number, "sent_at": iso(now())})
        self._arrivals.sent(number, time.monotonic())
        try:
            producer.produce(self._topic, body.encode(), partition=0, on_delivery=partial(self._sent, number))
        except BufferError:  # the source has been down for long
            self._arrivals.failed(number)

    def _sent(self, number: int, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._arrivals.failed(number)

    def _take(self, message: Message, at: float) -> None:
        error = message.error()
        if error is not None:
            if error.code() in _NOT_YET or error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - librdkafka's name
                raise KafkaException(error)  # the topic was recreated: start over at its end
            return
        try:
            body = json.loads(message.value() or b"")
            ours = body["run"] == self._run
            number = int(body["number"])
        except (ValueError, KeyError, TypeError):
            return  # another run's record
        if ours:
            self._arrivals.arrived(number, at)
            if self._trouble is not None:
                self._trouble = None
                log.info("%s: latency is measured again", self._link.id)


_NOT_YET = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - librdkafka's names
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - as above
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)


def _consumer_config(target: ClusterConfig) -> dict[str, object]:
    return confluent_config(
        target,
        group_id="drkit-canary",  # the client requires one: no subscription, no commit
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        isolation_level="read_uncommitted",
        auto_offset_reset="error",
        allow_auto_create_topics=False,
        fetch_error_backoff_ms=100,
        reconnect_backoff_max_ms=1_000,
    )
