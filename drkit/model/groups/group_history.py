"""Where groups stood, over time: what each group had committed on a topic, at the moments that it changed.

A state is what all partitions of one (group, topic) stood at together. Between two looks nobody knows
when a commit fell, so a state says when it was first seen and up to when the one before was still seen:

    looks      |     |     |     |     |     |
    commits    A        B                       (B fell between the 2nd and the 3rd look)
    states     A(at 1)     B(at 3, before=1, held_until=2)

At a moment between 1 and 2 the group stood at A, surely; between 2 and 3 at A or already at B.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


class GroupCommit(NamedTuple):
    """What a group had committed on a partition."""

    partition: int
    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupState:
    """What a group had committed on one topic, first seen at `at`; without positions: the group was gone.

    Args:
        before: when the state that was seen just before this one was first seen; None: it isn't known
            (the first one, or the mirror had not been looking).
        held_until: the last look at which that state was still seen; None with `before` None.
        expires_at: from then on it may be forgotten.
    """

    group: str
    topic: str
    at: datetime
    positions: tuple[GroupCommit, ...]
    before: datetime | None
    held_until: datetime | None
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class StatesAround:
    """The states of one (group, topic) around a moment: the newest at or before it, and the next after it."""

    group: str
    topic: str
    then: GroupState | None
    following: GroupState | None
