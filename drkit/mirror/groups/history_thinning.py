"""Decides which of the groups' committed states are kept, and for how long. Pure: states in, states to keep out.

A series is one group on one topic. Kept of it are

- every change of the last `recent_seconds`, as captured;
- then the last one of each minute, for `keep_seconds`;
- one an hour of a series that doesn't change, so that whenever it is asked for there is one to find.

The bound holds by construction, whatever the groups do: with so many series that this could exceed
`max_rows`, both distances grow (a state that is passed over meanwhile is made up for when the distance
has passed). Nothing has to be counted or searched for: each state carries the moment at which it may
go, and one that is to last is simply kept again with a later one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from drkit.model.groups.group_history import GroupCommit, GroupState
from drkit.model.topology import TimelinePolicy

HEARTBEAT_SECONDS = 3600.0
COARSE_SECONDS = 60.0
_CHECK_SECONDS = 30.0

Series = tuple[str, str]
"""A group and a topic."""

Positions = Mapping[int, tuple[int, str]]
"""GroupCommit offset and metadata by partition."""


@dataclass(slots=True)
class _Series:
    """What is known of one series: the newest state kept, and whether the group has moved on since.

    `lasting`: that state is kept for long. `moved_on`: the last look at which that state was still seen,
    where a change has been seen since that isn't kept yet.
    """

    newest: GroupState
    lasting: bool
    moved_on: datetime | None = None


class Timeline:
    """Decides what to keep of each look. Used by one thread.

    Args:
        policy: how long, and how much.
    """

    def __init__(self, policy: TimelinePolicy) -> None:
        self._policy = policy
        self._series: dict[Series, _Series] = {}
        self._fleeting: set[Series] = set()
        self._behind: set[Series] = set()
        self._looked_at: datetime | None = None
        self._checked_at: datetime | None = None

    @property
    def coarse_seconds(self) -> float:
        """The distance between older states of a series: half of the rows are for them."""
        lasting = self._policy.keep_seconds + HEARTBEAT_SECONDS
        return max(COARSE_SECONDS, len(self._series) * lasting / (self._policy.max_rows / 2))

    @property
    def recent_seconds(self) -> float:
        """How long a state is kept at first: until it is surely known whether it is to last."""
        return max(self._policy.recent_seconds, 2 * self.coarse_seconds)

    @property
    def fine_seconds(self) -> float:
        """The distance between recent states of a series: the other half; it grows from the looks' own on."""
        return len(self._series) * self.recent_seconds / (self._policy.max_rows / 2)

    def observe(
        self,
        begun: datetime,
        at: datetime,
        states: Mapping[Series, Positions],
        changed: Iterable[Series],
        unseen: Mapping[str, datetime] | None = None,
    ) -> list[GroupState]:
        """Take what one look showed; returns the states to keep now.

        Args:
            begun: when the look began: what it didn't show was not yet committed then.
            at: when it had ended: what it shows was committed by then.
            states: of every series, what it stands at.
            changed: the series that stand elsewhere than at the last look.
            unseen: groups that could not be looked at lately, and when they last were.
        """
        if not self._policy.on:
            return []
        kept: list[GroupState] = []
        for series in changed:
            held = (unseen or {}).get(series[0], self._looked_at)
            self._changed(series, at, states[series], held, kept)
        new = [series for series in states if series not in self._series]
        kept += [self._begin(series, at, states[series]) for series in new]
        for series in [series for series in self._behind if self._due(self._series[series], at)]:
            self._keep(series, at, states[series], kept)
        self._settle(begun, at, kept)
        self._looked_at = begun
        return kept

    def gone(self, at: datetime, groups: Iterable[str]) -> list[GroupState]:
        """The groups don't exist any more, seen by a look that ended at `at`; returns the states that say so."""
        if not self._policy.on:
            return []
        names, kept = set(groups), list[GroupState]()
        for series in [series for series in self._series if series[0] in names]:
            self._keep(series, at, {}, kept)
            newest = self._series.pop(series).newest
            if kept[-1] is newest:
                kept[-1] = self._lasting(newest)
            self._fleeting.discard(series)
            self._behind.discard(series)
        return kept

    def _changed(
        self, series: Series, at: datetime, positions: Positions, held: datetime | None, kept: list[GroupState]
    ) -> None:
        known = self._series.get(series)
        if known is None:
            kept.append(self._begin(series, at, positions))
            return
        if known.moved_on is None:
            known.moved_on = held
        if self._due(known, at):
            self._keep(series, at, positions, kept)
        else:
            self._behind.add(series)

    def _begin(self, series: Series, at: datetime, positions: Positions) -> GroupState:
        """The first state of a series: what was before isn't known."""
        state = self._lasting(GroupState(*series, at, _committed(positions), None, None, at))
        self._series[series] = _Series(state, lasting=True)
        return state

    def _keep(self, series: Series, at: datetime, positions: Positions, kept: list[GroupState]) -> None:
        """Keep what the series stands at now; the last state of a minute that is over is to last."""
        known = self._series[series]
        if not known.lasting and self._slot(series, known.newest.at) != self._slot(series, at):
            kept.append(self._lasting(known.newest))
        held = known.moved_on or self._looked_at
        before = known.newest.at if held is not None else None
        expires = at + timedelta(seconds=self.recent_seconds)
        state = GroupState(*series, at, _committed(positions), before, held, expires)
        self._series[series] = _Series(state, lasting=False)
        self._behind.discard(series)
        self._fleeting.add(series)
        kept.append(state)

    def _settle(self, begun: datetime, at: datetime, kept: list[GroupState]) -> None:
        """The last change before a quiet spell is to last; a series at rest is kept again now and then."""
        coarse = self.coarse_seconds
        for series in list(self._fleeting):
            known = self._series[series]
            if (at - known.newest.at).total_seconds() >= coarse:
                kept.append(self._lasting(known.newest))
                known.lasting = True
                known.newest = kept[-1]
                self._fleeting.discard(series)
        if self._checked_at is not None and (at - self._checked_at).total_seconds() < _CHECK_SECONDS:
            return
        self._checked_at = at
        for known in self._series.values():
            if (at - known.newest.at).total_seconds() >= HEARTBEAT_SECONDS and known.moved_on is None:
                again = replace(known.newest, at=at, before=known.newest.at, held_until=begun)
                known.newest, known.lasting = self._lasting(again), True
                kept.append(known.newest)

    def _due(self, known: _Series, at: datetime) -> bool:
        return (at - known.newest.at).total_seconds() >= self.fine_seconds

    def _slot(self, series: Series, at: datetime) -> int:
        """The stretch of time of which one state lasts; out of step by series, so that writes are spread."""
        coarse = self.coarse_seconds
        phase = zlib.crc32("\0".join(series).encode()) % 1000 / 1000 * coarse
        return int((at.timestamp() + phase) // coarse)

    def _lasting(self, state: GroupState) -> GroupState:
        return replace(state, expires_at=state.at + timedelta(seconds=self._policy.keep_seconds + HEARTBEAT_SECONDS))


def _committed(positions: Positions) -> tuple[GroupCommit, ...]:
    return tuple(GroupCommit(partition, *positions[partition]) for partition in sorted(positions))
