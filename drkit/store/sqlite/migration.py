"""Migrates the SQLite backend's schema in one transaction."""
# ruff: noqa: D102  # the protocol in api.py documents every method

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from drkit.model.clock import now
from drkit.store.codec import from_micros
from drkit.store.sqlite.connection import SqliteConnection
from drkit.store.sqlite.schema import NEWEST_VERSION
from drkit.store.users import in_use, users
from drkit.store.version import Migration
from drkit.store.workers import KIND

_COUNTED = ("link_control", "topic_state", "watermark", "run")


class SqliteSchema:
    """A `StoreSchema` in a SQLite file.

    Args:
        path: the file.
        timeout_seconds: how long a call waits for another process's transaction.

    Raises:
        StoreMissing: there is none.
        DrkitError: the file can't be opened or isn't a drkit store.
    """

    def __init__(self, path: str, *, timeout_seconds: float) -> None:
        self.where = f"the store {path}"
        self._db = SqliteConnection(path, create=False, timeout_seconds=timeout_seconds, any_version=True)

    def version(self) -> int:
        (kept,) = self._db.row(NEWEST_VERSION)
        return int(kept)

    def users(self) -> list[str]:
        leases = self._db.rows("SELECT name, owner, expires_at FROM lease")
        workers = self._db.rows("SELECT link, name, body FROM link_note WHERE kind = ?", (KIND,))
        return users(leases, workers, now())

    def changed_at(self) -> datetime | None:
        (micros,) = self._db.row(
            "SELECT max(at) FROM (SELECT max(observed_at) AS at FROM watermark UNION ALL"
            " SELECT max(changed_at) FROM link_control UNION ALL SELECT max(updated_at) FROM run)"
        )
        return None if micros is None else from_micros(micros)

    def runs(self) -> list[tuple[str, str, str]]:
        return self._db.rows("SELECT run, kind, state FROM run ORDER BY run")

    def counts(self) -> dict[str, int]:
        found = {}
        for table in _COUNTED:
            (found[table],) = self._db.row(f"SELECT count(*) FROM {table}")  # noqa: S608  # our constants
        return found

    def apply(self, steps: Sequence[Migration]) -> None:
        with self._db.writing() as connection:
            if found := self.users():
                raise in_use(self.where, found)
            for step in steps:
                for statement in step.sqlite:
                    connection.execute(statement)
                connection.execute("INSERT INTO schema_version VALUES (?, datetime('now'))", (step.version,))

    def close(self) -> None:
        self._db.close()
