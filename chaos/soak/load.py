"""The load: producers for every kind of topic, with acks=all and idempotence, that write until they are stopped."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from chaos.soak.clusters import SoakError, digest

OLD_STAMP = 1_370_000_000_000
"""Milliseconds: 31 May 2013. Brokers forget the producers of such records."""

_COMPACT_KEYS = 50


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of topic: its number of partitions, its settings, records per second."""

    name: str
    partitions: int
    rate: int
    settings: dict[str, str] = field(default_factory=dict)


_FOREVER = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**63 - 1)}
_CLEANED = {
    "cleanup.policy": "compact",
    "segment.ms": "10000",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "15000",
    "delete.retention.ms": "600000",
}

PLAIN = Kind("plain", 4, 800, _FOREVER)
SINGLE = Kind("single", 2, 100, _FOREVER)
ABORTING = Kind("aborting", 2, 150, _FOREVER)
COMPACTED = Kind("compacted", 1, 60, _CLEANED)
OLD = Kind("old", 2, 300, _FOREVER)
KINDS = (PLAIN, SINGLE, ABORTING, COMPACTED, OLD)
"""Many records per batch (lz4); one per batch; transactions, a third of them aborted; compacted; timestamps of 2013."""


class Load:
    """Writers of all kinds. Call `start`, then `end`; `written` counts acknowledged records by kind.

    Args:
        bootstrap: the source.
        topic: the topic of each kind, by its name.
        seed: of the random generator.
        scale: factor of every rate.
    """

    def __init__(self, bootstrap: str, topic: dict[str, str], seed: int, scale: float) -> None:
        self.ending = threading.Event()
        self.written = {kind.name: 0 for kind in KINDS}
        self.journal: dict[int, tuple[bytes, bytes]] = {}
        """Source offset → (key, digest) of each record of the compacted topic."""
        self.failures: list[str] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._scale = scale
        self._seed = seed
        self._threads = [
            threading.Thread(target=self._guarded, args=(kind,), name=f"load-{kind.name}", daemon=True)
            for kind in KINDS
        ]

    def start(self) -> None:
        """Start writing."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Stop; returns when everything is acknowledged and no transaction is open.

        Raises:
            SoakError: a writer failed, so that the source doesn't hold what it should.
        """
        self.ending.set()
        for thread in self._threads:
            thread.join(240)
            if thread.is_alive():
                raise SoakError(f"{thread.name} does not end: the source accepts no records")
        if self.failures:
            raise SoakError("; ".join(self.failures))

    def _guarded(self, kind: Kind) -> None:
        try:
            if kind is ABORTING:
                self._transactions(kind)
            else:
                self._records(kind)
        except (KafkaException, SoakError) as error:
            self.failures.append(f"the writer of {kind.name} failed: {error}")

    def _producer(self, **settings: Any) -> Producer:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                # a record is given up only with its transaction, whose timeout is Kafka's default
                **({} if "transactional_id" in settings else {"delivery.timeout.ms": 2_000_000_000}),
                "retry.backoff.max.ms": 500,
                "log_level": 0,
                **named,
            }
        )

    def _records(self, kind: Kind) -> None:
        settings: dict[str, Any] = {"compression_type": "lz4", "linger_ms": 100}
        if kind is SINGLE:
            settings = {"linger_ms": 0, "batch_num_messages": 1}
        producer = self._producer(**settings)
        chance = random.Random(f"{self._seed} {kind.name}")  # noqa: S311 - repeatable, not secret
        number = 0
        while not self.ending.is_set():
            for _ in range(max(1, int(kind.rate * self._scale / 20))):
                self._one(producer, kind, number, chance)
                number += 1
            producer.poll(0)
            self.ending.wait(0.05)
        if producer.flush(240):
            raise SoakError(f"records of {kind.name} were never acknowledged")

    def _one(self, producer: Producer, kind: Kind, number: int, chance: random.Random) -> None:
        key: bytes | None = b"%d" % chance.randrange(_COMPACT_KEYS) if kind is COMPACTED else b"k%d" % (number % 97)
        if kind is not COMPACTED and number % 13 == 0:
            key = None
        value = b"%s-%09d-%s" % (kind.name.encode(), number, b"x" * chance.randrange(120))
        headers = [("n", b"%d" % number), ("empty", None)] if number % 5 == 0 else None
        stamp = OLD_STAMP + number if kind is OLD else int(time.time() * 1000)

        def told(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(f"a record of {kind.name} failed: {error}")
                return
            self.written[kind.name] += 1
            if kind is COMPACTED:
                said = digest(key, value, headers or [], stamp)
                self.journal[int(message.offset() or 0)] = (key or b"", said)

        while True:
            try:
                producer.produce(
                    self._topic[kind.name],
                    key=key,
                    value=value,
                    headers=headers,  # type: ignore[arg-type]  # a list, which is invariant
                    timestamp=stamp,
                    partition=number % kind.partitions,
                    on_delivery=told,
                )
            except BufferError:  # the source is down: wait for room
                producer.poll(0.2)
            else:
                return

    def _transactions(self, kind: Kind) -> None:
        chance = random.Random(f"{self._seed} {kind.name}")  # noqa: S311 - as above
        producer: Producer | None = None
        number = 0
        while not self.ending.is_set():
            try:
                if producer is None:
                    producer = self._producer(transactional_id=self._topic[kind.name])
                    _until_done(lambda it=producer: it.init_transactions(30))
                number = self._transaction(producer, kind, number, chance)
            except KafkaException as error:
                if not (error.args[0].fatal() or error.args[0].txn_requires_abort()):
                    raise
                producer = None  # fenced or timed out while brokers died: begin again, like an application
            self.ending.wait(0.05)
        closing = self._producer(transactional_id=self._topic[kind.name])
        _until_done(lambda: closing.init_transactions(30))  # ends an open transaction

    def _transaction(self, producer: Producer, kind: Kind, number: int, chance: random.Random) -> int:
        producer.begin_transaction()
        count = chance.randint(1, max(2, int(kind.rate * self._scale / 5)))
        for step in range(count):
            producer.produce(
                self._topic[kind.name], value=b"t-%09d-%d" % (number, step), partition=(number + step) % kind.partitions
            )
        aborts = chance.random() < 0.3  # noqa: PLR2004 - three of ten
        try:
            if aborts:
                producer.flush(30)  # so that the log has something to abort
                _until_done(lambda: producer.abort_transaction(30))
            else:
                _until_done(lambda: producer.commit_transaction(30))
                self.written[kind.name] += count
        except KafkaException as error:
            if error.args[0].fatal() or not error.args[0].txn_requires_abort():
                raise
            _until_done(lambda: producer.abort_transaction(30))
        return number + count


def _until_done(step: Any) -> None:
    """A transaction's step; retries as long as the client allows."""
    deadline = time.monotonic() + 200
    while True:
        try:
            step()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return
