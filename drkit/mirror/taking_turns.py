"""Which of many partitions that rest are looked at now: so many at a time, each once in a few seconds.

What rests says the same at each look, so looking at ten thousand partitions every second costs a large part of a core
for nothing. Those that move are looked at by whoever needs it, however many they are.
"""

from __future__ import annotations

from collections.abc import Collection

from drkit.model.topology import TopicPartition

RESTING_A_LOOK = 2_000
"""A link with no more partitions is looked at as a whole each time; one of ten thousand in five looks."""


class Turns:
    """Chooses among partitions, look after look. Used by one thread.

    Args:
        at_once: about so many in each look.
    """

    def __init__(self, at_once: int = RESTING_A_LOOK) -> None:
        self._at_once = at_once
        self._look = 0

    def take(self, resting: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those whose turn it is; all where there are few. As long as their number stays about the same, each has its
        turn once in `len(resting) / at_once` looks."""
        parts = -(-len(resting) // self._at_once)
        if parts <= 1:
            return list(resting)
        self._look += 1
        turn = self._look % parts
        return [tp for tp in resting if hash(tp) % parts == turn]
