"""The SQLite home's tables and how a database is brought to the present version.

A migration is a tuple of statements; its place in `MIGRATIONS` is the version it leads to. A published
migration is never edited: append a new one. A database newer than the code is refused.
"""

from __future__ import annotations

import sqlite3

from drkit.model.errors import DrkitError

APPLICATION_ID = 0x64726B74
""""drkt" in the file header: tells a drkit store from another program's database."""

_VERSION_1 = (
    """CREATE TABLE mapping (
        link TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, epoch INTEGER NOT NULL,
        source_offset INTEGER NOT NULL, target_offset INTEGER NOT NULL,
        PRIMARY KEY (link, topic, partition, epoch, source_offset)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE watermark (
        link TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, epoch INTEGER NOT NULL,
        source_through INTEGER NOT NULL, target_end INTEGER NOT NULL, source_start INTEGER NOT NULL,
        source_end INTEGER NOT NULL, target_start INTEGER NOT NULL,
        observed_at INTEGER NOT NULL, behind_since INTEGER NOT NULL,
        PRIMARY KEY (link, topic, partition)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE group_position (
        link TEXT NOT NULL, group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
        source_offset INTEGER NOT NULL, metadata TEXT NOT NULL, captured_at INTEGER NOT NULL,
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
)

_VERSION_2 = (
    "ALTER TABLE watermark ADD COLUMN leader_epoch INTEGER NOT NULL DEFAULT -1",
    """CREATE TABLE link_note (
        link TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (link, kind, name)
    ) STRICT, WITHOUT ROWID""",
)

_VERSION_3 = (
    # which generation of workers holds a partition of `mapping`
    """CREATE TABLE mapping_claim (
        link TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, epoch INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        PRIMARY KEY (link, topic, partition, epoch)
    ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE generation (link TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID",
)

_VERSION_4 = (
    """CREATE TABLE group_state (
        link TEXT NOT NULL, group_id TEXT NOT NULL, topic TEXT NOT NULL, at INTEGER NOT NULL,
        before_at INTEGER NOT NULL, held_until INTEGER NOT NULL, expires_at INTEGER NOT NULL, positions BLOB NOT NULL,
        PRIMARY KEY (link, group_id, topic, at)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX group_state_expiry ON group_state (link, expires_at)",
    # which (group, topic) there are: finding them among all states would read them all
    """CREATE TABLE group_state_series (
        link TEXT NOT NULL, group_id TEXT NOT NULL, topic TEXT NOT NULL, expires_at INTEGER NOT NULL,
        PRIMARY KEY (link, group_id, topic)
    ) STRICT, WITHOUT ROWID""",
)

_VERSION_5 = (
    """CREATE TABLE range_digest (
        link TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, epoch INTEGER NOT NULL,
        target_start INTEGER NOT NULL, target_end INTEGER NOT NULL, source_start INTEGER NOT NULL,
        batches INTEGER NOT NULL, records INTEGER NOT NULL, digest BLOB NOT NULL, generation INTEGER NOT NULL,
        PRIMARY KEY (link, topic, partition, epoch, target_start)
    ) STRICT, WITHOUT ROWID""",
)

_SCHEMA_VERSION = """CREATE TABLE schema_version (
    version INTEGER NOT NULL PRIMARY KEY, applied_at TEXT NOT NULL
) STRICT"""

MIGRATIONS: tuple[tuple[str, ...], ...] = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5)


def bring_up(
    connection: sqlite3.Connection, *, path: str, migrate: bool, migrations: tuple[tuple[str, ...], ...] = MIGRATIONS
) -> None:
    """Create or migrate the tables in one transaction; two processes may do it at once.

    Raises:
        DrkitError: the database is newer than this code, older and `migrate` is false, or another
            program's.
        sqlite3.Error: as SQLite raised it.
    """
    if kept_version(connection, path) == len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = kept_version(connection, path)  # again: another process may have been first
        _check(version, len(migrations), path=path, migrate=migrate)
        for number, statements in enumerate(migrations[version:], start=version + 1):
            if number == 1:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(_SCHEMA_VERSION)
            for statement in statements:
                connection.execute(statement)
            connection.execute("INSERT INTO schema_version VALUES (?, datetime('now'))", (number,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _check(version: int, known: int, *, path: str, migrate: bool) -> None:
    if version > known:
        raise DrkitError(
            f"the store {path} has schema version {version}, this drkit knows versions up to {known}",
            meaning="A newer drkit wrote it; this one could misread it",
            remedy="Use that newer drkit, or another store.url",
        )
    if version < known and not migrate:
        raise DrkitError(
            f"the store {path} has schema version {version}, this drkit needs version {known}",
            meaning="An older drkit wrote it, and this command changes nothing in a store",
            remedy="Start `drkit mirror` of this version once: it brings the store up to date",
        )


def kept_version(connection: sqlite3.Connection, path: str) -> int:
    """The schema version of a database; 0 where it is empty.

    Raises:
        DrkitError: tables, but not drkit's.
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
    (version,) = connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()
    return int(version)
