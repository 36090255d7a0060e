"""Ctrl-C and SIGTERM of a command, from its first line to the process's end.

By default Python dies of SIGTERM anywhere, loses an interrupt where exceptions are dropped, and once the command is
over prints one as a trace and exits with the command's own code. So the handlers are installed before anything else is
imported (`catch`) and stay to the end:

- While the command works, the first signal raises KeyboardInterrupt or TermSignal in the main thread. Further ones are
  ignored, so that they don't interrupt the clean-up.
- A lost one is raised again. It gets lost if Python drops it (a finaliser, a callback of the garbage collector), or if
  some code clears any error (pyarrow imports pandas so, in C++; `except: pass`). It counts as lost once nobody holds
  the exception, or where `check` finds the command continuing without handling one. This applies only while the command
  should end at once (`reraise_lost`): other commands catch it themselves, and report its effect.
- If another thread receives it (after SIGSTOP and SIGCONT), the main thread is woken from whatever it waits for;
  Python alone would run the handler only after that.
- Within `deferred` it is delayed to the block's end, so that writes there are complete. A second one isn't delayed.
- Once the command has called `mark_finished`, signals are only noted: Spark stops and folders are removed
  undisturbed, and the process then exits with 130 or 143, at most half a minute after the signal.

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

from drkit.model.process import SignalEvent, handled

_HANDLED = (signal.SIGINT, signal.SIGTERM)
_SIGNAL_EXIT_BASE = 128
"""A command that a signal ended has this and the signal's number as its exit code, as shells have it."""
_RERAISE_SECONDS = 0.01
_EXIT_SECONDS = 30.0
"""How long the process's end may take once a signal asked for it; Spark's JVM gets 20 s of them."""


class KeyboardSignal(KeyboardInterrupt):
    """Ctrl-C came; followed until somebody has answered it."""

    def __init__(self) -> None:
        super().__init__()
        _signals.in_flight = weakref.ref(self, _on_freed)  # no local variable may hold it: its own trace would


class TermSignal(KeyboardSignal):
    """SIGTERM came: the command ends in order, as it does by Ctrl-C."""


class _Signals:
    """What came so far, and what is to become of it. (A dataclass would take longer to import than all the rest.)

    Attributes:
        caught_by: the process that caught them; its children have none of this.
        number: the first signal.
        raised: whether it was raised, or heard otherwise: what it means is then the command's to say.
        in_flight: the exception that was raised last.
        reraising: whether one that is lost is raised again.
        acknowledged: whether the command has said what it means.
        deferring: how many blocks it has to wait for.
        finished: the command has said all it has to say.
        changed: it has changed something: what comes once it has finished leaves its code as it is.
        deadline: when the process must have ended, by the monotonic clock.
        code: what the process ends with where no signal says otherwise.
    """

    def __init__(self) -> None:
        self.caught_by: int | None = None
        self.number: int | None = None
        self.raised = False
        self.in_flight: weakref.ref[KeyboardSignal] | None = None
        self.reraising = True
        self.acknowledged = False
        self.deferring = 0
        self.finished = False
        self.changed = False
        self.deadline: float | None = None
        self.code = 1


_signals = _Signals()


def catch() -> None:
    """Take SIGINT and SIGTERM over, for the rest of this process's life. Called once, in the main thread."""
    _signals.caught_by = os.getpid()
    atexit.register(_at_exit)  # registered first, so it runs last
    sys.unraisablehook = _on_unraisable
    signal.signal(signal.SIGALRM, _on_alarm)
    _wake_main_thread()
    for number in _HANDLED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _on_signal)


def reraise_lost(*, enabled: bool) -> None:
    """Say whether the command ends at once when a signal comes: one that is lost is then raised again.

    Until this is called, it does. A command that catches interrupts itself, and continues, must say that it doesn't.
    """
    _signals.reraising = enabled


def check() -> None:
    """A safe point of a command that ends at once: raise the signal that came and was lost. In other
    threads nothing is raised, nor where an exception is being handled: it may be the signal's own.
    """
    wanted = _signals.reraising and _may_raise() and sys.exc_info()[1] is None
    if wanted and threading.current_thread() is threading.main_thread():
        _raise()


@contextmanager
def deferred() -> Iterator[None]:
    """A signal that comes in the block is raised at its end; a second one at once. Of the main thread only.

    One that came before and was lost is raised before the block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    check()
    _signals.deferring += 1
    try:
        yield
    finally:
        _signals.deferring -= 1
        if _may_raise() and not _signals.raised:
            signal.setitimer(signal.ITIMER_REAL, _RERAISE_SECONDS)  # for a block that ended by an error
    if _may_raise() and not _signals.raised:
        _raise()


@contextmanager
def stop_on_signals(*, second_ends_process: bool = False) -> Iterator[threading.Event]:
    """An event that the signals set in the block, for a command that runs until it is stopped.

    `second_ends_process`: whether a second signal ends the process at once, without clean-up; else it changes nothing.
    """
    stop = SignalEvent()
    came: list[int] = []  # the event may be set a moment later

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if came and second_ends_process:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        came.append(number)
        _signals.number, _signals.raised = number, True
        _signals.acknowledged = True
        stop.set()

    with handled(on_signal, *_HANDLED):
        yield stop


def mark_finished(*, changed: bool = False) -> None:
    """The command has said all it has to say: from here on signals are noted only, and where it has `changed` something
    its code stays its own: the signal's would say that it hasn't."""
    _signals.finished = _signals.caught_by == os.getpid()
    _signals.changed = _signals.changed or changed


def is_finished() -> bool:
    """Whether a command has said all it has to say."""
    return _signals.finished


def pending() -> int | None:
    """The signal that came and that nobody has answered; None where there is none."""
    return None if _signals.acknowledged else _signals.number


def masked() -> int | None:
    """The signal that came before a command that ends at once failed with another error; None where there is none."""
    return _signals.number if _signals.reraising and _signals.raised and not _signals.acknowledged else None


def acknowledge() -> None:
    """The command says what the signal means that was raised: its code is then its own."""
    _signals.acknowledged = _signals.raised


def unacknowledged() -> int | None:
    """The signal that ended the command before it could say so; None where there is none."""
    return None if _signals.finished else pending()


def exit_process(code: int) -> NoReturn:
    """End the process: with this code, or with the signal's where one was not heard in time.

    Raises:
        SystemExit: always; the handlers of the process's end are still to run.
    """
    mark_finished()
    _signals.code = code
    sys.exit(code)


def _may_raise() -> bool:
    """Whether a signal came that nobody has answered, and may be raised."""
    return _signals.number is not None and not (_signals.finished or _signals.deferring or _signals.acknowledged)


def _on_signal(number: int, _frame: FrameType | None) -> None:
    first = _signals.number is None
    if first:
        _signals.number = number
    if _signals.finished:
        if _signals.deadline is None:
            _signals.deadline = time.monotonic() + _EXIT_SECONDS
            signal.setitimer(signal.ITIMER_REAL, _EXIT_SECONDS)
    elif not _signals.raised and (first if not _signals.deferring else not first):
        _raise()


def _raise() -> NoReturn:
    _signals.raised = True
    raise TermSignal() if _signals.number == signal.SIGTERM else KeyboardSignal()


def _on_freed(_reference: weakref.ref[KeyboardSignal]) -> None:
    """Nobody holds the exception that was raised last: if it was answered, the command is over."""
    if _signals.reraising and not (_signals.finished or _signals.acknowledged):
        _reraise_soon()


def _on_unraisable(dropped: sys.UnraisableHookArgs) -> None:
    """Python drops an exception: an interrupt is raised again where it can't be dropped."""
    if not isinstance(dropped.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
    elif not (_signals.finished or _signals.acknowledged):
        _reraise_soon()


def _reraise_soon() -> None:
    _signals.raised = False
    signal.setitimer(signal.ITIMER_REAL, _RERAISE_SECONDS)


def _on_alarm(_number: int, _frame: FrameType | None) -> None:
    if _signals.deadline is not None and time.monotonic() >= _signals.deadline:
        os._exit(_SIGNAL_EXIT_BASE + (_signals.number or signal.SIGTERM))
    if _may_raise() and not _signals.raised:
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
            if any(number in came for number in _HANDLED):
                signal.pthread_kill(main, signal.SIGALRM)

    threading.Thread(target=wake, name="drkit-signals", daemon=True).start()


def _at_exit() -> None:
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
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)  # the last moment to be heard
    answered = _signals.acknowledged or (_signals.raised and not _signals.reraising)
    own = answered or _signals.changed  # the command's code says it
    os._exit(code if own or _signals.number is None else _SIGNAL_EXIT_BASE + _signals.number)
