"""Instants, always aware, UTC, to the microsecond, written as ISO-8601 with `Z`; and deadlines that callers pass down,
so that nested waits share them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Self, TypeVar

YEAR_10000 = 253_402_300_800_000
"""Milliseconds."""
POLL_SECONDS = 0.2
"""Between two looks of who waits for a condition of another process or link."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now() -> datetime:
    """The present instant, UTC."""
    return datetime.now(UTC)


CLOCKS_DIFFER_SECONDS = 30.0
"""What one machine's clock may be ahead of another's without its stamps being doubted."""


MOST_SKEW_SECONDS = 5.0
"""What two clocks may differ by where moments of one are compared with those of the other."""


def age_seconds(then: datetime, at: datetime) -> float | None:
    """Seconds from a stamp to `at`, 0 where the clocks differ a little; None: it lies in the future by this machine's
    clock, so how old it is isn't known."""
    seconds = (at - then).total_seconds()
    return None if seconds < -CLOCKS_DIFFER_SECONDS else max(0.0, seconds)


def oldest_age(stamps: Collection[datetime], at: datetime) -> float | None:
    """The age of the oldest, in seconds; None: there is none, or how old one of them is isn't known."""
    if not stamps or age_seconds(max(stamps), at) is None:
        return None
    return age_seconds(min(stamps), at)


def iso(instant: datetime | None) -> str | None:
    """`2026-11-20T04:03:10.123Z`; None stays None (what isn't known is null)."""
    return None if instant is None else _iso(instant)


@lru_cache(maxsize=4096)  # a group's many positions have one instant
def _iso(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def exact_iso(instant: datetime) -> str:
    """`2026-11-20T04:03:10.123457Z`: reads back as the same instant."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def from_millis(millis: int) -> datetime:
    """A Kafka timestamp (ms since the epoch) as an instant."""
    return _EPOCH + timedelta(milliseconds=int(millis))  # float seconds would be some microseconds off for far dates


def date_of(millis: int | None) -> datetime | None:
    """The instant of a Kafka timestamp; None where it is no date (negative, or beyond the year 9999).

    Producers may write any 64-bit number there: microseconds, nanoseconds, -1 for none.
    """
    return None if millis is None or not 0 <= millis < YEAR_10000 else from_millis(millis)


def to_millis(instant: datetime) -> int:
    """An instant as a Kafka timestamp (ms since the epoch, rounded down)."""
    return (instant - _EPOCH) // timedelta(milliseconds=1)


class UsualDuration:
    """Long is what takes long twice in a row.

    A turn in which the process was stopped (SIGSTOP, a machine that slept) says nothing about the work: what it was to
    see is due at once, and what it saw is old.
    """

    def __init__(self) -> None:
        self._before: float | None = None

    def after(self, seconds: float) -> float:
        """What turns take, in seconds, once one has taken this long."""
        before, self._before = self._before, seconds
        return 0.0 if before is None else min(seconds, before)


T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """A point in time of the monotonic clock."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Self:
        """That many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then; 0 once it has passed."""
        return max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.at

    def within(self, seconds: float) -> Deadline:
        """This deadline, or that many seconds from now if that is earlier."""
        return min(self, Deadline.after(seconds))


def bounded(deadline: Deadline, call: Callable[[], T], name: str) -> T:
    """Call something that has no timeout of its own (a host name look-up, a slow answer), with a deadline.

    It runs on a thread of its own, which is abandoned at the deadline and must free its own resources.

    Args:
        deadline: how long to wait.
        call: the function; its exceptions are raised here.
        name: of the thread.

    Raises:
        TimeoutError: the deadline has passed.
    """
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
            outcome.set_exception(error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return outcome.result(deadline.left)
