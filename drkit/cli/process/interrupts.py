"""Ctrl-C and SIGTERM of a command, from its first line to the process's end.

By default Python dies of SIGTERM anywhere, loses an interrupt where exceptions are dropped, and once the command is
over prints one as a trace and exits with the command's own code. So the handlers are installed before anything else is
imported (`catch`) and stay to the end:

- While the command works, the first signal raises KeyboardInterrupt or TermSignal in the main thread. Further ones are
  ignored, so that they don't interrupt the clean-up.
- A lost one is raised again. It gets lost if Python drops it (a finaliser, a callback of the garbage collector), or if
  some code clears any error (pyarrow imports pandas so, in C++; `except: pass`). It counts as lost once nobody holds
  the exception, or where `check` finds the command continuing without handling one. This applies only while the command
  should end at once (`insist`): other commands catch it themselves, and report its effect.
- If another thread receives it (after SIGSTOP and SIGCONT), the main thread is woken from whatever it waits for;
  Python alone would run the handler only after that.
- Within `held` it is delayed to the block's end, so that writes there are complete. A second one isn't delayed.
- Once the command is `over`, signals are only noted: Spark stops and folders are removed undisturbed, and the process
  then exits with 130 or 143, at most half a minute after the signal.

A signal that is already ignored (nohup, a background job) stays ignored. A process that didn't call `catch` isn't
affected: a program that uses drkit as a library keeps its own handlers.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import weakref
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


class KeyboardSignal(KeyboardInterrupt):
    """Ctrl-C came; followed until somebody has answered it."""

    def __init__(self) -> None:
        super().__init__()
        _signals.on_its_way = weakref.ref(self, _lost)  # no local variable may hold it: its own trace would


class TermSignal(KeyboardSignal):
    """SIGTERM came: the command ends in order, as it does by Ctrl-C."""


class _Signals:
    """What came so far, and what is to become of it. (A dataclass would take longer to import than all the rest.)

    Attributes:
        caught_by: the process that caught them; its children have none of this.
        number: the first signal.
        raised: whether it was raised, or heard otherwise: what it means is then the command's to say.
        on_its_way: the exception that was raised last.
        insisting: whether one that is lost is raised again.
        answered: whether the command has said what it means.
        held: how many blocks it has to wait for.
        over: the command has said all it has to say.
        deadline: when the process must have ended, by the monotonic clock.
        code: what the process ends with where no signal says otherwise.
    """

    def __init__(self) -> None:
        self.caught_by: int | None = None
        self.number: int | None = None
        self.raised = False
        self.on_its_way: weakref.ref[KeyboardSignal] | None = None
        self.insisting = True
        self.answered = False
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
    _wake_main_thread()
    for number in _HEEDED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _came)


def insist(*, at_once: bool) -> None:
    """Say whether the command ends at once when a signal comes: one that is lost is then raised again.

    Until this is called, it does. A command that catches interrupts itself, and continues, must say that it doesn't.
    """
    _signals.insisting = at_once


def check() -> None:
    """A safe point of a command that ends at once: raise the signal that came and was lost. In other
    threads nothing is raised, nor where an exception is being handled: it may be the signal's own.
    """
    wanted = _signals.insisting and _asked() and sys.exc_info()[1] is None
    if wanted and threading.current_thread() is threading.main_thread():
        _raise()


@contextmanager
def held() -> Iterator[None]:
    """A signal that comes in the block is raised at its end; a second one at once. Of the main thread only.

    One that came before and was lost is raised before the block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    check()
    _signals.held += 1
    try:
        yield
    finally:
        _signals.held -= 1
        if _asked() and not _signals.raised:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)  # for a block that ended by an error
    if _asked() and not _signals.raised:
        _raise()


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that the signals set in the block, for a command that runs until it is stopped."""
    stop = threading.Event()

    def heard(number: int, _frame: FrameType | None) -> None:
        _signals.number, _signals.raised = number, True
        _signals.answered = True
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


def is_over() -> bool:
    """Whether a command has said all it has to say."""
    return _signals.over


def asked() -> int | None:
    """The signal that came and that nobody has answered; None where there is none."""
    return None if _signals.answered else _signals.number


def lost() -> int | None:
    """The signal that came before a command that ends at once failed with another error; None where there is none."""
    return _signals.number if _signals.insisting and _signals.raised and not _signals.answered else None


def answered() -> None:
    """The command says what the signal means that was raised: its code is then its own."""
    _signals.answered = _signals.raised


def unanswered() -> int | None:
    """The signal that ended the command before it could say so; None where there is none."""
    return None if _signals.over else asked()


def leave(code: int) -> NoReturn:
    """End the process: with this code, or with the signal's where one was not heard in time.

    Raises:
        SystemExit: always; the handlers of the process's end are still to run.
    """
    over()
    _signals.code = code
    sys.exit(code)


def _asked() -> bool:
    """Whether a signal came that nobody has answered, and may be raised."""
    return _signals.number is not None and not (_signals.over or _signals.held or _signals.answered)


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
    raise TermSignal() if _signals.number == signal.SIGTERM else KeyboardSignal()


def _lost(_reference: weakref.ref[KeyboardSignal]) -> None:
    """Nobody holds the exception that was raised last: if it was answered, the command is over."""
    if _signals.insisting and not (_signals.over or _signals.answered):
        _again()


def _dropped(dropped: sys.UnraisableHookArgs) -> None:
    """Python drops an exception: an interrupt is raised again where it can't be dropped."""
    if not isinstance(dropped.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
    elif not (_signals.over or _signals.answered):
        _again()


def _again() -> None:
    _signals.raised = False
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)


def _alarm(_number: int, _frame: FrameType | None) -> None:
    if _signals.deadline is not None and time.monotonic() >= _signals.deadline:
        os._exit(_SHELL + (_signals.number or signal.SIGTERM))
    if _asked() and not _signals.raised:
        _raise()


def _wake_main_thread() -> None:
    """Interrupt what the main thread waits for when another thread got the signal: only there Python handles it."""
    read, write = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    main = threading.main_thread().ident
    assert main is not None  # noqa: S101 - it has begun

    def wake() -> None:
        while came := os.read(read, 64):
            if any(number in came for number in _HEEDED):
                signal.pthread_kill(main, signal.SIGALRM)

    threading.Thread(target=wake, name="drkit-signals", daemon=True).start()


def _end() -> None:
    """End the process itself, after all else that was registered for its end.

    What Python still does then (collecting modules, which has objects of a dead JVM say so) is useless, and a
    signal in the middle of it would change how the process ends.
    """
    if _signals.caught_by != os.getpid():
        return
    code = _signals.code
    with suppress(AttributeError, ValueError, OSError):  # there is none, it is closed, or takes nothing
        sys.stderr.flush()
    with suppress(AttributeError, ValueError):
        try:
            sys.stdout.flush()
        except OSError:
            code = code or 1
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEEDED)  # the last moment to be heard
    own = _signals.answered or (_signals.raised and not _signals.insisting)  # the command's code says it
    os._exit(code if own or _signals.number is None else _SHELL + _signals.number)
