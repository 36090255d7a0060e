"""A producer that records what it sends and what is acknowledged: `python -m …producer SPEC.json`.

A key always goes to the same partition, on both clusters. An error instead of an acknowledgement leaves the outcome
unknown: the record may be in the log nevertheless.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer

from drkit.drill.judge.history import RecordId
from drkit.drill.workload.ledger import ClientLedger
from drkit.drill.workload.records import HEADER, digest_of, value_of
from drkit.drill.workload.spec import ClientSpec, Stop

IDLE_SECONDS = 0.005


class _Sender:
    def __init__(self, spec: ClientSpec, ledger: ClientLedger) -> None:
        self.spec = spec
        self.ledger = ledger
        self.dead = False
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
        timestamp = int((time.time() + self.spec.clock_skew_seconds) * 1000)
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
        self.ledger.add("attempts", (key, record.seq, partition, sent_at, digest))

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


def run(spec: ClientSpec) -> None:
    """Produce at the requested rate until SIGTERM."""
    stop = Stop()
    ledger = ClientLedger(Path(spec.ledger))
    sender = _Sender(spec, ledger)
    started = time.monotonic()
    sent = 0
    while not stop.asked() and not spec.orphaned():
        due = int((time.monotonic() - started) * spec.rate) - sent
        for _ in range(min(due, 1000)):
            if stop.asked():
                break
            sender.send()
            sent += 1
        sender.serve(IDLE_SECONDS)
        ledger.keep()
    sender.finish()
    ledger.close()


if __name__ == "__main__":
    run(ClientSpec.take(Path(sys.argv[1])))
