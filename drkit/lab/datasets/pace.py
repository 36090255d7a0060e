"""Pacing: N records a second, smooth in the small and exact over all."""

from __future__ import annotations

import time
from collections.abc import Callable

_TICKS_PER_SECOND = 100
_UNPACED_QUANTUM = 500


class Pacer:
    """Says how long to wait before the next record.

    Record number n (from 0) is due n / rate seconds after the first question. A producer that was
    held up goes faster until it has caught up, so the mean over the whole load is exact.

    Args:
        rate: records a second, above 0; None: never wait.
        clock: seconds, monotonic.
    """

    def __init__(self, rate: float | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        if rate is not None and not rate > 0:
            raise ValueError(f"a rate must be above 0, not {rate:g}")
        self._rate = rate
        self._clock = clock
        self._start: float | None = None

    @property
    def quantum(self) -> int:
        """How many records may go between two questions without bunching: a hundredth of a second's worth."""
        if self._rate is None:
            return _UNPACED_QUANTUM
        return max(1, min(_UNPACED_QUANTUM, int(self._rate / _TICKS_PER_SECOND)))

    def delay(self, sent: int) -> float:
        """Seconds until the record that follows `sent` earlier ones is due; 0 when it is due already."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        if self._start is None:
            self._start = now
        return max(0.0, self._start + sent / self._rate - now)
