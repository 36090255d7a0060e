"""What belongs to the whole process: its signals, its umask, and the link and run that its log tells of."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from types import FrameType
from typing import ParamSpec, TypeVar

from drkit.model.topology import LinkId

_P = ParamSpec("_P")
_R = TypeVar("_R")

_worked_on: ContextVar[tuple[str | None, str | None]] = ContextVar("drkit_worked_on", default=(None, None))
"""Link and run."""


def worked_on() -> dict[str, str | None]:
    """`link` and `run` that the calling thread works on, by name; None: no particular one."""
    link, run = _worked_on.get()
    return {"link": link, "run": run}


@contextmanager
def working_on(link: LinkId | None = None, *, run: str | None = None) -> Iterator[None]:
    """Within the block, this thread's log events name this link and this run; one that isn't given stays."""
    outer_link, outer_run = _worked_on.get()
    token = _worked_on.set((outer_link if link is None else str(link), outer_run if run is None else run))
    try:
        yield
    finally:
        _worked_on.reset(token)


def keeping_context(work: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap `work` so that another thread runs it in this thread's context. Call the result once."""
    return partial(copy_context().run, work)


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


_PRIVATE = 0o077
_UNCHANGED = -1
_given = _UNCHANGED


def keep_private() -> None:
    """From now on files that this process makes have mode 0600, and folders 0700, whatever the umask was."""
    global _given  # noqa: PLW0603 - as the umask itself, one for the whole process
    _given = os.umask(_PRIVATE)


def given_umask() -> int:
    """The umask that the process began with, as `subprocess.Popen` takes one (-1: as it is now)."""
    return _given
