"""Handlers of signals for the length of a block, and the event that a handler may set."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def handled(handler: Callable[[int, FrameType | None], object], *numbers: signal.Signals) -> Iterator[None]:
    """In the block these signals go to the handler, afterwards to what had them before. Of the main thread only."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


class SignalEvent(threading.Event):
    """An event that a signal's handler may set at any moment; a moment later it is set for good.

    `threading.Event.set` takes a lock that the interrupted thread may hold itself, in `wait`: it would wait for itself.
    A SimpleQueue's `put` may interrupt anything.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told: queue.SimpleQueue[None] = queue.SimpleQueue()
        threading.Thread(target=self._set_once_told, name="drkit-signal-event", daemon=True).start()

    def set(self) -> None:
        """Have it set by a thread of its own."""
        self._told.put(None)

    def _set_once_told(self) -> None:
        self._told.get()
        super().set()
