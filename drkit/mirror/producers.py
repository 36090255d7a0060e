"""The producers of one link: idempotent, gapless, one per class of topic limits; and one for single records.

librdkafka packs batches by a limit of the producer, not of the topic, and doesn't split a batch that a
topic finds too large. So topics with a small `max.message.bytes` get a producer that packs below it.

`enable.gapless.guarantee` makes a batch that the target refuses for good fatal for its producer:
nothing after it can land, which is what lets the mirror find out what happened and go on from there.
The refused record itself is then found by the gentle producer, which sends one record at a time.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from drkit.config.schema import ClusterConfig
from drkit.kafka.clients import confluent_config

log = logging.getLogger(__name__)
client_log = logging.getLogger("drkit.librdkafka")
client_log.addFilter(lambda line: "gapless.guarantee is experimental" not in line.getMessage())  # used on purpose

_BATCH_BYTES = 1_000_000
_SMALLEST_BATCH = 1_024
_MESSAGES = 200_000
_LARGEST_RECORD = 1_000_000_000  # librdkafka's own ceiling: the target topic's limit is what decides
_FATAL = re.compile(r"ProduceRequest for (?P<topic>\S+) \[(?P<partition>\d+)\] with (?P<count>\d+) message")
_DENIED = frozenset({KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED})

PRODUCER_ERRORS = (KafkaException, SystemError)
"""What poll, produce and flush raise on a fatal error: the exception, or (from a callback that runs
while it is pending) CPython's complaint about it."""


class Fatal(Exception):
    """A producer can't go on. `topic`, `partition`, `count`: the refused request, where the reason names it.

    `denied`: the target refuses to let drkit produce at all (an idempotent producer needs a right of its own).
    """

    def __init__(self, reason: str, *, denied: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.denied = denied
        found = _FATAL.search(reason)
        self.topic = found["topic"] if found else None
        self.partition = int(found["partition"]) if found else None
        self.count = int(found["count"]) if found else 0


class Producers:
    """Producers by the batch size that they pack, made when first needed."""

    def __init__(self, cluster: ClusterConfig, *, compression: str, linger_ms: int, memory_bytes: int) -> None:
        self._cluster = cluster
        self._memory_kib = max(1, memory_bytes // 1024)
        self._compression = compression
        self._linger_ms = linger_ms
        self._by_size: dict[int, Producer] = {}
        self._gentle: Producer | None = None

    @staticmethod
    def batch_bytes(max_message_bytes: int) -> int:
        """The batch size for a topic with this limit: the largest power of two below it, or the usual."""
        if max_message_bytes >= _BATCH_BYTES:
            return _BATCH_BYTES
        return 1 << max(max_message_bytes, _SMALLEST_BATCH).bit_length() - 1

    def get(self, batch_bytes: int) -> Producer:
        """The producer that packs batches of this size."""
        producer = self._by_size.get(batch_bytes)
        if producer is None:
            producer = self._by_size[batch_bytes] = Producer(
                self._config(batch_size=batch_bytes, linger_ms=self._linger_ms, enable_gapless_guarantee=True),
                logger=client_log,
            )
        return producer

    def gentle(self) -> Producer:
        """The producer for one record at a time: a refusal concerns that record only."""
        if self._gentle is None:
            self._gentle = Producer(self._config(linger_ms=0), logger=client_log)
        return self._gentle

    def sizes(self) -> list[int]:
        """The batch sizes in use."""
        return list(self._by_size)

    def poll(self, batch_bytes: int, seconds: float) -> None:
        """Serve delivery reports of one producer; raises `Fatal`."""
        try:
            self._by_size[batch_bytes].poll(seconds)
        except PRODUCER_ERRORS as error:
            raise fatal(error) from error

    def queued(self) -> int:
        """Records and delivery reports waiting, over all producers. May be called from any thread."""
        return sum(len(producer) for producer in list(self._by_size.values()))

    def discard(self, batch_bytes: int) -> None:
        """Drop a producer with all it holds; the next `get` makes another."""
        producer = self._by_size.pop(batch_bytes, None)
        if producer is not None:
            _let_go(producer)

    def discard_gentle(self) -> None:
        """Drop the gentle producer; the next `gentle` makes another."""
        if self._gentle is not None:
            gentle, self._gentle = self._gentle, None
            _let_go(gentle)

    def purge(self) -> None:
        """Drop what no producer has sent yet."""
        for producer in self._by_size.values():
            producer.purge(in_queue=True, in_flight=False, blocking=True)

    def close(self) -> None:
        """Let go of all producers."""
        for size in list(self._by_size):
            self.discard(size)
        self.discard_gentle()

    def _config(self, **extra: str | int | bool) -> dict[str, Any]:
        return confluent_config(
            self._cluster,
            acks="all",
            enable_idempotence=True,
            compression_type=self._compression,
            message_timeout_ms=0,  # for ever: a target that is down for minutes must not lose anything
            message_max_bytes=_LARGEST_RECORD,
            queue_buffering_max_kbytes=self._memory_kib,
            queue_buffering_max_messages=_MESSAGES,
            reconnect_backoff_max_ms=1_000,
            retry_backoff_max_ms=1_000,
            **extra,
        )


def fatal(error: BaseException) -> Fatal:
    """What a producer's exception says, looking below CPython's complaint for the real one."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KafkaException):
        seen = seen.__cause__ or seen.__context__
    if seen is None:
        return Fatal(f"{type(error).__name__}: {error}")
    told = seen.args[0]
    return Fatal(str(told.str()), denied=told.code() in _DENIED)


def _let_go(producer: Producer) -> None:
    """Purge and destroy elsewhere: destroying waits for the client's threads, which a dead broker may hold."""

    def destroy(held: list[Producer]) -> None:
        try:
            held[0].purge(in_queue=True, in_flight=True, blocking=False)
        except PRODUCER_ERRORS as error:
            log.debug("purging a producer that is given up: %s", error)
        held.clear()

    held = [producer]
    del producer
    threading.Thread(target=destroy, args=(held,), name="drkit-let-go", daemon=True).start()
