"""Groups' positions at a moment in the past, from the timeline (`drkit.model.groups`). Pure.

The newest state seen at or before the moment is what a group had surely committed by then. It is exact if the next
state says that this one was still seen after the moment, or if the group is still there. Otherwise the group may have
moved in between: then the earlier position is used, which skips nothing, with how old it may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from drkit.model.clock import iso
from drkit.model.groups import GroupState, StatesAround
from drkit.model.offsets import Certainty, GroupPosition
from drkit.model.topology import TopicPartition

Key = tuple[str, TopicPartition]
"""A group and a partition."""


@dataclass(frozen=True, slots=True)
class PastPosition:
    """A group's position on a partition; `offset` None: unknown, and `reason` says why.

    `reason` is None if the position is exact.
    """

    offset: int | None
    metadata: str
    certainty: Certainty
    reason: str | None
    seen_at: datetime | None


def committed_at(
    moment: datetime, states: Iterable[StatesAround], captured: Iterable[GroupPosition]
) -> dict[Key, PastPosition]:
    """Every group's position at `moment`, on every partition where it has had one.

    Args:
        moment: the moment.
        states: the states around it, of every group and topic.
        captured: the groups' positions at the mirror's last look.
    """
    now_at: dict[Key, GroupPosition] = {(position.group, position.tp): position for position in captured}
    last_look = max((position.captured_at for position in now_at.values()), default=None)
    past: dict[Key, PastPosition] = {}
    for around in states:
        past.update(_of_series(moment, around, now_at))
    for key in now_at.keys() - past.keys():
        seen = "" if last_look is None else f", as far as it was captured (last at {iso(last_look)})"
        past[key] = _nowhere(f"the timeline has no position of {key[0]} on {key[1]} at {iso(moment)}{seen}")
    return past


def _of_series(moment: datetime, around: StatesAround, now_at: Mapping[Key, GroupPosition]) -> dict[Key, PastPosition]:
    then, following = around.then, around.following
    if then is None:
        first = None if following is None else iso(following.at)
        known = [] if following is None else following.positions
        reason = f"the timeline of {around.group} on {around.topic} begins at {first}, after {iso(moment)}"
        return {_key(around, each.partition): _nowhere(reason) for each in known}
    doubt = _doubt(moment, around, now_at)
    certainty = Certainty.EXACT if doubt is None else Certainty.CONSERVATIVE
    return {
        _key(around, each.partition): PastPosition(each.offset, each.metadata, certainty, doubt, then.at)
        for each in then.positions
    }


def _doubt(moment: datetime, around: StatesAround, now_at: Mapping[Key, GroupPosition]) -> str | None:
    """Why a group may have been further on at the moment than the state says, or None."""
    then, following = around.then, around.following
    if then is None:
        return None
    if following is not None:
        if following.before != then.at or following.held_until is None:
            return (
                f"not known between {iso(then.at)} and {iso(following.at)}: the timeline is thinned with age, or the "
                "mirror was not looking; the earlier position is taken"
            )
        if moment <= following.held_until:
            return None
        return (
            f"it committed between the looks at {iso(following.held_until)} and {iso(following.at)}, or could not be "
            "seen: the earlier position is taken"
        )
    return _doubt_of_newest(moment, then, [now_at.get(_key(around, each.partition)) for each in then.positions])


def _doubt_of_newest(moment: datetime, then: GroupState, here: Sequence[GroupPosition | None]) -> str | None:
    """Like `_doubt`, for the newest state; `here`: the group's position at the last look."""
    still = [position for position in here if position is not None]
    same = len(still) == len(here) and all(
        position.offset == each.offset for position, each in zip(still, then.positions, strict=True)
    )
    looked = min((position.captured_at for position in still), default=then.at)
    if same and moment <= looked:
        return None
    if same:
        return f"it was last seen there at {iso(looked)}; where it went until {iso(moment)} is unknown"
    return f"it has moved on since {iso(then.at)}, and when is not in the timeline: the earlier position is taken"


def _nowhere(reason: str) -> PastPosition:
    return PastPosition(None, "", Certainty.UNAVAILABLE, reason, None)


def _key(around: StatesAround, partition: int) -> Key:
    return (around.group, TopicPartition(around.topic, partition))
