"""Which of many partitions that rest are looked at now: so many at a time, each once in a few seconds.

What rests says the same at each look, so looking at ten thousand partitions every second costs a large part of a core
for nothing. Those that move are looked at by whoever needs it, however many they are.
"""

from __future__ import annotations

from collections.abc import Collection

from drkit.model.topology import TopicPartition

RESTING_A_LOOK = 1_000
"""A link with no more partitions is looked at as a whole each time."""
MOST_LOOKS = 10
"""However many there are, each has its turn within so many looks."""
_TOGETHER = 6
"""Partitions of a topic whose numbers differ in so many low bits only have their turn together: a broker is asked about
whole topics first."""


class Turns:
    """Chooses among partitions, look after look. Used by one thread.

    Args:
        at_once: about so many in each look, or a part of all of them where there are more than ten times as many.
    """

    def __init__(self, at_once: int = RESTING_A_LOOK) -> None:
        self._at_once = at_once
        self._look = 0

    def take(self, resting: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those whose turn it is; all where there are few. As long as their number stays about the same, each has its
        turn once in `len(resting) / at_once` looks, or in ten."""
        parts = min(-(-len(resting) // self._at_once), MOST_LOOKS)
        if parts <= 1:
            return list(resting)
        self._look += 1
        turn = self._look % parts
        return [tp for tp in resting if hash((tp.topic, tp.partition >> _TOGETHER)) % parts == turn]
