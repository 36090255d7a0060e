"""Numbers of a running mirror: what an engine counts, and rates over the last seconds.

An engine has `statistics() -> EngineStatistics` (any thread may call it) and `waits_for(tp)`: in a few
words what a partition that doesn't move waits for, or None where the engine has nothing of it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from drkit.model.statistics import EngineStatistics

__all__ = ["EngineStatistics", "Rates"]

WINDOW_SECONDS = 5.0


class Rates:
    """Records and bytes per second over the last few seconds. Used by one thread.

    Args:
        clock: monotonic seconds.
        window_seconds: how far back; a single look longer ago than that still counts.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, window_seconds: float = WINDOW_SECONDS) -> None:
        self._clock = clock
        self._window = window_seconds
        self._seen: deque[tuple[float, int, int]] = deque([(clock(), 0, 0)])

    def note(self, statistics: EngineStatistics) -> tuple[float, float]:
        """Take the newest counters; returns (records, bytes) per second."""
        at = self._clock()
        self._seen.append((at, statistics.records, statistics.bytes))
        while len(self._seen) > 2 and self._seen[1][0] <= at - self._window:  # noqa: PLR2004 - two make a rate
            self._seen.popleft()
        then, records, size = self._seen[0]
        seconds = max(at - then, 0.001)
        return (statistics.records - records) / seconds, (statistics.bytes - size) / seconds
