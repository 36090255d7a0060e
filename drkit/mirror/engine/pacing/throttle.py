"""A link's bandwidth limit: a token bucket that may go into debt. Pure except for the clock given.

The bucket holds at most one second's worth. Taking more than it holds is allowed and leaves a debt;
the return value is how long to wait until it is paid. So any size can be taken at once, even a record
larger than the bucket, and over any period the bytes sent stay below
rate x (seconds + 1) + the last one taken.

    wait = throttle.take(len(batch))     # before sending it
    ... wait that long, the way the caller waits ...
    send(batch)
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Throttle:
    """A token bucket without a thread or loop of its own. Not thread-safe.

    Args:
        bytes_per_second: the limit; None: no limit.
        clock: monotonic seconds.
        filled: whether the bucket starts with its second's worth; False where many start in turn.
    """

    def __init__(
        self, bytes_per_second: float | None, clock: Callable[[], float] = time.monotonic, *, filled: bool = True
    ) -> None:
        if bytes_per_second is not None and bytes_per_second <= 0:
            raise ValueError(f"a limit of {bytes_per_second} bytes per second lets nothing through")
        self._rate = self._whole = bytes_per_second
        self._clock = clock
        self._tokens = (bytes_per_second or 0.0) if filled else 0.0
        self._filled_at = clock()

    @property
    def limits(self) -> bool:
        """Whether there is a limit."""
        return self._rate is not None

    def limit(self, bytes_per_second: float) -> None:
        """Change the limit, from the next `take` on. May be called from any thread."""
        self._rate = self._whole = bytes_per_second

    def share(self, workers: int) -> None:
        """Set this worker's share of a limit that so many workers share."""
        if self._whole is not None:
            self._rate = self._whole / workers

    def take(self, size: int) -> float:
        """Take `size` bytes; returns how many seconds to wait before they may be sent (0.0: none)."""
        rate = self._rate
        if rate is None:
            return 0.0
        at = self._clock()
        self._tokens = min(rate, self._tokens + (at - self._filled_at) * rate)
        self._filled_at = at
        self._tokens -= size
        return max(0.0, -self._tokens / rate)
