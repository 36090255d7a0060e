"""Decides whether a run has caught up: by its goals, its own partitions' progress, and that of other workers."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.mirror.engine.interface import NOT_MOVING, Engine
from drkit.mirror.health.problems import Problems
from drkit.mirror.progress import MirrorProgress
from drkit.mirror.runtime.periodic_task import Periodic
from drkit.mirror.topics.topic_sync import ReadyTopic
from drkit.model.clock import now
from drkit.model.errors import Unreachable
from drkit.model.link_state import Problem
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.model.wording import and_more
from drkit.store.api import Store

_VOID_SECONDS = 2.0


class CatchUp:
    """The goal: everything that each source partition of the link held at the first look. Threads may share it.

    A goal is of the topic as it was then: none is left of one that is deleted meanwhile, or accepted as a new one.

    For other workers' partitions a watermark counts only if a living worker has stored it since then, for the current
    topic, and if the target's log still reaches that far: an older one may belong to an earlier topic, or to logs that
    have lost something since.

    Args:
        link: the link.
        store: what other workers recorded.
        source, target: give their log ends.
        engine, progress, problems: this worker's.
        patience_seconds: how long nothing may move while a cluster or the store is down, or while a partition is
            retried.
        committed: whether the source ends at its last stable offset, else at its high watermark.
    """

    def __init__(
        self,
        link: LinkId,
        store: Store,
        source: ClusterAdmin,
        target: ClusterAdmin,
        engine: Engine,
        progress: MirrorProgress,
        problems: Problems,
        patience_seconds: float,
        *,
        committed: bool,
    ) -> None:
        self._halted: Mapping[tuple[str, int | None], Sequence[Problem]] = {}  # by topic and partition
        self._link = link
        self._store = store
        self._source = source
        self._target = target
        self._engine = engine
        self._progress = progress
        self._problems = problems
        self._patience = patience_seconds
        self._committed = committed
        self._goals: dict[TopicPartition, int] | None = None
        self._wanted: Mapping[TopicPartition, ReadyTopic] = {}
        self._kept_before: dict[TopicPartition, datetime] | None = None
        self._elsewhere: set[TopicPartition] = set()
        self._void: frozenset[str] = frozenset()
        self._void_at = float("-inf")
        self._moved = 0
        self._moved_at = time.monotonic()

    @property
    def halted(self) -> tuple[Problem, ...]:
        """The problems that halt other workers' partitions, as of the last `refresh`."""
        return tuple(chain.from_iterable(self._halted.values()))

    @property
    def void(self) -> frozenset[str]:
        """Topics of the goals that the source has deleted since, or that were accepted as new ones."""
        return self._void

    @property
    def goals(self) -> Mapping[TopicPartition, int]:
        """The source offsets up to which to mirror; empty until they are set."""
        return self._goals or {}

    def begin(self, wanted: Mapping[TopicPartition, ReadyTopic]) -> None:
        """Set the goals to what the sources of the link's partitions hold now. Only the first call counts.

        Raises:
            Unreachable: the source doesn't answer, or doesn't know a partition; call again.
        """
        if self._goals is None:
            ends = self._source.end_offsets(wanted, committed=self._committed)
            if unknown := sorted(wanted.keys() - ends.keys()):  # new, or its topic is being deleted
                raise Unreachable(
                    f"{self._link.source} doesn't say where {and_more([str(tp) for tp in unknown])} ends",
                    remedy=f"Check {self._link.source}; drkit asks again",
                )
            self._wanted = wanted
            self._goals = ends

    def refresh(self) -> None:
        """Read what other workers have reached, and whether the target holds it.

        Raises:
            Unreachable: one of them doesn't answer; the earlier result stays.
        """
        halted: defaultdict[tuple[str, int | None], list[Problem]] = defaultdict(list)
        for problem in self._store.problems(self._link):
            if problem.halted:
                halted[problem.topic, problem.partition].append(problem)
        self._halted = dict(halted)
        if self._goals is None:
            return
        marks = self._store.watermarks(self._link)
        if self._kept_before is None:
            self._kept_before = {tp: mark.observed_at for tp, mark in marks.items()}
            return
        reached = {
            TopicPartition(self._wanted[tp].state.target_topic, tp.partition): mark
            for tp, goal in self._goals.items()
            if tp not in self._elsewhere and (mark := marks.get(tp)) is not None and self._reaches(mark, goal)
        }
        ends = self._target.log_ends(reached, partial=True) if reached else {}
        self._elsewhere |= {mark.tp for there, mark in reached.items() if ends.get(there, -1) >= mark.target_end}

    def _reaches(self, mark: Watermark, goal: int) -> bool:
        """Whether a worker has recorded, since the goals were set, that everything up to a goal is mirrored."""
        kept_before = self._kept_before or {}
        same_topic = mark.epoch == self._wanted[mark.tp].state.epoch
        return same_topic and mark.observed_at != kept_before.get(mark.tp) and mark.source_through >= goal

    def look_again(self) -> tuple[list[Watermark], list[TopicPartition]]:
        """Other workers' partitions that had reached their goals: by their watermarks, with both logs' starts as they
        are now. Second, those that no longer do, or aren't shown.

        Raises:
            Unreachable: a cluster or the store doesn't answer; nobody knows.
        """
        if self._kept_before is None:
            return [], []  # there are no others
        before, self._elsewhere = self._elsewhere, set()
        self.refresh()
        marks = self._store.watermarks(self._link)
        there = {tp: TopicPartition(self._wanted[tp].state.target_topic, tp.partition) for tp in self._elsewhere}
        starts = self._source.start_offsets(there, partial=True)
        target_starts = self._target.start_offsets(there.values(), partial=True)
        seen = [
            replace(marks[tp], source_start=starts[tp], target_start=target_starts[target])
            for tp, target in there.items()
            if tp in marks and tp in starts and target in target_starts
        ]
        return seen, sorted(before - {mark.tp for mark in seen})

    def done(self, record: Callable[[], None]) -> bool:
        """Whether every goal is reached and recorded, or can't be reached because of a problem.

        Args:
            record: called when all goals are reached but some aren't recorded yet.
        """
        if self._goals is None:
            return False
        left, positions = self._left(), self._engine.positions()
        try:
            if self._look_for_void(settling=not left):
                left = self._left()
        except Unreachable:
            return False
        if left and all(tp in positions and positions[tp].source_through >= self._goals[tp] for tp in left):
            record()
        return not left

    def missed(self) -> list[TopicPartition]:
        """Partitions that count no more, though `done` has said so: the problem that kept them from their goals is
        settled since, or a resume has found meanwhile that something must be mirrored again.

        Raises:
            Unreachable: the store doesn't answer.
        """
        left, goals = self._left(), self._goals or {}
        marks = self._store.watermarks(self._link) if left else {}
        return [tp for tp in left if (mark := marks.get(tp)) is None or not self._reaches(mark, goals[tp])]

    def _left(self) -> list[TopicPartition]:
        """Partitions that haven't reached their goals, and could."""
        kept = self._progress.kept_through()
        return [
            tp
            for tp, goal in (self._goals or {}).items()
            if kept.get(tp, -1) < goal
            and tp not in self._elsewhere
            and tp.topic not in self._void
            and not self._halts(tp)
        ]

    def _look_for_void(self, *, settling: bool) -> bool:
        """Look for topics whose goals mean nothing any more; returns whether there are others than before. While
        partitions are left, every few seconds.

        Raises:
            Unreachable: the store doesn't answer.
        """
        at = time.monotonic()
        if not settling and at - self._void_at < _VOID_SECONDS:
            return False
        states = self._store.topic_states(self._link)
        before, self._void_at = self._void, at
        epochs = {tp.topic: ready.state.epoch for tp, ready in self._wanted.items()}
        gone = self._problems.gone_topics()
        self._void = frozenset(
            topic
            for topic, epoch in epochs.items()
            if (state := states.get(topic)) is None or state.epoch != epoch or topic in gone
        )
        return self._void != before

    def held_back(self) -> int:
        """The source offsets behind its partitions' last stable ones: a transaction is open there, and nothing behind
        its first record can be read.

        Raises:
            Unreachable: the source doesn't answer.
        """
        if not self._committed or not self._goals:
            return 0
        stable = self._source.end_offsets(self._goals, committed=True)
        written = self._source.end_offsets(self._goals, committed=False)
        return sum(max(0, written[tp] - end) for tp, end in stable.items() if tp in written)

    def lose_patience(self, threads: Iterable[Periodic]) -> None:
        """Give up if nothing has moved for too long and one of these reports why.

        Raises:
            Unreachable: with the reported reason.
            AuthenticationError: at once, where a cluster refuses the connection: waiting doesn't help.
        """
        threads = tuple(threads)
        for thread in threads:
            if thread.not_let_in is not None:
                raise thread.not_let_in
        at = time.monotonic()
        if self._engine.moved() != self._moved:
            self._moved, self._moved_at = self._engine.moved(), at
        troubled = next((thread for thread in threads if thread.trouble is not None), None)
        if troubled is not None and at - self._moved_at > self._patience:
            raise Unreachable(
                f"link {self._link} can't catch up: {troubled.trouble}",
                remedy="Bring the cluster or store back, then run it again: mirrored records are kept",
            )

    def _halts(self, tp: TopicPartition) -> bool:
        if self._problems.halts(tp) or self._problems.stalls(tp, self._patience):
            return True
        at, patience = now(), timedelta(seconds=self._patience)
        others = (*self._halted.get(tp, ()), *self._halted.get((tp.topic, None), ()))
        return any(p.kind != NOT_MOVING or at - p.since >= patience for p in others)
