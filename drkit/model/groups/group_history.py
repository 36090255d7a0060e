"""Committed offsets of groups over time.

A state holds what one (group, topic) had committed on all partitions together. The exact time of a commit between two
looks is unknown, so a state says when it was first seen and until when the one before it was still seen:
    looks      |     |     |     |     |     |
    commits    A        B                       (B fell between the 2nd and the 3rd look)
    states     A(at 1)     B(at 3, before=1, held_until=2)

Between 1 and 2 the group was surely at A; between 2 and 3 it was at A or already at B.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


class GroupCommit(NamedTuple):
    """A group's committed offset on a partition."""

    partition: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupState:
    """What a group had committed on one topic, first seen at `at`; without positions the group was gone.

    Args:
        before: when the previous state was first seen; None: unknown (the first state, or the mirror had not been
            looking).
        held_until: the last look at which the previous state was still seen; None where `before` is None.
        expires_at: the store may forget it from then on.
        topic_id: the source's topic that these are positions in, not another one of the same name; empty: unknown.
    """

    group: str
    topic: str
    at: datetime
    positions: tuple[GroupCommit, ...]
    before: datetime | None
    held_until: datetime | None
    expires_at: datetime
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class StatesAround:
    """The states of one (group, topic) around a moment: the newest at or before it, and the next after it."""

    group: str
    topic: str
    then: GroupState | None
    following: GroupState | None
