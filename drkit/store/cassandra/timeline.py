"""The Cassandra backend of the timeline: every state has a time to live, so nothing needs to be removed."""
# ruff: noqa: D102  # the protocol in timeline.py documents every method

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from cassandra.query import PreparedStatement

from drkit.model.clock import now
from drkit.model.groups import GroupState, StatesAround
from drkit.model.link_state import TopicState
from drkit.model.topology import LinkId
from drkit.store.cassandra.session import CassandraSession
from drkit.store.codec import to_micros
from drkit.store.timeline import state_row, states_around

_COLUMNS = "group_id, topic, at, before_at, held_until, expires_at, positions, topic_id"
_CQL = {
    "put": (
        "INSERT INTO {k}.group_state (link, group_id, topic, at, before_at, held_until, expires_at, positions,"
        " topic_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?"
    ),
    "note_series": "INSERT INTO {k}.group_state_series (link, group_id, topic) VALUES (?, ?, ?) USING TTL ?",
    "series": "SELECT group_id, topic FROM {k}.group_state_series WHERE link = ?",
    "then": (
        f"SELECT {_COLUMNS} FROM {{k}}.group_state"  # noqa: S608  # our constants
        " WHERE link = ? AND group_id = ? AND topic = ? AND at <= ? ORDER BY at DESC LIMIT 1"
    ),
    "following": (
        f"SELECT {_COLUMNS} FROM {{k}}.group_state"  # noqa: S608  # our constants
        " WHERE link = ? AND group_id = ? AND topic = ? AND at > ? ORDER BY at ASC LIMIT 1"
    ),
    "forget": "DELETE FROM {k}.group_state WHERE link = ? AND group_id = ? AND topic = ?",
    "forget_series": "DELETE FROM {k}.group_state_series WHERE link = ?",
    "forget_one_series": "DELETE FROM {k}.group_state_series WHERE link = ? AND group_id = ? AND topic = ?",
}


@dataclass(frozen=True, slots=True)
class TimelineStatements:
    """The timeline's statements, prepared against one keyspace."""

    put: PreparedStatement
    note_series: PreparedStatement
    series: PreparedStatement
    then: PreparedStatement
    following: PreparedStatement
    forget: PreparedStatement
    forget_series: PreparedStatement
    forget_one_series: PreparedStatement

    @classmethod
    def prepare(cls, session: CassandraSession) -> Self:
        """Prepare all of them."""
        return cls(**session.prepare_all(_CQL))


class CassandraTimeline:
    """The part of `CassandraStore` that keeps group states.

    Args:
        session: open on a keyspace whose tables exist.
    """

    def __init__(self, session: CassandraSession) -> None:
        self._session = session
        self._timeline = TimelineStatements.prepare(session)
        self._series_until: dict[tuple[str, str, str], datetime] = {}

    def put_group_states(self, link: LinkId, states: Sequence[GroupState]) -> None:
        name, at = str(link), now()
        by_series: dict[tuple[str, str, str], list[tuple[Any, ...]]] = defaultdict(list)
        lasting: dict[tuple[str, str, str], datetime] = {}
        for state in states:
            seconds = int((state.expires_at - at).total_seconds())
            if seconds < 1:
                continue  # a time to live of 0 would mean forever
            series = (name, state.group, state.topic)
            by_series[series].append((name, *state_row(state), seconds))
            lasting[series] = max(state.expires_at, lasting.get(series, state.expires_at))
        self._session.write_all(self._timeline.put, list(by_series.values()))
        due = {s: until for s, until in lasting.items() if s not in self._series_until or self._series_until[s] < until}
        self._session.write_all(
            self._timeline.note_series,
            [[(*series, int((until - at).total_seconds()) + 1) for series, until in due.items()]],
        )
        self._series_until.update(due)

    def _states_around(self, link: LinkId, at: datetime, topics: Mapping[str, TopicState]) -> list[StatesAround]:
        name, micros = str(link), to_micros(at)
        series = [tuple(row) for row in self._session.rows(self._timeline.series, (name,))]
        asked = [(name, group, topic, micros) for group, topic in series]
        then = self._session.first_rows(self._timeline.then, asked)
        following = self._session.first_rows(self._timeline.following, asked)
        around = (states_around(*each, topics) for each in zip(then, following, strict=True))
        return [each for each in around if each is not None]

    def forget_expired_states(self, link: LinkId, at: datetime) -> int:  # noqa: ARG002  # they go by themselves
        return 0

    def _forget_timeline(self, link: LinkId, topic: str | None = None) -> None:
        """Remove all states of a link (or of one of its topics)."""
        name = str(link)
        found = [row for row in self._session.rows(self._timeline.series, (name,)) if topic in {None, row[1]}]
        self._session.write_all(self._timeline.forget, [[(name, *row)] for row in found])
        if topic is None:
            self._session.write(self._timeline.forget_series, (name,))
        else:
            self._session.write_all(self._timeline.forget_one_series, [[(name, *row) for row in found]])
        for series in [(name, *row) for row in found]:
            self._series_until.pop(series, None)
