"""Writes the source topics for the comparison of translated positions: plain, transactional, compacted; and commits.

It uses an ordinary client, so that transactions are real; it notes every record's source offset from its delivery
report, by the record's unique value.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from bench.clusters import Cluster
from bench.processes import MeasurementFailed
from bench.wire import Connection
from drkit.model.topology import TopicPartition
from tests.support.links.log_reader import read_topic

PLAIN, TRANSACTIONS, COMPACTED = "plain", "transactions", "compacted"
KINDS = (PLAIN, TRANSACTIONS, COMPACTED)
_PARTITIONS = {PLAIN: 4, TRANSACTIONS: 2, COMPACTED: 2}
_SHARES = {PLAIN: 0.4, TRANSACTIONS: 0.3, COMPACTED: 0.3}
_COMPACTION = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1000",
    "max.compaction.lag.ms": "1000",
}
_KEYS = 400
_LARGEST_TRANSACTION = 60
_ABORTED_SHARE = 0.2
_SETTLE_SECONDS = 120.0
_POLL_SECONDS = 1.0
_RECENT = 300
_SEED = 4


class Commit(NamedTuple):
    """A group's position on the source: the offset of the next record to read."""

    group: str
    tp: TopicPartition
    offset: int


@dataclass(slots=True)
class Source:
    """Topics `PREFIX-plain`, `PREFIX-transactions`, `PREFIX-compacted` on a cluster.

    `offsets`: the source offset of each value. `half_ends`: the partitions' ends when the mirror started.
    """

    cluster: Cluster
    prefix: str
    offsets: dict[bytes, int] = field(default_factory=dict)
    written: int = 0
    half_ends: dict[TopicPartition, int] = field(default_factory=dict)
    _rng: random.Random = field(default_factory=lambda: random.Random(_SEED))  # noqa: S311 - test data

    def topic(self, kind: str) -> str:
        """The topic of a kind."""
        return f"{self.prefix}-{kind}"

    def partitions(self, kind: str) -> list[TopicPartition]:
        """Its partitions."""
        return [TopicPartition(self.topic(kind), number) for number in range(_PARTITIONS[kind])]

    def create(self) -> None:
        """Create the topics."""
        for kind in KINDS:
            config = _COMPACTION if kind == COMPACTED else {}
            self.cluster.create_topic(self.topic(kind), _PARTITIONS[kind], config)

    def write(self, records: int) -> None:
        """Write about so many records to each topic; many of the transactional ones are aborted."""
        self._write_plain(PLAIN, records, keyed=False)
        self._write_plain(COMPACTED, records, keyed=True)
        self._write_transactions(records)

    def compact(self) -> None:
        """Wait until the compacted topic has holes.

        Raises:
            MeasurementFailed: it has none after two minutes.
        """
        topic = self.topic(COMPACTED)
        before = self._count(topic)
        deadline = time.monotonic() + _SETTLE_SECONDS
        while self._count(topic) > before * 2 // 3:
            if time.monotonic() > deadline:
                raise MeasurementFailed(f"the source did not compact {topic} within {_SETTLE_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
            self._write_plain(COMPACTED, 4 * _PARTITIONS[COMPACTED], keyed=True)  # an append makes a segment roll

    def ends(self, on: Cluster | None = None) -> dict[TopicPartition, int]:
        """The ends of its partitions that exist on a cluster (default: the source)."""
        with Connection((on or self.cluster).address) as connection:
            found = connection.ends_of({self.topic(kind): range(_PARTITIONS[kind]) for kind in KINDS})
        return {TopicPartition(topic, number): end for topic, ends in found.items() for number, end in ends.items()}

    def commits(self, count: int, ends: dict[TopicPartition, int]) -> dict[str, list[Commit]]:
        """Random positions by kind of topic: half anywhere, a quarter in the records from before the mirror's start
        (lagging groups), a quarter close to the end. Each is of a different group.
        """
        made: dict[str, list[Commit]] = {}
        for kind in KINDS:
            made[kind] = []
            for number in range(round(count * _SHARES[kind])):
                tp = self._rng.choice(self.partitions(kind))
                end, old = ends[tp], self.half_ends[tp]
                low, high = ((0, end), (0, end), (0, old), (max(0, end - _RECENT), end))[number % 4]
                made[kind].append(Commit(f"{self.prefix}-{kind}-{number}", tp, self._rng.randint(low, high)))
        return made

    def _count(self, topic: str) -> int:
        return sum(map(len, read_topic(self.cluster.address, topic).values()))

    def _write_plain(self, kind: str, records: int, *, keyed: bool) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.address, "linger.ms": 5, "compression.type": "lz4"})
        for _ in range(records):
            key = f"key-{self._rng.randrange(_KEYS)}" if keyed else None
            self._send(producer, kind, key)
        _flush(producer)

    def _write_transactions(self, records: int) -> None:
        producer = Producer(
            {"bootstrap.servers": self.cluster.address, "transactional.id": self.prefix, "linger.ms": 1}
        )
        producer.init_transactions(30)
        left = records // 4  # a commit for about every thirty takes time
        while left > 0:
            size = self._rng.randint(1, _LARGEST_TRANSACTION)
            left -= size
            producer.begin_transaction()
            for _ in range(size):
                self._send(producer, TRANSACTIONS, None)
            if self._rng.random() < _ABORTED_SHARE:
                _flush(producer)  # else an abort would drop them unsent
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)

    def _send(self, producer: Producer, kind: str, key: str | None) -> None:
        self.written += 1
        value = f"{kind} {self.written:09d} of the records that groups stand between".encode()
        partition = (self.written if key is None else int(key.rpartition("-")[2])) % _PARTITIONS[kind]
        while True:
            try:
                producer.produce(self.topic(kind), value, key, partition, on_delivery=self._delivered)
            except BufferError:
                producer.poll(0.1)
            else:
                producer.poll(0)
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value, offset = message.value(), message.offset()
        if error is not None or value is None or offset is None:
            raise MeasurementFailed(f"the source refused a record: {error}")
        self.offsets[value] = offset


def _flush(producer: Producer) -> None:
    if producer.flush(_SETTLE_SECONDS):
        raise MeasurementFailed("the source did not take all records in time")
