"""Watches groups that commit offsets in transactions, so that a failover places them by the output on the target.

Without such groups a look costs one request per broker every few seconds (who writes transactions to the coordinators'
log). With them, the relevant logs are followed as they grow: the partitions of the coordinators' log with such groups,
the partitions of the state log with their transactional ids, and the topics that these write to, which are thereby read
twice. All three hold a transaction's records before it is decided, and its output is mirrored only afterwards. So a
failover's facts are mostly known before the output reaches the target, and missing ones are known to be missing.

A group whose partition of the coordinators' log has transactions is suspected of committing in one, until it is seen to
commit without, or its last commits in the existing log are plain (`drkit.mirror.groups.commit_scan`).

The logs know topics by their names. Where one that was read or written is made anew on the source, the watch begins
anew; the groups that it knew stay suspected.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.producers import TransactionAdmin
from drkit.kafka.client.log_tail import LogTail
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC, partition_of
from drkit.kafka.protocol.record_batch import Batch
from drkit.kafka.protocol.records import Damaged
from drkit.kafka.protocol.transaction_log import TRANSACTIONS_TOPIC, commit_records, commits, transaction_entries
from drkit.mirror.groups.commit_scan import CommitScan
from drkit.mirror.groups.transaction_tracker import Tracker
from drkit.model.errors import AuthenticationError, DrkitError, Refused, Unreachable
from drkit.model.process import keeping_context
from drkit.model.topology import Link, TopicPartition
from drkit.store.api import LinkStore
from drkit.store.transactions import TransactionNotes, forget_suspected, suspect, suspected_groups

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
_DISCOVER_SECONDS = 3.0
_SAVE_SECONDS = 0.02
_SAVE_AGAIN_SECONDS = 5.0
_ADMIN_SECONDS = 5.0
_SCAN_SECONDS = 0.05
"""Seconds per look: reading back must not delay the mirror."""


class TransactionWatch:
    """Watches one link's source. One thread calls `check`.

    Args:
        link: which groups and topics.
        cluster: the source.
        source: its topics.
        store: where the results are kept.
        leads: whether this worker captures groups; otherwise it doesn't watch.
    """

    def __init__(
        self, link: Link, cluster: ClusterConfig, source: ClusterAdmin, store: LinkStore, leads: Callable[[], bool]
    ) -> None:
        self._link = link
        self._cluster = cluster
        self._source = source
        self._store = store
        self._leads = leads
        self._admin = TransactionAdmin(link.id.source, cluster, timeout_seconds=_ADMIN_SECONDS)
        self._following: _Following | None = None
        self._discovered_at: float | None = None
        self._counts: dict[str, int] = {}
        self._refused: str | None = None

    def check(self) -> None:
        """Find new transactional producers, and anchor those without an anchor.

        Raises:
            Unreachable: the source doesn't answer.
        """
        if not self._leads():
            self._end()
            return
        if self._following is not None and self._following.failed:
            log.warning("%s: transactions are watched again: %s", self._link.id, self._following.failed)
            self._end()
        at = time.monotonic()
        try:
            if self._discovered_at is None or at - self._discovered_at >= _DISCOVER_SECONDS:
                self._discovered_at = at  # also after a failure: don't retry sooner
                self._check_topics()
                self._discover()
            if self._following is not None:
                if self._following.unidentified():
                    self._check_topics()
                self._anchor(self._following)
                self._suspect_new(self._following)
            if suspected := suspected_groups(self._store, self._link.id):
                self._clear(suspected)
        except (Refused, AuthenticationError) as error:
            if self._refused != str(error):
                self._refused = str(error)
                log.warning(
                    "%s: which groups commit in transactions isn't known, so no captured offset is exact: %s. Grant "
                    "drkit's principal READ on %s and %s, and DESCRIBE on its transactional ids",
                    self._link.id,
                    error,
                    OFFSETS_TOPIC,
                    TRANSACTIONS_TOPIC,
                )
            self._discovered_at = at + 10 * _DISCOVER_SECONDS

    def suspected(self, groups: Collection[str]) -> set[str]:
        """Those of these groups (which have committed) that may commit in transactions without the watch knowing it
        yet.

        Call it before storing their positions. May be called by another thread.

        Raises:
            Unreachable: the source doesn't answer.
        """
        following = self._following
        if following is not None:
            with following.lock:  # where their partition of the log is followed, their next commits are seen
                groups = following.tracker.not_told(groups)
        if not groups:
            return set()
        try:
            counts = self._counts or self._admin.partitions()
            count = counts.get(OFFSETS_TOPIC, 0)
            return self._admin.groups_beside_transactions(groups, count) if count else set()
        except (Refused, AuthenticationError):
            return set(groups)  # it isn't known; `check` reports what to grant

    def give_up(self) -> None:
        """Send no more requests to the source: a `check` waiting for it ends. May be called by another thread."""
        self._admin.close()

    def close(self) -> None:
        """Store the results and close the connections. `check` isn't called any more."""
        self._end()
        self._admin.close()

    def _end(self) -> None:
        following, self._following = self._following, None
        self._discovered_at = None
        if following is not None:
            following.close()

    def _check_topics(self) -> None:
        """Begin anew where a topic that transactions read or write was made anew."""
        following = self._following
        if following is None:
            return
        names = following.topics()
        ids = {name: info.topic_id for name, info in self._source.topics(names, denied=set()).items()}
        anew = following.identify(ids)
        if not anew:
            return
        log.warning(
            "%s: transactions are watched again: %s was made anew on %s", self._link.id, min(anew), self._link.id.source
        )
        self._suspect_new(following)
        self._end()

    def _discover(self) -> None:
        self._counts = self._admin.partitions()
        offsets = _places(OFFSETS_TOPIC, range(self._counts.get(OFFSETS_TOPIC, 0)))
        producer_ids = set().union(*self._admin.producers(offsets).values())
        if not producer_ids or TRANSACTIONS_TOPIC not in self._counts:
            return
        parts = {self._part(each.name) for each in self._admin.transactional_ids(producer_ids)}
        if parts:
            self._follow(parts)

    def _follow(self, parts: set[TopicPartition]) -> _Following:
        """Follow partitions of the transactional logs from their ends, if they aren't followed yet."""
        following = self._following = self._following or _Following(self._link, self._cluster, self._store)
        if new := parts - following.tail.positions().keys():
            following.tail.follow(self._admin.ends(new))
        return following

    def _suspect_new(self, following: _Following) -> None:
        """Note that groups have begun to commit in transactions, before their output is known."""
        with following.lock:
            begun = set(following.tracker.transactional)
        if new := {group for group in begun - following.suspected if self._link.covers_group(group)}:
            suspect(self._store, self._link.id, new)
        following.suspected |= begun

    def _clear(self, suspected: Collection[str]) -> None:
        """Find out which of these groups commit outside transactions."""
        count = self._counts.get(OFFSETS_TOPIC, 0)
        if not count:
            return
        homes = {group: TopicPartition(OFFSETS_TOPIC, partition_of(group, count)) for group in suspected}
        following = self._follow(set(homes.values()))
        with following.lock:
            open_homes = {homes[group] for group in following.tracker.not_told(suspected)}
        following.read_back(open_homes, self._admin)
        with following.lock:
            plain = following.tracker.plain & set(suspected)
        if plain:
            forget_suspected(self._store, self._link.id, plain)

    def _part(self, transactional_id: str) -> TopicPartition:
        """Its partition of the state log: by the same hash as a group's of the coordinators' log."""
        return TopicPartition(TRANSACTIONS_TOPIC, partition_of(transactional_id, self._counts[TRANSACTIONS_TOPIC]))

    def _anchor(self, following: _Following) -> None:
        """See `Tracker.anchor`: the order of the requests matters."""
        with following.lock:
            wanted, unseen = following.tracker.unanchored(), following.tracker.unseen()
        self._follow(unseen)
        if not wanted:
            return
        topics = {tp.topic for _, tps in wanted.values() for tp in tps if tp.topic != OFFSETS_TOPIC}
        counts = {name: info.partitions for name, info in self._source.topics(topics).items()} if topics else {}
        recording: dict[str, tuple[int, list[TopicPartition]]] = {}
        with following.lock:
            for name, (producer_id, named) in wanted.items():
                outputs = {tp.topic for tp in named} & counts.keys()
                places = [tp for topic in outputs for tp in _places(topic, range(counts[topic]))]
                places += [tp for tp in named if tp.topic == OFFSETS_TOPIC]
                recording[name] = (producer_id, following.tracker.record(producer_id, places))
        anchored: set[str] = set()
        try:
            parts = {name: self._part(name) for name in recording}
            before = self._admin.ends(set(parts.values()))
            states = {
                each.name: each
                for each in self._admin.transactional_ids({producer_id for producer_id, _ in recording.values()})
            }
            ends = self._admin.ends({tp for _, tps in recording.values() for tp in tps})
            after = self._admin.ends(set(parts.values()))
            follow: dict[TopicPartition, int] = {}
            with following.lock:
                for name, (producer_id, tps) in recording.items():
                    state = states.get(name)
                    if state is None or state.producer_id != producer_id or state.deciding:
                        continue
                    if not all(tp in ends for tp in tps):
                        continue
                    own = {tp: ends[tp] for tp in tps}
                    if following.tracker.anchor(
                        name, own, (before[parts[name]], after[parts[name]]), ongoing=state.ongoing
                    ):
                        anchored.add(name)
                        follow |= own
            following.begin(follow)
        finally:
            with following.lock:
                for name, (producer_id, tps) in recording.items():
                    if name not in anchored:
                        following.tracker.forget(producer_id, tps)


class _Following:
    """The tail of one watch, its tracker, and the thread that stores results."""

    def __init__(self, link: Link, cluster: ClusterConfig, store: LinkStore) -> None:
        self._link = link
        self._cluster = cluster
        self.lock = threading.Lock()
        self._covers = cache(link.covers_topic)
        self.tracker = Tracker(self._covers)
        self.tail = LogTail(link.id.source, cluster, self._take, self._lost, self._answered)
        self._notes = TransactionNotes(store, link.id, secrets.token_hex(8))
        self._begun: dict[TopicPartition, int] = {}
        self.suspected: set[str] = set()
        self._topic_ids: dict[str, str] = {}
        self._inputs: set[str] = set()
        self._scan: CommitScan | None = None
        self._scanned: set[TopicPartition] = set()
        self._news = threading.Event()
        self._ending = threading.Event()
        self._gone: str | None = None
        self._writer = threading.Thread(
            target=keeping_context(self._write), name="drkit-transactions-writer", daemon=True
        )
        self.tail.start()
        self._writer.start()

    @property
    def failed(self) -> str | None:
        """Why it can't continue."""
        return self._gone or (None if self.tail.failure is None else str(self.tail.failure))

    def topics(self) -> set[str]:
        """The link's topics that transactions read or write."""
        with self.lock:
            return {*self._inputs, *(tp.topic for tp in self._begun)}

    def unidentified(self) -> bool:
        """Whether the id of one of these isn't known yet."""
        return bool(self.topics() - self._topic_ids.keys())

    def identify(self, ids: Mapping[str, str]) -> set[str]:
        """Take the topics' current ids; returns those that had another one before."""
        anew = {name for name, topic_id in ids.items() if self._topic_ids.get(name, topic_id) != topic_id}
        self._topic_ids = {**ids, **self._topic_ids}
        return anew

    def begin(self, places: dict[TopicPartition, int]) -> None:
        """Follow partitions that were anchored; those already followed stay at their position."""
        for tp, end in places.items():
            if tp.topic != OFFSETS_TOPIC:
                self._begun[tp] = max(end, self._begun.get(tp, 0))
        self.tail.follow(places)

    def read_back(self, parts: set[TopicPartition], admin: TransactionAdmin) -> None:
        """Read the older content of these partitions of the coordinators' log, a little at each call.

        Raises:
            Unreachable, Refused: like `LogReader.read`; the next call starts over.
        """
        if self._scan is None:
            taken = self.tail.positions()
            part = min(parts.intersection(taken) - self._scanned, default=None)
            if part is None:
                return
            begin = admin.begins([part]).get(part)
            if begin is None:
                return
            self._scan = CommitScan(self._link.id.source, self._cluster, part, begin, taken[part])
        scan = self._scan
        try:
            if not scan.read_on(_SCAN_SECONDS):
                return
            with self.lock:
                self.tracker.looked_back(scan.by_transactions())
        except Damaged as error:
            log.warning("%s: groups of %s may commit in transactions: %s", self._link.id, scan.part, error)
        except DrkitError:
            self._end_scan()
            raise
        self._scanned.add(scan.part)
        self._end_scan()

    def _end_scan(self) -> None:
        scan, self._scan = self._scan, None
        if scan is not None:
            scan.close()

    def close(self) -> None:
        """Stop reading and store the results."""
        self._end_scan()
        self.tail.close()
        self._ending.set()
        self._news.set()
        self._writer.join(10.0)

    def _take(self, tp: TopicPartition, batches: list[Batch]) -> None:
        tracker = self.tracker
        with self.lock:
            for batch in batches:
                if not batch.readable:
                    raise Damaged(f"the batch at offset {batch.base_offset} of {tp} fails its checksum")
                if tp.topic == TRANSACTIONS_TOPIC:
                    for offset, entry in transaction_entries(batch):
                        tracker.state(offset, entry)
                elif batch.is_control:
                    if batch.producer_id >= 0:
                        tracker.ended(tp, batch.producer_id, batch.base_offset, commit=commits(batch))
                elif tp.topic == OFFSETS_TOPIC:
                    producer_id = batch.producer_id if batch.is_transactional else None
                    records = list(commit_records(batch))
                    tracker.committed(tp, producer_id, batch.base_offset, batch.last_offset, records)
                    self._inputs.update(
                        each.tp.topic
                        for each in records
                        if each.offset is not None
                        and each.group in tracker.transactional
                        and self._covers(each.tp.topic)
                    )
                elif batch.is_transactional:
                    tracker.written(tp, batch.producer_id, batch.base_offset, batch.last_offset)

    def _lost(self, tp: TopicPartition, why: str) -> None:
        self._gone = f"{tp} can't be followed: {why}"

    def _answered(self, reached: frozenset[TopicPartition], asked_at: int) -> None:
        with self.lock:
            self.tracker.answered(reached, asked_at)
        self._news.set()

    def _write(self) -> None:
        """Store new results at once."""
        saved: object = None
        saved_at = 0.0
        while True:
            self._news.wait()
            self._news.clear()
            ending = self._ending.is_set()
            positions = self.tail.positions()  # before the news: they lack nothing below these positions
            with self.lock:
                news = self.tracker.news()
                dropped, undecided = dict(self.tracker.dropped), self.tracker.undecided()
                elsewhere = dict(self.tracker.elsewhere)
            begun, topic_ids = dict(self._begun), self._topic_ids
            read = {tp: positions[tp] for tp in begun if tp in positions}
            at = time.monotonic()
            due = at - saved_at >= _SAVE_AGAIN_SECONDS
            if (begun or elsewhere) and (news or due or saved != (begun, read, undecided, elsewhere, topic_ids)):
                try:
                    self._notes.save(news, begun, read, dropped, undecided, elsewhere, topic_ids)
                    saved, saved_at = (begun, read, undecided, elsewhere, topic_ids), at
                except Unreachable as error:
                    self._gone = f"what was seen can't be kept: {error}"
                    return
                except DrkitError as error:
                    self._gone = str(error)
                    return
            if ending:
                return
            self._ending.wait(_SAVE_SECONDS)


def _places(topic: str, partitions: Iterable[int]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in partitions]
