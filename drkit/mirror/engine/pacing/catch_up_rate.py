"""Decides how fast a backlog is copied, so that the target's own users don't notice it. Pure except for the clock.

A background transfer that yields to others, like LEDBAT (RFC 6817): it controls a rate in bytes per second by
the time that the target's brokers take to answer (`drkit.mirror.engine.pacing.latency_probe`).

    learning    almost nothing is copied for a moment, to measure the latency without this worker
    starting    the rate doubles every few answers, until one is too slow
    steady      each answer in time raises the rate a little, one that is too slow lowers it by a third

An answer is too slow if it takes more than `latency_factor` times what 98 of 100 answers take while learning, or more
than `max_latency_seconds`. Raising by a 300th and lowering by a third balances where about one answer in a hundred is
too slow, so the slowest hundredth is controlled, not the mean. The baseline without this worker is measured again every
half minute, as BBR does (ProbeRTT): so a target that slows down by itself isn't confused with one that the copy slows
down.

New records of the source are always copied, plus a quarter: a mirror must not fall further behind to spare the
target's users. Where only drkit uses the target there is no limit.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

from drkit.model.statistics import quantile
from drkit.model.topology import CatchUpPolicy

LOWEST = 1024 * 1024
"""Bytes per second that are always copied: a backlog never stops altogether."""

_GROWN_SECONDS = 5.0
_GAINED = 1.25
"""The rate is at least this multiple of the source's growth, or a backlog would never end."""

_HIGHEST = 4 * 1024**3
_RAISED = 1 / 300
_DOUBLED_IN = 12
_LOWERED = 0.66
_LEARN_SECONDS = 0.8
_SETTLE_SECONDS = 0.2
"""Requests in flight from before are answered first."""
_LEARN_AGAIN_SECONDS = 30.0
_FEWEST_ANSWERS = 10
_ANSWERS_KEPT = 250
_DEAF_SECONDS = 0.1
"""After a change of the rate, wait for its effect: slow answers already in flight don't lower it again."""
_SILENT_SECONDS = 1.0
_USUAL_SHARE = 0.98
_NOISE_SECONDS = 0.001
_LEAST_ALLOWED = 1.2
_USED_SECONDS = 0.2
_TRIED = 3
"""The rate is at most this multiple of what was copied lately: an untried rate proves nothing."""
_AT_ONCE_SECONDS = 0.02
_BURST_SECONDS = 0.05
"""How many seconds' worth of unused rate may be made up at once."""
_LEAST_AT_ONCE = 128 * 1024


class CatchUpRate:
    """See the module docstring. Used on the engine's event loop; `rate` and `latency` may be read from any thread.

    Args:
        policy: the link's.
        clock: monotonic seconds.
    """

    def __init__(self, policy: CatchUpPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._clock = clock
        self._bound: float | None = None
        self._in_use = False
        self._rate = float(LOWEST)
        self._free_at = clock()
        self._used = 0.0
        self._used_at = clock()
        self._grown = 0.0
        self._grown_at = clock()
        self._learning_until: float | None = None
        self._learn_at = 0.0
        self._starting = True
        self._deaf_until = 0.0
        self._heard_at = 0.0
        self._allowed: float | None = None
        self._undisturbed: deque[float] = deque(maxlen=_ANSWERS_KEPT)
        self._lately: deque[float] = deque(maxlen=_ANSWERS_KEPT)

    # -- what holds --------------------------------------------------------------------------------

    @property
    def adapts(self) -> bool:
        """Whether the rate follows the target's latency now, because others use it."""
        return self._in_use and self._policy.adaptive

    @property
    def limits(self) -> bool:
        """Whether a backlog is copied below full speed."""
        return self.adapts or self._bound is not None

    @property
    def rate(self) -> float | None:
        """The allowed bytes per second of a backlog; None: unlimited."""
        if not self.adapts:
            return self._bound
        rate = max(self._least(), LOWEST if self._learning_until is not None else self._rate)
        return rate if self._bound is None else min(rate, self._bound)

    @property
    def latency(self) -> float | None:
        """The 99th percentile of the target's latest answer times, in seconds; None: not measured."""
        return quantile(sorted(self._lately), 0.99) if self.adapts else None

    @property
    def most_at_once(self) -> int | None:
        """How many bytes to ask a source broker for at once; None: no such limit."""
        rate = self.rate
        return None if rate is None else max(_LEAST_AT_ONCE, int(rate * _AT_ONCE_SECONDS))

    # -- what happens ------------------------------------------------------------------------------

    def bound(self, bytes_per_second: float | None) -> None:
        """Set this worker's share of the link's own limit for a backlog; None: no limit."""
        self._bound = bytes_per_second

    def use(self, in_use: bool) -> None:
        """Whether others use the target."""
        before, self._in_use = self.adapts, in_use
        if self.adapts and not before:
            self._starting, self._rate = True, float(LOWEST)
            self._learn(self._clock())

    def take(self, size: int) -> float:
        """Account for that many bytes of a backlog; returns the seconds to wait before the next ones."""
        rate = self.rate
        if rate is None:
            return 0.0
        at = self._clock()
        self._used = self._used_lately(at) + size
        self._used_at = at
        self._free_at = max(self._free_at, at - _BURST_SECONDS) + size / rate
        return max(0.0, self._free_at - at)

    def grew(self, size: float) -> None:
        """Account for that many new bytes on the source in partitions that are behind."""
        at = self._clock()
        self._grown = self._grown * math.exp((self._grown_at - at) / _GROWN_SECONDS) + size
        self._grown_at = at

    def answered(self, seconds: float | None) -> None:
        """Account for a target broker's answer time; None: unknown, because this worker was busy."""
        if not self.adapts:
            return
        at = self._clock()
        if self._learning_until is not None:
            self._heard(at, seconds)
        elif seconds is None:
            if at - self._heard_at > _SILENT_SECONDS:  # too busy to measure at all
                self._lower(at)
                self._heard_at = at
        else:
            self._heard_at = at
            self._lately.append(seconds)
            self._follow(at, seconds)
            if at >= self._learn_at:
                self._learn(at)

    # -- inside ------------------------------------------------------------------------------------

    def _least(self) -> float:
        """The rate that is always allowed."""
        grown = self._grown * math.exp((self._grown_at - self._clock()) / _GROWN_SECONDS)
        return max(float(LOWEST), _GAINED * grown / _GROWN_SECONDS)

    def _learn(self, at: float) -> None:
        self._learning_until = at + _LEARN_SECONDS

    def _heard(self, at: float, seconds: float | None) -> None:
        """Handle an answer time while learning."""
        if self._learning_until is None:
            return
        if seconds is not None and at >= self._learning_until - _LEARN_SECONDS + _SETTLE_SECONDS:
            self._undisturbed.append(seconds)
        if at >= self._learning_until and len(self._undisturbed) >= _FEWEST_ANSWERS:
            self._allowed = self._too_slow()
            self._learning_until = None
            self._learn_at = at + _LEARN_AGAIN_SECONDS
            self._heard_at = at

    def _too_slow(self) -> float:
        usual = quantile(sorted(self._undisturbed), _USUAL_SHARE) or 0.0
        factor, most = self._policy.latency_factor, self._policy.max_latency_seconds
        return max(usual * _LEAST_ALLOWED, min(max(usual * factor, usual + _NOISE_SECONDS), most))

    def _used_lately(self, at: float) -> float:
        """Bytes copied lately, with older ones weighted less."""
        return self._used * math.exp((self._used_at - at) / _USED_SECONDS)

    def _follow(self, at: float, seconds: float) -> None:
        if self._allowed is not None and seconds > self._allowed:
            self._lower(at)
        elif at >= self._deaf_until:
            grown = self._rate * (2 ** (1 / _DOUBLED_IN) if self._starting else 1 + _RAISED)
            self._rate = max(self._rate, min(grown, _HIGHEST, _TRIED * self._used_lately(at) / _USED_SECONDS))

    def _lower(self, at: float) -> None:
        if at < self._deaf_until:
            return
        self._starting = False
        self._rate = max(float(LOWEST), self._rate * _LOWERED)
        self._deaf_until = at + _DEAF_SECONDS
