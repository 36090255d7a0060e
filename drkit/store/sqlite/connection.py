"""One SQLite connection shared by threads: settings, transactions, and errors with drkit's messages."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from drkit.model.clock import Deadline
from drkit.model.errors import DrkitError, StoreMissing, Unreachable
from drkit.store.sqlite.schema import create_tables, kept_version, newest_version
from drkit.store.version import LOOK_SECONDS, check_version

MEMORY = ":memory:"
_RETRY_SECONDS = 0.02


class SqliteConnection:
    """A connection in WAL mode with synchronous=FULL, used under a lock.

    One connection suffices: calls are short, and SQLite has one writer at a time anyway. Other processes have
    their own connections; SQLite's locks separate them, for at most `timeout_seconds`.

    Args:
        path: the file, or `MEMORY` for one that lives as long as the object.
        create: create the file, or its tables, where they are missing.
        timeout_seconds: how long to wait for another process's transaction.
        any_version: also open other schema versions (for `drkit store migrate`).
    """

    def __init__(self, path: str, *, create: bool, timeout_seconds: float, any_version: bool = False) -> None:
        self.path = path
        self._any_version = any_version
        self._looked_at = time.monotonic()
        self._timeout_seconds = timeout_seconds
        self._lock = threading.RLock()
        if path != MEMORY and not create and not Path(path).exists():
            raise StoreMissing(f"there is no store {path}")
        with self._explained("opened"):
            self._connection = _connect(path, create=create, timeout_seconds=timeout_seconds)
        self._file = None if path == MEMORY else _identity(path)
        try:
            with self._explained("opened"):
                self._prepare(create=create)
        except BaseException:
            self._connection.close()
            raise

    def rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        """All rows of a query."""
        self._check_there()
        with self._lock, self._explained("read"):
            self._check_version_sometimes()
            return self._connection.execute(sql, parameters).fetchall()

    def row(self, sql: str, parameters: tuple[Any, ...] = ()) -> Any:
        """The first row (a tuple) of a query, or None."""
        self._check_there()
        with self._lock, self._explained("read"):
            self._check_version_sometimes()
            return self._connection.execute(sql, parameters).fetchone()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: durable at the end of the block, rolled back if it raises."""
        self._check_there()
        with self._lock, self._explained("written"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._check_version()
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """A read transaction: all reads in the block see one consistent snapshot."""
        self._check_there()
        with self._lock, self._explained("read"):
            self._connection.execute("BEGIN")
            try:
                self._check_version()
                yield
            finally:
                self._connection.execute("COMMIT")

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._connection.close()

    def _check_there(self) -> None:
        """Raise if the file was removed or replaced: nobody would find what is written into it."""
        if self._file is not None and _identity(self.path) != self._file:
            raise StoreMissing(f"the store {self.path} was removed, or replaced by another file, while it was open")

    def _check_version(self) -> None:
        """Check whether another release has migrated the store since it was opened; can't change within a
        transaction."""
        if not self._any_version:
            check_version(newest_version(self._connection), f"the store {self.path}")

    def _check_version_sometimes(self) -> None:
        """Check at most once a second: enough for single reads, which change nothing."""
        if time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._check_version()
            self._looked_at = time.monotonic()

    def _prepare(self, *, create: bool) -> None:
        version = kept_version(self._connection, self.path)  # before any change: it may be another program's file
        if version == 0 and not create:
            raise StoreMissing(f"the store {self.path} is empty: it has no tables")
        if self.path != MEMORY:
            self._enter_wal()
        self._connection.execute("PRAGMA synchronous = FULL")
        if not self._any_version:
            create_tables(self._connection, self.path)

    def _enter_wal(self) -> None:
        """Wait for a lock when the journal mode changes, as SQLite doesn't; two first openers would collide."""
        deadline = Deadline.after(self._timeout_seconds)
        while True:
            try:
                (mode,) = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()
            except sqlite3.OperationalError as error:
                if _primary_code(error) not in _BUSY or deadline.passed:
                    raise
                time.sleep(_RETRY_SECONDS)
                continue
            if mode != "wal":
                raise DrkitError(
                    f"the store {self.path} can't use SQLite's write-ahead log (it stays in {mode} mode)",
                    meaning="A mirror and a command can't safely use it at once, e.g. on a network file system",
                    remedy="Set store.url to a file on a local disk, or use Cassandra",
                )
            return

    @contextmanager
    def _explained(self, deed: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            explained = _explain(error, self.path, deed, self._timeout_seconds)
            if explained is None:
                raise
            raise explained from error


def _connect(path: str, *, create: bool, timeout_seconds: float) -> sqlite3.Connection:
    if path == MEMORY:
        uri = "file::memory:"
    else:
        mode = "rwc" if create else "rw"
        uri = f"file:{quote(str(Path(path).absolute()))}?mode={mode}"
    return sqlite3.connect(
        uri,
        uri=True,
        timeout=timeout_seconds,
        isolation_level=None,  # transactions are explicit
        check_same_thread=False,  # used under a lock
    )


def _identity(path: str) -> tuple[int, int] | None:
    """Device and inode of the file at `path`, or None."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


_OTHER_TABLES = ("no such table", "no such column", "has no column named")
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

_RESTORE = (
    "Move it away; then fill a new one: `drkit store restore --from FILE` from a backup, or `drkit store recover "
    "--from` the cluster mirrored to from that cluster's own copy"
)
_EXPLANATIONS: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_FULL: ("Its disk is full", "Free space on that disk, then run this again"),
    sqlite3.SQLITE_READONLY: ("The file or its directory is read-only", "Give drkit permission to write there"),
    sqlite3.SQLITE_PERM: ("The operating system denied it", "Give drkit permission to read and write there"),
    sqlite3.SQLITE_CANTOPEN: (
        "drkit can't open a file at this path (SQLite also writes -wal and -shm files beside it)",
        "Check store.url and the permissions of the file and its directory",
    ),
    sqlite3.SQLITE_CORRUPT: ("The file is damaged", _RESTORE),
    sqlite3.SQLITE_NOTADB: ("The file is damaged or was never a SQLite database", _RESTORE),
    sqlite3.SQLITE_IOERR: ("The disk refused to read or write", "Check the disk and its free space (dmesg, df)"),
}
"""Meaning and remedy by SQLite's primary result code."""


def _primary_code(error: sqlite3.Error) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF  # the rest is SQLite's extended code


def _explain(error: sqlite3.Error, path: str, deed: str, timeout_seconds: float) -> DrkitError | None:
    """The error with drkit's message; None where it is a bug of our own code."""
    code = _primary_code(error)
    what = f"the store {path} can't be {deed}: {error}"
    if code in _BUSY:
        return Unreachable(
            what,
            meaning=f"Another process held it for more than {timeout_seconds:g} s",
            remedy=f"Try again; if it happens again, end the stopped process that holds it: `fuser {path}` lists those "
            "that have it open",
        )
    if any(each in str(error) for each in _OTHER_TABLES):  # no statement has another cause: all are our own
        return DrkitError(
            what,
            meaning="Tables of the store are missing or have other columns: it is damaged, or a build of drkit that "
            "was never published wrote it",
            remedy=_RESTORE,
        )
    if code not in _EXPLANATIONS:
        return None
    meaning, remedy = _EXPLANATIONS[code]
    return DrkitError(what, meaning=meaning, remedy=remedy)
