"""Problems of a link, durable in the store before anything continues, and the partitions that they halt."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection
from copy import copy
from dataclasses import replace
from datetime import timedelta

from drkit.mirror.engine.interface import NOT_MOVING, RETRIED
from drkit.model.clock import now
from drkit.model.link_state import DELETED_ON_SOURCE, PARTED, Problem
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import LinkStore

log = logging.getLogger(__name__)

Place = tuple[str, str, int | None]
"""Kind, topic, partition: the key of a problem."""


class Problems:
    """The problems that this runtime knows. Threads may share it.

    Args:
        store: where they are kept.
        link: the link.
        tell: called with each new one.
    """

    def __init__(self, store: LinkStore, link: LinkId, tell: Callable[[Problem], None]) -> None:
        self._store = store
        self._link = link
        self._tell = tell
        self._lock = threading.Lock()
        self._known: dict[Place, Problem] = {}
        self._kinds: defaultdict[tuple[str, int | None], set[str]] = defaultdict(set)
        """The kinds of known problems by topic and partition: thousands of partitions may have one each."""
        self._found: set[Place] = set()

    def through(self, store: LinkStore) -> Problems:
        """The same problems, stored through another view of the store: what only a leader may change, say."""
        view = copy(self)
        view._store = store  # noqa: SLF001 - of this class
        return view

    def put(
        self,
        kind: str,
        topic: str,
        partition: int | None,
        reason: str,
        remedy: str,
        *,
        halted: bool,
        adds: bool = False,
        unsure: tuple[int, int | None] | None = None,
    ) -> None:
        """Store a problem; durable on return. Repeating it changes nothing; a new reason replaces the old one, or
        (`adds`) is appended to it, where each reports another loss. `unsure`: `Problem.unsure_from` and
        `unsure_until`.

        Raises:
            Unreachable: the store doesn't answer.
        """
        first, end = (None, None) if unsure is None else unsure
        self.report(Problem(kind, topic, partition, reason, remedy, halted, now(), first, end), adds=adds)

    def report(self, problem: Problem, *, adds: bool = False) -> None:
        """Like `put`, for a problem that is worded already, as status words it where no mirror runs."""
        told = problem
        with self._lock:
            known = self._known.get(_place(problem))
            if adds and known is not None:
                problem = known.with_another(problem)
            if known is not None and replace(known, since=problem.since) == problem:
                self._found.add(_place(problem))
                return
            if known is not None:
                problem = replace(problem, since=known.since)  # as the store has it
        self._store.put_problem(self._link, problem)
        with self._lock:
            self._keep(problem)
            self._found.add(_place(problem))
        where = told.topic if told.partition is None else f"{told.topic}:{told.partition}"
        about = {"topic": told.topic, "partition": told.partition}
        halts = " stands still" if told.halted else ""
        log.warning("%s %s%s: %s. %s", self._link, where, halts, told.reason, told.remedy, extra=about)
        self._tell(problem)

    def settle(
        self, topic: str, *, kinds: frozenset[str], partition: int | None = None, everywhere: bool = False
    ) -> None:
        """These no longer hold for the partition (None: for the topic as a whole; `everywhere`: for either).

        Raises:
            Unreachable: the store doesn't answer; what it still has is known as before, so it can be settled again.
        """
        with self._lock:
            about = [at for at in self._kinds if at[0] == topic] if everywhere else [(topic, partition)]
            gone = [
                self._known[kind, *at] for at in about if at in self._kinds for kind in sorted(self._kinds[at] & kinds)
            ]
        for problem in gone:
            self._store.clear_problem(self._link, problem)
            with self._lock:
                self._drop_unless_anew(problem)

    def put_standing(
        self, kind: str, tp: TopicPartition, epoch: int, reason: str, remedy: str, *, unsure: tuple[int, int | None]
    ) -> None:
        """Like `put`, for a problem that halts the partition as long as its topic is of this epoch, also when a later
        look finds nothing: retention may have removed its cause."""
        first, end = unsure
        self.stand(Problem(kind, tp.topic, tp.partition, reason, remedy, True, now(), first, end), tp, epoch)

    def stand(self, problem: Problem, tp: TopicPartition, epoch: int) -> None:
        """Like `put_standing`, for a problem that is worded already."""
        self._store.put_notes(self._link, problem.kind, {str(tp): str(epoch)})
        self.report(problem)

    def standing(self, kind: str, tp: TopicPartition, epoch: int) -> Problem | None:
        """The problem of this kind that any runtime's `put_standing` has stored; then it counts as found again.

        Raises:
            Unreachable: the store doesn't answer.
        """
        place = (kind, tp.topic, tp.partition)
        with self._lock:
            problem = self._known.get(place)
        if problem is None or self._store.notes(self._link, kind).get(str(tp)) != str(epoch):
            return None  # of an earlier topic with this name, or of the link before it was reversed
        with self._lock:
            self._found.add(place)
        return problem

    def knows(self, kind: str, topic: str) -> bool:
        """Whether a problem of this kind is stored for the topic as a whole."""
        with self._lock:
            return (kind, topic, None) in self._known

    def find(self, kind: str, tp: TopicPartition) -> Problem | None:
        """The stored problem of this kind of the partition."""
        with self._lock:
            return self._known.get((kind, tp.topic, tp.partition))

    def has(self, kind: str, tp: TopicPartition) -> bool:
        """Whether a problem of this kind is stored for the partition."""
        with self._lock:
            return (kind, tp.topic, tp.partition) in self._known

    def topics_with(self, kind: str) -> set[str]:
        """The topics that have a stored problem of this kind as a whole, whichever runtime recorded it."""
        with self._lock:
            return {topic for known, topic, partition in self._known if known == kind and partition is None}

    def gone_topics(self) -> set[str]:
        """The topics that the source has deleted and the target still has, whichever runtime recorded it."""
        return set().union(*map(self.topics_with, DELETED_ON_SOURCE))

    def with_kind(self, kind: str) -> list[TopicPartition]:
        """The partitions with a stored problem of this kind."""
        with self._lock:
            return [TopicPartition(t, number) for k, t, number in self._known if k == kind and number is not None]

    def parted(self) -> list[TopicPartition]:
        """The partitions of which both sides are known to hold different records, sorted: the source may have been set
        back."""
        return sorted(tp for kind in PARTED for tp in self.with_kind(kind))

    def missing(self) -> tuple[Problem, ...]:
        """The stored problems that name records which the source holds and no mirror brings to the target."""
        with self._lock:
            return tuple(problem for problem in self._known.values() if problem.missing)

    def forget(self, topic: str) -> None:
        """The topic is gone: forget its problems. Raises as `settle`."""
        with self._lock:
            gone = [problem for problem in self._known.values() if problem.topic == topic]
        self._store.clear_problems(self._link, topic)
        with self._lock:
            for problem in gone:
                self._drop_unless_anew(problem)

    def keep_only(self, topics: Collection[str]) -> None:
        """Forget problems of partitions of other topics than these: one that a worker stored when the link had just
        forgotten the topic is settled by nobody else."""
        with self._lock:
            gone = {topic for _, topic, partition in self._known if partition is not None} - set(topics)
        for topic in gone:
            self.forget(topic)

    def follow(self) -> list[Problem]:
        """Load the problems that the store has now, whoever recorded them. They halt nothing here until they are found
        again. Returns those that are gone from it.

        Raises:
            Unreachable: the store doesn't answer.
        """
        return self._load(lambda _: True)

    def take_over(self, tps: Collection[TopicPartition]) -> None:
        """These partitions were another worker's, or may have been: load what the store has on record for them, before
        anything is judged by it.

        Raises:
            Unreachable: the store doesn't answer.
        """
        mine = {(tp.topic, tp.partition) for tp in tps}
        self._load(lambda problem: (problem.topic, problem.partition) in mine)

    def _load(self, concerns: Callable[[Problem], bool]) -> list[Problem]:
        """Know of these problems what the store has; returns those that it doesn't have any more. What another thread
        changed meanwhile stays as it is: the store was read before that, or after."""
        with self._lock:
            before = dict(self._known)
        kept = {_place(problem): problem for problem in self._store.problems(self._link)}
        gone = []
        with self._lock:
            for place in before.keys() | kept.keys():
                known, there = before.get(place), kept.get(place)
                if self._known.get(place) is not known or not any(map(concerns, filter(None, (known, there)))):
                    continue
                if there is not None:
                    self._keep(there)
                elif known is not None:
                    self._drop(known)
                    gone.append(known)
        return gone

    def halted(self) -> list[Problem]:
        """The problems that halt something now."""
        with self._lock:
            return [problem for place, problem in self._known.items() if problem.halted and place in self._found]

    def halts(self, tp: TopicPartition) -> bool:
        """Whether a problem (its own or its topic's) halts a partition, and retries fail until somebody corrects the
        cause."""
        return any(problem.kind != NOT_MOVING for problem in self._halting(tp))

    def awaits_operator(self, tp: TopicPartition) -> bool:
        """Whether a partition isn't even retried until an operator clears a problem (its own or its topic's)."""
        return any(problem.kind not in RETRIED for problem in self._halting(tp))

    def stalls(self, tp: TopicPartition, seconds: float) -> bool:
        """Whether a partition is being retried, but hasn't moved for that long."""
        longest = timedelta(seconds=seconds)
        return any(problem.kind == NOT_MOVING and now() - problem.since >= longest for problem in self._halting(tp))

    def _halting(self, tp: TopicPartition) -> list[Problem]:
        """The problems that halt a partition now, its own and its topic's."""
        with self._lock:
            places = [(kind, *at) for at in (tp, (tp.topic, None)) if at in self._kinds for kind in self._kinds[at]]
            return [self._known[place] for place in places if place in self._found and self._known[place].halted]

    def _keep(self, problem: Problem) -> None:
        self._known[_place(problem)] = problem
        self._kinds[problem.topic, problem.partition].add(problem.kind)

    def _drop_unless_anew(self, problem: Problem) -> None:
        """Forget a problem, but not another one that was reported in its place meanwhile."""
        if self._known.get(_place(problem)) == problem:
            self._drop(problem)

    def _drop(self, problem: Problem) -> None:
        """Forget a problem; it may be gone already."""
        self._known.pop(_place(problem), None)
        self._found.discard(_place(problem))
        kinds = self._kinds.get((problem.topic, problem.partition), set())
        kinds.discard(problem.kind)
        if not kinds:
            self._kinds.pop((problem.topic, problem.partition), None)


def _place(problem: Problem) -> Place:
    return (problem.kind, problem.topic, problem.partition)
