"""Writes a link's state topic: noted changes are in the topic about a second later.

Every process that changes the store's record of a link notes what it changed (`recorded_store`): mapping rows,
watermarks and group positions by value, decisions, topics, problems and notes by kind, which are read from the store
when they are written. So a process that notes late writes the current state.

Rows, their number and chain are kept in memory only for as long as their partition is held under one claim: what
another worker wrote in between is read from the store. What the topic doesn't prove (it is new, or was cut) all workers
write anew, each as it finds it, and one that is late may replace newer rows: so the topic is opened again after
`SETTLE_SECONDS`, until it proves all.

Each round writes mapping rows and small records first; only once these are acknowledged, the watermarks that count the
rows. The topic is read when it is opened and every `REOPEN_SECONDS`, so that unchanged records aren't written again,
records that the store no longer has are removed, and a late writer's records are corrected.

**It never copies a loss.** At each opening the store is compared with the topic (`guard.check_knows_all`): one that
lacks what the topic proves is reported, and nothing is written. Rows that the topic had, and doesn't prove, are put on
record as a problem before they are written anew (`store_age.unproven_rows`). The topic is opened anew before a topic or
a partition is removed that this process didn't forget, before rows replace others than those that they continue, and
where another process may have written a partition's rows: nothing of a partition that was claimed since is written
before that.

**How far it lags.** A round a second; a partition that was just claimed waits for an opening (`PAUSE_TIMES`). Of
watermarks and positions at most `MOST_A_ROUND` each, those that wait longest
first. A watermark with only a new check time is written every `REFRESH_SECONDS`.

Failures are reported and retried; noting never blocks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.admin_connection import Reachability
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.clusters import PATIENCE_SECONDS
from drkit.kafka.client.small_topic import SmallTopicWriter
from drkit.model.clock import now
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.process import keeping_context
from drkit.model.topology import Link, TopicPartition
from drkit.state_topic import connection
from drkit.state_topic.copy_topic import COPY_NOTE, copy_name, find_copy, note_copy
from drkit.state_topic.guard import (
    check_knows_all,
    check_no_later_decision,
    check_not_forgotten,
    note_earlier_copy,
)
from drkit.state_topic.link_copy import LinkCopy, copy_of
from drkit.state_topic.records import (
    FORMAT,
    NOT_KEPT,
    POSITIONS_A_RECORD,
    Key,
    RowBlocks,
    StateKind,
    begins_with,
    key_bytes,
    read_key,
    section_of,
    state_topic,
    value_bytes,
)
from drkit.state_topic.store_age import unproven_rows
from drkit.store import codec
from drkit.store.api import Claims, Store
from drkit.store.link_notes import check_target_cluster

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
REFRESH_SECONDS = 30.0
HEARTBEAT_SECONDS = 10.0
REOPEN_SECONDS = 900.0
SETTLE_SECONDS = 10.0
OUTAGE_SECONDS = 60.0
PAUSE_TIMES = 5
"""The least pause between two openings, in durations of the last one. A large link claims its partitions in portions:
those that are claimed after an opening wait for the next one, with which all of them are compared."""
_SETTLE_TIMES = 20
MOST_A_ROUND = 2_000
_READ_AGAIN_A_ROUND = 200
_MOST_PENDING_ROWS = 200_000
_ADMIN_SECONDS = 5.0
_LONGEST_PAUSE = 5.0
_FAILED_SECONDS = 1.0
_LAST_ROUNDS = 50

Place = tuple[str, str]
Records = dict[bytes, bytes | None]


_COMPARED = frozenset({StateKind.TOPIC, StateKind.WATERMARK, StateKind.ROWS})
"""Kinds of records whose loss in the store a comparison with the topic shows (`guard.check_knows_all`)."""


class _SeenRows(NamedTuple):
    """All mapping rows of a partition, as an opening found them: how many, and the chain over them; `mark`: its
    watermark then."""

    mark: Watermark
    size: int
    chain: str


class _NotCompared(Exception):
    """What is due would remove records, or replace rows: the store is compared with the topic first."""


def _check_removed(records: Records, forgot: set[str | None]) -> None:
    """Raise `_NotCompared` if these remove more of topics and their partitions than what is of the forgotten topics
    (None: of all). A comparison tells nothing of problems, notes and groups, which are removed every day."""
    for raw, value in records.items():
        key = read_key(raw) or ("",)
        if value is None and key[0] in _COMPARED and forgot.isdisjoint((None, str(key[1]))):
            raise _NotCompared


class Recorder:
    """The recorder of one link in one process. Any thread may note changes.

    Args:
        link: a configured link.
        target: its target cluster.
        store: the store itself, not one that records.
        whole: compare all small records with the store at the opening (a mirror does; a command writes only its own
            changes).
        tell: called with the reason when writing fails, and with None when it works again.
    """

    def __init__(
        self,
        link: Link,
        target: ClusterConfig,
        store: Store,
        *,
        whole: bool,
        tell: Callable[[DrkitError | None], None],
    ) -> None:
        self._link = link
        self._target = target
        self._store = store
        self._whole = whole
        self._tell = tell
        self._topic = state_topic(link)  # until the first opening
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        # noted, not written yet
        self._rows: list[OffsetMapping] = []
        self._marks: dict[TopicPartition, Watermark] = {}
        self._stale: set[TopicPartition] = set()
        self._claims: dict[TopicPartition, int] = {}
        self._taken_over: set[TopicPartition] = set()
        self._forgot: set[str | None] = set()
        self._moved: set[Place] = set()
        self._kinds: set[str] = set()
        self._positions: dict[Place, dict[int, GroupPosition]] | None = None
        self._seen_again: set[Place] = set()
        # used only by the thread
        self._admin: ClusterAdmin | None = None
        self._writer: SmallTopicWriter | None = None
        self._topic_id: str | None = None
        self._begins = 0
        self._looked_from = 0  # where the topic began when `_note_unproven` looked through it last
        self._opened_at = 0.0
        self._opening_seconds = 0.0
        self._settled = True
        self._looked_at = 0.0
        self._told_at = 0.0
        self._known: dict[bytes, int] = {}
        self._sections: dict[Key, set[bytes]] = defaultdict(set)
        self._refreshed_at = 0.0
        self._blocks: dict[TopicPartition, RowBlocks] = {}
        self._seen: dict[TopicPartition, _SeenRows] = {}  # what the last opening that could tell found
        self._written: dict[TopicPartition, tuple[Watermark, float]] = {}
        self._failed: bool | None = None  # an earlier process may have reported a failure
        self._failing_since: float | None = None

    # -- noting ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start writing; noting does so, too."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=keeping_context(self._work), name="drkit-state", daemon=True)
                self._thread.start()

    def rows(self, rows: Sequence[OffsetMapping], claims: Claims | None) -> None:
        """The store has kept these, under these claims of this process (None: it took the partitions over for this)."""
        with self._lock:
            self._claimed({row.tp for row in rows}, claims)
            if len(self._rows) > _MOST_PENDING_ROWS:
                self._stale |= {row.tp for row in self._rows}
                self._rows = []
            self._rows.extend(rows)
        self.start()

    def superseded(self, tps: Iterable[TopicPartition]) -> None:
        """Rows of these were removed or replaced."""
        with self._lock:
            self._stale.update(tps)
        self.start()

    def watermarks(self, marks: Sequence[Watermark], claims: Claims | None) -> None:
        """The store has kept these; `claims` as for `rows`."""
        with self._lock:
            self._claimed((mark.tp for mark in marks), claims)
            for mark in marks:
                self._marks[mark.tp] = mark
        self.start()

    def _claimed(self, tps: Iterable[TopicPartition], claims: Claims | None) -> None:
        """Under another claim than before, rows that this process doesn't know may be in the store."""
        for tp in tps:
            claim = None if claims is None else claims.get(tp)
            if claim is None or self._claims.get(tp) != claim:
                self._stale.add(tp)
                self._taken_over.add(tp)
            if claim is not None:
                self._claims[tp] = claim

    def positions(self, positions: Iterable[GroupPosition]) -> None:
        """The store has kept these."""
        with self._lock:
            if self._positions is None:
                self._kinds.add(StateKind.POSITIONS)  # all are read from the store
            else:
                for each in positions:
                    place = each.group, each.topic
                    there = self._positions.setdefault(place, {})
                    last, there[each.partition] = there.get(each.partition), each
                    same = last is not None and (last.offset, last.metadata) == (each.offset, each.metadata)
                    (self._seen_again if same else self._moved).add(place)
        self.start()

    def changed(self, kind: str, name: str = "") -> None:
        """The store's data of this kind changed; for a note, `name` is the note's kind."""
        with self._lock:
            self._kinds.add(f"{kind} {name}" if name else kind)
        self.start()

    def forgotten(self, topic: str | None = None) -> None:
        """Everything about the link's offsets, or about a topic, was removed from the store."""
        with self._lock:
            self._rows = [row for row in self._rows if topic not in {None, row.topic}]
            self._marks = {tp: mark for tp, mark in self._marks.items() if topic not in {None, tp.topic}}
            self._claims = {tp: claim for tp, claim in self._claims.items() if topic not in {None, tp.topic}}
            self._positions = None
            self._forgot.add(topic)
            self._kinds |= {StateKind.TOPIC, StateKind.PROBLEM, StateKind.POSITIONS, StateKind.WATERMARK}
        self.start()

    def close(self, seconds: float) -> None:
        """Write pending changes, and end; unwritten ones are dropped."""
        with self._lock:
            thread, self._closing = self._thread, True
            if self._whole:  # the process that sealed the link wrote it; older data mustn't replace it
                self._kinds.add(StateKind.CONTROL)
        self._wake.set()
        if thread is None:
            return
        thread.join(seconds if self._failing_since is None else _FAILED_SECONDS)
        if thread.is_alive():
            log.warning(
                "%s: the copy of its state on %s was not written to its end within %g s: should the store be lost, "
                "what was decided last may be missing from it. drkit doctor compares them (topic %s)",
                self._link.id,
                self._link.id.target,
                seconds,
                self._topic,
            )
            if (admin := self._admin) is not None:
                admin.close()  # ends its waiting calls
            thread.join(_FAILED_SECONDS)

    # -- the thread --------------------------------------------------------------------------------

    def _work(self) -> None:
        pause, left = INTERVAL_SECONDS, _LAST_ROUNDS
        try:
            while True:
                last = self._closing
                begun = time.monotonic()
                pause = INTERVAL_SECONDS if self._round() else min(2 * pause, _LONGEST_PAUSE)
                if last and (self._failing_since is not None or not self._pending() or (left := left - 1) < 0):
                    return
                if self._wake.wait(max(pause, 3 * (time.monotonic() - begun))):
                    continue
        finally:
            self._give_up()

    def _pending(self) -> bool:
        with self._lock:
            return bool(self._rows or self._marks or self._stale or self._moved or self._kinds)

    def _round(self) -> bool:
        """Write due changes; returns whether that worked. Others report an unreachable target first."""
        try:
            claimed = self._claimed_before()
            opened = self._open()
            try:
                self._write_due(claimed if opened else None)
            except _NotCompared:
                claimed = self._claimed_before()
                self._open(again=True)
                self._write_due(claimed)
        except Exception as error:  # noqa: BLE001 - the mirror continues, whatever it is; it is told and tried again
            self._give_up()
            told = error if isinstance(error, DrkitError) else DrkitError(f"{type(error).__name__}: {error}")
            at = time.monotonic()
            self._failing_since = self._failing_since or at
            outage = isinstance(error, Unreachable) and at - self._failing_since < OUTAGE_SECONDS
            if not self._closing and not outage:
                self._say(told)
            return False
        self._failing_since = None
        self._say(None)
        return True

    def _claimed_before(self) -> set[TopicPartition]:
        """The partitions taken over so far: an opening that begins now compares what their former workers wrote."""
        with self._lock:
            return set(self._taken_over)

    def _say(self, error: DrkitError | None) -> None:
        if error is None and self._failed is False:
            return
        if error is not None and not self._failed:
            log.warning("%s: the copy of its state isn't written: %s", self._link.id, error)
        self._failed = error is not None
        try:
            self._tell(error)
        except DrkitError as failure:
            log.debug("%s: %s", self._link.id, failure)

    def _give_up(self) -> None:
        """Compare everything again at the next opening."""
        if self._writer is not None:
            self._writer.close()
        if self._admin is not None:
            self._admin.close()
        self._writer = self._admin = None

    def _open(self, *, again: bool = False) -> bool:
        """Whether the topic was opened just now, and so the store compared with it. `again`: open it in any case."""
        if self._writer is not None and not again and not self._to_be_opened_again():
            return False
        self._give_up()
        begun = time.monotonic()
        alias = self._link.id.target
        self._admin = ClusterAdmin(
            alias, self._target, timeout_seconds=_ADMIN_SECONDS, reach=Reachability(PATIENCE_SECONDS)
        )
        check_target_cluster(self._store, self._link, self._admin.cluster_id())
        there = find_copy(self._link, self._store, self._admin, self._target)
        self._topic = there or copy_name(self._link, self._store)
        if there is not None:
            connection.keep_compacted(self._admin, self._topic)
            begins = connection.begins(self._admin, self._topic)  # before: what is deleted meanwhile is noticed
            found = connection.read_all(alias, self._target, self._topic)
            self._known = {key: hash(each.value) for key, each in found.items() if each.value is not None}
            if self._whole:
                if not self._forgot:  # else it may have been the last topic, whose records are removed now
                    check_not_forgotten(self._link, self._store, self._topic, self._known)
                check_no_later_decision(self._link, self._store, self._topic, found)
            copy = copy_of(self._link, self._topic, found)
            copy.begins = connection.begins(self._admin, self._topic)  # after: what was deleted meanwhile is lost, too
            check_knows_all(self._link, self._store, copy, self._admin)
            self._note_unproven(copy, begins)
            proven = set(copy.partitions)
            note_earlier_copy(self._link, self._store, self._topic)
            noted = note_copy(self._link, self._store, self._topic)
        else:
            noted = note_copy(self._link, self._store, self._topic)  # or it would seem to be an earlier store's
            connection.create(self._admin, self._topic)
            self._known, proven, begins, self._looked_from = {}, set(), 0, 0
        self._sections.clear()
        for key in self._known:
            self._sections[section_of(key)].add(key)
        self._topic_id = connection.topic_id(self._admin, self._topic)
        self._begins = begins
        self._writer = connection.writer(alias, self._target, self._topic)
        self._opened_at = self._looked_at = time.monotonic()
        self._opening_seconds = self._opened_at - begun
        self._told_at = 0.0
        self._written = {}
        self._blocks = {}  # rows are read again of those that this process still writes
        # of one that stands still nobody stores a watermark again: a new topic, or one that was cut, would lack it
        marks = self._store.watermarks(self._link.id) if self._whole else {}
        self._settled = marks.keys() <= proven
        with self._lock:
            self._marks = {tp: mark for tp, mark in marks.items() if tp not in proven} | self._marks
            if self._positions is not None:  # they may be another worker's to capture by now
                self._positions = None
                self._kinds.add(StateKind.POSITIONS)
            if noted:
                self._kinds.add(f"{StateKind.NOTE} {COPY_NOTE}")
            if self._whole:
                self._kinds |= {
                    StateKind.CONTROL,
                    StateKind.TOPIC,
                    StateKind.PROBLEM,
                    StateKind.WATERMARK,
                    f"{StateKind.NOTE} *",
                }
        return True

    def _note_unproven(self, copy: LinkCopy, began: int) -> None:
        """Put on record whose rows the copy doesn't prove, before it gets those that the store has. `began`: where the
        topic began before it was read."""
        with self._lock:
            taken_over, noted = set(self._taken_over), dict(self._marks)

        def known(mark: Watermark, rows: Sequence[OffsetMapping]) -> bool:
            pairs = [(row.source_offset, row.target_offset) for row in rows]
            blocks, own = (None, None) if mark.tp in taken_over else (self._blocks.get(mark.tp), noted.get(mark.tp))
            if blocks is not None:
                found = blocks.epoch == mark.epoch and blocks.begin(pairs)
            else:
                found = self._has_seen(mark, pairs, own)
            if not found:
                return False
            self._seen[mark.tp] = _SeenRows(mark, len(pairs), RowBlocks(mark.epoch, pairs).chain)
            return True

        told = {(each.kind, each.place) for each in self._store.problems(self._link.id)}
        written = None if self._whole else {str(tp) for tp in taken_over}  # the others' rows a command leaves alone
        problems = unproven_rows(copy, self._store, self._link, known, now(), looked_from=self._looked_from)
        for problem in problems:
            if written is not None and problem.place not in written:
                continue
            if (problem.kind, problem.place) not in told:
                log.warning("%s: %s", self._link.id, problem.reason)
                self._store.put_problem(self._link.id, problem)
            self.changed(StateKind.PROBLEM)
        if self._whole:  # a command looks only at what it writes
            self._looked_from = began
            self._seen |= {tp: _SeenRows(each.watermark, *copy.counted[tp]) for tp, each in copy.partitions.items()}

    def _has_seen(self, mark: Watermark, pairs: Sequence[tuple[int, int]], noted: Watermark | None) -> bool:
        """Whether an opening found that these were all rows, and the store has kept the watermark since; or, where this
        process has noted one (`noted`), found the first of them, and the store has that watermark."""
        seen = self._seen.get(mark.tp)
        if seen is None or seen.mark.epoch != mark.epoch or not begins_with(pairs, seen.size, seen.chain):
            return False
        last = seen.mark if noted is None else noted
        same = (last.source_through, last.target_end) == (mark.source_through, mark.target_end)
        return same and (noted is not None or len(pairs) == seen.size)

    def _to_be_opened_again(self) -> bool:
        """Whether it is time, or the topic was recreated (after a deletion), or records of it were deleted."""
        at = time.monotonic()
        if at - self._opened_at > self._open_seconds() or self._admin is None:
            return True
        if at - self._looked_at < HEARTBEAT_SECONDS:
            return False
        self._looked_at = at
        if connection.topic_id(self._admin, self._topic) != self._topic_id:
            return True
        return connection.begins(self._admin, self._topic) > self._begins

    def _open_seconds(self) -> float:
        """How long the topic stays open."""
        if self._settled:
            return REOPEN_SECONDS
        return min(REOPEN_SECONDS, max(SETTLE_SECONDS, _SETTLE_TIMES * self._opening_seconds))

    # -- one round ---------------------------------------------------------------------------------

    def _write_due(self, compared: set[TopicPartition] | None) -> None:
        """Write it, but nothing of partitions that were taken over and aren't compared yet.

        Args:
            compared: the store was just compared with the topic, after these had been taken over; None: it wasn't.

        Raises:
            _NotCompared: it is to be compared first; nothing was written.
        """
        with self._lock:
            self._taken_over -= compared or set()
            unproven = set(self._taken_over)
            due = self._closing or time.monotonic() - self._opened_at > PAUSE_TIMES * self._opening_seconds
            if compared is None and unproven and due:
                raise _NotCompared
            forgot, self._forgot = self._forgot, set()
            rows, self._rows = [row for row in self._rows if row.tp not in unproven], []
            kinds, self._kinds = self._kinds, set()
            stale, self._stale = self._stale - unproven, set(unproven)
            marks = {tp: mark for tp, mark in self._marks.items() if tp not in unproven}
        gone = {tp for tp in self._blocks if not forgot.isdisjoint((None, tp.topic))}
        if forgot:
            self._seen = {tp: seen for tp, seen in self._seen.items() if forgot.isdisjoint((None, tp.topic))}
        for tp in unproven | gone:  # others may have added rows to those that were known
            self._blocks.pop(tp, None)
        try:
            records = self._small(kinds)
            if compared is None:
                _check_removed(records, forgot)
            waiting = self._add_rows(rows, stale, marks, records)
            self._send(records)
            with self._lock:
                self._stale |= waiting
        except BaseException:
            with self._lock:  # read again from the store, even if partly written
                self._stale |= stale | {row.tp for row in rows}
                self._kinds |= kinds
                self._forgot |= forgot
            raise
        self._send_progress(marks, waiting)

    def _small(self, kinds: set[str]) -> Records:
        """Decisions, topics, problems, notes: their current state in the store."""
        store, link = self._store, self._link.id
        records: Records = {}
        for kind in sorted(kinds):
            section, _, name = kind.partition(" ")
            match section:
                case StateKind.CONTROL:
                    self._decision(records)
                case StateKind.TOPIC:
                    states = store.topic_states(link)
                    rows = {(StateKind.TOPIC, topic): codec.topic_state_row(state) for topic, state in states.items()}
                    self._differences((StateKind.TOPIC,), rows, records)
                case StateKind.PROBLEM:
                    problems = [codec.problem_row(problem) for problem in store.problems(link)]
                    self._differences(
                        (StateKind.PROBLEM,), {(StateKind.PROBLEM, *row[:3]): row for row in problems}, records
                    )
                case StateKind.NOTE:
                    for note in store.note_kinds(link) if name == "*" else [name]:
                        self._notes(note, records)
                    if name == "*":
                        self._removed_note_kinds(records)
                case StateKind.WATERMARK:
                    self._without_partitions(records)
                case StateKind.POSITIONS:
                    self._read_positions(records)
        return records

    def _decision(self, records: Records) -> None:
        control = self._store.link_control(self._link.id)
        if control is None:
            return
        found = {(StateKind.CONTROL, control.version): codec.link_control_row(control)}
        self._differences((StateKind.CONTROL,), found, records)
        if not self._whole:
            self._leave_later_decisions(control.version, records)

    @staticmethod
    def _leave_later_decisions(version: int, records: Records) -> None:
        """A command with a restored store removes nothing that is newer than its backup."""
        for raw in [raw for raw, value in records.items() if value is None]:
            key = read_key(raw)
            if key is not None and key[0] == StateKind.CONTROL and int(key[1]) > version:
                del records[raw]

    def _notes(self, kind: str, records: Records) -> None:
        if kind not in NOT_KEPT:
            notes = self._store.notes(self._link.id, kind)
            found: dict[Key, Any] = {(StateKind.NOTE, kind, name): body for name, body in notes.items()}
            self._differences((StateKind.NOTE, kind), found, records)

    def _removed_note_kinds(self, records: Records) -> None:
        there = self._store.note_kinds(self._link.id)
        records.update(
            (raw, None)
            for name, keys in self._sections.items()
            if name[0] == StateKind.NOTE and name[1] not in there
            for raw in keys
        )

    def _differences(self, prefix: Key, found: dict[Any, Any], records: Records) -> None:
        """The writes after which the topic has exactly these records under the prefix."""
        wanted = {key_bytes(key): value_bytes(value) for key, value in found.items()}
        for key, value in wanted.items():
            if self._known.get(key) != hash(value):
                records[key] = value
        records.update(dict.fromkeys(self._keys(prefix) - wanted.keys()))

    def _keys(self, prefix: Key) -> set[bytes]:
        """Keys in the topic: of a section, or of all sections with this prefix."""
        size = len(prefix)
        if section := self._sections.get(prefix):
            return set(section)
        return {key for name, keys in self._sections.items() if name[:size] == prefix for key in keys}

    def _without_partitions(self, records: Records) -> None:
        """Remove the records of partitions that the store doesn't have."""
        there = self._store.watermarks(self._link.id)
        for raw in self._keys((StateKind.WATERMARK,)) | self._keys((StateKind.ROWS,)):
            key = read_key(raw)
            if key is not None and TopicPartition(str(key[1]), int(key[2])) not in there:
                records[raw] = None
        gone = self._blocks.keys() - there.keys()
        for tp in gone:
            del self._blocks[tp]
            self._written.pop(tp, None)

    def _read_positions(self, records: Records) -> None:
        found: dict[Place, dict[int, GroupPosition]] = defaultdict(dict)
        for each in self._store.group_positions(self._link.id):
            found[each.group, each.topic][each.partition] = each
        with self._lock:
            self._positions = dict(found)
            self._moved = set(found)
        for raw in self._keys((StateKind.POSITIONS,)):
            key = read_key(raw)
            if key is not None and (str(key[1]), str(key[2])) not in found:
                records[raw] = None

    # -- mapping rows ------------------------------------------------------------------------------

    def _add_rows(
        self,
        rows: Sequence[OffsetMapping],
        stale: set[TopicPartition],
        marks: dict[TopicPartition, Watermark],
        records: Records,
    ) -> set[TopicPartition]:
        """Blocks that changed; returns the partitions whose rows aren't read from the store yet."""
        again = set(stale)
        for row in rows:
            blocks = self._blocks.get(row.tp)
            if row.tp in again or (blocks is not None and row.source_offset <= blocks.read_through):
                continue
            if blocks is None or blocks.epoch != row.epoch or not blocks.add(row.source_offset, row.target_offset):
                again.add(row.tp)
        again |= {tp for tp, mark in marks.items() if tp not in self._blocks or self._blocks[tp].epoch != mark.epoch}
        chosen = sorted(again)[:_READ_AGAIN_A_ROUND]
        if chosen:
            kept = self._store.watermarks(self._link.id)
            for tp in chosen:
                self._take_kept(tp, kept.get(tp), marks)
                if tp in kept:
                    self._read_rows(tp, kept[tp].epoch, records)
        for tp, blocks in self._blocks.items():
            for block in blocks.taken():
                self._put((StateKind.ROWS, *tp, blocks.epoch, block.number), block.rows, records)
        return again - set(chosen)

    def _take_kept(self, tp: TopicPartition, kept: Watermark | None, marks: dict[TopicPartition, Watermark]) -> None:
        """Write the watermark that the store has by now: the noted one may be older, if another worker has stored one
        since, or of a topic that was forgotten."""
        if tp not in marks:
            return
        noted = marks.pop(tp)
        if kept is not None:
            marks[tp] = kept
        with self._lock:
            if self._marks.get(tp) is noted:
                del self._marks[tp]
                if kept is not None:
                    self._marks[tp] = kept

    def _read_rows(self, tp: TopicPartition, epoch: int, records: Records) -> None:
        rows = [(row.source_offset, row.target_offset) for row in self._store.mappings(self._link.id, tp, epoch)]
        before = self._blocks.get(tp)
        if before is not None and (before.epoch != epoch or not before.begin(rows)):
            raise _NotCompared
        blocks = RowBlocks(epoch, rows)
        self._blocks[tp] = blocks
        self._written.pop(tp, None)
        there: set[bytes] = set()
        for block in blocks.taken():
            key: Key = (StateKind.ROWS, *tp, epoch, block.number)
            there.add(key_bytes(key))
            self._put(key, block.rows, records)
        records.update(dict.fromkeys(self._keys((StateKind.ROWS, *tp)) - there))

    # -- progress ----------------------------------------------------------------------------------

    def _send_progress(self, marks: dict[TopicPartition, Watermark], waiting: set[TopicPartition]) -> None:
        """Watermarks whose rows are written, positions, and the time."""
        records: Records = {}
        at = time.monotonic()
        done: dict[TopicPartition, Watermark] = {}
        for tp, mark in marks.items():
            blocks = self._blocks.get(tp)
            if tp in waiting or blocks is None or blocks.epoch != mark.epoch:
                continue
            done[tp] = mark
            last, since = self._written.get(tp, (None, 0.0))
            same = last is not None and replace(last, observed_at=mark.observed_at) == mark
            if same and at - since < REFRESH_SECONDS and not self._closing:
                continue
            body = {"mark": codec.watermark_row(mark), "rows": blocks.count, "chain": blocks.chain}
            self._put((StateKind.WATERMARK, *tp), body, records)
            self._written[tp] = mark, at
            if len(records) >= MOST_A_ROUND:
                break
        self._take_positions(records)
        if records or at - self._told_at > HEARTBEAT_SECONDS or self._closing:
            header = {"format": FORMAT, "link": str(self._link.id), "at": now()}
            records[key_bytes((StateKind.LINK,))] = value_bytes(header)
            self._told_at = at
        try:
            self._send(records)
        except BaseException:
            for tp in done:
                self._written.pop(tp, None)
            with self._lock:
                self._kinds.add(StateKind.POSITIONS)
                self._positions = None
            raise
        with self._lock:
            for tp, mark in done.items():
                if self._marks.get(tp) is mark:
                    del self._marks[tp]

    def _take_positions(self, records: Records) -> None:
        with self._lock:
            if self._positions is None:
                return
            if self._closing or time.monotonic() - self._refreshed_at > REFRESH_SECONDS:
                self._moved |= self._seen_again
                self._seen_again.clear()
                self._refreshed_at = time.monotonic()
            taken = sorted(self._moved)[:MOST_A_ROUND]
            self._moved.difference_update(taken)
            found = {place: list(self._positions.get(place, {}).values()) for place in taken}
        for place, positions in found.items():
            blocks: dict[int, list[Any]] = defaultdict(list)
            for each in sorted(positions, key=lambda position: position.partition):
                blocks[each.partition // POSITIONS_A_RECORD].append(codec.group_position_row(each)[2:])
            self._differences(
                (StateKind.POSITIONS, *place),
                {(StateKind.POSITIONS, *place, number): body for number, body in blocks.items()},
                records,
            )

    # -- sending -----------------------------------------------------------------------------------

    def _put(self, key: Key, value: Any, records: Records) -> None:
        raw, body = key_bytes(key), value_bytes(value)
        if self._known.get(raw) != hash(body):
            records[raw] = body

    def _send(self, records: Records) -> None:
        if not records:
            return
        assert self._writer is not None, "opened before"  # noqa: S101
        self._writer.write(records.items())
        for key, value in records.items():
            section = self._sections[section_of(key)]
            if value is None:
                self._known.pop(key, None)
                section.discard(key)
            else:
                self._known[key] = hash(value)
                section.add(key)
