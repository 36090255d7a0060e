"""The SQLite backend of the timeline; expired states are removed in small batches."""
# ruff: noqa: D102  # the protocol in timeline.py documents every method

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from drkit.model.groups.group_history import GroupState, StatesAround
from drkit.model.topology import LinkId
from drkit.store.codec import to_micros
from drkit.store.sqlite.connection import SqliteConnection
from drkit.store.timeline import read_state, state_row

NAMES = ("group_state", "group_state_series")

_COLUMNS = "group_id, topic, at, before_at, held_until, expires_at, positions"
_SERIES = "link = ? AND group_id = ? AND topic = ?"
_BITE = 5_000


class SqliteTimeline:
    """The part of `SqliteStore` that keeps group states."""

    _db: SqliteConnection

    def put_group_states(self, link: LinkId, states: Sequence[GroupState]) -> None:
        if not states:
            return
        name = str(link)
        series: dict[tuple[str, str], int] = {}
        for state in states:
            key = (state.group, state.topic)
            series[key] = max(series.get(key, 0), to_micros(state.expires_at))
        with self._db.writing() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO group_state VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                ((name, *state_row(state)) for state in states),
            )
            connection.executemany(
                "INSERT INTO group_state_series VALUES (?, ?, ?, ?) ON CONFLICT (link, group_id, topic)"
                " DO UPDATE SET expires_at = excluded.expires_at WHERE excluded.expires_at > expires_at",
                ((name, *key, expires_at) for key, expires_at in series.items()),
            )

    def group_states_around(self, link: LinkId, at: datetime) -> list[StatesAround]:
        name, micros = str(link), to_micros(at)
        found = []
        for group, topic in self._db.rows(
            "SELECT group_id, topic FROM group_state_series WHERE link = ? ORDER BY group_id, topic", (name,)
        ):
            then = self._db.row(
                f"SELECT {_COLUMNS} FROM group_state WHERE {_SERIES} AND at <= ? ORDER BY at DESC LIMIT 1",  # noqa: S608  # our constants
                (name, group, topic, micros),
            )
            following = self._db.row(
                f"SELECT {_COLUMNS} FROM group_state WHERE {_SERIES} AND at > ? ORDER BY at LIMIT 1",  # noqa: S608  # our constants
                (name, group, topic, micros),
            )
            if then is not None or following is not None:
                found.append(
                    StatesAround(
                        group,
                        topic,
                        None if then is None else read_state(*then),
                        None if following is None else read_state(*following),
                    )
                )
        return found

    def forget_expired_states(self, link: LinkId, at: datetime) -> int:
        name, micros = str(link), to_micros(at)
        removed = 0
        while True:
            with self._db.writing() as connection:  # in batches: mapping rows of the mirror must not wait for long
                bite = connection.execute(
                    "DELETE FROM group_state WHERE (link, group_id, topic, at) IN (SELECT link, group_id, topic, at"
                    " FROM group_state WHERE link = ? AND expires_at <= ? LIMIT ?)",
                    (name, micros, _BITE),
                ).rowcount
                if bite < _BITE:
                    connection.execute(
                        "DELETE FROM group_state_series WHERE link = ? AND expires_at <= ?", (name, micros)
                    )
            removed += bite
            if bite < _BITE:
                return removed
