"""The Cassandra backend's keyspace and tables: one schema with a version. A store of another version is refused.

Each statement can be repeated (IF NOT EXISTS), because a process may die between two of them; the version is
written last.

Of two concurrent processes, a lock row lets only one change tables: it is taken by compare-and-set and expires after
`LOCK_SECONDS`. The table of the lock row has a fixed id, so that creating it through two nodes at once still makes one
table.

Migrating: there are no transactions, so each step first closes the store (`check_version`, -N) and waits until every
program that has it open has checked again. The same command finishes an interrupted migration: its statements may be
repeated.
"""
# ruff: noqa: D102  # the protocol in api.py documents every method

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime

from cassandra import InvalidRequest

from drkit.model.clock import Deadline
from drkit.model.errors import ConfigError, DrkitError, OtherSchema, StoreMissing, Unreachable
from drkit.store import version
from drkit.store.cassandra.session import CassandraSession
from drkit.store.cassandra.url import CassandraLocation
from drkit.store.codec import from_micros
from drkit.store.version import LOOK_SECONDS, Migration, check_version
from drkit.store.workers import KIND, in_use, users

LOCK_SECONDS = 60
_RETRY_SECONDS = 0.2
_NOT_THERE = "schema_version does not exist"
"""In the server's message."""

TABLES: tuple[str, ...] = (
    # `generation`: the generation of workers that holds the partition; rows change only together with it
    """CREATE TABLE IF NOT EXISTS {keyspace}.mapping (
        link text, topic text, partition int, epoch int, source_offset bigint, target_offset bigint,
        generation bigint static,
        PRIMARY KEY ((link, topic, partition, epoch), source_offset)
    ) WITH CLUSTERING ORDER BY (source_offset DESC)""",
    # which partitions of `mapping` a link has, so that its rows can be removed
    """CREATE TABLE IF NOT EXISTS {keyspace}.mapping_partition (
        link text, topic text, partition int, epoch int,
        PRIMARY KEY (link, topic, partition, epoch)
    )""",
    """CREATE TABLE IF NOT EXISTS {keyspace}.watermark (
        link text, topic text, partition int, epoch int, source_through bigint, target_end bigint,
        source_start bigint, source_end bigint, target_start bigint, observed_at bigint, behind_since bigint,
        leader_epoch int, batch_offset bigint, batch_crc bigint,
        waiting_until bigint, waiting_since bigint, waiting_at_most int,
        PRIMARY KEY (link, topic, partition)
    )""",
    """CREATE TABLE IF NOT EXISTS {keyspace}.group_position (
        link text, group_id text, topic text, partition int, source_offset bigint, metadata text, captured_at bigint,
        topic_id text,
        PRIMARY KEY (link, group_id, topic, partition)
    )""",
    """CREATE TABLE IF NOT EXISTS {keyspace}.link_control (
        link text PRIMARY KEY, direction text, version bigint, changed_at bigint, reason text, run text,
        paused_topics text
    )""",
    """CREATE TABLE IF NOT EXISTS {keyspace}.topic_state (
        link text, topic text, target_topic text, source_topic_id text, target_topic_id text, epoch int,
        partitions int, created_by_drkit int, reason text,
        PRIMARY KEY (link, topic)
    )""",
    # `partition` is -1 where the problem concerns the whole topic
    """CREATE TABLE IF NOT EXISTS {keyspace}.problem (
        link text, kind text, topic text, partition int, reason text, remedy text, halted int, since bigint,
        unsure_from bigint, unsure_until bigint,
        PRIMARY KEY (link, kind, topic, partition)
    )""",
    # `owner` is empty once the lease was released: its epoch stays
    """CREATE TABLE IF NOT EXISTS {keyspace}.lease (
        name text PRIMARY KEY, owner text, epoch bigint, expires_at bigint
    )""",
    """CREATE TABLE IF NOT EXISTS {keyspace}.journal (
        run text, seq int, at bigint, stage text, event text, payload text, previous text, hash text,
        PRIMARY KEY (run, seq)
    )""",
    """CREATE TABLE IF NOT EXISTS {keyspace}.run (
        list text, run text, kind text, state text, started_at bigint, updated_at bigint, detail text,
        PRIMARY KEY (list, run)
    )""",
    """CREATE TABLE IF NOT EXISTS {keyspace}.link_note (
        link text, kind text, name text, body text,
        PRIMARY KEY (link, kind, name)
    )""",
    "CREATE TABLE IF NOT EXISTS {keyspace}.generation (link text PRIMARY KEY, value bigint)",
    # a table per time window is dropped whole once all rows in it have expired
    """CREATE TABLE IF NOT EXISTS {keyspace}.group_state (
        link text, group_id text, topic text, at bigint, before_at bigint, held_until bigint, expires_at bigint,
        positions blob, topic_id text,
        PRIMARY KEY ((link, group_id, topic), at)
    ) WITH CLUSTERING ORDER BY (at DESC) AND compaction = {{'class': 'TimeWindowCompactionStrategy',
        'compaction_window_unit': 'HOURS', 'compaction_window_size': '1'}} AND gc_grace_seconds = 3600""",
    """CREATE TABLE IF NOT EXISTS {keyspace}.group_state_series (
        link text, group_id text, topic text,
        PRIMARY KEY (link, group_id, topic)
    )""",
    """CREATE TABLE IF NOT EXISTS {keyspace}.range_digest (
        link text, topic text, partition int, epoch int, target_start bigint, target_end bigint, source_start bigint,
        batches bigint, records bigint, digest blob, batch_crc bigint, generation bigint,
        PRIMARY KEY ((link, topic, partition), epoch, target_start)
    )""",
)


def bring_up(session: CassandraSession, *, create: bool, tables: tuple[str, ...] = TABLES) -> bool:
    """Create keyspace and tables where they are missing; returns whether there is a store (False only without
    `create`).

    Raises:
        ConfigError: the keyspace is to be created and the URL doesn't say how to replicate it.
        Refused: the keyspace has another version of the schema.
        Unreachable: the nodes don't answer or don't agree.
    """
    where = f"the store {session.location}"
    if check_version(kept_version(session), where):
        return True
    if not create:
        return False
    _create_keyspace(session)
    _create_lock_table(session)
    with schema_lock(session):
        if not check_version(kept_version(session), where):  # again: another process may have been faster
            for statement in tables:
                session.change_schema(statement.format(keyspace=session.location.keyspace))
            session.compare_and_set(
                f"INSERT INTO {_table(session)} (id, version) VALUES ('drkit', %s) IF NOT EXISTS",  # noqa: S608  # a checked name
                (version.SCHEMA_VERSION,),
            )
    return True


def kept_version(session: CassandraSession) -> int:
    """The schema version of a keyspace; 0 where there is none."""
    keyspace = session.location.keyspace
    found = session.row(
        "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s AND table_name = 'schema_version'",
        (keyspace,),
    )
    if found is None:
        return 0
    try:
        return _version(session)
    except DrkitError as error:
        if isinstance(error.__cause__, InvalidRequest) and _NOT_THERE in str(error.__cause__):
            return 0  # another process is just creating it: a node lists a table before it can be read
        raise


def check_still(session: CassandraSession) -> None:
    """Raise `OtherSchema` where the store was migrated since it was opened, or is being migrated."""
    check_version(_version(session), f"the store {session.location}")


def set_version(session: CassandraSession, kept: int, wanted: int) -> bool:
    """Change the version from `kept` to `wanted`, both as `check_version` takes them; returns whether it was `kept`."""
    return session.compare_and_set(
        f"UPDATE {_table(session)} SET version = %s WHERE id = 'drkit' IF version = %s",  # noqa: S608  # a checked name
        (wanted, kept),
    )


@contextmanager
def schema_lock(session: CassandraSession) -> Iterator[None]:
    """Let one process at a time change tables, for `LOCK_SECONDS` at most.

    Raises:
        Unreachable: another process has held the lock for longer than that.
    """
    holder = uuid.uuid4().hex
    _take_lock(session, holder)
    try:
        yield
    finally:
        with suppress(Unreachable):  # the lock expires by itself
            session.compare_and_set(
                f"DELETE FROM {_table(session)} WHERE id = 'lock' IF holder = %s",  # noqa: S608  # a checked name
                (holder,),
            )


def _version(session: CassandraSession) -> int:
    rows = session.unlooked_serial_rows(f"SELECT version FROM {_table(session)} WHERE id = 'drkit'")  # noqa: S608  # a checked name
    return int(rows[0][0]) if rows else 0


def _create_keyspace(session: CassandraSession) -> None:
    location = session.location
    query = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = %s"
    if session.row(query, (location.keyspace,)) is not None:
        return
    if not location.replication:
        raise ConfigError(
            f"{location} doesn't exist, and store.url doesn't say how to replicate it",
            remedy="Add replication_factor=3 (or replication=dr:3,primary:3) to store.url, or create the keyspace",
        )
    replicas = ", ".join(f"'{dc}': {count}" for dc, count in location.replication)
    session.change_schema(
        f"CREATE KEYSPACE IF NOT EXISTS {location.keyspace}"
        f" WITH replication = {{'class': 'NetworkTopologyStrategy', {replicas}}}"
    )


def _create_lock_table(session: CassandraSession) -> None:
    table_id = uuid.uuid5(uuid.NAMESPACE_OID, f"drkit.{session.location.keyspace}.schema_version")
    session.change_schema(
        f"CREATE TABLE IF NOT EXISTS {_table(session)} (id text PRIMARY KEY, version int, holder text)"
        f" WITH ID = '{table_id}'"
    )


def _take_lock(session: CassandraSession, holder: str) -> None:
    statement = f"INSERT INTO {_table(session)} (id, holder) VALUES ('lock', %s) IF NOT EXISTS USING TTL {LOCK_SECONDS}"  # noqa: S608  # a checked name
    deadline = Deadline.after(LOCK_SECONDS + session.location.timeout_seconds)
    while not session.compare_and_set(statement, (holder,)):
        if deadline.passed:
            raise Unreachable(
                f"another process has been changing the schema of {session.location} for {LOCK_SECONDS} s",
                remedy="Try again; if it stays so, look for a stuck drkit process",
            )
        time.sleep(_RETRY_SECONDS)


def _table(session: CassandraSession) -> str:
    return f"{session.location.keyspace}.schema_version"


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
