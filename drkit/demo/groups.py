"""The demo's consumer groups: the same three on one cluster, then on the other, with the records that each read.

Records are kept as content hashes, so that records read twice, or never, are counted by content and not by
offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Message

from drkit.demo.picture import ReaderLine
from drkit.demo.witness import content_hash
from drkit.lab.datasets.readers import Behaviour, GroupReader
from drkit.model.topology import TopicPartition

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
