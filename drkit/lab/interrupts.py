"""Defers Ctrl-C, SIGTERM and SIGHUP while child processes are being started to the moments between two steps.

A KeyboardInterrupt between `spawn` and noting the pid would leave an unknown process behind. So, while an `Interrupts`
is entered, these signals are only noted, and every wait of the lab uses `wait` or `check`, which raise where all
processes are known.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from drkit.model.process.signal_handlers import SignalEvent

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_Handler = Callable[[int, FrameType | None], Any] | int | None


class Interrupts:
    """Context manager that defers these signals; outside the main thread it does nothing.

    An ignored signal (nohup, a background job) stays ignored. Reentrant: only the outermost exit restores the handlers.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._woken = SignalEvent()
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
        """Raise the exception of a signal, if one came: KeyboardInterrupt, or SystemExit(128 + signal)."""
        if self._received is None or self._cleaning:
            return
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self._received)

    def wait(self, seconds: float) -> None:
        """Wait; raises like `check` as soon as a signal comes."""
        self.check()
        self._woken.wait(seconds)
        self.check()

    def clean_up(self) -> None:
        """Ignore signals from here on, while the started processes are being stopped."""
        self._cleaning = True

    def _remember(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - signal's signature
        self._received = number
        self._woken.set()
