"""What the other workers of a link have reached, for one that waits until all of it is caught up."""

from __future__ import annotations

from drkit.model.links import Problem
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import Store


class Elsewhere:
    """What the store knows of partitions that this worker doesn't mirror itself. Shared by threads.

    `halted`: problems because of which something stands still, as of the last look.
    """

    def __init__(self, link: LinkId, store: Store) -> None:
        self.halted: tuple[Problem, ...] = ()
        self._link = link
        self._store = store
        self._through: dict[TopicPartition, int] = {}

    def look(self) -> None:
        """Ask the store.

        Raises:
            Unreachable: it doesn't answer; what was seen before stays.
        """
        self._through = {tp: mark.source_through for tp, mark in self._store.watermarks(self._link).items()}
        self.halted = tuple(problem for problem in self._store.problems(self._link) if problem.halted)

    def reached(self, tp: TopicPartition, goal: int) -> bool:
        """Whether a partition is recorded through `goal`, or stands still."""
        if self._through.get(tp, -1) >= goal:
            return True
        return any(p.topic == tp.topic and p.partition in {None, tp.partition} for p in self.halted)
