"""Ctrl-C, SIGTERM and SIGHUP while child processes are being started: noticed between steps, never inside one.

A KeyboardInterrupt that strikes between `spawn` and noting the pid would leave a process behind that
nobody knows. So, while an `Interrupts` is entered, these signals are only remembered, and every
wait of the lab goes through `wait` or `check`, which raise at a place where all is accounted for.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_Handler = Callable[[int, FrameType | None], Any] | int | None


class Interrupts:
    """Context manager that defers those signals; outside the main thread it defers nothing.

    A signal that is ignored (nohup, a background job) stays ignored.

    May be entered again inside itself (only the outermost restores the handlers).
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._woken = threading.Event()
        self._previous: dict[int, _Handler] = {}
        self._depth = 0
        self._cleaning = False

    def __enter__(self) -> Self:
        self._depth += 1
        if self._depth == 1 and threading.current_thread() is threading.main_thread():
            heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._previous = {number: signal.signal(number, self._remember) for number in heeded}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
        if error is None:
            self.check()

    def check(self) -> None:
        """Raise what the signal asks for, if one came: KeyboardInterrupt, or SystemExit(128 + signal)."""
        if self._received is None or self._cleaning:
            return
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self._received)

    def wait(self, seconds: float) -> None:
        """Wait, and raise as `check` does as soon as a signal comes."""
        self.check()
        self._woken.wait(seconds)
        self.check()

    def clean_up(self) -> None:
        """From here on signals are ignored: what was started is being taken down."""
        self._cleaning = True

    def _remember(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - signal's signature
        self._received = number
        self._woken.set()
