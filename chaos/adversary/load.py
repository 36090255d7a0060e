"""Writes to the source: batches of every shape; each record is noted in the journal before it is sent."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from chaos.adversary.callables import ALTERED, DROPPED
from chaos.adversary.oracle import Journal, Written
from chaos.soak.clusters import SoakError, digest
from chaos.soak.load import OLD_STAMP

_AHEAD_MS = 50 * 60 * 1000  # brokers accept an hour by default
_LARGEST_BYTES = 4_000_000
_DROPPED_EVERY = 5
_FLUSH_SECONDS = 60.0

Headers = list[tuple[str, bytes | None]]


class Load:
    """Writes a plan's records.

    Args:
        bootstrap: the source.
        topic: the topic to write to.
        alters: how the link alters records.
        batch_bytes: the most bytes of a batch.
        journal: notes the records.
        committed: whether the link skips records of uncommitted transactions.
        keyed: whether each record needs a key.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        alters: str,
        batch_bytes: int,
        journal: Journal,
        *,
        committed: bool,
        keyed: bool = False,
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._alters = alters
        self._batch_bytes = batch_bytes
        self._journal = journal
        self._committed = committed
        self._keyed = keyed
        self._open: list[Producer] = []
        self._refused: list[str] = []
        self._numbers = itertools.count()
        self._ids = itertools.count()

    def write(self, partition: int, count: int, shape: dict[str, Any]) -> None:
        """Write records in batches of this shape; they are acknowledged on return."""
        self.flow(partition, [(count, shape)])

    def flow(self, partition: int, parts: Sequence[tuple[int, dict[str, Any]]]) -> None:
        """Write records of several shapes, one after the other: like `write`, in batches of the first shape."""
        producer = self._producer(parts[0][1])
        for count, shape in parts:
            self._send(producer, partition, count, shape, aborted=False)
        self._flush(producer, partition)

    def transaction(self, partition: int, count: int, shape: dict[str, Any], *, commit: bool) -> None:
        """Write records in one transaction."""
        try:
            producer = self._begun(partition, count, shape, commit=commit)
            if commit:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)
        except KafkaException as error:
            raise SoakError(f"a transaction failed: {error}") from error

    def open_transaction(self, partition: int, count: int, shape: dict[str, Any]) -> None:
        """Write records in a transaction that nobody ends before its timeout."""
        try:
            self._open.append(self._begun(partition, count, shape, commit=False))
        except KafkaException as error:
            raise SoakError(f"a transaction failed: {error}") from error

    def close(self) -> None:
        """Abort the open transaction."""
        for producer in self._open:
            with suppress(KafkaException):
                producer.abort_transaction(10)
        self._open.clear()

    def _begun(self, partition: int, count: int, shape: dict[str, Any], *, commit: bool) -> Producer:
        name = f"{self._topic}-{next(self._ids)}"
        producer = self._producer(shape, **{"transactional.id": name, "transaction.timeout.ms": 600_000})
        producer.init_transactions(30)
        producer.begin_transaction()
        self._send(producer, partition, count, shape, aborted=self._committed and not commit)
        self._flush(producer, partition)
        return producer

    def _flush(self, producer: Producer, partition: int) -> None:
        """Wait for the source's acknowledgements: a record that it refuses was never there."""
        if producer.flush(_FLUSH_SECONDS):
            raise SoakError(f"records for {self._topic}:{partition} were not acknowledged")
        if self._refused:
            raise SoakError(f"{self._topic}:{partition} on the source: {self._refused[0]}")

    def _delivered(self, written: Written, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None or offset is None or offset < 0:
            self._refused.append(f"{error or 'a record was acknowledged without an offset'}")
            return
        written.offset = offset

    def _producer(self, shape: dict[str, Any], **settings: Any) -> Producer:
        alone = shape.get("per_batch", 1_000) == 1
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": shape.get("codec", "lz4"),
                "batch.num.messages": shape.get("per_batch", 1_000),
                "batch.size": shape.get("batch_bytes", self._batch_bytes),
                "message.max.bytes": _LARGEST_BYTES,
                "linger.ms": 0 if alone else 20,
                "delivery.timeout.ms": 50_000,
                "queue.buffering.max.messages": 1_000_000,
                "log_level": 0,
                **settings,
            }
        )

    def _send(self, producer: Producer, partition: int, count: int, shape: dict[str, Any], *, aborted: bool) -> None:
        now = int(time.time() * 1000)
        base = {"old": OLD_STAMP, "ahead": now + _AHEAD_MS}.get(shape.get("stamp", "now"), now)
        what = shape.get("what", "plain")
        for number in itertools.islice(self._numbers, count):
            key: bytes | None = None if what == "keyless" and not self._keyed else b"k%d" % number
            dropped = what == "left_out" or number % _DROPPED_EVERY == 0
            if key is not None and self._alters == "filter" and dropped:
                key = DROPPED + key
            value: bytes | None = b"v%d" % number + _padding(number, shape.get("size", 0)) + b"=" * shape.get("even", 0)
            if what == "tombstones" and number % 2:
                value = None
            headers: Headers = [("n", b"%d" % number), ("empty", None)] if what == "headers" else []
            written = self._note(partition, key, value, headers, base + number % 1_000, aborted=aborted)
            producer.produce(
                self._topic,
                key=key,
                value=value,
                headers=headers or None,  # type: ignore[arg-type]  # a list, which is invariant
                timestamp=base + number % 1_000,
                partition=partition,
                on_delivery=partial(self._delivered, written),
            )

    def _note(
        self,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
        stamp: int,
        *,
        aborted: bool,
    ) -> Written:
        listed = list(headers)
        due: bytes | None
        if self._alters == "filter" and (key or b"").startswith(DROPPED):
            due = None
        elif self._alters == "transform" and value is not None:
            due = digest(key, ALTERED + value, listed, stamp)
        else:
            due = digest(key, value, listed, stamp)
        written = Written(partition, due, aborted)
        self._journal.write(digest(key, value, listed, stamp), written)
        return written


def _padding(number: int, size: int) -> bytes:
    """Incompressible bytes, the same for the same record."""
    return random.Random(number).randbytes(size) if size else b""  # noqa: S311 - repeatable, not secret
