"""Detects partitions that make no progress although they are retried: each becomes a problem, and clears automatically.

An attempt can fail for any reason: the target refuses an append, the source a read, a partition can't be aligned,
offsets can't be read. One failure means nothing. An operator must know if attempts keep failing and the partition
doesn't move, or if nothing fails and it still doesn't move although it is behind. A refusal that lasts until a setting
or a permission is changed (`refused`) is reported at once.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from drkit.mirror.engine.interface import NOT_MOVING, RETRIED
from drkit.mirror.health.problems import Problems
from drkit.mirror.health.watchdog import PartitionObservation, Watchdog
from drkit.model.link_state import SOURCE_GAP
from drkit.model.topology import TopicPartition
from drkit.model.wording import counted

TRIES = 5
"""This many failed attempts in a row, ..."""

SECONDS = 5.0
"""... over at least this time, are a problem."""

SILENT_SECONDS = 30.0
"""So is a partition that is behind and hasn't moved for that long, though no attempt failed."""

CALM_SECONDS = 15.0
"""A partition with nothing to move is healthy again when no attempt failed for that long: longer than between two."""

_REMEDY = "Check the log of the broker named; drkit retries it automatically"


@dataclass(slots=True)
class _Stall:
    """Failed attempts of one partition since it last moved. Times are monotonic. `long`: it hasn't moved for
    `SILENT_SECONDS`, however few attempts failed."""

    since: float
    last: float
    tries: int
    reason: str
    remedy: str
    position: tuple[int, int] | None = None
    told: str | None = None
    long: bool = False


class Stalls:
    """The partitions of one worker that don't move. Threads may share it.

    Args:
        problems: where a stall is told.
        waits_for: what a partition waits for, in words.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        problems: Problems,
        waits_for: Callable[[TopicPartition], str | None],
        clock: Callable[[], float],
    ) -> None:
        self._problems = problems
        self._waits_for = waits_for
        self._clock = clock
        self._silent = Watchdog(SILENT_SECONDS, clock)
        self._was_healthy = True
        self._lock = threading.Lock()
        self._stalls: dict[TopicPartition, _Stall] = {}

    def failed(self, tp: TopicPartition, reason: str, remedy: str = "") -> None:
        """An attempt to move a partition failed."""
        at = self._clock()
        with self._lock:
            stall = self._stalls.setdefault(tp, _Stall(at, at, 0, "", ""))
            stall.last, stall.tries = at, stall.tries + 1
            stall.reason, stall.remedy = reason, remedy or _REMEDY

    def refused(
        self, tp: TopicPartition, kind: str, reason: str, remedy: str, position: tuple[int, int] | None
    ) -> None:
        """An attempt failed and all others will until somebody corrects the cause; reported at once.

        Args:
            tp: the partition.
            kind: of the problem, one of `RETRIED`.
            reason: why it is refused.
            remedy: what to do.
            position: the partition's position on the source and on the target.

        Raises:
            Unreachable: the store doesn't answer.
        """
        with self._lock:
            known = self._stalls.get(tp)
        told = None if known is None else known.told
        same = told is not None and (
            told == reason if kind == SOURCE_GAP else _without_numbers(told) == _without_numbers(reason)
        )
        if not same or not self._problems.has(kind, tp):
            self._problems.put(kind, tp.topic, tp.partition, reason, remedy, halted=True)
        at = self._clock()
        with self._lock:
            self._stalls[tp] = _Stall(at, at, 0, "", "", position, told=reason)

    def check(
        self,
        observations: Iterable[PartitionObservation],
        positions: Mapping[TopicPartition, tuple[int, int]],
        *,
        healthy: bool,
    ) -> None:
        """Report partitions that don't move, and clear the problems of those that do.

        Args:
            observations: this worker's partitions.
            positions: each partition's position on the source and on the target.
            healthy: whether both clusters and the store answer, and this worker may write.

        Raises:
            Unreachable: the store doesn't answer.
        """
        seen = {observation.tp: observation for observation in observations}
        self._find_silent(seen, healthy=healthy)
        for kind in RETRIED:
            for tp in self._problems.with_kind(kind):
                if tp in seen:
                    self._adopt(tp)
        with self._lock:
            stalls = dict(self._stalls)
        gone = self._problems.gone_topics()
        outage = not (healthy or self._was_healthy)  # one that lasts, not a moment's: as the watchdog has it
        self._was_healthy = healthy
        for tp, stall in stalls.items():
            # a problem of its own, or of its topic, says why it stands still
            if tp.topic in gone or self._problems.awaits_operator(tp):
                with self._lock:
                    self._stalls.pop(tp, None)
                self._problems.settle(tp.topic, kinds=frozenset({NOT_MOVING}), partition=tp.partition)
            elif self._is_over(stall, seen.get(tp), positions.get(tp)):
                with self._lock:
                    self._stalls.pop(tp, None)
                self._problems.settle(tp.topic, kinds=RETRIED, partition=tp.partition)
            elif healthy and self._is_due(stall):
                self._tell(tp, stall)
            elif outage and stall.told is None:  # it is reported elsewhere: count again after it
                with self._lock:
                    self._stalls.pop(tp, None)

    def settle(self, tps: Iterable[TopicPartition]) -> None:
        """These partitions reached their end: clear earlier runs' problems that this run hasn't found.

        Raises:
            Unreachable: the store doesn't answer.
        """
        kept = {tp for kind in RETRIED for tp in self._problems.with_kind(kind)}
        for tp in kept.intersection(tps):
            if not self._problems.halts(tp) and not self._problems.stalls(tp, 0.0):
                self._problems.settle(tp.topic, kinds=RETRIED, partition=tp.partition)

    def _find_silent(self, seen: Mapping[TopicPartition, PartitionObservation], *, healthy: bool) -> None:
        for stuck in self._silent.check(seen.values(), healthy=healthy):
            at = self._clock()
            with self._lock:
                if stuck.tp in self._stalls:
                    self._stalls[stuck.tp].long = True
                else:
                    why = f"nothing fails, and it waits for {self._waits_for(stuck.tp) or 'its start'}"
                    remedy = "Check the brokers that lead it on both sides; you can safely restart the mirror"
                    self._stalls[stuck.tp] = _Stall(at - stuck.seconds, at, 0, why, remedy)

    def _adopt(self, tp: TopicPartition) -> None:
        """Take over a stored problem of an earlier run: it ends when the partition moves."""
        at = self._clock()
        with self._lock:
            self._stalls.setdefault(tp, _Stall(at, at, 0, "", ""))

    def _is_over(
        self, stall: _Stall, observation: PartitionObservation | None, position: tuple[int, int] | None
    ) -> bool:
        if position is not None:
            if stall.position is None:
                stall.position = position
            elif position[0] > stall.position[0] or position[1] > stall.position[1]:
                return True
        if self._clock() - stall.last < CALM_SECONDS:
            return False
        gone = observation is None and position is None  # nobody retries it any more
        return gone or (observation is not None and observation.source_end <= observation.mirrored_through)

    def _is_due(self, stall: _Stall) -> bool:
        if not stall.reason:
            return False
        return stall.tries == 0 or stall.long or (stall.tries >= TRIES and self._clock() - stall.since >= SECONDS)

    def _tell(self, tp: TopicPartition, stall: _Stall) -> None:
        tries = 1 << stall.tries.bit_length() - 1 if stall.tries else 0  # report again only when they have doubled
        tries = max(TRIES, tries) if stall.tries >= TRIES else tries
        how = f"{counted(tries, 'attempt')} or more failed, the last one: " if tries else ""
        told = f"{tp} does not move: {how}{stall.reason}"
        if told != stall.told or not self._problems.has(NOT_MOVING, tp):
            self._problems.put(NOT_MOVING, tp.topic, tp.partition, told, stall.remedy, halted=True)
            stall.told = told


def _without_numbers(reason: str) -> str:
    """A reason without numbers, which change from attempt to attempt: some brokers include the time."""
    return re.sub(r"\d+", "", reason)
