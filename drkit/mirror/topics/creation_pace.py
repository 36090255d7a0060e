"""How many partitions are created in one look at the topics.

A broker takes from one to fifteen milliseconds to make a partition, by what else it does. What is asked for at once
must be there before the call's time is over, and the first topics of a large link are to be mirrored while the others
are still being made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST = 200
LEAST, MOST = 25, 1_000
_BRISK_SECONDS, _SLOW_SECONDS = 1.0, 2.0


class CreationPace:
    """Learns from how long the last ones took. Used by one thread.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.partitions = FIRST
        """So many now (or one topic)."""
        self._clock = clock

    @contextmanager
    def measured(self, asked: int) -> Iterator[None]:
        """Within it so many partitions are created; an error means that they were not there in time."""
        begun = self._clock()
        try:
            yield
        except BaseException:
            self.partitions = max(LEAST, self.partitions // 4)
            raise
        took = self._clock() - begun
        if took > _SLOW_SECONDS:
            self.partitions = max(LEAST, self.partitions // 2)
        elif took < _BRISK_SECONDS and asked > self.partitions // 2:
            self.partitions = min(MOST, self.partitions * 2)
