"""Decides whether a partition is stuck: it could move, but doesn't. Pure.

A partition waits while

- the source was seen to hold more than is mirrored,
- it isn't paused, no reported problem halts it, and it doesn't wait for its turn in a backlog,
- both clusters and the store answer, and this worker has the right to write.

If one waits for too long, it is reported, and its engine (or a client in it) counts as stuck: the process is replaced
by a new one. The clock of a partition begins anew when it moves, catches up, is paused or is halted. In an outage,
which is reported elsewhere, all clocks stand still, and one that lasts sets them back by as long as it lasts: so no
cluster that is away for a moment now and then hides a partition that stands, and after a long outage each partition has
all of its time again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from drkit.model.clock import UsualDuration
from drkit.model.errors import DrkitError
from drkit.model.topology import LinkId, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionObservation:
    """One observation of one partition.

    Args:
        tp: the partition.
        mirrored_through: the source offset up to which all is on the target.
        source_end: the source's end, as last seen.
        fresh: whether that was seen recently.
        held: whether it is paused, halted by a problem, or its engine isn't to move it now (`Engine.unasked`).
        target_end: the next offset on the target, which moves, too, while offsets are aligned.
    """

    tp: TopicPartition
    mirrored_through: int
    source_end: int
    fresh: bool
    held: bool
    target_end: int = 0

    @property
    def waits(self) -> bool:
        """Whether it should be moving."""
        return not self.held and self.source_end > self.mirrored_through

    @property
    def position(self) -> tuple[int, int]:
        """Where it is on the source and on the target."""
        return self.mirrored_through, self.target_end


@dataclass(frozen=True, slots=True)
class Stuck:
    """A partition that has not moved for `seconds` in which it could."""

    tp: TopicPartition
    mirrored_through: int
    source_end: int
    seconds: float

    def error(self, link: LinkId, waits_for: str | None, others: int) -> DrkitError:
        """The error for an operator; `others`: how many more partitions are stuck."""
        more = f"; {others} more partitions of the link are stuck too" if others else ""
        return DrkitError(
            f"{self.tp} of link {link} is stuck at source offset {self.mirrored_through} of {self.source_end}: "
            f"nothing moved for {self.seconds:.0f} s, waiting for {waits_for or 'its start'}{more}",
            meaning="Both clusters and the store answer, and nothing holds it back: the mirror stops so that a new one "
            "continues from there; nothing is lost",
            remedy="Let a supervisor restart it; if it gets stuck there again, check the target's topic and brokers",
        )


class Watchdog:
    """Remembers for how long each partition has been waiting. Not thread-safe.

    Args:
        patience_seconds: how long a partition may wait.
        clock: monotonic seconds.
        answering_only: a partition's clock stands still while the source isn't seen to hold more of it (`fresh`): the
            broker that leads it may not answer, and a restart would not help.
    """

    def __init__(self, patience_seconds: float, clock: Callable[[], float], *, answering_only: bool = False) -> None:
        self._patience = patience_seconds
        self._clock = clock
        self._answering_only = answering_only
        self._waiting: dict[TopicPartition, tuple[tuple[int, int], float]] = {}
        self._checked_at: float | None = None
        self._was_healthy = True
        self._usual = UsualDuration()

    def check(self, observations: Iterable[PartitionObservation], *, healthy: bool) -> list[Stuck]:
        """Process one round of observations; returns the stuck partitions, the longest-waiting first.

        Args:
            observations: all partitions of this worker.
            healthy: whether both clusters and the store answer, and this worker may write.
        """
        passed = self._passed(healthy=healthy)
        waiting: dict[TopicPartition, tuple[tuple[int, int], float]] = {}
        stuck: list[Stuck] = []
        for observation in observations:
            if not observation.waits:
                continue
            position, waited = self._waiting.get(observation.tp, (None, 0.0))
            if position != observation.position:
                waited = 0.0
            elif passed < 0 or observation.fresh or not self._answering_only:
                waited = max(0.0, waited + passed)
            waiting[observation.tp] = observation.position, waited
            if healthy and waited >= self._patience:
                stuck.append(Stuck(observation.tp, observation.mirrored_through, observation.source_end, waited))
        self._waiting = waiting
        return sorted(stuck, key=lambda each: (-each.seconds, each.tp))

    def _passed(self, *, healthy: bool) -> float:
        """By how many seconds the clocks go on, or back. A time in which this process was stopped doesn't count: that
        is one between two checks that is much longer than the one before it."""
        at = self._clock()
        since, self._checked_at = (0.0 if self._checked_at is None else at - self._checked_at), at
        was_healthy, self._was_healthy = self._was_healthy, healthy
        usual = self._usual.after(since)
        if healthy:
            return usual
        return 0.0 if was_healthy else -since
