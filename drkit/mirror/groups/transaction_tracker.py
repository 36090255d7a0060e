"""Joins three logs: which group offsets each transaction committed, and where its output is. Pure.

    __transaction_state   decides: PrepareCommit of a transactional id names all its partitions
    __consumer_offsets    its commits for groups: records with its producer id, then its marker
    output partitions     its output: records with its producer id, then its marker

Records name their producer but not their transaction. One producer has one transaction at a time, and everything of
it (records, then the decision, then a marker in every named partition) is written before anything of the next one.
So in each partition a producer's markers cut its records into segments, and the n-th segment belongs to the n-th
decision that names the partition, counted from a common start. That start is an **anchor**: a moment when the
producer had no pending decision, identified by the ends of all these logs (`Tracker.anchor`).

Where the count is in doubt (a marker twice after a coordinator's failover, a log that can't be followed),
everything known of the producer is dropped and it is anchored again. What lies between is then known only as a
whole: it is on the target once everything before the new anchor is.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC
from drkit.kafka.protocol.transaction_log import DECISIONS, CommitRecord, Status, TransactionEntry
from drkit.model.groups import GroupTransaction
from drkit.model.topology import TopicPartition

MOST = 4_000
"""The number of a link's commits to keep; the ring of `drkit.store.transactions` holds at least as many."""
_DECISIONS_KEPT = 256
_ANCHORS_KEPT = 8

Range = tuple[int, int]


@dataclass(slots=True, eq=False)
class _Transaction:
    """One decision.

    `offset`: in the state log, or -1. `named`: the followed partitions that it names. `segments`: its records there;
    `around`: ranges that contain its records, where the segment is unknown. `answer`: the number of the response in
    which it was read; `seen`: partitions whose end the same response reached. `listed`: its commit, if that was listed
    before its segment was known.
    """

    producer_id: int
    commit: bool
    offset: int
    named: frozenset[TopicPartition]
    answer: int
    segments: dict[TopicPartition, _Segment] = field(default_factory=dict)
    around: dict[TopicPartition, Range] = field(default_factory=dict)
    seen: frozenset[TopicPartition] = frozenset()
    listed: _Commit | None = None

    @property
    def missing(self) -> frozenset[TopicPartition]:
        """Named partitions without a known segment or range."""
        return self.named - self.segments.keys() - self.around.keys()


@dataclass(slots=True, eq=False)
class _Segment:
    """A producer's records in a partition between two of its markers. `cut`: its beginning wasn't read."""

    first: int | None = None
    last: int | None = None
    offsets: dict[tuple[str, TopicPartition], tuple[int, str]] = field(default_factory=dict)
    ended: bool = False
    commit: bool | None = None
    transaction: _Transaction | None = None
    cut: bool = False
    listed: bool = False


class _Series:
    """The segments of a producer in a partition, counted from an anchor. Before the anchor it only records.

    `since`: where the count begins in the partition, `decisions_from`: where in the state log.
    """

    def __init__(self) -> None:
        self.since = self.decisions_from = -1
        self.recording = True
        self._recorded: list[tuple[int, Callable[[_Segment], None], bool]] = []
        self._segments: deque[_Segment] = deque()
        self._ended = 0
        self._bound = 0

    def write(self, first: int, change: Callable[[_Segment], None], *, ends: bool) -> _Segment | None:
        """Add a batch to its segment; a marker ends the segment."""
        if self.recording:
            self._recorded.append((first, change, ends))
            return None
        if first < self.since:
            return None
        segment = self._at(self._ended)
        change(segment)
        if ends:
            self._ended += 1
            segment.ended = True
            self._shrink()
        return segment

    def begin(self, since: int, decisions_from: int, *, cut: bool) -> list[_Segment]:
        """Start counting here; returns the segments recorded so far."""
        self.since, self.decisions_from, self.recording = since, decisions_from, False
        if cut:
            first = self._at(0)
            first.cut, first.first = True, since - 1
        recorded, self._recorded = self._recorded, []
        written = [self.write(begin, change, ends=ends) for begin, change, ends in recorded]
        return [segment for segment in written if segment is not None]

    def bind(self, transaction: _Transaction) -> _Segment:
        """Return the segment of the next decision that names this partition."""
        segment = self._at(self._bound)
        segment.transaction = transaction
        self._bound += 1
        self._shrink()
        return segment

    def undecided(self) -> int | None:
        """Where the first segment without a known decision begins, or None."""
        for segment in self._segments:
            if segment.transaction is None and segment.first is not None:
                return segment.first
        return None

    def open_segments(self) -> list[_Segment]:
        """Segments that aren't both ended and bound yet."""
        return list(self._segments)

    def _at(self, index: int) -> _Segment:
        while len(self._segments) <= index:
            self._segments.append(_Segment())
        return self._segments[index]

    def _shrink(self) -> None:
        while self._ended and self._bound:
            self._segments.popleft()
            self._ended -= 1
            self._bound -= 1


@dataclass(slots=True)
class _Producer:
    """A transactional id. `named`: all followed partitions that it has named. `anchored`: ranges of its state log in
    which no decision may be. `loose`: incomplete transactions. `elsewhere`: topics that it has written to and that
    aren't the link's."""

    producer_id: int
    commits_offsets: bool = False
    named: set[TopicPartition] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)
    decided: deque[_Transaction] = field(default_factory=lambda: deque(maxlen=_DECISIONS_KEPT))
    anchored: deque[Range] = field(default_factory=lambda: deque(maxlen=_ANCHORS_KEPT))
    loose: list[_Transaction] = field(default_factory=list)

    @property
    def unseen(self) -> bool:
        """Whether it commits offsets, but writes only to topics that aren't the link's."""
        return self.commits_offsets and bool(self.elsewhere) and all(tp.topic == OFFSETS_TOPIC for tp in self.named)


@dataclass(slots=True, eq=False)
class _Commit:
    """A commit of offsets in its order: a transaction's segment of `__consumer_offsets`, or a plain one. `void`: it was
    listed twice."""

    number: int
    tp: TopicPartition | None = None
    segment: _Segment | None = None
    plain: dict[tuple[str, TopicPartition], tuple[int, str]] = field(default_factory=dict)
    void: bool = False
    told: GroupTransaction | None = None


class Tracker:
    """Joins the three logs. The caller holds a lock.

    Args:
        covers: whether a topic is one of the link's.
    """

    def __init__(self, covers: Callable[[str], bool]) -> None:
        self._covers = covers
        self._producers: dict[str, _Producer] = {}
        self._owners: dict[int, str] = {}
        self._series: dict[int, dict[TopicPartition, _Series]] = defaultdict(dict)
        self._open: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        self._commits: deque[_Commit] = deque()
        self._unsettled: dict[int, _Commit] = {}
        self.transactional: set[str] = set()
        """Groups that were seen to commit in transactions."""
        self._number = 0
        self._answer = 0
        self._asked: dict[TopicPartition, int] = {}
        self._deciding: list[_Transaction] = []
        self.dropped: dict[TopicPartition, int] = {}
        self.elsewhere: dict[str, frozenset[str]] = {}
        """For each group that commits in transactions, the topics that they write to, where none is one of the
        link's."""
        self.plain: set[str] = set()
        """Groups that were seen to commit outside transactions, and in none since."""

    # -- what is read ------------------------------------------------------------------------------

    def state(self, offset: int, entry: TransactionEntry) -> None:
        """Add a state change of a transactional id, at an offset of its partition of the state log."""
        producer = self._producers.get(entry.transactional_id)
        if producer is None or producer.producer_id != entry.producer_id:
            if producer is not None:
                self._drop_series(producer)
            producer = _Producer(entry.producer_id, loose=[] if producer is None else producer.loose)
            self._producers[entry.transactional_id] = producer
            self._owners[entry.producer_id] = entry.transactional_id
        ours = frozenset(tp for tp in entry.partitions if tp.topic == OFFSETS_TOPIC or self._covers(tp.topic))
        producer.named |= ours
        producer.elsewhere |= {tp.topic for tp in entry.partitions - ours}
        producer.commits_offsets |= any(tp.topic == OFFSETS_TOPIC for tp in ours)
        if entry.status not in DECISIONS:
            return
        if any(first <= offset < until for first, until in producer.anchored):
            self._doubt(producer)
        commit = entry.status is Status.PREPARE_COMMIT
        transaction = _Transaction(entry.producer_id, commit, offset, ours, self._answer)
        producer.decided.append(transaction)
        self._deciding.append(transaction)
        producer.loose.append(transaction)
        self._bind_loose(producer)
        self._list_unread(producer)
        self._open[entry.producer_id] = {  # its later records belong to the next transaction
            tp: first
            for tp, series in self._series[entry.producer_id].items()
            if tp.topic != OFFSETS_TOPIC and (first := series.undecided()) is not None
        }

    def written(self, tp: TopicPartition, producer_id: int, first: int, last: int) -> None:
        """Add a batch of a transaction in an output partition."""

        def change(segment: _Segment) -> None:
            segment.first = first if segment.first is None else min(segment.first, first)
            segment.last = last

        segment = self._write(tp, producer_id, first, change, ends=False)
        if segment is not None and segment.transaction is None:
            self._open[producer_id].setdefault(tp, first)

    def committed(
        self, tp: TopicPartition, producer_id: int | None, first: int, last: int, records: Iterable[CommitRecord]
    ) -> None:
        """Add offsets committed in a batch of `__consumer_offsets`; `producer_id` None: outside any transaction."""
        found = {(r.group, r.tp): (r.offset, r.metadata) for r in records if r.offset is not None}
        if producer_id is None:
            plain = {key: value for key, value in found.items() if key[0] in self.transactional}
            self.plain.update(group for group, _ in found.keys() - plain.keys())
            if plain:
                self._list(_Commit(self._next(), plain=plain))
            return
        self.transactional.update(group for group, _ in found)
        self.plain -= self.transactional
        producer = self._producers.get(self._owners.get(producer_id, ""))
        if producer is not None and producer.unseen:
            written = frozenset(producer.elsewhere)
            self.elsewhere |= {group: self.elsewhere.get(group, written) | written for group, _ in found}

        def change(segment: _Segment) -> None:
            segment.first = first if segment.first is None else segment.first
            segment.last = last
            segment.offsets.update(found)

        self._write(tp, producer_id, first, change, ends=False)

    def looked_back(self, by_transactions: Mapping[str, bool]) -> None:
        """By group, whether a transaction committed its position in a partition of the coordinators' log before that
        partition was followed."""
        self.transactional.update(group for group, transactional in by_transactions.items() if transactional)
        self.plain.update(by_transactions)
        self.plain -= self.transactional

    def not_told(self, groups: Iterable[str]) -> set[str]:
        """Those of these groups that aren't known yet to commit in transactions or not."""
        return set(groups) - self.plain - self.transactional

    def ended(self, tp: TopicPartition, producer_id: int, offset: int, *, commit: bool) -> None:
        """Add a producer's marker in a partition."""

        def change(segment: _Segment) -> None:
            segment.commit = commit

        self._write(tp, producer_id, offset, change, ends=True)

    def answered(self, reached: frozenset[TopicPartition], asked_at: int) -> None:
        """A response was processed completely. `asked_at`: the number of responses processed when it was requested."""
        for tp in reached:
            self._asked[tp] = asked_at
        for transaction in self._deciding:
            transaction.seen = reached
        self._deciding.clear()
        self._answer += 1

    # -- anchors -----------------------------------------------------------------------------------

    def unanchored(self) -> dict[str, tuple[int, frozenset[TopicPartition]]]:
        """Transactional ids that commit offsets and write to the link's topics: their producer id and their partitions
        without an anchor."""
        found = {}
        for name, producer in self._producers.items():
            if all(tp.topic == OFFSETS_TOPIC for tp in producer.named):
                continue
            missing = {tp for tp in producer.named if tp not in self._series[producer.producer_id]}
            if producer.commits_offsets and missing:
                found[name] = (producer.producer_id, frozenset(missing))
        return found

    def unseen(self) -> set[TopicPartition]:
        """The partitions of the coordinators' log with groups whose transactions write to none of the link's topics."""
        return {tp for producer in self._producers.values() if producer.unseen for tp in producer.named}

    def record(self, producer_id: int, tps: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Record a producer's writes to these partitions from now on, for an anchor that is being made.

        Returns the partitions without an anchor.
        """
        series = self._series[producer_id]
        new = [tp for tp in tps if tp not in series]
        series.update((tp, _Series()) for tp in new)
        return new

    def forget(self, producer_id: int, tps: Iterable[TopicPartition]) -> None:
        """Give up an anchor that could not be made; it is retried later."""
        for tp in tps:
            self._series[producer_id].pop(tp, None)

    def anchor(self, name: str, ends: Mapping[TopicPartition, int], quiet: Range, *, ongoing: bool) -> bool:
        """Start counting at an anchor; False where a decision was made meanwhile (then: `forget`).

        Args:
            name: the transactional id.
            ends: the ends of the partitions given to `record`, read after that.
            quiet: the end of its partition of the state log before and after all that. In between, the transactional
            id's
                state was requested, and no decision was pending.
            ongoing: whether a transaction was open then: its earlier records aren't read.
        """
        producer = self._producers[name]
        first, until = quiet
        if any(first <= transaction.offset < until for transaction in producer.decided):
            return False
        producer.anchored.append(quiet)
        for tp, end in ends.items():
            series = self._series[producer.producer_id][tp]
            for segment in series.begin(end, until, cut=ongoing):
                self._note(tp, segment)
            begun = series.undecided()
            if tp.topic != OFFSETS_TOPIC and begun is not None:
                self._open[producer.producer_id][tp] = begun
            else:
                self._open[producer.producer_id].pop(tp, None)
        self._bind_loose(producer)
        return True

    # -- what is known -----------------------------------------------------------------------------

    def undecided(self) -> dict[TopicPartition, int]:
        """By output partition, the first record of a transaction whose decision is unknown."""
        found: dict[TopicPartition, int] = {}
        for places in self._open.values():
            for tp, first in places.items():
                found[tp] = min(first, found.get(tp, first))
        return found

    def news(self) -> list[GroupTransaction]:
        """Commits that are new, or of which more is known than was reported before, in order."""
        told = []
        for number, commit in list(self._unsettled.items()):
            found, settled = self._known(commit)
            if found != commit.told:
                commit.told = found
                told.append(found)
            if settled:
                del self._unsettled[number]
        return told

    def _known(self, commit: _Commit) -> tuple[GroupTransaction, bool]:
        """A commit as far as it is known, and whether that is final."""
        segment = commit.segment
        if commit.void:
            return GroupTransaction(commit.number, {}, {}), True
        if segment is None:
            return GroupTransaction(commit.number, commit.plain, {}), True
        transaction = segment.transaction
        whole = commit.tp is not None and self._whole(commit.tp, segment)
        offsets = dict(segment.offsets) if whole and segment.offsets and not segment.cut else None
        if transaction is None:
            return GroupTransaction(commit.number, offsets, None), False
        outputs = {tp: around for tp, around in transaction.around.items() if tp.topic != OFFSETS_TOPIC}
        known = not transaction.missing
        for tp, other in transaction.segments.items():
            if tp.topic == OFFSETS_TOPIC:
                continue
            known = known and self._whole(tp, other)
            if other.first is not None:
                outputs[tp] = (other.first, other.first if other.last is None else other.last)
        ended = all(each.ended for each in transaction.segments.values())
        settled = not transaction.missing and ended and (segment.ended or commit.tp in transaction.around)
        return GroupTransaction(commit.number, offsets, outputs if known else None), settled

    def _whole(self, tp: TopicPartition, segment: _Segment) -> bool:
        """Whether all of a segment's records are known: it has ended, or its partition was read after the decision."""
        if segment.ended:
            return True
        transaction = segment.transaction
        return transaction is not None and (tp in transaction.seen or self._asked.get(tp, -1) > transaction.answer)

    # -- within ------------------------------------------------------------------------------------

    def _write(
        self, tp: TopicPartition, producer_id: int, first: int, change: Callable[[_Segment], None], *, ends: bool
    ) -> _Segment | None:
        series = self._series[producer_id].get(tp) if producer_id in self._series else None
        if series is None:
            return None
        segment = series.write(first, change, ends=ends)
        if segment is not None:
            self._note(tp, segment)
        return segment

    def _bind_loose(self, producer: _Producer) -> None:
        """Assign segments to transactions, in the order of the decisions."""
        for transaction in producer.loose:
            for tp in transaction.missing:
                series = self._series[producer.producer_id].get(tp)
                if series is None or series.recording:
                    continue
                if transaction.offset < series.decisions_from:
                    transaction.around[tp] = (-1, series.since - 1)
                else:
                    segment = transaction.segments[tp] = series.bind(transaction)
                    self._note(tp, segment)
        producer.loose = [transaction for transaction in producer.loose if transaction.missing]

    def _note(self, tp: TopicPartition, segment: _Segment) -> None:
        """Handle a changed segment: list it as a commit, or detect a wrong count."""
        transaction = segment.transaction
        if segment.ended and transaction is not None:
            empty = segment.last is None and not segment.cut
            if segment.commit != transaction.commit or (empty and transaction.commit):
                owner = self._owners.get(transaction.producer_id)
                transaction.segments.pop(tp, None)
                if owner is not None:
                    self._doubt(self._producers[owner])
                return
        decided = segment.commit if transaction is None else transaction.commit
        if tp.topic != OFFSETS_TOPIC or not decided:
            return
        before = None if transaction is None else transaction.listed
        if before is not None and before.segment is not segment:
            before.tp, before.segment, before.void = tp, segment, segment.listed
            segment.listed = True
        elif not segment.listed:
            segment.listed = True
            commit = _Commit(self._next(), tp, segment)
            if transaction is not None:
                transaction.listed = commit
            self._list(commit)

    def _list_unread(self, producer: _Producer) -> None:
        """List a commit although its segment of the offsets isn't known (yet), to keep its position in the order."""
        for transaction in producer.loose:
            parts = [tp for tp in transaction.missing if tp.topic == OFFSETS_TOPIC]
            writes = any(tp.topic != OFFSETS_TOPIC for tp in transaction.named)
            if parts and writes and transaction.commit and transaction.listed is None:
                unread = _Segment(transaction=transaction, cut=True, listed=True)
                transaction.listed = _Commit(self._next(), parts[0], unread)
                self._list(transaction.listed)

    def _doubt(self, producer: _Producer) -> None:
        """Handle a wrong count of a producer's segments: what isn't settled is known by the next anchor, as a whole."""
        loose = {id(transaction): transaction for transaction in producer.loose}
        for transaction in producer.decided:
            unsettled = [tp for tp, segment in transaction.segments.items() if not segment.ended]
            for tp in unsettled:
                del transaction.segments[tp]
            if transaction.missing:
                loose[id(transaction)] = transaction
                transaction.offset = -1
        for series in self._drop_series(producer):
            for segment in series.open_segments():
                if segment.transaction is None:
                    outputs = frozenset(tp for tp in producer.named if tp.topic != OFFSETS_TOPIC)
                    segment.transaction = _Transaction(
                        producer.producer_id, commit=True, offset=-1, named=outputs, answer=self._answer
                    )
                    loose[id(segment.transaction)] = segment.transaction
        producer.loose = list(loose.values())
        self._list_unread(producer)

    def _drop_series(self, producer: _Producer) -> list[_Series]:
        return list(self._series.pop(producer.producer_id, {}).values())

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _list(self, commit: _Commit) -> None:
        self._commits.append(commit)
        self._unsettled[commit.number] = commit
        if len(self._commits) > MOST:
            old = self._commits.popleft()
            self._unsettled.pop(old.number, None)
            for tp, (_, last) in ((old.told.outputs if old.told else None) or {}).items():
                self.dropped[tp] = max(last + 1, self.dropped.get(tp, 0))
