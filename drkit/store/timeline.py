"""The timeline of group positions: the protocol of the backends, and the row format.

Each state expires on its own (`expires_at`). If some are missing the others are still true, because each names the
state seen just before it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from drkit.model.groups import GroupCommit, GroupState, StatesAround
from drkit.model.link_state import TopicState
from drkit.model.topology import LinkId
from drkit.store.codec import from_micros, instant_or_none, micros_or_never, to_micros

_FAST = 1


class TimelineStore(Protocol):
    """Committed offsets of groups over time, by link."""

    def put_group_states(self, link: LinkId, states: Sequence[GroupState]) -> None:
        """Store states until they expire; one with the same (group, topic, at) is replaced."""

    def group_states_around(self, link: LinkId, at: datetime) -> list[StatesAround]:
        """For every stored (group, topic), the states around `at`, sorted. One of a former topic of that name is left
        out: it says nothing about the current one."""

    def forget_expired_states(self, link: LinkId, at: datetime) -> int:
        """Remove states that have expired at `at`; returns their number. A backend that expires them itself
        returns 0."""


def state_row(state: GroupState) -> tuple[Any, ...]:
    """group, topic, at, before_at, held_until, expires_at, positions, topic_id."""
    return (
        state.group,
        state.topic,
        to_micros(state.at),
        micros_or_never(state.before),
        micros_or_never(state.held_until),
        to_micros(state.expires_at),
        _pack(state.positions),
        state.topic_id,
    )


def read_state(
    group: str, topic: str, at: int, before: int, held_until: int, expires_at: int, positions: bytes, topic_id: str
) -> GroupState:
    """Inverse of `state_row`."""
    return GroupState(
        group,
        topic,
        from_micros(at),
        _unpack(positions),
        instant_or_none(before),
        instant_or_none(held_until),
        from_micros(expires_at),
        topic_id,
    )


def states_around(
    then: Sequence[Any] | None, following: Sequence[Any] | None, topics: Mapping[str, TopicState]
) -> StatesAround | None:
    """The rows around a moment, without those of a former topic of that name; None: neither is left."""
    read = [None if row is None else read_state(*row) for row in (then, following)]
    one, other = (
        None if state is None or _is_former(topics.get(state.topic), state.topic_id) else state for state in read
    )
    known = one or other
    return None if known is None else StatesAround(known.group, known.topic, one, other)


def _is_former(topic: TopicState | None, topic_id: str) -> bool:
    return topic is not None and not topic.is_topic(topic_id)


def _pack(positions: Sequence[GroupCommit]) -> bytes:
    """Compressed JSON: about 6 bytes a partition."""
    plain = [[p.partition, p.offset, p.metadata] if p.metadata else [p.partition, p.offset] for p in positions]
    return zlib.compress(json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode(), _FAST)


def _unpack(packed: bytes) -> tuple[GroupCommit, ...]:
    return tuple(GroupCommit(*each) for each in json.loads(zlib.decompress(packed)))
