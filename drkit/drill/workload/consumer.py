"""A consumer that records what it reads: `python -m …consumer SPEC.json`.

It commits only what is in its ledger, and records the positions that the cluster confirmed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from drkit.drill.workload.client_files import ClientLedger, ClientSpec, Stop
from drkit.drill.workload.reading import record_of

POLL_SECONDS = 0.05
CLOSE_SECONDS = 5.0
"""The limit for closing, which would wait forever for brokers that are gone."""


class _Reader:
    def __init__(self, spec: ClientSpec, ledger: ClientLedger) -> None:
        self.spec = spec
        self.ledger = ledger
        self.assignment = 0
        self.positions: dict[int, int] = {}
        self.asked: dict[int, int] = {}
        self.closing = False
        self.last: list[TopicPartition] = []
        self.asked_at = time.monotonic()
        self.consumer = Consumer(
            {
                **spec.properties,
                "group.id": spec.group,
                "enable.auto.commit": False,
                "auto.offset.reset": spec.offset_reset,
                "session.timeout.ms": 6000,
                "fetch.wait.max.ms": 50,
                "enable.partition.eof": True,  # a partition may end with a transaction's marker, which is no record
                "on_commit": self.on_commit,
            }
        )
        self.consumer.subscribe([spec.topic], on_assign=self.on_assign, on_revoke=self.on_revoke)

    def on_assign(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.assignment += 1
        self.positions.clear()
        self.asked.clear()

    def on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        if not self.closing:
            self.commit()

    def on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        for found in partitions:
            if error is None and found.error is None:
                self.ledger.add("positions", (found.partition, found.offset, time.monotonic()))

    def poll(self) -> None:
        first = self.consumer.poll(POLL_SECONDS)
        if first is None:
            return
        for message in [first, *self.consumer.consume(500, 0)]:
            error = message.error()
            if error is None:
                self.saw(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # as documented
                self.at_end(message)

    def saw(self, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if partition is None or offset is None:
            raise RuntimeError("a record without a partition or offset")
        record = record_of(self.spec.drill, message.key(), message.value())
        key, seq = (None, None) if record is None else record
        self.ledger.add("polls", (self.assignment, partition, offset, key, seq, time.monotonic()))
        self.positions[partition] = offset + 1

    def at_end(self, message: Message) -> None:
        """Move behind markers and aborted records at the end: nothing of them will be read."""
        partition, offset = message.partition(), message.offset()
        if partition in self.positions and offset is not None and offset > self.positions[partition]:
            self.positions[partition] = offset

    def commit(self) -> None:
        """Commit what was read since the last commit and is in the ledger. `on_commit` gets the response."""
        self.asked_at = time.monotonic()
        self.ledger.keep(now=True)
        moved = self.unasked()
        if moved:
            self.consumer.commit(offsets=moved, asynchronous=True)
            self.asked.update({tp.partition: tp.offset for tp in moved})

    def unasked(self) -> list[TopicPartition]:
        """The positions that no commit request has had yet."""
        return [TopicPartition(self.spec.topic, p, o) for p, o in self.positions.items() if self.asked.get(p) != o]

    def close(self) -> None:
        """Commit and leave the group, in a bounded time. Only this thread writes the ledger."""
        self.ledger.keep(now=True)
        self.closing = True
        leaving = threading.Thread(target=self.leave, daemon=True)
        leaving.start()
        leaving.join(CLOSE_SECONDS)
        self.on_commit(None, self.last)

    def leave(self) -> None:
        """The last commit is noted once the client is closed, which only then hands over responses to earlier ones."""
        last = self.unasked()
        if last:
            try:
                self.last = self.consumer.commit(offsets=last, asynchronous=False) or []
            except KafkaException as error:
                print(f"the last commit was not confirmed: {error}", file=sys.stderr)  # noqa: T201  # this process's log
        self.consumer.close()


def run(spec: ClientSpec) -> None:
    """Read until SIGTERM."""
    stop = Stop()
    ledger = ClientLedger(Path(spec.ledger))
    reader = _Reader(spec, ledger)
    while not stop.asked() and not spec.orphaned():
        reader.poll()
        if time.monotonic() - reader.asked_at >= spec.commit_every_seconds:
            reader.commit()
        ledger.keep()
    reader.close()
    ledger.close()
    os._exit(0)  # a close that still waits for dead brokers must not keep the process alive


if __name__ == "__main__":
    run(ClientSpec.take(Path(sys.argv[1])))
