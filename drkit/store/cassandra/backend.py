"""The distributed backend of the store: Cassandra, spanning sites, for several mirrors and without a single point
of failure.

Ordinary rows are written at `consistency` (a quorum of the data centre named in the URL), in unlogged
batches of one partition. Decisions (link control, leases, journal) use Cassandra's compare-and-set at
`serial_consistency`, by default within that data centre, so that they work while the other site is down. A
compare-and-set that times out may or may not have been applied: a serial read settles it, and the answer
follows from the stored row.

Cassandra defines the durability: a write is on a quorum of nodes when it returns, but by default
(`commitlog_sync: periodic`) each node first has it only in memory. A killed node loses up to the last tenth of a
second (seen with SIGKILL), one that loses power up to ten seconds; the other replicas don't. Without other
replicas (one node, replication factor 1), or where all may fail at once, set `commitlog_sync: batch` or `group`, or
an acknowledged row can be lost.
"""
# ruff: noqa: D102  # the protocol in api.py documents every method

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from drkit.model.clock import Deadline, from_millis
from drkit.model.errors import Fenced, Unreachable
from drkit.model.groups import StatesAround
from drkit.model.link_state import KeptLease, Lease, LinkControl, Problem, TopicState, decide
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.runs import JournalEntry, RunSummary
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import codec
from drkit.store.api import Claims
from drkit.store.cassandra.claims import CassandraClaims
from drkit.store.cassandra.contents import CassandraContents
from drkit.store.cassandra.digests import CassandraDigests, DigestStatements
from drkit.store.cassandra.schema import check_still
from drkit.store.cassandra.session import CassandraSession
from drkit.store.cassandra.statements import Statements
from drkit.store.cassandra.timeline import CassandraTimeline

_RUN_LIST = "runs"  # one partition holds all summaries: there are few runs
_LARGEST_PAUSE_SECONDS = 0.1
_PARTITIONS_HELD = 25
"""So many partitions' rows are held in memory at once, and asked for together: most of what a query for one costs, in
the driver and on the node, is the query."""


class CassandraStore(CassandraTimeline, CassandraDigests, CassandraContents):
    """A `Store` in a keyspace; see `drkit.store.api` for what each method promises.

    Args:
        session: open on a keyspace whose tables exist (`cassandra_schema.bring_up`).
    """

    def __init__(self, session: CassandraSession) -> None:
        super().__init__(session)
        self._do = Statements.prepare(session)
        self._claims = CassandraClaims(session, self._do, self._decided)
        self._digests = DigestStatements.prepare(session)
        session.look_by(lambda: check_still(session))

    # ---- mapping rows -------------------------------------------------------------------------

    def next_generation(self, link: LinkId) -> int:
        return self._claims.next_generation(link)

    def claim(self, link: LinkId, places: Sequence[tuple[TopicPartition, int]], generation: int) -> None:
        self._claims.claim(link, places, generation)

    def append_mappings(self, link: LinkId, rows: Sequence[OffsetMapping], claims: Claims | None = None) -> None:
        if rows:
            places = {(row.tp, row.epoch) for row in rows}
            self._claims.holding(link, places, claims, lambda held: self._claims.append(link, rows, held))

    def mappings(self, link: LinkId, tp: TopicPartition, epoch: int) -> list[OffsetMapping]:
        found = self._session.rows(self._do.mappings, (str(link), *tp, epoch))
        return [OffsetMapping(*tp, epoch, source, target) for source, target in found if source is not None]

    def mappings_of(self, link: LinkId, places: Sequence[tuple[TopicPartition, int]]) -> Iterator[list[OffsetMapping]]:
        portions = [places[at : at + _PARTITIONS_HELD] for at in range(0, len(places), _PARTITIONS_HELD)]
        asked = [_by_topic(some) for some in portions]
        queries = ((str(link), *alike, numbers) for each in asked for alike, numbers in each.items())
        answers = self._session.all_rows(self._do.mappings_of, queries)
        for some, each in zip(portions, asked, strict=True):
            found: dict[tuple[TopicPartition, int], list[OffsetMapping]] = {place: [] for place in some}
            for topic, epoch in each:
                for partition, source, target in next(answers):
                    if source is not None:
                        row = OffsetMapping(topic, partition, epoch, source, target)
                        found[row.tp, epoch].append(row)
            yield from (sorted(found[place]) for place in some)

    def floor_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, source_offset: int) -> OffsetMapping | None:
        row = self._session.row(self._do.floor_mapping, (str(link), *tp, epoch, source_offset))
        return None if row is None else OffsetMapping(*tp, epoch, *row)

    def next_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, source_offset: int) -> OffsetMapping | None:
        row = self._session.row(self._do.next_mapping, (str(link), *tp, epoch, source_offset))
        return None if row is None else OffsetMapping(*tp, epoch, *row)

    def last_valid_mapping(self, link: LinkId, tp: TopicPartition, epoch: int, target_end: int) -> OffsetMapping | None:
        # target offsets never fall as source offsets grow, so the first match from above has the greatest target offset
        for source, target in self._session.rows(self._do.mappings_from_top, (str(link), *tp, epoch)):
            if source is not None and target <= target_end:
                return OffsetMapping(*tp, epoch, source, target)
        return None

    def supersede_mappings(
        self, link: LinkId, tp: TopicPartition, epoch: int, target_end: int, claims: Claims | None = None
    ) -> int:
        def supersede(held: Claims) -> int:
            superseded = []
            for source, target in self._session.rows(self._do.mappings_from_top, (str(link), *tp, epoch)):
                if source is None or target <= target_end:  # a partition that is only claimed has a row without offsets
                    break
                superseded.append(source)
            self._claims.supersede(link, (tp, epoch), superseded[-1] if superseded else None, held)
            return len(superseded)

        return self._claims.holding(link, [(tp, epoch)], claims, supersede)

    # ---- watermarks and group positions ---------------------------------------------------------

    def put_watermarks(self, link: LinkId, watermarks: Sequence[Watermark], claims: Claims | None = None) -> None:
        if not watermarks:
            return

        def put(held: Claims) -> None:
            unnamed = sorted({mark.tp for mark in watermarks if mark.tp not in held})
            if unnamed:
                raise Fenced(unnamed)
            dated = self._claims.dates(held)
            rows = ((*codec.watermark_row(mark), dated(mark.tp)) for mark in watermarks)
            self._put(link, self._do.put_watermark, rows)

        self._claims.holding(link, {(mark.tp, mark.epoch) for mark in watermarks}, claims, put)

    def watermarks(self, link: LinkId) -> dict[TopicPartition, Watermark]:
        found = [codec.read_watermark(*row) for row in self._session.rows(self._do.watermarks, (str(link),))]
        epochs = {state.topic: state.epoch for state in self.topic_states(link).values()}  # after: they only grow
        return {mark.tp: mark for mark in found if mark.epoch >= epochs.get(mark.topic, mark.epoch)}

    def put_group_positions(self, link: LinkId, positions: Sequence[GroupPosition]) -> None:
        self._put(link, self._do.put_group_position, map(codec.group_position_row, positions))

    def group_positions(self, link: LinkId) -> list[GroupPosition]:
        found = codec.read_group_positions(self._session.rows(self._do.group_positions, (str(link),)))
        return codec.in_mirrored_topics(found, self.topic_states(link))

    def forget_group_positions(self, link: LinkId, groups: Sequence[str], topic: str | None = None) -> None:
        if topic is None:
            self._put(link, self._do.forget_group, ((group,) for group in groups))
        else:
            self._put(link, self._do.forget_group_on_topic, ((group, topic) for group in groups))

    # ---- history of groups ------------------------------------------------------------------------

    def group_states_around(self, link: LinkId, at: datetime) -> list[StatesAround]:
        return self._states_around(link, at, self.topic_states(link))

    # ---- links ------------------------------------------------------------------------------------

    def link_control(self, link: LinkId) -> LinkControl | None:
        found = self._session.serial_rows(self._do.link_control, (str(link),))
        return codec.read_link_control(link, *found[0]) if found else None

    def set_link_control(self, control: LinkControl, *, expected_version: int | None) -> bool:
        name, columns = str(control.link), codec.link_control_row(control)

        def attempt() -> bool:
            if expected_version is None:
                return self._session.compare_and_set(self._do.first_link_control, (name, *columns))
            return self._session.compare_and_set(self._do.change_link_control, (*columns, name, expected_version))

        def settled() -> bool | None:
            kept = self.link_control(control.link)
            if kept == control:
                return True
            unchanged = (None if kept is None else kept.version) == expected_version
            return None if unchanged else False

        return self._decided(attempt, settled)

    def put_topic_states(self, link: LinkId, states: Sequence[TopicState]) -> None:
        self._put(link, self._do.put_topic_state, map(codec.topic_state_row, states))

    def topic_states(self, link: LinkId) -> dict[str, TopicState]:
        found = self._session.rows(self._do.topic_states, (str(link),))
        return {state.topic: state for state in (codec.read_topic_state(*row) for row in found)}

    def forget_link_data(self, link: LinkId) -> None:
        name = str(link)
        generation = self._claims.forget(link)
        self._forget_digests(link, generation, self._claims.partitions(link))
        self._session.write(self._do.forget_watermarks, (generation, name))
        for statement in (
            self._do.forget_group_positions,
            self._do.forget_topic_states,
            self._do.forget_problems,
        ):
            self._session.write(statement, (name,))
        self._forget_timeline(link)

    def forget_topic(self, link: LinkId, topic: str) -> None:
        name = str(link)
        generation = self._claims.forget(link, topic)
        self._forget_digests(link, generation, self._claims.partitions(link, topic))
        groups = {row[0] for row in self._session.rows(self._do.group_positions, (name,)) if row[1] == topic}
        self._put(link, self._do.forget_group_on_topic, ((group, topic) for group in groups))
        self._session.write(self._do.forget_topic_watermarks, (generation, name, topic))
        self._forget_timeline(link, topic)
        self.clear_problems(link, topic)
        self._session.write(self._do.forget_topic_state, (name, topic))  # last: it makes callers retry

    def put_notes(self, link: LinkId, kind: str, notes: Mapping[str, str]) -> None:
        self._put(link, self._do.put_note, ((kind, name, body) for name, body in notes.items()))

    def notes(self, link: LinkId, kind: str) -> dict[str, str]:
        return dict(sorted(tuple(row) for row in self._session.rows(self._do.notes, (str(link), kind))))

    def note_kinds(self, link: LinkId) -> set[str]:
        return {kind for (kind,) in self._session.rows(self._do.note_kinds, (str(link),))}

    def forget_notes(self, link: LinkId, kind: str, names: Sequence[str]) -> None:
        self._put(link, self._do.forget_note, ((kind, name) for name in names))

    def put_problem(self, link: LinkId, problem: Problem) -> None:
        kind, topic, partition, *_ = codec.problem_row(problem)
        kept = self._session.row(self._do.problem_since, (str(link), kind, topic, partition))
        if kept is not None:
            problem = replace(problem, since=min(problem.since, codec.from_micros(kept[0])))
        self._session.write(self._do.put_problem, (str(link), *codec.problem_row(problem)))

    def problems(self, link: LinkId) -> list[Problem]:
        found = list(self._session.rows(self._do.problems, (str(link),)))
        found.sort(key=lambda row: (row[6], row[1], row[2], row[0]))  # since, topic, partition, kind
        return [codec.read_problem(*row) for row in found]

    def clear_problem(self, link: LinkId, problem: Problem) -> None:
        self._session.write(self._do.forget_problem, (str(link), *codec.problem_row(problem)[:3]))

    def clear_problems(self, link: LinkId, topic: str | None = None, kind: str | None = None) -> int:
        found = [
            (row[0], row[1], row[2])
            for row in self._session.rows(self._do.problems, (str(link),))
            if topic in (None, row[1]) and kind in (None, row[0])
        ]
        self._put(link, self._do.forget_problem, found)
        return len(found)

    # ---- the store itself -------------------------------------------------------------------------

    def replicas(self) -> dict[str, int] | None:
        query = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = %s"
        (options,) = self._session.row(query, (self._session.location.keyspace,))
        # "3/1": of three replicas one is transient, and keeps no row for good
        counts = {name: _kept(text) for name, text in options.items() if name != "class"}
        return {"" if name == "replication_factor" else name: count for name, count in counts.items()}

    # ---- leases -----------------------------------------------------------------------------------

    def time(self) -> datetime:
        (millis,) = self._session.row("SELECT toUnixTimestamp(now()) FROM system.local")
        return from_millis(millis)

    def acquire_lease(self, name: str, owner: str, ttl_seconds: float, at: datetime) -> Lease:
        decided: Lease | None = None

        def attempt() -> bool:
            nonlocal decided
            kept = self._kept_lease(name)
            decided = decide(kept, name=name, owner=owner, ttl_seconds=ttl_seconds, at=at)
            if decided.owner != owner:
                return True
            return self._change_lease(kept, KeptLease(name, owner, decided.epoch, decided.expires_at))

        # an unknown outcome is retried: a lease that is already ours is renewed
        while not self._decided(attempt, lambda: None) or decided is None:
            _pause()  # another process changed it in between
        return decided

    def release_lease(self, name: str, owner: str) -> None:
        self.break_lease(name, owner)

    def break_lease(self, name: str, owner: str) -> bool:
        broken = False

        def attempt() -> bool:
            nonlocal broken
            kept = self._kept_lease(name)
            if kept is None or kept.owner != owner:
                return True
            broken = True  # even if the answer is lost: the next read finds it gone
            return self._change_lease(kept, replace(kept, owner=None))

        while not self._decided(attempt, lambda: None):
            broken = False
            _pause()
        return broken

    def lease(self, name: str) -> Lease | None:
        kept = self._kept_lease(name)
        return None if kept is None else kept.lease()

    # ---- journal ----------------------------------------------------------------------------------

    def append_entry(self, entry: JournalEntry) -> bool:
        def attempt() -> bool:
            return self._session.compare_and_set(self._do.append_entry, codec.entry_row(entry))

        def settled() -> bool | None:
            kept = [other for other in self.entries(entry.run) if other.seq == entry.seq]
            return kept[0] == entry if kept else None

        return self._decided(attempt, settled)

    def entries(self, run: str) -> list[JournalEntry]:
        return [codec.read_entry(*row) for row in self._session.serial_rows(self._do.entries, (run,))]

    def put_run(self, summary: RunSummary) -> None:
        self._session.write(self._do.put_run, (_RUN_LIST, *codec.run_row(summary)))

    def runs(self) -> list[RunSummary]:
        found = [codec.read_run(*row) for row in self._session.rows(self._do.runs, (_RUN_LIST,))]
        return sorted(found, key=lambda run: (run.started_at, run.run), reverse=True)

    def close(self) -> None:
        self._session.close()

    def _put(self, link: LinkId, statement: Any, rows: Iterable[tuple[Any, ...]]) -> None:
        """Run one statement for each row of a link; all rows are in one partition."""
        name = str(link)
        self._session.write_all(statement, [[(name, *row) for row in rows]])

    def _kept_lease(self, name: str) -> KeptLease | None:
        found = self._session.serial_rows(self._do.lease, (name,))
        if not found:
            return None
        _, owner, epoch, expires_at = found[0]
        return codec.read_kept_lease(name, owner or None, epoch, expires_at)

    def _change_lease(self, kept: KeptLease | None, new: KeptLease) -> bool:
        columns = (new.owner or "", new.epoch, codec.to_micros(new.expires_at))
        if kept is None:
            return self._session.compare_and_set(self._do.first_lease, (new.name, *columns))
        condition = (kept.owner or "", kept.epoch, codec.to_micros(kept.expires_at))
        return self._session.compare_and_set(self._do.change_lease, (*columns, new.name, *condition))

    def _decided(self, attempt: Callable[[], bool], settled: Callable[[], bool | None]) -> bool:
        """Return the outcome of a compare-and-set; where its answer was lost, read the outcome.

        Args:
            attempt: tries it.
            settled: the outcome by a serial read; None where it was not applied and may be tried again.

        Raises:
            Unreachable: the read is not answered either, or the timeout has passed twice.
        """
        deadline = Deadline.after(2 * self._session.location.timeout_seconds)
        unknown = False
        while True:
            try:
                done = attempt()
            except Unreachable:
                if deadline.passed:
                    raise
                unknown = True
            else:
                if done or not unknown:
                    return done
            # the entry found may come from an earlier try of this process
            outcome = settled()
            if outcome is not None:
                return outcome
            _pause()


def _by_topic(places: Iterable[tuple[TopicPartition, int]]) -> dict[tuple[str, int], list[int]]:
    """The numbers of these partitions by topic and epoch."""
    numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
    for tp, epoch in dict.fromkeys(places):
        numbers[tp.topic, epoch].append(tp.partition)
    return numbers


def _pause() -> None:
    """Wait a random time, so that competing processes don't retry in step."""
    time.sleep(random.uniform(0, _LARGEST_PAUSE_SECONDS))  # noqa: S311  # not a secret


def _kept(replicas: str) -> int:
    """Full replicas, of a keyspace's option: a number, or all of them and how many of these are transient."""
    count, _, transient = replicas.partition("/")
    return int(count) - int(transient or 0)
