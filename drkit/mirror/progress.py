"""Progress in the store: watermarks, about once a second, even while nothing moves; and range digests.

A watermark combines the mirror's exact position (from the engine) and the last observation of both logs, with its time.
When the source is gone the observation stays: the recovery point is computed from it.

Idle partitions are observed in turns (`drkit.mirror.round_robin`), those that moved at each look. Those that are behind
and don't move have turns of their own, so that the many idle ones don't delay them.

`behind_since` is the time at which an end beyond the current position was first seen. Observed ends are kept with their
times until the position has passed them. If there are too many, neighbours are merged so that the result can only be
too old, never too young.

Where a link leaves out what is undecided, the source's high watermarks are kept the same way: what stands behind an
open transaction waits since a high watermark beyond the position was first seen (`Watermark.waiting`), and still does
when that transaction ends and another one holds it back. Of one that was open when a mirror began to look, its
coordinator says when it began (`undated`, `date`).

Digests of ended ranges are stored with the next watermarks, that of an open range every few seconds; those below the
target's log start are removed when it has moved.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.protocol.record_batch import UNKNOWN_EPOCH
from drkit.mirror.engine.interface import NOTHING_BELOW, BatchBelow, Engine, PartitionProgress
from drkit.mirror.round_robin import Turns
from drkit.model.clock import now
from drkit.model.digests import RangeDigest
from drkit.model.errors import Fenced
from drkit.model.link_state import TopicState
from drkit.model.offsets import WaitingRecords, Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import MappingStore

_ENDS_KEPT = 600
_ALL_AT_ONCE = 500
_REFRESH_SECONDS = 10.0
_OPEN_SECONDS = 5.0
_MOST_UNSAVED = 10_000
_FORGOTTEN_AT_ONCE = 100


class SeenEnds:
    """When which source end was first seen, as far as it still matters."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[datetime, int]] = deque()

    def note(self, at: datetime, end: int) -> None:
        """Note that the source's end was `end`."""
        if self._seen and end <= self._seen[-1][1]:
            return
        self._seen.append((at, end))
        if len(self._seen) > _ENDS_KEPT:
            pairs = list(self._seen)
            merged = [(pairs[i][0], pairs[min(i + 1, len(pairs) - 1)][1]) for i in range(0, len(pairs), 2)]
            self._seen = deque(merged)

    def date(self, at: datetime, end: int) -> None:
        """Note that the source's end was `end` at an earlier time than it was seen."""
        while self._seen and self._seen[0][1] <= end:
            self._seen.popleft()
        self._seen.appendleft((at, end))

    def behind_since(self, through: int) -> datetime | None:
        """When an end beyond `through` was first seen, or None."""
        while self._seen and self._seen[0][1] <= through:
            self._seen.popleft()
        return self._seen[0][0] if self._seen else None


class _Tracked:
    """One partition's last observation and stored state.

    `last`: the last observation that differed from the one before; `seen_at`: when it was last repeated. `looked`: the
    partition's position then. `said`: counts the watermarks that differ from the observed one; `kept_said`: the count
    at the stored one. `halted_at`: the position at which it is halted until an operator decides; None: it isn't.
    `highs`, `high`: the high watermarks, and the last one (0: none was seen). `undated`: what stood behind an open
    transaction when the mirror began to look, until the time since when is known exactly, or that is decided.
    """

    __slots__ = (
        "_made_of",
        "_shown",
        "digests_from",
        "ends",
        "halted_at",
        "high",
        "highs",
        "kept",
        "kept_at",
        "kept_said",
        "last",
        "looked",
        "said",
        "seen_at",
        "target",
        "undated",
    )

    def __init__(self, watermark: Watermark, target: TopicPartition) -> None:
        self.last = watermark
        self.seen_at = watermark.observed_at
        self.looked: PartitionProgress | None = None
        self._shown = watermark
        self._made_of: tuple[Watermark, PartitionProgress, BatchBelow, int, _Undated | None] | None = None
        self.said = self.kept_said = 0
        self.target = target
        self.halted_at: PartitionProgress | None = None
        self.ends = SeenEnds()
        if watermark.behind_since is not None:
            self.ends.note(watermark.behind_since, watermark.source_end)
        self.highs, self.high = SeenEnds(), 0
        self.undated: _Undated | None = None
        if (waiting := watermark.waiting) is not None:
            self.high = waiting.until
            if waiting.since is not None:
                self.highs.note(waiting.since, waiting.until)
            if waiting.at_most:
                self.undated = _Undated(watermark.source_end, waiting, watermark.observed_at)
        self.kept: Watermark | None = None
        self.kept_at = 0.0
        self.digests_from = (1, 0)  # epoch and target start below which no digest is stored

    def halt(self) -> None:
        """From now on its source may end below what was mirrored."""
        self.halted_at = PartitionProgress(self._shown.source_through, self._shown.target_end)
        self._made_of = None

    def see(self, at: datetime, start: int, end: int, high: int | None) -> None:
        """Note the source's log. `high`: its high watermark, where the link leaves out what is undecided."""
        if self.halted_at is not None and end < self.last.source_end:
            self.ends = SeenEnds()  # those were ends of what it has lost since
        self.ends.note(at, end)
        if high is not None:
            if self.halted_at is not None and high < self.high:
                self.highs = SeenEnds()
            self.high = max(high, end)
            self.highs.note(at, self.high)
            if self.undated is not None and end >= self.undated.waiting.until:
                self.undated = None  # all of it is decided
        self.seen_at = at
        if (self.last.source_start, self.last.source_end) != (start, end):
            self.last = replace(self.last, source_start=start, source_end=end)

    def now(self, position: PartitionProgress, below: BatchBelow) -> Watermark:
        """Its watermark; the same object if nothing changed."""
        if self._made_of is not None:
            last, place, known, high, undated = self._made_of
            if last is self.last and place == position and known == below and (high, undated) == self._held:
                if self._shown.observed_at is not self.seen_at:
                    self._shown = replace(self._shown, observed_at=self.seen_at)
                return self._shown
        self._made_of = (self.last, position, below, *self._held)
        self._shown = _joined(self, position, below)
        self.said += 1
        return self._shown

    @property
    def _held(self) -> tuple[int, _Undated | None]:
        return self.high, self.undated

    def waiting(self, through: int) -> WaitingRecords | None:
        """What waits beyond a position, by the high watermark."""
        if self.high <= through:
            return None
        before = self.undated
        if before is not None and before.waiting.since is None:
            return WaitingRecords(self.high, None, at_most=True)
        since = self.highs.behind_since(through)
        return WaitingRecords(self.high, since, before is not None and through < before.waiting.until)

    def date(self, offset: int, at: datetime) -> None:
        """The transaction that was open at this offset when the mirror began to look began then."""
        if self.undated is not None and self.last.source_end == offset:
            self.highs.date(min(at, self.undated.looked_at), self.undated.waiting.until)
            self.undated = None


class _Undated(NamedTuple):
    """What stood behind an open transaction when a mirror began to look. `offset`: the last stable offset at that look,
    `looked_at`."""

    offset: int
    waiting: WaitingRecords
    looked_at: datetime


class _Place(NamedTuple):
    """One partition's position, and what was tracked of it when that was read."""

    tracked: _Tracked
    position: PartitionProgress


class _Digests:
    """Range digests on their way to the store. Not thread-safe."""

    def __init__(self) -> None:
        self.unsaved: dict[tuple[TopicPartition, int, int], RangeDigest] = {}
        self.opened_at = 0.0
        self._open: dict[TopicPartition, RangeDigest] = {}

    def add(self, digests: Iterable[RangeDigest]) -> None:
        """Add the engine's digests; one that hasn't grown isn't written again."""
        for each in digests:
            if self._open.get(each.tp) != each:
                self._open[each.tp] = each
                self.unsaved[each.tp, each.epoch, each.target_start] = each
        while len(self.unsaved) > _MOST_UNSAVED:  # after a long store outage the oldest ranges stay uncovered
            del self.unsaved[next(iter(self.unsaved))]

    def keep(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Keep only digests in these partitions' epochs: others belong to another worker, or to an earlier topic.

        A claim is on a partition in one epoch: a row of another epoch would make the store refuse all.
        """
        self.unsaved = {key: each for key, each in self.unsaved.items() if epochs.get(key[0]) == key[1]}

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        """Drop partitions that another worker has taken."""
        gone = set(tps)
        self.unsaved = {key: each for key, each in self.unsaved.items() if key[0] not in gone}


class MirrorProgress:
    """Observes both logs and keeps watermarks. `observe` and `save` may run on different threads.

    Args:
        link: the link.
        source, target: the clusters.
        store: where watermarks are kept.
        engine: has the positions, and the source's leader epochs.
        committed: whether the source ends at its last stable offset, else at its high watermark.
        range_digests: whether to keep digests of forwarded ranges.
    """

    def __init__(
        self,
        link: LinkId,
        source: ClusterAdmin,
        target: ClusterAdmin,
        store: MappingStore,
        engine: Engine,
        *,
        committed: bool,
        range_digests: bool = False,
    ) -> None:
        self._link = link
        self._source = source
        self._target = target
        self._store = store
        self._engine = engine
        self._committed = committed
        self._digests = _Digests() if range_digests else None
        self._saving = threading.Lock()
        self._lock = threading.Lock()
        self._tracked: dict[TopicPartition, _Tracked] = {}
        self._halted: set[TopicPartition] = set()
        self._just_seen: set[TopicPartition] = set()
        self._turns, self._turns_behind = Turns(), Turns()

    def track(self, watermarks: Iterable[tuple[Watermark, str]]) -> None:
        """Start with partitions that were started: their watermark and target topic."""
        with self._lock:
            for watermark, target_topic in watermarks:
                target = TopicPartition(target_topic, watermark.partition)
                self._tracked[watermark.tp] = _Tracked(watermark, target)
                self._halted.discard(watermark.tp)
                self._just_seen.add(watermark.tp)

    def halt(self, halted: Mapping[TopicPartition, TopicState]) -> None:
        """These, which this worker holds, are halted until an operator decides. Both logs are observed as before: what
        is missing on the target grows with the source, and is less where the source has lost more.

        Raises:
            Unreachable: the store doesn't answer.
        """
        with self._lock:
            untracked = halted.keys() - self._tracked.keys()
        marks = self._store.watermarks(self._link) if untracked else {}
        with self._lock:
            for tp, state in halted.items():
                tracked, mark = self._tracked.get(tp), marks.get(tp)
                if tracked is None and mark is not None and mark.epoch == state.epoch:
                    tracked = self._tracked[tp] = _Tracked(mark, TopicPartition(state.target_topic, tp.partition))
                if tracked is not None:
                    tracked.halt()
                    self._halted.add(tp)

    def unhalt(self, tps: Iterable[TopicPartition]) -> None:
        """These are about to be resumed: what was kept of those that were halted is written no more."""
        with self._saving, self._lock:
            for tp in self._halted.intersection(tps):
                self._halted.discard(tp)
                del self._tracked[tp]

    def leave(self, tps: Iterable[TopicPartition]) -> None:
        """A resume is about to change the stored watermarks of these: until they start again none is written here."""
        with self._saving:
            self.forget(tps)

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Stop following these; their stored watermarks stay."""
        with self._lock:
            for tp in tps:
                self._tracked.pop(tp, None)
                self._halted.discard(tp)

    def observe(self, *, everything: bool = False) -> None:
        """Look at both logs' starts and the source's ends, of partitions that moved since their last look, and of those
        among the others whose turn it is (or of all): of those that are behind, and of those that are not.

        Raises:
            Unreachable: a cluster doesn't answer; the earlier observation stays.
        """
        positions = {tp: place.position for tp, place in self._places().items()}
        with self._lock:
            chosen, behind, idle = self._sorted(positions)
            rest = (behind, idle) if everything else (self._turns_behind.take(behind), self._turns.take(idle))
            chosen += chain(*rest)
            targets = {tp: self._tracked[tp].target for tp in chosen}
        if not targets:
            return
        at = now()
        highs: Mapping[TopicPartition, int] = {}
        if self._committed:  # first: offsets beyond a stable end read later surely belong to open transactions
            highs = self._source.end_offsets(targets, committed=False, partial=True, recent_leaders=True)
        ends = self._source.end_offsets(targets, committed=self._committed, partial=True, recent_leaders=True)
        starts = self._source.start_offsets(targets, partial=True, recent_leaders=True)
        with self._lock:
            for tp, end in ends.items():
                tracked = self._tracked.get(tp)
                if tracked is not None and tp in starts:
                    tracked.see(at, starts[tp], end, highs.get(tp))
                    tracked.looked = positions.get(tp)
        target_starts = self._target.start_offsets(targets.values(), partial=True, recent_leaders=True)
        with self._lock:
            self._just_seen.update(targets)
            for tp, target in targets.items():
                tracked = self._tracked.get(tp)
                start = target_starts.get(target)
                if tracked is not None and start is not None and tracked.last.target_start != start:
                    tracked.last = replace(tracked.last, target_start=start)

    def _sorted(
        self, positions: Mapping[TopicPartition, PartitionProgress]
    ) -> tuple[list[TopicPartition], list[TopicPartition], list[TopicPartition]]:
        """The partitions that moved since their last look; of the others those of which the source was seen to hold
        more than is mirrored, and the rest."""
        moved, behind, idle = list[TopicPartition](), list[TopicPartition](), list[TopicPartition]()
        for tp, tracked in self._tracked.items():
            position = positions.get(tp)
            if tracked.looked != position:
                moved.append(tp)
            elif position is not None and tracked.last.source_end > position.source_through:
                behind.append(tp)
            else:
                idle.append(tp)
        return moved, behind, idle

    def undated(self) -> dict[TopicPartition, int]:
        """The last stable offsets of partitions in which a transaction was open when this mirror began to look, as far
        as since when what stands behind it waits isn't known exactly. From any thread."""
        places = self._places()
        found = {}
        with self._lock:
            for tp, (tracked, position) in places.items():
                if tracked.undated is not None:
                    end = tracked.last.source_end
                    if end == tracked.undated.offset or end <= position.source_through:
                        found[tp] = end
        return found

    def date(self, began: Mapping[TopicPartition, tuple[int, datetime]]) -> None:
        """When transactions began that are open at these offsets (`undated`). From any thread."""
        with self._lock:
            for tp, (offset, at) in began.items():
                if tp in self._tracked:
                    self._tracked[tp].date(offset, at)

    def current(self) -> list[Watermark]:
        """The current watermark of every partition."""
        places = self._places()
        below = self._below(places)
        with self._lock:
            return [
                place.tracked.now(place.position, below.get(tp, NOTHING_BELOW))
                for tp, place in places.items()
                if self._tracked.get(tp) is place.tracked
            ]

    def just_seen(self) -> list[Watermark]:
        """The current watermark of each partition that was observed or started since the last call; the log starts of
        the others haven't changed."""
        everywhere = self._places()
        with self._lock:
            places = {
                tp: place
                for tp in self._just_seen
                if (place := everywhere.get(tp)) is not None and self._tracked.get(tp) is place.tracked
            }
            self._just_seen = (self._just_seen & self._tracked.keys()) - places.keys()
        below = self._below(places)
        with self._lock:
            return [
                place.tracked.now(place.position, below.get(tp, NOTHING_BELOW))
                for tp, place in places.items()
                if self._tracked.get(tp) is place.tracked
            ]

    def see_again(self, marks: Iterable[Watermark]) -> None:
        """Include these in the next `just_seen`: they could not be judged."""
        with self._lock:
            self._just_seen.update(mark.tp for mark in marks)

    def save(self, *, everything: bool = False) -> None:
        """Store the changed watermarks (all, if there are few partitions), and the digests of forwarded ranges.

        Raises:
            Fenced: another worker has taken partitions.
            Unreachable: the store doesn't answer.
        """
        with self._saving:
            if self._digests is not None:
                self._take_digests(self._digests, everything=everything)  # first: none may exceed its watermark
            self._save_watermarks(everything=everything)
            if self._digests is not None:
                self._save_digests(self._digests)

    def _places(self) -> dict[TopicPartition, _Place]:
        """The position of every partition that runs, or is halted: one that never started is where it was left.

        What is tracked is looked up first: of a partition that starts again meanwhile it is another object, and the
        position that of before.
        """
        with self._lock:
            tracked = dict(self._tracked)
            halted = {tp: at for tp in self._halted if (at := tracked[tp].halted_at) is not None}
        positions = halted | self._engine.positions()
        return {tp: _Place(each, positions[tp]) for tp, each in tracked.items() if tp in positions}

    def _below(self, places: Mapping[TopicPartition, _Place]) -> dict[TopicPartition, BatchBelow]:
        return self._engine.batches_below({tp: place.position for tp, place in places.items()})

    def _save_watermarks(self, *, everything: bool) -> None:
        due = self._due(everything=everything)
        if not due:
            return
        self._store.put_watermarks(self._link, [watermark for _, watermark, _ in due])
        at = time.monotonic()
        with self._lock:
            for tracked, watermark, said in due:
                tracked.kept, tracked.kept_at, tracked.kept_said = watermark, at, said

    def kept_through(self) -> dict[TopicPartition, int]:
        """The offsets mirrored according to the store, by partition, as of the last `save`."""
        with self._lock:
            return {tp: t.kept.source_through for tp, t in self._tracked.items() if t.kept is not None}

    def _take_digests(self, digests: _Digests, *, everything: bool) -> None:
        at = time.monotonic()
        with self._lock:
            every = _OPEN_SECONDS * (1 + len(self._tracked) // _ALL_AT_ONCE)
        opened = everything or at - digests.opened_at >= every
        digests.add(self._engine.range_digests(opened=opened))
        if opened:
            digests.opened_at = at

    def _save_digests(self, digests: _Digests) -> None:
        if digests.unsaved:
            with self._lock:
                digests.keep({tp: tracked.last.epoch for tp, tracked in self._tracked.items()})
        due = list(digests.unsaved.values())
        if due:
            try:
                self._store.put_range_digests(self._link, due)
            except Fenced as error:
                digests.drop(error.partitions)
                raise
            digests.unsaved.clear()
        self._forget_digests()

    def _forget_digests(self) -> None:
        """Remove digests below the target's log start, and those of earlier topics with the name."""
        with self._lock:
            found = [
                (tracked, (tracked.last.epoch, tracked.last.target_start))
                for tracked in self._tracked.values()
                if tracked.digests_from < (tracked.last.epoch, tracked.last.target_start)
            ][:_FORGOTTEN_AT_ONCE]
        for tracked, (epoch, target_start) in found:
            self._store.forget_range_digests(self._link, tracked.last.tp, epoch, target_start)
            tracked.digests_from = epoch, target_start

    def _due(self, *, everything: bool) -> list[tuple[_Tracked, Watermark, int]]:
        """What to store now, with its count of changes. Of many partitions: those that moved, and each of the others
        every few seconds."""
        places = self._places()
        below = self._below(places)
        at = time.monotonic()
        due = []
        with self._lock:
            everything = everything or len(self._tracked) <= _ALL_AT_ONCE
            for tp, (tracked, position) in places.items():
                if self._tracked.get(tp) is not tracked:
                    continue
                watermark = tracked.now(position, below.get(tp, NOTHING_BELOW))
                if everything or tracked.kept_said != tracked.said or at - tracked.kept_at > _REFRESH_SECONDS:
                    due.append((tracked, watermark, tracked.said))
        return due


def _joined(tracked: _Tracked, position: PartitionProgress, below: BatchBelow) -> Watermark:
    """Combine position and observation. The source's end is seen before the position: it is never below what is
    mirrored, unless the source has lost some of that, which halts the partition."""
    last = tracked.last
    through = position.source_through
    end = max(last.source_end, through) if tracked.halted_at is None else last.source_end
    return replace(
        last,
        source_through=through,
        target_end=position.target_end,
        source_end=end,
        observed_at=tracked.seen_at,
        behind_since=tracked.ends.behind_since(through),
        waiting=tracked.waiting(through),
        leader_epoch=last.epoch_at(through) if below.leader_epoch == UNKNOWN_EPOCH else below.leader_epoch,
        source_batch=below.batch or last.batch_below(through),
    )
