"""The SQLite backend's tables: one schema with a version. A database of another version is refused."""

from __future__ import annotations

import sqlite3

from drkit.model.errors import DrkitError
from drkit.store import version
from drkit.store.version import check_version

APPLICATION_ID = 0x64726B74
""""drkt" in the file header: tells a drkit store from another program's database."""

TABLES = (
    """CREATE TABLE mapping (
        link TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, epoch INTEGER NOT NULL,
        source_offset INTEGER NOT NULL, target_offset INTEGER NOT NULL,
        PRIMARY KEY (link, topic, partition, epoch, source_offset)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE watermark (
        link TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, epoch INTEGER NOT NULL,
        source_through INTEGER NOT NULL, target_end INTEGER NOT NULL, source_start INTEGER NOT NULL,
        source_end INTEGER NOT NULL, target_start INTEGER NOT NULL,
        observed_at INTEGER NOT NULL, behind_since INTEGER NOT NULL, leader_epoch INTEGER NOT NULL,
        batch_offset INTEGER NOT NULL, batch_crc INTEGER NOT NULL,
        waiting_until INTEGER NOT NULL, waiting_since INTEGER NOT NULL, waiting_at_most INTEGER NOT NULL,
        PRIMARY KEY (link, topic, partition)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE group_position (
        link TEXT NOT NULL, group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
        source_offset INTEGER NOT NULL, metadata TEXT NOT NULL, captured_at INTEGER NOT NULL, topic_id TEXT NOT NULL,
        PRIMARY KEY (link, group_id, topic, partition)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE link_control (
        link TEXT NOT NULL PRIMARY KEY, direction TEXT NOT NULL, version INTEGER NOT NULL,
        changed_at INTEGER NOT NULL, reason TEXT NOT NULL, run TEXT, paused_topics TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE topic_state (
        link TEXT NOT NULL, topic TEXT NOT NULL, target_topic TEXT NOT NULL, source_topic_id TEXT NOT NULL,
        target_topic_id TEXT NOT NULL, epoch INTEGER NOT NULL, partitions INTEGER NOT NULL,
        created_by_drkit INTEGER NOT NULL, reason TEXT NOT NULL,
        PRIMARY KEY (link, topic)
    ) STRICT, WITHOUT ROWID""",
    # `partition` is -1 where the problem concerns the whole topic: NULL can't be part of a primary key
    """CREATE TABLE problem (
        link TEXT NOT NULL, kind TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
        reason TEXT NOT NULL, remedy TEXT NOT NULL, halted INTEGER NOT NULL, since INTEGER NOT NULL,
        unsure_from INTEGER NOT NULL, unsure_until INTEGER NOT NULL,
        PRIMARY KEY (link, kind, topic, partition)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE lease (
        name TEXT NOT NULL PRIMARY KEY, owner TEXT, epoch INTEGER NOT NULL, expires_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE journal (
        run TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, stage TEXT NOT NULL, event TEXT NOT NULL,
        payload TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL,
        PRIMARY KEY (run, seq)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE run (
        run TEXT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL,
        started_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, detail TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE link_note (
        link TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (link, kind, name)
    ) STRICT, WITHOUT ROWID""",
    # the generation of workers that holds a partition of `mapping`
    """CREATE TABLE mapping_claim (
        link TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, epoch INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        PRIMARY KEY (link, topic, partition, epoch)
    ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE generation (link TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE group_state (
        link TEXT NOT NULL, group_id TEXT NOT NULL, topic TEXT NOT NULL, at INTEGER NOT NULL,
        before_at INTEGER NOT NULL, held_until INTEGER NOT NULL, expires_at INTEGER NOT NULL, positions BLOB NOT NULL,
        topic_id TEXT NOT NULL,
        PRIMARY KEY (link, group_id, topic, at)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX group_state_expiry ON group_state (link, expires_at)",
    # the (group, topic) pairs: finding them among all states would read them all
    """CREATE TABLE group_state_series (
        link TEXT NOT NULL, group_id TEXT NOT NULL, topic TEXT NOT NULL, expires_at INTEGER NOT NULL,
        PRIMARY KEY (link, group_id, topic)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE range_digest (
        link TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, epoch INTEGER NOT NULL,
        target_start INTEGER NOT NULL, target_end INTEGER NOT NULL, source_start INTEGER NOT NULL,
        batches INTEGER NOT NULL, records INTEGER NOT NULL, digest BLOB NOT NULL, batch_crc INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        PRIMARY KEY (link, topic, partition, epoch, target_start)
    ) STRICT, WITHOUT ROWID""",
)

_VERSION_TABLE = """CREATE TABLE schema_version (
    version INTEGER NOT NULL PRIMARY KEY, applied_at TEXT NOT NULL
) STRICT"""

NEWEST_VERSION = "SELECT coalesce(max(version), 0) FROM schema_version"


def create_tables(connection: sqlite3.Connection, path: str) -> None:
    """Create the tables if they are missing, in one transaction; two processes may do it at once.

    Raises:
        Refused: the database has another version of the schema.
        DrkitError: it is another program's database.
        sqlite3.Error: as SQLite raised it.
    """
    if check_version(kept_version(connection, path), f"the store {path}"):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not check_version(kept_version(connection, path), f"the store {path}"):  # again: another may be faster
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(_VERSION_TABLE)
            for statement in TABLES:
                connection.execute(statement)
            connection.execute("INSERT INTO schema_version VALUES (?, datetime('now'))", (version.SCHEMA_VERSION,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def newest_version(connection: sqlite3.Connection) -> int:
    """The current schema version of a drkit store; 0 where none is stored."""
    (kept,) = connection.execute(NEWEST_VERSION).fetchone()
    return int(kept)


def kept_version(connection: sqlite3.Connection, path: str) -> int:
    """The schema version of a database; 0 where it is empty.

    Raises:
        DrkitError: it has tables of another program.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return 0
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if application_id != APPLICATION_ID or "schema_version" not in tables:
        raise DrkitError(
            f"{path} is a SQLite database, but not a drkit store",
            meaning="It holds another program's tables; nothing in it was changed",
            remedy="Set store.url to a file of its own",
        )
    return newest_version(connection)
