"""A producer that records what it sends and what is acknowledged: `python -m …producer SPEC.json`.

A key always goes to the same partition, on both clusters. An error instead of an acknowledgement leaves the outcome
unknown: the record may be in the log nevertheless. In transactions a record counts as acknowledged once its transaction
is committed, and as aborted once the abort is confirmed.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from drkit.drill.judge.history import RecordId
from drkit.drill.workload.client_files import ClientLedger, ClientSpec, Stop
from drkit.drill.workload.reading import HEADER, digest_of, value_of

IDLE_SECONDS = 0.005
STEP_SECONDS = 1.0
"""How long one request of a transaction is waited for before the producer looks whether it is to stop."""
TRANSACTION_TIMEOUT_MS = 10_000
"""After it the broker aborts the transaction of a producer that is gone."""


def timestamp_of(spec: ClientSpec, number: int, record: RecordId, now: float) -> int:
    """The timestamp of a record (ms) of the key with this number, sent at `now` (seconds).

    Late records are spread over all keys, and so over all partitions.
    """
    late = spec.late_every > 0 and (number + record.seq) % spec.late_every == 0
    return int((now + spec.clock_skew_seconds - (spec.late_seconds if late else 0.0)) * 1000)


class _Sender:
    def __init__(self, spec: ClientSpec, ledger: ClientLedger, stop: Stop) -> None:
        self.spec = spec
        self.ledger = ledger
        self.stop = stop
        self.dead = False
        self.transaction: int | None = None
        self.producer = self.another()
        self.next_seq = dict(spec.next_seqs)
        self.keys = itertools.cycle(range(spec.keys))

    def another(self) -> Producer:
        return Producer(
            {
                **self.spec.properties,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 30_000,
            }
        )

    def serve(self, seconds: float) -> None:
        """Process acknowledgements. Raises a fatal error (the broker lost what this producer had sent) once: then an
        application creates another producer."""
        try:
            self.producer.poll(seconds)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            self.dead = True

    def renew(self) -> None:
        """Replace the producer; it is unknown whether the old one's pending records are in the log."""
        self.producer.purge()
        self.serve(0)
        self.producer = self.another()
        self.dead = False

    def send(self) -> None:
        if self.dead:
            self.renew()
        number = next(self.keys)
        key = f"{self.spec.key_prefix}{number}"
        record = RecordId(key, self.next_seq.get(key, 0))
        value = value_of(self.spec.drill, record, self.spec.value_bytes)
        partition = number % self.spec.partitions
        headers: list[tuple[str, bytes | None]] = [(HEADER, self.spec.drill.encode())]
        timestamp = timestamp_of(self.spec, number, record, time.time())
        digest = digest_of(key.encode(), value, headers, timestamp)
        sent_at = time.monotonic()
        while True:
            try:
                self.producer.produce(
                    self.spec.topic,
                    value,
                    key.encode(),
                    partition,
                    on_delivery=lambda error, message: self.delivered(record, error, message),
                    timestamp=timestamp,
                    headers=[*headers],
                )
                break
            except BufferError:  # the queue is full: the cluster doesn't accept records now
                self.serve(0.1)
                self.ledger.keep()
            except KafkaException:  # the topic is gone, or this producer has just died: nothing was sent
                self.serve(0.1)
                return
        self.next_seq[key] = record.seq + 1
        self.ledger.add("attempts", (key, record.seq, partition, sent_at, digest, self.transaction))

    def due(self, records: int) -> None:
        """Send so many records, or as many as until it is to stop."""
        for _ in range(records):
            if self.stop.asked():
                break
            self.send()

    def delivered(self, record: RecordId, error: object, message: Any) -> None:
        if error is None:
            self.ledger.add("acks", (record.key, record.seq, message.offset(), time.monotonic()))

    def finish(self) -> None:
        for seconds in (self.spec.flush_seconds, 1.0):
            try:
                self.producer.flush(seconds)
            except KafkaException:  # a fatal error that is reported only now: records without a response are unknown
                self.dead = True
            self.producer.purge()


class _TransactionalSender(_Sender):
    """Sends in transactions. `pending`: acknowledged records of the open one, with their offsets."""

    def __init__(self, spec: ClientSpec, ledger: ClientLedger, stop: Stop) -> None:
        self.number = 0
        self.pending: list[tuple[RecordId, int]] = []
        self.left = 0
        super().__init__(spec, ledger, stop)

    def another(self) -> Producer:
        return Producer(
            {
                **self.spec.properties,
                "transactional.id": self.spec.transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 5,
            }
        )

    def due(self, records: int) -> None:
        for _ in range(records):
            if self.stop.asked() or (self.transaction is None and not self.begin()):
                return
            self.send()
            self.left -= 1
            if self.left <= 0 or self.dead:
                self.end()

    def delivered(self, record: RecordId, error: object, message: Any) -> None:
        if error is None:
            self.pending.append((record, message.offset()))

    def begin(self) -> bool:
        """Begin a transaction, with another producer if the last one failed; whether there is one."""
        if self.dead or self.number == 0:
            if self.dead:
                self.renew()
            if not self.asked(self.producer.init_transactions):
                self.dead = True
                return False
        try:
            self.producer.begin_transaction()
        except KafkaException:  # the last one left this producer in a state that only another one gets out of
            self.dead = True
            return False
        self.number += 1
        self.transaction, self.left = self.number, self.spec.transaction_records
        self.pending.clear()
        return True

    def end(self) -> None:
        """Commit the transaction, or abort it if it is its turn or it can't be committed."""
        number, self.transaction = self.transaction, None
        if number is None:
            return
        aborts = self.spec.abort_every > 0 and number % self.spec.abort_every == 0
        end = self.producer.abort_transaction if aborts else self.producer.commit_transaction
        if self.dead or not (self.asked(self.flushed) and self.asked(end)):
            self.dead = True  # it may have ended or not: what becomes of it is unknown
        elif aborts:
            self.ledger.add("aborts", (number,))
        else:
            at = time.monotonic()
            for record, offset in self.pending:
                self.ledger.add("acks", (record.key, record.seq, offset, at))

    def flushed(self, seconds: float) -> None:
        """Wait until each record of the transaction has its response."""
        if self.producer.flush(seconds):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))  # noqa: SLF001  # as documented

    def asked(self, request: Callable[[float], Any]) -> bool:
        """Make a request of a transaction again until it is answered; whether it succeeded before the time to stop."""
        deadline: float | None = None
        while deadline is None or time.monotonic() < deadline:
            try:
                request(STEP_SECONDS)
            except KafkaException as error:
                if not error.args[0].retriable():
                    return False
            else:
                return True
            self.ledger.keep()
            if deadline is None and (self.stop.asked() or self.spec.orphaned()):
                deadline = time.monotonic() + self.spec.flush_seconds
        return False

    def finish(self) -> None:
        self.end()
        self.producer.purge()


def run(spec: ClientSpec) -> None:
    """Produce at the requested rate until SIGTERM."""
    stop = Stop()
    ledger = ClientLedger(Path(spec.ledger))
    sender = (_Sender if spec.transactional_id is None else _TransactionalSender)(spec, ledger, stop)
    started = time.monotonic()
    sent = 0
    while not stop.asked() and not spec.orphaned():
        due = min(int((time.monotonic() - started) * spec.rate) - sent, 1000)
        sender.due(due)
        sent += max(due, 0)
        sender.serve(IDLE_SECONDS)
        ledger.keep()
    sender.finish()
    ledger.close()


if __name__ == "__main__":
    run(ClientSpec.take(Path(sys.argv[1])))
