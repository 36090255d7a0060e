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

_ANSWERING = (("mirror",), ("serve",), ("drill", "schedule"), ("audit", "watch"))
"""The commands that handle SIGHUP. It ends any other, as it ends any program."""


class Hangups:
    """Received signals: a thread handles each, once a handler is set."""

    def __init__(self) -> None:
        self._came: queue.SimpleQueue[bool] = queue.SimpleQueue()  # a signal handler may put into it at any moment

    def heard(self) -> None:
        """One more came."""
        self._came.put(True)

    def answer(self, reload: Callable[[], None]) -> None:
        """Call `reload` for each from now on, also for those that came before."""
        from drkit.model.log_context import keeping_context

        def work() -> None:
            while self._came.get():
                reload()

        threading.Thread(target=keeping_context(work), name="drkit-reload", daemon=True).start()

    def end(self) -> None:
        """Answer no more."""
        self._came.put(False)


class _Noted:
    """What came before the command was ready to answer. `at_terminal`: a terminal's end ends the process."""

    def __init__(self) -> None:
        self.at_terminal = _at_terminal()
        self.count = 0

    def __call__(self, number: int, _frame: object) -> None:
        if self.at_terminal and not _has_terminal():  # nothing has begun that would have to be ended in order
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.count += 1


def note(arguments: Sequence[str]) -> None:
    """Note SIGHUP from now on, if these are the arguments of a command that will answer it. Of the main thread only.

    What is imported until the command is ready takes longer than a reload that follows a start at once. A signal that
    was blocked when the process began (`held_back`) is let in.
    """
    if any(tuple(arguments[: len(each)]) == each for each in _ANSWERING):
        signal.signal(signal.SIGHUP, _Noted())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))


@contextmanager
def held_back() -> Iterator[None]:
    """A drkit that is started in the block finds a SIGHUP that came before its first line in `note`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def hangups(stop: threading.Event) -> Iterator[Hangups]:
    """SIGHUP in the block, and what was noted before it, for its `answer`; where the signal says that the terminal is
    gone, `stop` is set instead.
    """
    found = Hangups()
    noted = signal.getsignal(signal.SIGHUP)
    at_terminal = noted.at_terminal if isinstance(noted, _Noted) else _at_terminal()

    def handler(*_: object) -> None:
        if at_terminal and not _has_terminal():
            stop.set()
        else:
            found.heard()

    before = signal.signal(signal.SIGHUP, handler)
    if isinstance(noted, _Noted):
        for _ in range(noted.count):
            found.heard()
        noted.count = 0
    try:
        yield found
    finally:
        signal.signal(signal.SIGHUP, before)
        found.end()


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
