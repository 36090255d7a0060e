"""The whole content of a Cassandra store, for copies. A copy made during writes isn't a consistent snapshot."""
# ruff: noqa: D102  # the protocol in api.py documents every method

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime

from drkit.model.groups import GroupState
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.cassandra.claims import CassandraClaims
from drkit.store.cassandra.session import CassandraSession
from drkit.store.timeline import read_state

_OF_LINKS = (
    "generation",
    "mapping_partition",
    "watermark",
    "group_position",
    "link_control",
    "topic_state",
    "link_note",
    "problem",
    "group_state_series",
)
"""Tables whose partition key is the link."""

_OTHERS = ("mapping", "range_digest", "group_state", "lease", "journal", "run")


class CassandraContents:
    """The part of `CassandraStore` that lists everything."""

    _session: CassandraSession
    _claims: CassandraClaims
    _series_until: dict[tuple[str, str, str], datetime]

    def snapshot(self) -> AbstractContextManager[None]:
        return nullcontext()

    def links(self) -> list[LinkId]:
        asked = [f"SELECT DISTINCT link FROM {self._of(table)}" for table in _OF_LINKS]  # noqa: S608  # our constants
        found = {name for query in asked for (name,) in self._session.rows(query)}
        return [LinkId.parse(name) for name in sorted(found)]

    def places(self, link: LinkId) -> list[tuple[TopicPartition, int]]:
        found = self._session.rows(
            f"SELECT topic, partition, epoch FROM {self._of('mapping_partition')} WHERE link = %s",  # noqa: S608  # our constant
            (str(link),),
        )
        return sorted((TopicPartition(topic, partition), epoch) for topic, partition, epoch in found)

    def generation(self, link: LinkId) -> int:
        found = self._session.serial_rows(f"SELECT value FROM {self._of('generation')} WHERE link = %s", (str(link),))  # noqa: S608  # our constant
        return int(found[0][0]) if found else 0

    def raise_generation(self, link: LinkId, value: int) -> None:
        while (kept := self.generation(link)) < value:
            if kept == 0:
                self._session.compare_and_set(
                    f"INSERT INTO {self._of('generation')} (link, value) VALUES (%s, %s) IF NOT EXISTS",  # noqa: S608  # our constant
                    (str(link), max(value, self._session.timestamp())),
                )
            else:
                self._session.compare_and_set(
                    f"UPDATE {self._of('generation')} SET value = %s WHERE link = %s IF value = %s",  # noqa: S608  # our constant
                    (value, str(link), kept),
                )

    def group_states(self, link: LinkId) -> Iterator[GroupState]:
        series = self._session.rows(
            f"SELECT group_id, topic FROM {self._of('group_state_series')} WHERE link = %s",  # noqa: S608  # our constant
            (str(link),),
        )
        for group, topic in list(series):
            for row in self._session.rows(
                "SELECT group_id, topic, at, before_at, held_until, expires_at, positions, topic_id"  # noqa: S608  # our constant
                f" FROM {self._of('group_state')} WHERE link = %s AND group_id = %s AND topic = %s ORDER BY at ASC",
                (str(link), group, topic),
            ):
                yield read_state(*row)

    def journals(self) -> list[str]:
        return sorted(run for (run,) in self._session.rows(f"SELECT DISTINCT run FROM {self._of('journal')}"))  # noqa: S608  # our constant

    def remove_all(self) -> None:
        for table in (*_OF_LINKS, *_OTHERS):
            self._session.write(f"TRUNCATE {self._of(table)}")
        self._claims.forget_noted()
        self._series_until.clear()

    def _of(self, table: str) -> str:
        return f"{self._session.location.keyspace}.{table}"
