"""How groups read and commit, and what is reported of one."""

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
    """Where a group stands.

    read: records processed by this reader. positions: the offset after the last record processed, by
    partition. committed: the offsets that the cluster acknowledged from this reader. closed: its client
    is closed (with a living cluster: it has left the group). problem: what people should know, or None.
    """

    group: str
    behaviour: Behaviour
    topics: tuple[str, ...]
    read: int
    positions: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]
    closed: bool
    problem: str | None
