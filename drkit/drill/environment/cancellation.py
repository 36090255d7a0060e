"""Cancels the branches of a parallel step: a signal interrupts only the main thread, and this the others.

All waits of a drill use `rest`. In a branch that is cancelled it raises `Cancelled`, as an interrupt does in the main
thread: what runs there ends its processes and stops.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Cancelled(BaseException):  # as KeyboardInterrupt: nothing that handles errors may take it for one
    """The branch that this thread plays is cancelled."""


_CANCELLED: ContextVar[threading.Event | None] = ContextVar("cancelled", default=None)


@contextmanager
def cancelled_by(event: threading.Event) -> Iterator[None]:
    """Let `rest` raise Cancelled in this thread once the event is set."""
    token = _CANCELLED.set(event)
    try:
        yield
    finally:
        _CANCELLED.reset(token)


def rest(seconds: float) -> None:
    """Wait.

    Raises:
        Cancelled: the branch that this thread plays is cancelled.
    """
    event = _CANCELLED.get()
    if event is None:
        time.sleep(seconds)
    elif event.wait(seconds):
        raise Cancelled
