"""The whole content of a SQLite store, for copies."""
# ruff: noqa: D102  # the protocol in api.py documents every method

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

from drkit.model.groups.group_history import GroupState
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.sqlite.connection import SqliteConnection
from drkit.store.timeline import read_state

_OF_LINKS = (
    "generation",
    "mapping_claim",
    "watermark",
    "group_position",
    "link_control",
    "topic_state",
    "link_note",
    "problem",
    "group_state",
)
_OTHERS = ("mapping", "range_digest", "group_state_series", "lease", "journal", "run")


class SqliteContents:
    """The part of `SqliteStore` that lists everything."""

    _db: SqliteConnection

    def snapshot(self) -> AbstractContextManager[None]:
        return self._db.reading()

    def links(self) -> list[LinkId]:
        every = " UNION ".join(f"SELECT link FROM {table}" for table in _OF_LINKS)  # noqa: S608  # our constants
        return [LinkId.parse(name) for name in sorted(name for (name,) in self._db.rows(every))]

    def places(self, link: LinkId) -> list[tuple[TopicPartition, int]]:
        found = self._db.rows(
            "SELECT topic, partition, epoch FROM mapping_claim WHERE link = ? ORDER BY topic, partition, epoch",
            (str(link),),
        )
        return [(TopicPartition(topic, partition), epoch) for topic, partition, epoch in found]

    def generation(self, link: LinkId) -> int:
        row = self._db.row("SELECT value FROM generation WHERE link = ?", (str(link),))
        return 0 if row is None else int(row[0])

    def raise_generation(self, link: LinkId, value: int) -> None:
        with self._db.writing() as connection:
            connection.execute(
                "INSERT INTO generation VALUES (?, ?) ON CONFLICT (link)"
                " DO UPDATE SET value = max(value, excluded.value)",
                (str(link), value),
            )

    def group_states(self, link: LinkId) -> Iterator[GroupState]:
        for row in self._db.rows(
            "SELECT group_id, topic, at, before_at, held_until, expires_at, positions FROM group_state"
            " WHERE link = ? ORDER BY group_id, topic, at",
            (str(link),),
        ):
            yield read_state(*row)

    def journals(self) -> list[str]:
        return [run for (run,) in self._db.rows("SELECT DISTINCT run FROM journal ORDER BY run")]

    def remove_all(self) -> None:
        with self._db.writing() as connection:
            for table in (*_OF_LINKS, *_OTHERS):
                connection.execute(f"DELETE FROM {table}")  # noqa: S608  # our constants
