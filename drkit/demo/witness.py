"""What the demo's claims rest on: an independent witness, and the consumer groups.

The witness reads with a plain consumer, not with drkit, what a topic really holds; drkit's own numbers are compared
with that. The groups are the same three on one cluster, then on the other. Records are kept as content hashes, so that
records read twice, or never, are counted by content and not by offsets.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from drkit.demo.picture import ReaderLine
from drkit.lab.datasets.readers import GroupReader
from drkit.lab.datasets.report import Behaviour
from drkit.model.errors import Unreachable
from drkit.model.topology import TopicPartition

# --- the witness ---------------------------------------------------------------------------------------------------

_BATCH = 5000
_NO_PROGRESS_SECONDS = 60.0


@dataclass(slots=True)
class PartitionContent:
    """What a partition holds, in order: each record's offset and a hash of its content.

    The hash covers key, value, headers and timestamp; equal hashes are taken for equal records (64 bits).
    """

    offsets: array[int]
    hashes: array[int]

    @property
    def records(self) -> int:
        """How many records there are."""
        return len(self.offsets)

    def from_offset(self, offset: int) -> int:
        """How many records stand at or above an offset."""
        return len(self.offsets) - bisect_left(self.offsets, offset)

    def common_prefix(self, other: PartitionContent) -> int:
        """How many records from the start on are the same, in the same order."""
        for count, (mine, theirs) in enumerate(zip(self.hashes, other.hashes, strict=False)):
            if mine != theirs:
                return count
        return min(self.records, other.records)


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


def read_topics(bootstrap: str, topics: Iterable[str]) -> dict[TopicPartition, PartitionContent]:
    """Read every committed record of the topics from start to end.

    Raises:
        Unreachable: no record and no end came for a minute.
    """
    wanted = partitions_of(bootstrap, topics)
    seen = {tp: PartitionContent(array("q"), array("q")) for tp in wanted}
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
                    seen[tp].offsets.append(int(message.offset() or 0))
                    seen[tp].hashes.append(content_hash(message))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # the client's public constant
                    open_partitions.discard(tp)
                else:
                    raise Unreachable(f"reading {tp} of {bootstrap}: {error.str()}")
            if time.monotonic() - last > _NO_PROGRESS_SECONDS:
                raise Unreachable(f"reading {bootstrap}: nothing came for {_NO_PROGRESS_SECONDS:.0f} s")
    finally:
        consumer.close()
    return seen


def content_hash(message: Message) -> int:
    """64 bits of a record's content (the same within this process only)."""
    headers = message.headers()
    flat = tuple(tuple(header) for header in headers) if headers else ()
    return hash((message.key(), message.value(), message.timestamp()[1], flat))


def committed(bootstrap: str, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """A group's committed offsets; partitions that it never committed are left out."""
    consumer = _consumer(bootstrap, group)
    try:
        asked = [ClientPartition(tp.topic, tp.partition) for tp in partitions]
        answered = consumer.committed(asked, timeout=30)
    except KafkaException as error:
        raise Unreachable(f"{bootstrap} does not answer: {error.args[0].str()}") from error
    finally:
        consumer.close()
    return {TopicPartition(tp.topic, tp.partition): tp.offset for tp in answered if tp.offset >= 0}


def _consumer(bootstrap: str, group: str = "drkit-demo-witness") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,  # formal: partitions are assigned by hand, nothing is committed
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": 65_536,
            "log_level": 2,
        }
    )


# --- the groups ----------------------------------------------------------------------------------------------------

GROUPS = {
    "flights-live": Behaviour.LIVE,
    "flights-lagging": Behaviour.LAGGING,
    "flights-ahead": Behaviour.AHEAD,
}
"""Up to date; lagging far behind; committing ahead of what it has processed."""

_STOP_SECONDS = 20.0


@dataclass(slots=True)
class Readings:
    """What one group has read on one cluster, by partition in order of reading."""

    hashes: set[int] = field(default_factory=set)
    first_offset: dict[TopicPartition, int] = field(default_factory=dict)

    def take(self, messages: Sequence[Message]) -> None:
        """Keep a batch (called in the reader's thread)."""
        for message in messages:
            self.hashes.add(content_hash(message))
            tp = TopicPartition(str(message.topic()), int(message.partition() or 0))
            self.first_offset.setdefault(tp, int(message.offset() or 0))


READ_TOPICS = ("flights", "weather")


class Consumers:
    """The three groups on one cluster."""

    def __init__(self, cluster: str, client: Mapping[str, Any], *, live: bool) -> None:
        self.cluster = cluster
        self.readings = {group: Readings() for group in GROUPS}
        self._readers = [
            GroupReader(
                group,
                READ_TOPICS,
                client,
                Behaviour.LIVE if live else behaviour,
                on_messages=self.readings[group].take,
            )
            for group, behaviour in GROUPS.items()
        ]

    def start(self) -> None:
        """Join and read."""
        for reader in self._readers:
            reader.start()

    def stop(self, *, catch_up_seconds: float = 0.0) -> None:
        """Stop all concurrently; abandon a reader of a dead cluster after a timeout."""
        for reader in self._readers:
            reader.request_stop(catch_up_seconds=catch_up_seconds)
        for reader in self._readers:
            reader.join(catch_up_seconds + _STOP_SECONDS)

    def lines(self) -> list[ReaderLine]:
        """For the picture."""
        return [ReaderLine(reader.group, self.cluster, reader.report().read) for reader in self._readers]

    def read(self, group: str) -> int:
        """Records that a group has processed."""
        return next(reader.report().read for reader in self._readers if reader.group == group)
