"""Polling on a thread: any number of readers get the newest result at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from drkit.model.clock import UsualDuration, now
from drkit.model.errors import DrkitError

_T = TypeVar("_T")
_STALE_SECONDS = 30.0
_STALE_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class PollResult(Generic[_T]):
    """The result of one poll, or the error.

    `number` grows by 1 with each; `began_at` is its begin (nothing in it is older).
    """

    number: int
    began_at: datetime
    value: _T | None
    error: DrkitError | None

    def age(self, at: datetime) -> float:
        """Seconds since it began, at `at`."""
        return max(0.0, (at - self.began_at).total_seconds())


class Poller(Generic[_T]):
    """Polls repeatedly; slow polls run less often, to bound their load.

    Args:
        name: of the thread.
        look: the poll; its errors become the poll's result.
        seconds: the least time from one poll's end to the next one's begin.
        rest: the same, as a multiple of a poll's usual duration (`UsualDuration`).
    """

    def __init__(self, name: str, look: Callable[[], _T], *, seconds: float, rest: float) -> None:
        self._look, self._seconds, self._rest = look, seconds, rest
        self._newest: PollResult[_T] | None = None
        self._usual = UsualDuration()
        self._takes = 0.0
        self._first = threading.Event()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin the first poll."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no further poll."""
        self._stop.set()
        self._wake.set()

    def soon(self) -> None:
        """The last result is outdated: poll again as soon as a running poll has ended."""
        self._wake.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait for a running poll; after the timeout it ends with the process."""
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    @property
    def newest(self) -> PollResult[_T] | None:
        """The last finished poll; None: the first one still runs."""
        return self._newest

    def first(self, timeout_seconds: float) -> PollResult[_T] | None:
        """The newest result, once the first poll has ended; None if that takes longer."""
        self._first.wait(timeout_seconds)
        return self._newest

    def stale_after(self) -> float:
        """Seconds after which a result is stale: several polls were missed."""
        return max(_STALE_SECONDS, _STALE_ROUNDS * (self._takes + self._pause(self._takes)))

    def fresh(self, at: datetime) -> PollResult[_T] | None:
        """The newest result unless it is stale at `at`."""
        newest = self._newest
        return None if newest is None or newest.age(at) > self.stale_after() else newest

    def look_once(self) -> PollResult[_T]:
        """Poll now, on this thread."""
        began_at, began = now(), time.monotonic()
        value, error = None, None
        try:
            value = self._look()
        except DrkitError as found:
            error = found
        except Exception as found:  # noqa: BLE001  # a defect must not end the thread: the page would freeze unnoticed
            error = DrkitError(
                f"internal error: {type(found).__name__}: {found}",
                meaning="This is a defect of drkit, not of your set-up",
                remedy="Run `drkit status --verbose` and report the trace",
            )
        number = 1 if self._newest is None else self._newest.number + 1
        seconds = time.monotonic() - began
        self._takes = self._usual.after(seconds)
        self._newest = PollResult(number, began_at, value, error)
        self._first.set()
        return self._newest

    def _run(self) -> None:
        while not self._stop.is_set():
            self.look_once()
            if self._wake.wait(self._pause(self._takes)):
                self._stop.wait(self._takes)  # constant changes don't cause constant polls
                self._wake.clear()

    def _pause(self, took: float) -> float:
        return max(self._seconds, self._rest * took)
