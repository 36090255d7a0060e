"""The embedded backend of the store: one SQLite file, for a laptop, a lab or a single mirror host.

Every call is one transaction (`BEGIN IMMEDIATE` for writes), so compare-and-set and leases are
linearizable over all processes that have the file open. WAL lets readers continue beside the writer;
synchronous=FULL makes a commit survive a power cut.
"""
# ruff: noqa: D102  # the protocol in api.py documents every method

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from drkit.model.clock import now
from drkit.model.digests import RangeDigest
from drkit.model.errors import Fenced
from drkit.model.groups import GroupState, StatesAround
from drkit.model.link_state import Lease, LinkControl, Problem, TopicState, decide
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.runs import JournalEntry, RunSummary
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import codec
from drkit.store.api import Claims
from drkit.store.codec import from_micros
from drkit.store.sqlite.connection import SqliteConnection
from drkit.store.sqlite.schema import NEWEST_VERSION
from drkit.store.timeline import read_state, state_row, states_around
from drkit.store.version import Migration
from drkit.store.workers import KIND, in_use, users

_HELD = "SELECT generation FROM mapping_claim WHERE link = ? AND topic = ? AND partition = ? AND epoch = ?"


def next_generation(connection: sqlite3.Connection, link: str) -> int:
    """A number greater than all earlier ones."""
    found = connection.execute(
        "INSERT INTO generation VALUES (?, 1) ON CONFLICT (link) DO UPDATE SET value = value + 1 RETURNING value",
        (link,),
    )
    return int(found.fetchone()[0])


def claim(
    connection: sqlite3.Connection, link: str, places: Iterable[tuple[TopicPartition, int]], generation: int
) -> list[TopicPartition]:
    """Claim partitions; returns those that a newer generation holds and keeps."""
    fenced = []
    for tp, epoch in places:
        if (held_generation(connection, link, tp, epoch) or 0) > generation:
            fenced.append(tp)
        else:
            connection.execute(
                "INSERT OR REPLACE INTO mapping_claim VALUES (?, ?, ?, ?, ?)", (link, *tp, epoch, generation)
            )
    return fenced


def check_claims(
    connection: sqlite3.Connection, link: str, places: Iterable[tuple[TopicPartition, int]], claims: Claims | None
) -> None:
    """Raise `Fenced` unless these are held as `claims` says; without claims, claim them."""
    if claims is None:
        claim(connection, link, places, next_generation(connection, link))
        return
    fenced = [
        tp for tp, epoch in places if tp not in claims or held_generation(connection, link, tp, epoch) != claims[tp]
    ]
    if fenced:
        raise Fenced(sorted(fenced))


def take_all(connection: sqlite3.Connection, link: str, topic: str | None = None) -> None:
    """Claim all partitions of a link, or of one of its topics, whoever holds them."""
    connection.execute(
        "UPDATE mapping_claim SET generation = ? WHERE link = ? AND topic = coalesce(?, topic)",
        (next_generation(connection, link), link, topic),
    )


def held_generation(connection: sqlite3.Connection, link: str, tp: TopicPartition, epoch: int) -> int | None:
    """The generation that holds a partition, or None."""
    found = connection.execute(_HELD, (link, *tp, epoch)).fetchone()
    return None if found is None else int(found[0])


DEFAULT_TIMEOUT_SECONDS = 10.0

_PLACE = "link = ? AND topic = ? AND partition = ? AND epoch = ?"
_LINK_TABLES = (
    "mapping",
    "watermark",
    "group_position",
    "topic_state",
    "problem",
    "range_digest",
    "group_state",
    "group_state_series",
)
"""What a link's data is, as opposed to its control row, notes and claims."""
_STATE = "group_id, topic, at, before_at, held_until, expires_at, positions, topic_id"
_SERIES = "link = ? AND group_id = ? AND topic = ?"
_EXPIRED_AT_ONCE = 5_000
_NAMING_LINKS = (
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


class SqliteStore:
    """A `Store` in a SQLite file; see `drkit.store.api` for what each method promises.

    Args:
        path: the file, or ``:memory:``.
        create: create the file, or its tables, where they are missing.
        timeout_seconds: how long a call waits for another process's transaction.

    Raises:
        StoreMissing: the file, or its tables, are missing and `create` is false; later: the file was removed.
        DrkitError: the file can't be opened or isn't a drkit store.
    """

    def __init__(self, path: str, *, create: bool = True, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        self._db = SqliteConnection(path, create=create, timeout_seconds=timeout_seconds)

    # ---- mapping rows -------------------------------------------------------------------------

    def next_generation(self, link: LinkId) -> int:
        with self._db.writing() as connection:
            return next_generation(connection, str(link))

    def claim(self, link: LinkId, places: Sequence[tuple[TopicPartition, int]], generation: int) -> None:
        with self._db.writing() as connection:
            fenced = claim(connection, str(link), places, generation)
        if fenced:
            raise Fenced(fenced)

    def append_mappings(self, link: LinkId, rows: Sequence[OffsetMapping], claims: Claims | None = None) -> None:
        if not rows:
            return
        name = str(link)
        with self._db.writing() as connection:
            check_claims(connection, name, {(row.tp, row.epoch) for row in rows}, claims)
            connection.executemany(
                "INSERT OR REPLACE INTO mapping VALUES (?, ?, ?, ?, ?, ?)",
                [(name, r.topic, r.partition, r.epoch, r.source_offset, r.target_offset) for r in rows],
            )

    def mappings(self, link: LinkId, tp: TopicPartition, epoch: int) -> list[OffsetMapping]:
        found = self._db.rows(
            f"SELECT source_offset, target_offset FROM mapping WHERE {_PLACE} ORDER BY source_offset",  # noqa: S608  # our constant
            (str(link), *tp, epoch),
        )
        return [OffsetMapping(*tp, epoch, source, target) for source, target in found]

    def mappings_of(self, link: LinkId, places: Sequence[tuple[TopicPartition, int]]) -> Iterator[list[OffsetMapping]]:
        for tp, epoch in places:  # a query costs microseconds
            yield self.mappings(link, tp, epoch)

    def floor_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, source_offset: int) -> OffsetMapping | None:
        return self._mapping(link, tp, epoch, "source_offset <= ? ORDER BY source_offset DESC", source_offset)

    def next_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, source_offset: int) -> OffsetMapping | None:
        return self._mapping(link, tp, epoch, "source_offset > ? ORDER BY source_offset", source_offset)

    def last_valid_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, target_end: int) -> OffsetMapping | None:
        # target offsets never fall as source offsets grow, so the topmost match has the greatest target offset
        return self._mapping(link, tp, epoch, "target_offset <= ? ORDER BY source_offset DESC", target_end)

    def supersede_mappings(
        self, link: LinkId, tp: TopicPartition, epoch: int, target_end: int, claims: Claims | None = None
    ) -> int:
        with self._db.writing() as connection:
            check_claims(connection, str(link), {(tp, epoch)}, claims)
            return connection.execute(
                f"DELETE FROM mapping WHERE {_PLACE} AND target_offset > ?",  # noqa: S608  # our constant
                (str(link), *tp, epoch, target_end),
            ).rowcount

    # ---- watermarks and group positions ---------------------------------------------------------

    def put_watermarks(self, link: LinkId, watermarks: Sequence[Watermark], claims: Claims | None = None) -> None:
        if not watermarks:
            return
        name = str(link)
        with self._db.writing() as connection:
            check_claims(connection, name, {(mark.tp, mark.epoch) for mark in watermarks}, claims)
            connection.executemany(
                "INSERT OR REPLACE INTO watermark VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(name, *codec.watermark_row(mark)) for mark in watermarks],
            )

    def watermarks(self, link: LinkId) -> dict[TopicPartition, Watermark]:
        found = self._db.rows(
            "SELECT topic, partition, epoch, source_through, target_end, source_start, source_end, target_start,"
            " observed_at, behind_since, leader_epoch, batch_offset, batch_crc,"
            " waiting_until, waiting_since, waiting_at_most FROM watermark AS mark WHERE link = ?"
            " AND NOT EXISTS (SELECT 1 FROM topic_state AS state WHERE state.link = mark.link"
            " AND state.topic = mark.topic AND state.epoch > mark.epoch)"
            " ORDER BY topic, partition",
            (str(link),),
        )
        return {mark.tp: mark for mark in (codec.read_watermark(*row) for row in found)}

    def put_group_positions(self, link: LinkId, positions: Sequence[GroupPosition]) -> None:
        name = str(link)
        self._put(
            "INSERT OR REPLACE INTO group_position VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            ((name, *codec.group_position_row(position)) for position in positions),
        )

    def group_positions(self, link: LinkId) -> list[GroupPosition]:
        found = self._db.rows(
            "SELECT group_id, topic, partition, source_offset, metadata, captured_at, topic_id FROM group_position"
            " WHERE link = ? ORDER BY group_id, topic, partition",
            (str(link),),
        )
        return codec.in_mirrored_topics(codec.read_group_positions(found), self.topic_states(link))

    def forget_group_positions(self, link: LinkId, groups: Sequence[str], topic: str | None = None) -> None:
        rows = ((str(link), group, topic) for group in groups)
        self._put("DELETE FROM group_position WHERE link = ? AND group_id = ? AND topic = coalesce(?, topic)", rows)

    # ---- range digests ----------------------------------------------------------------------------

    def put_range_digests(self, link: LinkId, digests: Sequence[RangeDigest], claims: Claims | None = None) -> None:
        if not digests:
            return
        name = str(link)
        with self._db.writing() as connection:
            places = {(each.tp, each.epoch) for each in digests}
            check_claims(connection, name, places, claims)
            held = {place: held_generation(connection, name, *place) or 0 for place in places}
            connection.executemany(
                "INSERT OR REPLACE INTO range_digest VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(name, *codec.digest_row(each), held[each.tp, each.epoch]) for each in digests],
            )

    def range_digests(self, link: LinkId, tp: TopicPartition, epoch: int) -> list[RangeDigest]:
        found = self._db.rows(
            "SELECT target_start, target_end, source_start, batches, records, digest, batch_crc, generation"  # noqa: S608  # our constant
            f" FROM range_digest WHERE {_PLACE} ORDER BY target_start",
            (str(link), *tp, epoch),
        )
        return [codec.read_digest(tp, epoch, *row) for row in found]

    def forget_range_digests(
        self, link: LinkId, tp: TopicPartition, epoch: int, target_start: int, claims: Claims | None = None
    ) -> None:
        with self._db.writing() as connection:
            check_claims(connection, str(link), {(tp, epoch)}, claims)
            connection.execute(
                "DELETE FROM range_digest WHERE link = ? AND topic = ? AND partition = ?"
                " AND (epoch < ? OR epoch = ? AND target_start < ?)",
                (str(link), *tp, epoch, epoch, target_start),
            )

    # ---- history of groups ------------------------------------------------------------------------

    def put_group_states(self, link: LinkId, states: Sequence[GroupState]) -> None:
        if not states:
            return
        name = str(link)
        series: dict[tuple[str, str], int] = {}
        for state in states:
            key = (state.group, state.topic)
            series[key] = max(series.get(key, 0), codec.to_micros(state.expires_at))
        with self._db.writing() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO group_state VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                ((name, *state_row(state)) for state in states),
            )
            connection.executemany(
                "INSERT INTO group_state_series VALUES (?, ?, ?, ?) ON CONFLICT (link, group_id, topic)"
                " DO UPDATE SET expires_at = excluded.expires_at WHERE excluded.expires_at > expires_at",
                ((name, *key, expires_at) for key, expires_at in series.items()),
            )

    def group_states_around(self, link: LinkId, at: datetime) -> list[StatesAround]:
        name, micros = str(link), codec.to_micros(at)
        found = []
        for group, topic in self._db.rows(
            "SELECT group_id, topic FROM group_state_series WHERE link = ? ORDER BY group_id, topic", (name,)
        ):
            then = self._db.row(
                f"SELECT {_STATE} FROM group_state WHERE {_SERIES} AND at <= ? ORDER BY at DESC LIMIT 1",  # noqa: S608  # our constants
                (name, group, topic, micros),
            )
            following = self._db.row(
                f"SELECT {_STATE} FROM group_state WHERE {_SERIES} AND at > ? ORDER BY at LIMIT 1",  # noqa: S608  # our constants
                (name, group, topic, micros),
            )
            found.append((then, following))
        topics = self.topic_states(link)
        around = (states_around(*each, topics) for each in found)
        return [each for each in around if each is not None]

    def forget_expired_states(self, link: LinkId, at: datetime) -> int:
        name, micros = str(link), codec.to_micros(at)
        removed = 0
        while True:
            with self._db.writing() as connection:  # in batches: mapping rows of the mirror must not wait for long
                found = connection.execute(
                    "DELETE FROM group_state WHERE (link, group_id, topic, at) IN (SELECT link, group_id, topic, at"
                    " FROM group_state WHERE link = ? AND expires_at <= ? LIMIT ?)",
                    (name, micros, _EXPIRED_AT_ONCE),
                ).rowcount
                if found < _EXPIRED_AT_ONCE:
                    connection.execute(
                        "DELETE FROM group_state_series WHERE link = ? AND expires_at <= ?", (name, micros)
                    )
            removed += found
            if found < _EXPIRED_AT_ONCE:
                return removed

    # ---- links ------------------------------------------------------------------------------------

    def link_control(self, link: LinkId) -> LinkControl | None:
        row = self._db.row(
            "SELECT direction, version, changed_at, reason, run, paused_topics FROM link_control WHERE link = ?",
            (str(link),),
        )
        return None if row is None else codec.read_link_control(link, *row)

    def set_link_control(self, control: LinkControl, *, expected_version: int | None) -> bool:
        name = str(control.link)
        with self._db.writing() as connection:
            kept = connection.execute("SELECT version FROM link_control WHERE link = ?", (name,)).fetchone()
            if (None if kept is None else kept[0]) != expected_version:
                return False
            connection.execute(
                "INSERT OR REPLACE INTO link_control VALUES (?, ?, ?, ?, ?, ?, ?)",
                (name, *codec.link_control_row(control)),
            )
        return True

    def put_topic_states(self, link: LinkId, states: Sequence[TopicState]) -> None:
        name = str(link)
        self._put(
            "INSERT OR REPLACE INTO topic_state VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ((name, *codec.topic_state_row(state)) for state in states),
        )

    def topic_states(self, link: LinkId) -> dict[str, TopicState]:
        found = self._db.rows(
            "SELECT topic, target_topic, source_topic_id, target_topic_id, epoch, partitions, created_by_drkit,"
            " reason FROM topic_state WHERE link = ? ORDER BY topic",
            (str(link),),
        )
        return {state.topic: state for state in (codec.read_topic_state(*row) for row in found)}

    def forget_link_data(self, link: LinkId) -> None:
        with self._db.writing() as connection:
            take_all(connection, str(link))
            for table in _LINK_TABLES:
                connection.execute(f"DELETE FROM {table} WHERE link = ?", (str(link),))  # noqa: S608  # our constants

    def forget_topic(self, link: LinkId, topic: str) -> None:
        with self._db.writing() as connection:
            take_all(connection, str(link), topic)
            for table in _LINK_TABLES:
                connection.execute(f"DELETE FROM {table} WHERE link = ? AND topic = ?", (str(link), topic))  # noqa: S608  # our constants

    def put_notes(self, link: LinkId, kind: str, notes: Mapping[str, str]) -> None:
        rows = ((str(link), kind, name, body) for name, body in notes.items())
        self._put("INSERT OR REPLACE INTO link_note VALUES (?, ?, ?, ?)", rows)

    def notes(self, link: LinkId, kind: str) -> dict[str, str]:
        found = self._db.rows(
            "SELECT name, body FROM link_note WHERE link = ? AND kind = ? ORDER BY name", (str(link), kind)
        )
        return dict(found)

    def note_kinds(self, link: LinkId) -> set[str]:
        return {kind for (kind,) in self._db.rows("SELECT DISTINCT kind FROM link_note WHERE link = ?", (str(link),))}

    def forget_notes(self, link: LinkId, kind: str, names: Sequence[str]) -> None:
        rows = ((str(link), kind, name) for name in names)
        self._put("DELETE FROM link_note WHERE link = ? AND kind = ? AND name = ?", rows)

    def put_problem(self, link: LinkId, problem: Problem) -> None:
        self._put(
            "INSERT INTO problem VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (link, kind, topic, partition)"
            " DO UPDATE SET reason = excluded.reason, remedy = excluded.remedy, halted = excluded.halted,"
            " unsure_from = excluded.unsure_from, unsure_until = excluded.unsure_until,"
            " since = min(since, excluded.since)",
            [(str(link), *codec.problem_row(problem))],
        )

    def problems(self, link: LinkId) -> list[Problem]:
        found = self._db.rows(
            "SELECT kind, topic, partition, reason, remedy, halted, since, unsure_from, unsure_until"
            " FROM problem WHERE link = ? ORDER BY since, topic, partition, kind",
            (str(link),),
        )
        return [codec.read_problem(*row) for row in found]

    def clear_problem(self, link: LinkId, problem: Problem) -> None:
        place = codec.problem_row(problem)[:3]
        self._put(
            "DELETE FROM problem WHERE link = ? AND kind = ? AND topic = ? AND partition = ?", [(str(link), *place)]
        )

    def clear_problems(self, link: LinkId, topic: str | None = None, kind: str | None = None) -> int:
        with self._db.writing() as connection:
            return connection.execute(
                "DELETE FROM problem WHERE link = ? AND topic = coalesce(?, topic) AND kind = coalesce(?, kind)",
                (str(link), topic, kind),
            ).rowcount

    # ---- the store itself -------------------------------------------------------------------------

    def replicas(self) -> None:
        return None

    # ---- leases -----------------------------------------------------------------------------------

    def time(self) -> datetime:
        (text,) = self._db.row("SELECT strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')")
        return datetime.fromisoformat(text)

    def acquire_lease(self, name: str, owner: str, ttl_seconds: float, at: datetime) -> Lease:
        with self._db.writing() as connection:
            row = connection.execute(
                "SELECT name, owner, epoch, expires_at FROM lease WHERE name = ?", (name,)
            ).fetchone()
            kept = None if row is None else codec.read_kept_lease(*row)
            decided = decide(kept, name=name, owner=owner, ttl_seconds=ttl_seconds, at=at)
            if decided.owner == owner:
                connection.execute(
                    "INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?)",
                    (name, decided.owner, decided.epoch, codec.to_micros(decided.expires_at)),
                )
        return decided

    def release_lease(self, name: str, owner: str) -> None:
        self.break_lease(name, owner)

    def break_lease(self, name: str, owner: str) -> bool:
        with self._db.writing() as connection:
            changed = connection.execute("UPDATE lease SET owner = NULL WHERE name = ? AND owner = ?", (name, owner))
            return changed.rowcount == 1

    def lease(self, name: str) -> Lease | None:
        row = self._db.row("SELECT name, owner, epoch, expires_at FROM lease WHERE name = ?", (name,))
        return None if row is None else codec.read_kept_lease(*row).lease()

    # ---- journal ----------------------------------------------------------------------------------

    def append_entry(self, entry: JournalEntry) -> bool:
        with self._db.writing() as connection:
            kept = connection.execute(
                "INSERT OR IGNORE INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?)", codec.entry_row(entry)
            )
            return kept.rowcount == 1

    def entries(self, run: str) -> list[JournalEntry]:
        found = self._db.rows(
            "SELECT run, seq, at, stage, event, payload, previous, hash FROM journal WHERE run = ? ORDER BY seq", (run,)
        )
        return [codec.read_entry(*row) for row in found]

    def put_run(self, summary: RunSummary) -> None:
        self._put("INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?, ?, ?)", [codec.run_row(summary)])

    def runs(self) -> list[RunSummary]:
        found = self._db.rows(
            "SELECT run, kind, state, started_at, updated_at, detail FROM run ORDER BY started_at DESC, run DESC"
        )
        return [codec.read_run(*row) for row in found]

    # ---- all of it, for copies --------------------------------------------------------------------

    def snapshot(self) -> AbstractContextManager[None]:
        return self._db.reading()

    def links(self) -> list[LinkId]:
        every = " UNION ".join(f"SELECT link FROM {table}" for table in _NAMING_LINKS)  # noqa: S608  # our constants
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
            f"SELECT {_STATE} FROM group_state WHERE link = ? ORDER BY group_id, topic, at",  # noqa: S608  # our constant
            (str(link),),
        ):
            yield read_state(*row)

    def journals(self) -> list[str]:
        return [run for (run,) in self._db.rows("SELECT DISTINCT run FROM journal ORDER BY run")]

    def remove_all(self) -> None:
        with self._db.writing() as connection:
            for table in (*_NAMING_LINKS, *_OTHERS):
                connection.execute(f"DELETE FROM {table}")  # noqa: S608  # our constants

    def close(self) -> None:
        self._db.close()

    def _put(self, sql: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run one statement for each row, all in one transaction."""
        rows = list(rows)
        if not rows:
            return
        with self._db.writing() as connection:
            connection.executemany(sql, rows)

    def _mapping(
        self, link: LinkId, tp: TopicPartition, epoch: int, condition: str, bound: int
    ) -> OffsetMapping | None:
        row = self._db.row(
            f"SELECT source_offset, target_offset FROM mapping WHERE {_PLACE} AND {condition} LIMIT 1",  # noqa: S608  # our constants
            (str(link), *tp, epoch, bound),
        )
        return None if row is None else OffsetMapping(*tp, epoch, *row)


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
