"""How groups read and commit, and the report of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from drkit.model.topology import TopicPartition


class Behaviour(StrEnum):
    """How a group reads and commits."""

    LIVE = "live"
    LAGGING = "lagging"
    AHEAD = "ahead"


@dataclass(frozen=True, slots=True)
class GroupReport:
    """The progress of a group.

    read: records processed by this reader. positions: the offset after the last processed record, by partition.
    committed: this reader's offsets that the cluster acknowledged. problem: a message for people, or None.
    """

    group: str
    behaviour: Behaviour
    topics: tuple[str, ...]
    read: int
    positions: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]
    problem: str | None
