"""A periodic task on a thread of its own, whose failures are logged once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from drkit.model.clock import UsualDuration
from drkit.model.errors import AuthenticationError, DrkitError, Unreachable
from drkit.model.process import keeping_context

log = logging.getLogger(__name__)


class Periodic:
    """Runs `work` every `interval` seconds until `stop`; waits longer where the work itself takes long.

    Work is long only if it takes long twice (`UsualDuration`); after a failed turn the next one is due at once.

    An outage (`Unreachable`) is logged once when it begins and once when it ends; other `DrkitError`s
    once per message. Any other exception is a defect: it ends the thread, and the runtime raises `failure`.

    Args:
        name: for logs and the thread.
        interval: seconds between starts; at most a quarter of the time is spent working.
        work: what to do.
        stop: ends the thread.
        promptly: the work observes something, and must have seen it within `interval` after it happened: so the
            duration of the work counts twice, and up to four fifths of the time may be spent working.
        share: the largest part of a core for the work (its own thread's part of it); None: unlimited.
    """

    def __init__(
        self,
        name: str,
        interval: float,
        work: Callable[[], None],
        stop: threading.Event,
        *,
        promptly: bool = False,
        share: float | None = None,
    ) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self.trouble: str | None = None
        self.not_let_in: AuthenticationError | None = None
        self._interval = interval
        self._promptly = promptly
        self._share = share
        self._work = work
        self._stop = stop
        self._wake = threading.Event()
        self._usual = UsualDuration()
        self._thread = threading.Thread(target=keeping_context(self._run), name=f"drkit-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Run the work soon, without waiting for the interval's end."""
        self._wake.set()

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end (after `stop`); False if it hasn't."""
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            begun, worked = time.monotonic(), time.thread_time()
            try:
                done = self._once()
            except Exception as error:  # noqa: BLE001 - a defect on a thread must reach the runtime
                self.failure = error
                return
            spent = self._usual.after(time.monotonic() - begun) if done else 0.0
            self._wait(self._pause(spent, time.thread_time() - worked))

    def _pause(self, spent: float, worked: float = 0.0) -> float:
        """How long to wait after work with this duration and CPU time."""
        if self._share is not None:
            return max(self._usual_pause(spent), worked / self._share - spent)
        return self._usual_pause(spent)

    def _usual_pause(self, spent: float) -> float:
        if self._promptly:
            return max(self._interval - 2 * spent, spent / 4)
        return max(self._interval - spent, 3 * spent if spent > self._interval / 4 else 0.0)

    def _once(self) -> bool:
        """Run one turn; returns whether it completed."""
        try:
            self._work()
        except DrkitError as error:
            if self._stop.is_set():
                return False  # its clients are being closed meanwhile
            self.not_let_in = error if isinstance(error, AuthenticationError) else None
            if self.trouble != str(error):
                outage = isinstance(error, Unreachable)
                if not (outage and self.trouble is not None):
                    log.warning("%s: %s", self.name, error)
                self.trouble = str(error)
            return False
        self.not_let_in = None
        if self.trouble is not None:
            log.info("%s: works again", self.name)
            self.trouble = None
        return True

    def _wait(self, seconds: float) -> None:
        """Wait until it is due, woken, or stopped."""
        due = time.monotonic() + seconds
        while not self._stop.is_set() and not self._wake.is_set():
            left = due - time.monotonic()
            if left <= 0:
                return
            self._wake.wait(min(left, 0.2))
