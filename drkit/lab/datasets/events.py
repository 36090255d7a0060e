"""Data sets: topics, and events in event order, each with one or more keyed records.

An *event* is something that happened once (a flight, an hour's weather, an order with its items). It has one record on
each of its topics; these are written together, and in one transaction if transactions are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

WHEN_PRODUCED = 0
"""A record's timestamp with the meaning "when it is produced"."""


class TimestampMode(StrEnum):
    """The timestamps of records, except for topics that keep the original ones."""

    MOVED = "moved"  # original intervals; the last event is at the load's start
    LIVE = "live"  # each record has the time at which it is produced


class DatasetRecord(NamedTuple):
    """One Kafka record. `timestamp`: ms since the epoch, or `WHEN_PRODUCED`; a value of None is a tombstone."""

    topic: str
    key: str
    value: str | None
    timestamp: int


Event = Sequence[DatasetRecord]


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic of a data set. `config` has only settings that differ from the broker's defaults."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)


class Dataset(Protocol):
    """A source of events in event order: timestamps never go back within a topic."""

    @property
    def name(self) -> str:
        """`flights` or `orders`."""

    @property
    def topics(self) -> tuple[TopicSpec, ...]:
        """The topics of the events."""

    @property
    def size(self) -> int:
        """The number of events."""

    def events(self, end_ms: int) -> Iterator[Event]:
        """The events. If timestamps are moved, the last one has `end_ms` (ms since the epoch).

        Each call starts again.
        """


def select_topics(all_topics: Sequence[TopicSpec], wanted: Sequence[str] | None) -> tuple[TopicSpec, ...]:
    """The topics with these names (None: all), in the data set's order.

    Raises:
        ValueError: a name that the data set doesn't have, or no name at all.
    """
    if wanted is None:
        return tuple(all_topics)
    known = {spec.name for spec in all_topics}
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise ValueError(
            f"{', '.join(unknown) or 'nothing'} is not a topic of this data set; it has {', '.join(sorted(known))}"
        )
    return tuple(spec for spec in all_topics if spec.name in set(wanted))


def iso_millis(millis: int) -> str:
    """A time in ms since the epoch, in the form of the events' JSON: `2013-01-01T10:15:00.000Z`."""
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
