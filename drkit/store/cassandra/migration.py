"""Migrates the Cassandra backend's schema.

There are no transactions, so each step first closes the store (`check_version`, -N) and waits until every program that
has it open has checked again. The same command finishes an interrupted migration: its statements may be repeated.
"""
# ruff: noqa: D102  # the protocol in api.py documents every method

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

from drkit.model.errors import OtherSchema, StoreMissing
from drkit.store.cassandra.schema import kept_version, schema_lock, set_version
from drkit.store.cassandra.session import CassandraSession
from drkit.store.cassandra.url import CassandraLocation
from drkit.store.codec import from_micros
from drkit.store.users import in_use, users
from drkit.store.version import LOOK_SECONDS, Migration
from drkit.store.workers import KIND

_COUNTED = ("link_control", "topic_state", "watermark", "run")


class CassandraSchema:
    """A `StoreSchema` in a keyspace.

    Raises:
        StoreMissing: there is none.
        Unreachable: no node answers.
    """

    def __init__(self, location: CassandraLocation) -> None:
        self.where = f"the store {location}"
        self._session = CassandraSession(location)
        try:
            there = kept_version(self._session) != 0
        except BaseException:
            self.close()
            raise
        if not there:
            self.close()
            raise StoreMissing(f"there is no store in {location}")

    def version(self) -> int:
        return kept_version(self._session)

    def users(self) -> list[str]:
        leases = list(self._session.rows(f"SELECT name, owner, expires_at FROM {self._of('lease')}"))  # noqa: S608  # our constants
        links = self._session.rows(f"SELECT DISTINCT link FROM {self._of('link_note')}")  # noqa: S608  # our constants
        notes = f"SELECT link, name, body FROM {self._of('link_note')} WHERE link = %s AND kind = %s"  # noqa: S608  # our constants
        workers = [row for (link,) in list(links) for row in self._session.rows(notes, (link, KIND))]
        return users(leases, workers, from_micros(self._session.timestamp()))

    def changed_at(self) -> datetime | None:
        columns = (("watermark", "observed_at"), ("link_control", "changed_at"), ("run", "updated_at"))
        found = [
            self._session.row(f"SELECT max({column}) FROM {self._of(table)}")[0]  # noqa: S608  # our constants
            for table, column in columns
        ]
        known = [micros for micros in found if micros is not None]
        return from_micros(max(known)) if known else None

    def runs(self) -> list[tuple[str, str, str]]:
        return sorted(self._session.rows(f"SELECT run, kind, state FROM {self._of('run')}"))  # noqa: S608  # our constants

    def counts(self) -> dict[str, int]:
        return {
            table: self._session.row(f"SELECT count(*) FROM {self._of(table)}")[0]  # noqa: S608  # our constants
            for table in _COUNTED
        }

    def apply(self, steps: Sequence[Migration]) -> None:
        with schema_lock(self._session):
            for step in steps:
                self._close_for(step.version)
                for statement in step.cassandra:
                    self._session.change_schema(statement.format(keyspace=self._session.location.keyspace))
                set_version(self._session, -step.version, step.version)

    def close(self) -> None:
        self._session.close()

    def _close_for(self, version: int) -> None:
        """Close the store: nobody opens it from now on; refuse where somebody still uses it."""
        before = version - 1
        if found := self.users():
            raise in_use(self.where, found)
        if not set_version(self._session, before, -version):
            if kept_version(self._session) == -version:
                return  # continues an interrupted migration
            raise OtherSchema(
                f"{self.where} was changed by another process meanwhile",
                meaning="This process changed nothing",
                remedy="Run this again: it shows the store's state",
            )
        time.sleep(2 * LOOK_SECONDS)
        if found := self.users():  # processes that had opened it before
            set_version(self._session, -version, before)
            raise in_use(self.where, found)

    def _of(self, table: str) -> str:
        return f"{self._session.location.keyspace}.{table}"
