"""Selects which of many idle partitions are observed now: each has its turn once in a few seconds.

Observing ten thousand idle partitions every second would cost a large part of a core for nothing. The caller observes
all moving ones, however many they are.
"""

from __future__ import annotations

from collections.abc import Collection

from drkit.model.topology import TopicPartition

RESTING_A_LOOK = 1_000
"""A link with at most this many partitions is observed as a whole each time."""
MOST_LOOKS = 10
"""However many there are, each has its turn within this many looks."""
_TOGETHER = 6
"""Partitions of a topic have their turn together if their numbers differ only in this many low bits: so a broker is
asked about whole topics."""


class Turns:
    """Selects partitions, look after look. Not thread-safe.

    Args:
        at_once: about how many per look; a fraction of all where there are more than ten times as many.
    """

    def __init__(self, at_once: int = RESTING_A_LOOK) -> None:
        self._at_once = at_once
        self._look = 0

    def take(self, resting: Collection[TopicPartition]) -> list[TopicPartition]:
        """The partitions whose turn it is; all where there are few. While their number stays about the same, each has
        its turn once in `len(resting) / at_once` looks, or in ten."""
        parts = min(-(-len(resting) // self._at_once), MOST_LOOKS)
        if parts <= 1:
            return list(resting)
        self._look += 1
        turn = self._look % parts
        return [tp for tp in resting if hash((tp.topic, tp.partition >> _TOGETHER)) % parts == turn]
