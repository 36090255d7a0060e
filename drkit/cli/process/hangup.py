"""SIGHUP of a long-running command: noted from its first line on, and handled once the command is ready.

A terminal that closes sends SIGHUP, too. A command started at one then stops normally, as by SIGTERM; one started with
`nohup` continues, and handles the signal like any other.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

_HANDLING_COMMANDS = (("mirror",), ("serve",), ("drill", "schedule"), ("audit", "watch"))
"""The commands that handle SIGHUP. It ends any other, as it ends any program."""


class Hangups:
    """Received signals: a thread handles each, once a handler is set."""

    def __init__(self) -> None:
        self._received: queue.SimpleQueue[bool] = queue.SimpleQueue()  # a signal handler may put into it at any moment

    def receive(self) -> None:
        """One more came."""
        self._received.put(True)

    def handle_with(self, reload: Callable[[], None]) -> None:
        """Call `reload` for each from now on, also for those that came before."""
        from drkit.model.process import keeping_context

        def handle_each() -> None:
            while self._received.get():
                reload()

        threading.Thread(target=keeping_context(handle_each), name="drkit-reload", daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._received.put(False)


class _EarlyHangups:
    """What came before the command was ready to answer. `at_terminal`: a terminal's end ends the process."""

    def __init__(self) -> None:
        self.at_terminal = _at_terminal()
        self.count = 0

    def __call__(self, number: int, _frame: object) -> None:
        if self.at_terminal and not _has_terminal():  # nothing has begun that would have to be ended in order
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.count += 1


def count_early(arguments: Sequence[str]) -> None:
    """Note SIGHUP from now on, if these are the arguments of a command that will answer it. Of the main thread only.

    What is imported until the command is ready takes longer than a reload that follows a start at once. A signal that
    was blocked when the process began (`sighup_blocked`) is let in.
    """
    if any(tuple(arguments[: len(each)]) == each for each in _HANDLING_COMMANDS):
        signal.signal(signal.SIGHUP, _EarlyHangups())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))


@contextmanager
def sighup_blocked() -> Iterator[None]:
    """A drkit that is started in the block finds a SIGHUP that came before its first line in `count_early`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def hangups(stop: threading.Event) -> Iterator[Hangups]:
    """SIGHUP in the block, and those counted before it, for its `handle_with`; where the signal says that the
    terminal is gone, `stop` is set instead.
    """
    found = Hangups()
    early = signal.getsignal(signal.SIGHUP)
    at_terminal = early.at_terminal if isinstance(early, _EarlyHangups) else _at_terminal()

    def handler(*_: object) -> None:
        if at_terminal and not _has_terminal():
            stop.set()
        else:
            found.receive()

    before = signal.signal(signal.SIGHUP, handler)
    if isinstance(early, _EarlyHangups):
        for _ in range(early.count):
            found.receive()
        early.count = 0
    try:
        yield found
    finally:
        signal.signal(signal.SIGHUP, before)
        found.close()


def _at_terminal() -> bool:
    """Whether the end of a terminal is to end this process."""
    return signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
