"""How a drill waits, and plays branches at the same time, each in a thread of its own.

A signal reaches only the main thread, and is deferred there while branches are played: raised while a lock is taken, it
would leave it locked. It cancels the branches, and is raised once each has ended its processes. All waits of a drill
use `rest`, which raises `Cancelled` in a cancelled branch, as an interrupt does in the main thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from confluent_kafka import KafkaException

from drkit.lab.process import Interrupts
from drkit.model.errors import DrkitError


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


T = TypeVar("T")

_POLL_SECONDS = 0.2


class NotInTime(DrkitError):
    """The awaited condition did not occur: this proves nothing about the rehearsed procedure."""


def wait_for(what: str, seconds: float, ask: Callable[[], T]) -> T:
    """Ask until the result is true; returns it.

    Raises:
        NotInTime: it took longer.
    """
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            answer = ask()
        except KafkaException as error:
            last = error
        else:
            if answer:
                return answer
            last = answer
        rest(_POLL_SECONDS)
    raise NotInTime(f"{what} did not happen within {seconds:g} s; last seen: {last!r}")


_LOOK_SECONDS = 0.02
PlayStep = Callable[[], bool]
"""Plays one step; returns whether the branch continues."""


def play_parallel(branches: Sequence[Sequence[PlayStep]]) -> None:
    """Play the steps of each branch in order, the branches at the same time; returns when all have ended.

    Once a step returns false, no further step begins, in any branch; steps that are being played end by themselves.

    Raises:
        KeyboardInterrupt, SystemExit: of this thread, after all branches have ended.
        Exception: what a step raised.
    """
    cancelled, ended = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def play(branch: Sequence[PlayStep]) -> None:
        with cancelled_by(cancelled):
            for step in branch:
                if ended.is_set() or cancelled.is_set():
                    return
                try:
                    succeeded = step()
                except BaseException as error:  # noqa: BLE001  # raised below, in the caller's thread
                    errors.append(error)
                    succeeded = False
                if not succeeded:
                    ended.set()

    _run_threads([threading.Thread(target=play, args=(branch,), name="branch") for branch in branches], cancelled)
    for error in errors:
        if not isinstance(error, Cancelled):
            raise error


def _run_threads(threads: Sequence[threading.Thread], cancelled: threading.Event) -> None:
    """Run threads to their end; after a signal they are cancelled, and it is raised once all have ended."""
    with Interrupts() as interrupts:
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                interrupts.check()
                time.sleep(_LOOK_SECONDS)
        except (KeyboardInterrupt, SystemExit):
            cancelled.set()
            for thread in threads:
                thread.join()
            raise
