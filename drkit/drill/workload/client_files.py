"""The two files of a client process: its input, and its ledger.

The input is a JSON file, so that no password is on a command line. The ledger is one SQLite file, which the client
writes and the drill reads. Rows are collected in memory and written every `KEEP_EVERY` seconds and at the end, so that
writing doesn't slow down the client; `closed` in `state` means that the ledger is complete.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """One client. `properties` are librdkafka's; `ledger` is the path of its SQLite file.

    `rate`: records per second over all partitions; `next_seqs`: the next number of each key; `offset_reset`: where a
    group without a position starts, `earliest` or `latest`; `key_prefix`: of a producer's keys; `clock_skew_seconds`:
    how far ahead its clock is; `late_every`, `late_seconds`: each so many-th record has a timestamp so many seconds
    earlier (0: none); `transactional_id`: of a producer that writes in transactions of `transaction_records`,
    each `abort_every`-th of which it aborts (0: none); `parent`: the process that started it, whose end also ends the
    client.
    """

    drill: str
    ledger: str
    properties: dict[str, str]
    topic: str
    partitions: int
    group: str
    keys: int
    rate: float
    value_bytes: int
    commit_every_seconds: float
    flush_seconds: float
    parent: int
    next_seqs: dict[str, int]
    offset_reset: str
    key_prefix: str
    clock_skew_seconds: float = 0.0
    late_every: int = 0
    late_seconds: float = 0.0
    transactional_id: str | None = None
    transaction_records: int = 0
    abort_every: int = 0

    def write(self, path: Path) -> None:
        """Write it to a file that only its owner can read."""
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(asdict(self), file)

    @classmethod
    def take(cls, path: Path) -> ClientSpec:
        """Read and remove the file that `write` wrote: it may hold a password."""
        text = path.read_text()
        path.unlink()
        return cls(**json.loads(text))

    def orphaned(self) -> bool:
        """Whether the drill that started this client is gone."""
        return os.getppid() != self.parent


class Stop:
    """Set by SIGTERM or SIGINT: the client finishes what is in flight, writes it, and ends."""

    def __init__(self) -> None:
        self._asked = False
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, self._ask)

    def asked(self) -> bool:
        """Whether to end."""
        return self._asked

    def _ask(self, _signal: int, _frame: FrameType | None) -> None:
        self._asked = True


KEEP_EVERY = 0.1
"""Seconds between two transactions of a ledger."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS attempts (
  key TEXT, seq INTEGER, partition INTEGER, sent_at REAL, digest INTEGER, txn INTEGER, PRIMARY KEY (key, seq))
  WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS aborts (txn INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS acks (
  key TEXT, seq INTEGER, log_offset INTEGER, acked_at REAL, PRIMARY KEY (key, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS polls (
  id INTEGER PRIMARY KEY, assignment INTEGER, partition INTEGER, log_offset INTEGER, key TEXT, seq INTEGER, at REAL);
CREATE TABLE IF NOT EXISTS positions (id INTEGER PRIMARY KEY, partition INTEGER, log_offset INTEGER, at REAL);
"""

_INSERTS = {
    "attempts": "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?)",
    "aborts": "INSERT INTO aborts VALUES (?)",
    "acks": "INSERT INTO acks VALUES (?, ?, ?, ?)",
    "polls": "INSERT INTO polls (assignment, partition, log_offset, key, seq, at) VALUES (?, ?, ?, ?, ?, ?)",
    "positions": "INSERT INTO positions (partition, log_offset, at) VALUES (?, ?, ?)",
}

Row = Sequence[object]


class ClientLedger:
    """The ledger of one client, for writing. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(_SCHEMA)
        self._pending: dict[str, list[Row]] = {table: [] for table in _INSERTS}
        self._kept_at = time.monotonic()

    def add(self, table: str, row: Row) -> None:
        """Buffer a row."""
        self._pending[table].append(row)

    def keep(self, *, now: bool = False) -> None:
        """Write the buffered rows, if it is time to (or `now`)."""
        if not now and time.monotonic() - self._kept_at < KEEP_EVERY:
            return
        self._db.execute("BEGIN")
        for table, rows in self._pending.items():
            if rows:
                self._db.executemany(_INSERTS[table], rows)
                rows.clear()
        self._db.execute("COMMIT")
        self._kept_at = time.monotonic()

    def close(self) -> None:
        """Write everything and mark the ledger as complete."""
        self.keep(now=True)
        self._db.execute("INSERT OR REPLACE INTO state VALUES ('closed', 'yes')")
        self._db.close()


class LedgerReader:
    """A ledger that another process writes or wrote."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _rows(self, sql: str) -> list[tuple[object, ...]]:
        """Rows of a query; none while the client has not created its ledger yet."""
        if not self._path.exists():
            return []
        db = sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True, timeout=10)
        try:
            return db.execute(sql).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise
        finally:
            db.close()

    def count(self, table: str) -> int:
        """How many rows a table holds."""
        if table not in _INSERTS:
            raise KeyError(table)
        rows = self._rows(f"SELECT count(*) FROM {table}")  # noqa: S608  # one of our own tables, checked above
        return int(str(rows[0][0])) if rows else 0

    def closed(self) -> bool:
        """Whether the client ended in order and wrote everything."""
        return bool(self._rows("SELECT 1 FROM state WHERE name = 'closed'"))

    def attempts(self) -> list[tuple[object, ...]]:
        """(key, seq, partition, sent_at, digest, offset or None, acked_at or None, transaction or None, whether it was
        aborted), in order of sending."""
        return self._rows(
            "SELECT a.key, a.seq, a.partition, a.sent_at, a.digest, k.log_offset, k.acked_at, a.txn, b.txn IS NOT NULL"
            " FROM attempts a LEFT JOIN acks k ON k.key = a.key AND k.seq = a.seq LEFT JOIN aborts b ON b.txn = a.txn"
            " ORDER BY a.sent_at, a.key, a.seq"
        )

    def polls(self) -> list[tuple[object, ...]]:
        """(assignment, partition, offset, key or None, seq or None, at), in order."""
        return self._rows("SELECT assignment, partition, log_offset, key, seq, at FROM polls ORDER BY id")

    def positions(self) -> list[tuple[object, ...]]:
        """(partition, offset, at), in order."""
        return self._rows("SELECT partition, log_offset, at FROM positions ORDER BY id")

    def next_seqs(self) -> dict[str, int]:
        """By key, the number that follows the highest ever attempted."""
        rows = self._rows("SELECT key, max(seq) + 1 FROM attempts GROUP BY key")
        return {str(key): int(str(following)) for key, following in rows}

    def ends(self) -> dict[int, int]:
        """By partition, the offset after the highest polled one, or the highest position."""
        rows = self._rows(
            "SELECT partition, max(after) FROM (SELECT partition, log_offset + 1 AS after FROM polls"
            " UNION ALL SELECT partition, log_offset FROM positions) GROUP BY partition"
        )
        return {int(str(partition)): int(str(end)) for partition, end in rows}
