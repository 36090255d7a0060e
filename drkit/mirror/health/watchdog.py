"""Decides whether a partition is stuck: it could move, but doesn't. Pure.

A partition waits while

- the source was just seen to hold more than is mirrored,
- it isn't paused, and no reported problem halts it,
- both clusters and the store answer, and this worker has the right to write.

Anything else is an outage or an order: it is reported elsewhere, a restart would not help, and the clock restarts. If
one waits for too long, its engine (or a client in it) counts as stuck, and the process is replaced by a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

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
        held: whether it is paused, halted by a problem, or its engine isn't asked to move it (`Engine.unasked`).
        turn_seconds: how long it may take until it has its turn, where a backlog is copied below full speed.
    """

    tp: TopicPartition
    mirrored_through: int
    source_end: int
    fresh: bool
    held: bool
    turn_seconds: float = 0.0

    @property
    def waits(self) -> bool:
        """Whether it should be moving."""
        return self.fresh and not self.held and self.source_end > self.mirrored_through


@dataclass(frozen=True, slots=True)
class Stuck:
    """A partition that has not moved for `seconds` although it could."""

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
    """Remembers since when each partition has been waiting. Not thread-safe.

    Args:
        patience_seconds: how long a partition may wait, beside its turn.
        clock: monotonic seconds.
    """

    def __init__(self, patience_seconds: float, clock: Callable[[], float]) -> None:
        self._patience = patience_seconds
        self._clock = clock
        self._waiting: dict[TopicPartition, tuple[int, float]] = {}

    def check(self, observations: Iterable[PartitionObservation], *, healthy: bool) -> list[Stuck]:
        """Process one round of observations; returns the stuck partitions, the longest-waiting first.

        Args:
            observations: all partitions of this worker.
            healthy: whether both clusters and the store answer, and this worker may write.
        """
        at = self._clock()
        if not healthy:
            self._waiting.clear()
            return []
        waiting: dict[TopicPartition, tuple[int, float]] = {}
        stuck: list[Stuck] = []
        for observation in observations:
            if not observation.waits:
                continue
            before = self._waiting.get(observation.tp)
            since = at if before is None or before[0] != observation.mirrored_through else before[1]
            waiting[observation.tp] = (observation.mirrored_through, since)
            if at - since >= self._patience + observation.turn_seconds:
                stuck.append(Stuck(observation.tp, observation.mirrored_through, observation.source_end, at - since))
        self._waiting = waiting
        return sorted(stuck, key=lambda each: (-each.seconds, each.tp))
