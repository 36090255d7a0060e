"""An independent witness: what a topic really holds, read with a plain consumer, not with drkit.

The demo's claims rest on it: drkit's own numbers are compared with what this reads.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from drkit.model.errors import Unreachable
from drkit.model.topology import TopicPartition

_BATCH = 5000
_NO_PROGRESS_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What a partition holds: records, the offset after the last, a digest over all content in order.

    `beyond` counts the records at or above the offset that `read_topics` was asked about.
    """

    records: int
    end: int
    digest: str
    beyond: int


def partitions_of(bootstrap: str, topics: Iterable[str]) -> list[TopicPartition]:
    """All partitions of these topics, by the cluster's own metadata."""
    consumer = _consumer(bootstrap)
    try:
        known = consumer.list_topics(timeout=30).topics
        return [TopicPartition(topic, number) for topic in sorted(topics) for number in sorted(known[topic].partitions)]
    except KafkaException as error:
        raise Unreachable(f"{bootstrap} does not answer: {error.args[0].str()}") from error
    finally:
        consumer.close()


def read_topics(
    bootstrap: str, topics: Iterable[str], beyond: Mapping[TopicPartition, int] | None = None
) -> dict[TopicPartition, Seen]:
    """Read every record of the topics from start to end.

    Args:
        bootstrap: the cluster.
        topics: their names.
        beyond: by partition, the offset from which on records are counted in `Seen.beyond`.

    Raises:
        Unreachable: no record and no end came for a minute.
    """
    wanted = partitions_of(bootstrap, topics)
    states = {tp: _Reading((beyond or {}).get(tp)) for tp in wanted}
    consumer = _consumer(bootstrap)
    try:
        consumer.assign([ClientPartition(tp.topic, tp.partition, 0) for tp in wanted])
        open_partitions = set(wanted)
        last = time.monotonic()
        while open_partitions:
            for message in consumer.consume(_BATCH, 0.2):
                last = time.monotonic()
                tp = TopicPartition(str(message.topic()), int(message.partition() or 0))
                error = message.error()
                if error is None:
                    states[tp].add(message)
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # the client's public constant
                    open_partitions.discard(tp)
                else:
                    raise Unreachable(f"reading {tp} of {bootstrap}: {error.str()}")
            if time.monotonic() - last > _NO_PROGRESS_SECONDS:
                raise Unreachable(f"reading {bootstrap}: nothing came for {_NO_PROGRESS_SECONDS:.0f} s")
    finally:
        consumer.close()
    return {tp: state.seen() for tp, state in states.items()}


class _Reading:
    """The running digest of one partition."""

    def __init__(self, beyond: int | None) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._records = 0
        self._end = 0
        self._from = beyond
        self._beyond = 0

    def add(self, message: Message) -> None:
        flat: list[object] = [message.key(), message.value()]
        for header in message.headers() or ():
            flat += header
        parts = [None if part is None else _bytes(part) for part in flat]
        lengths = ",".join("-" if part is None else str(len(part)) for part in parts)
        self._hash.update(f"{lengths};{message.timestamp()[1]};".encode())
        self._hash.update(b"".join(part for part in parts if part is not None))
        self._records += 1
        offset = int(message.offset() or 0)
        self._end = offset + 1
        if self._from is not None and offset >= self._from:
            self._beyond += 1

    def seen(self) -> Seen:
        return Seen(self._records, self._end, self._hash.hexdigest(), self._beyond)


def _bytes(part: object) -> bytes:
    return part if isinstance(part, bytes) else str(part).encode()


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "drkit-demo-witness",  # formal: partitions are assigned by hand, nothing is committed
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": 65_536,
            "log_level": 2,
        }
    )
