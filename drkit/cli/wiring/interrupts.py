"""Ctrl-C and SIGTERM of a command, from its first line to the process's end.

Left to itself, Python dies of SIGTERM wherever it is, loses an interrupt that strikes while it collects garbage, and
once the command is over prints one as a trace and ends with the command's own code. So the handlers are installed
before anything else is imported (`catch`) and stay to the end:

- While the command works, the first signal raises KeyboardInterrupt or TermSignal in the main thread. Further ones are
  ignored, so that they cut no clean-up short.
- One that is raised where Python drops exceptions (a finaliser, a callback of the garbage collector) is raised again.
- Within `held` it waits for the block's end: what is written there is written whole. A second one doesn't wait.
- Once the command is `over`, signals are noted only: Spark stops and folders are removed in peace, and the process
  then ends with 130 or 143, half a minute after the signal at the latest.

A signal that is ignored already (nohup, a background job) stays ignored. Nothing here does anything in a process that
didn't `catch`: a program that calls drkit as a library keeps its own handlers.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

_HEEDED = (signal.SIGINT, signal.SIGTERM)
_SHELL = 128
"""A command that a signal ended has this and the signal's number as its exit code, as shells have it."""
_AGAIN_SECONDS = 0.01
_LEAVE_SECONDS = 30.0
"""How long the process's end may take once a signal asked for it; Spark's JVM gets 20 s of them."""


class TermSignal(KeyboardInterrupt):
    """SIGTERM came: the command ends in order, as it does by Ctrl-C."""


class _Signals:
    """What came so far, and what is to become of it. (A dataclass would take longer to import than all the rest.)

    Attributes:
        caught_by: the process that caught them; its children have none of this.
        number: the first signal.
        raised: whether it was raised, or heard otherwise: what it means is then the command's to say.
        held: how many blocks it has to wait for.
        over: the command has said all it has to say.
        deadline: when the process must have ended, by the monotonic clock.
        code: what the process ends with where no signal says otherwise.
    """

    def __init__(self) -> None:
        self.caught_by: int | None = None
        self.number: int | None = None
        self.raised = False
        self.held = 0
        self.over = False
        self.deadline: float | None = None
        self.code = 1


_signals = _Signals()


def catch() -> None:
    """Take SIGINT and SIGTERM over, for the rest of this process's life. Called once, in the main thread."""
    _signals.caught_by = os.getpid()
    atexit.register(_end)  # registered first, so it runs last
    sys.unraisablehook = _dropped
    signal.signal(signal.SIGALRM, _alarm)
    for number in _HEEDED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _came)


@contextmanager
def held() -> Iterator[None]:
    """A signal that comes in the block is raised at its end; a second one at once. Of the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _signals.held += 1
    try:
        yield
    finally:
        _signals.held -= 1
    if not (_signals.held or _signals.over or _signals.raised) and _signals.number is not None:
        _raise()


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that the signals set in the block, for a command that runs until it is stopped."""
    stop = threading.Event()

    def heard(number: int, _frame: FrameType | None) -> None:
        _signals.number, _signals.raised = number, True
        stop.set()

    before = {number: signal.signal(number, heard) for number in _HEEDED}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def over() -> None:
    """The command has said all it has to say: from here on signals are noted only."""
    _signals.over = _signals.caught_by == os.getpid()


def unanswered() -> int | None:
    """The signal that was raised and ended the command before it could say so; None where there is none."""
    return _signals.number if _signals.raised and not _signals.over else None


def leave(code: int) -> NoReturn:
    """End the process: with this code, or with the signal's where one was not heard in time.

    Raises:
        SystemExit: always; the handlers of the process's end are still to run.
    """
    over()
    _signals.code = code
    sys.exit(code)


def _came(number: int, _frame: FrameType | None) -> None:
    first = _signals.number is None
    if first:
        _signals.number = number
    if _signals.over:
        if _signals.deadline is None:
            _signals.deadline = time.monotonic() + _LEAVE_SECONDS
            signal.setitimer(signal.ITIMER_REAL, _LEAVE_SECONDS)
    elif not _signals.raised and (first if not _signals.held else not first):
        _raise()


def _raise() -> NoReturn:
    _signals.raised = True
    raise TermSignal if _signals.number == signal.SIGTERM else KeyboardInterrupt


def _dropped(lost: sys.UnraisableHookArgs) -> None:
    """Python drops an exception: an interrupt is raised again where it can't be dropped."""
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
    elif not _signals.over:
        _signals.raised = False
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)


def _alarm(_number: int, _frame: FrameType | None) -> None:
    if _signals.deadline is not None and time.monotonic() >= _signals.deadline:
        os._exit(_SHELL + (_signals.number or signal.SIGTERM))
    if not (_signals.over or _signals.held or _signals.raised):
        _raise()


def _end() -> None:
    """End the process itself, after all else that was registered for its end.

    What Python still does then (collecting modules, which has objects of a dead JVM say so) is of no use, and a
    signal in the middle of it would change how the process ends.
    """
    if _signals.caught_by != os.getpid():
        return
    code = _signals.code
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # there is none, or it is closed
            try:
                stream.flush()
            except OSError:
                code = code or 1
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEEDED)  # the last moment to be heard
    os._exit(code if _signals.raised or _signals.number is None else _SHELL + _signals.number)
