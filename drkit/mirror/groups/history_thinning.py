"""Decides which of the groups' committed states are kept, and for how long. Pure: states in, states to keep out.

A series is one group on one topic (a topic made anew begins another one). Kept of it are

- every change of the last `recent_seconds`, as captured;
- then the last state of each minute, for `keep_seconds`;
- one state an hour while it doesn't change, so that a look-up always finds one.

`max_rows` holds by construction: with so many series that this could exceed it, both intervals grow (a skipped state is
kept when the interval has passed). Nothing has to be counted or searched: each state carries its expiry time, and a
lasting state is stored again with a later one.
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from drkit.model.groups import GroupCommit, GroupState
from drkit.model.topology import TimelinePolicy

HEARTBEAT_SECONDS = 3600.0
COARSE_SECONDS = 60.0
_CHECK_SECONDS = 30.0

Series = tuple[str, str, str]
"""A group, a topic and the source's id of it: a topic of that name that is made anew begins another series."""

Positions = Mapping[int, tuple[int, str]]
"""GroupCommit offset and metadata by partition."""


@dataclass(slots=True)
class _Series:
    """What is known of one series: the newest kept state, and whether the group has moved since.

    `lasting`: that state is kept for long. `moved_on`: the last look that still saw that state, where a later change
    isn't kept yet.
    """

    newest: GroupState
    lasting: bool
    moved_on: datetime | None = None


class Timeline:
    """Decides what to keep of each look. Not thread-safe.

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
        """The interval between older states of a series: half of the rows are for them."""
        lasting = self._policy.keep_seconds + HEARTBEAT_SECONDS
        return max(COARSE_SECONDS, len(self._series) * lasting / (self._policy.max_rows / 2))

    @property
    def recent_seconds(self) -> float:
        """How long a state is kept at first, until it is decided whether it is a lasting one."""
        return max(self._policy.recent_seconds, 2 * self.coarse_seconds)

    @property
    def fine_seconds(self) -> float:
        """The interval between recent states of a series, for the other half of the rows; at least that of the
        looks."""
        return len(self._series) * self.recent_seconds / (self._policy.max_rows / 2)

    def observe(
        self,
        begun: datetime,
        at: datetime,
        states: Mapping[Series, Positions],
        changed: Iterable[Series],
        unseen: Mapping[str, datetime] | None = None,
        seen: Container[str] | None = None,
    ) -> list[GroupState]:
        """Process one look; returns the states to keep now.

        Args:
            begun: when the look began: later commits may be missing.
            at: when the look ended: its commits are older.
            states: the committed offsets of every series.
            changed: the series that moved since the last look, or of groups that are seen again.
            unseen: groups that could not be seen lately, and when they last were.
            seen: the groups that this look sees; None: all.
        """
        if not self._policy.on:
            return []
        kept: list[GroupState] = []
        unseen = unseen or {}
        for series in changed:
            self._changed(series, at, states[series], unseen.get(series[0], self._looked_at), kept)
        new = [series for series in states if series not in self._series and (seen is None or series[0] in seen)]
        kept += [self._begin(series, at, states[series]) for series in new]
        for series in [series for series in self._behind if self._due(self._series[series], at)]:
            self._keep(series, at, states[series], kept)
        self._settle(begun, at, kept, unseen)
        self._looked_at = begun
        return kept

    def gone(
        self, at: datetime, ended: Iterable[Series], unseen: Mapping[str, datetime] | None = None
    ) -> list[GroupState]:
        """Record that these series' groups no longer exist, by a look that ended at `at`; returns the states that say
        so."""
        kept = list[GroupState]()
        for series in filter(self._series.__contains__, ended):
            known = self._series[series]
            known.moved_on = known.moved_on or (unseen or {}).get(series[0])
            self._keep(series, at, {}, kept)
            newest = self._series.pop(series).newest
            if kept[-1] is newest:
                kept[-1] = self._lasting(newest)
            self._fleeting.discard(series)
            self._behind.discard(series)
        return kept

    def end(self, ended: Iterable[Series]) -> None:
        """Keep no more states of these series: their topic isn't mirrored any more."""
        for series in ended:
            self._series.pop(series, None)
            self._fleeting.discard(series)
            self._behind.discard(series)

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
        """The first state of a series: earlier ones are unknown."""
        group, topic, topic_id = series
        state = self._lasting(GroupState(group, topic, at, _committed(positions), None, None, at, topic_id))
        self._series[series] = _Series(state, lasting=True)
        return state

    def _keep(self, series: Series, at: datetime, positions: Positions, kept: list[GroupState]) -> None:
        """Keep the series' current state; the last state of a past minute becomes lasting."""
        known = self._series[series]
        if not known.lasting and self._slot(series, known.newest.at) != self._slot(series, at):
            kept.append(self._lasting(known.newest))
        held = known.moved_on or self._looked_at
        before = known.newest.at if held is not None else None
        expires = at + timedelta(seconds=self.recent_seconds)
        group, topic, topic_id = series
        state = GroupState(group, topic, at, _committed(positions), before, held, expires, topic_id)
        self._series[series] = _Series(state, lasting=False)
        self._behind.discard(series)
        self._fleeting.add(series)
        kept.append(state)

    def _settle(self, begun: datetime, at: datetime, kept: list[GroupState], unseen: Mapping[str, datetime]) -> None:
        """Make the last change before an idle time lasting; keep an idle series' state again now and then."""
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
        for (group, _, _), known in self._series.items():
            if (at - known.newest.at).total_seconds() >= HEARTBEAT_SECONDS and known.moved_on is None:
                held = unseen.get(group, begun)
                again = replace(known.newest, at=at, before=known.newest.at, held_until=held)
                known.newest, known.lasting = self._lasting(again), True
                kept.append(known.newest)

    def _due(self, known: _Series, at: datetime) -> bool:
        return (at - known.newest.at).total_seconds() >= self.fine_seconds

    def _slot(self, series: Series, at: datetime) -> int:
        """The time slot in which one state is lasting; staggered by series, to spread writes."""
        coarse = self.coarse_seconds
        phase = zlib.crc32("\0".join(series).encode()) % 1000 / 1000 * coarse
        return int((at.timestamp() + phase) // coarse)

    def _lasting(self, state: GroupState) -> GroupState:
        return replace(state, expires_at=state.at + timedelta(seconds=self._policy.keep_seconds + HEARTBEAT_SECONDS))


def _committed(positions: Positions) -> tuple[GroupCommit, ...]:
    return tuple(GroupCommit(partition, *positions[partition]) for partition in sorted(positions))
