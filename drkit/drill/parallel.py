"""Plays branches at the same time, each in a thread of its own.

Signals reach only the main thread, and are deferred there while branches are played: raised while a lock is taken, one
would leave it locked. It cancels the branches (`environment.cancellation`), and is raised once each has ended its
processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from drkit.drill.environment.cancellation import Cancelled, cancelled_by
from drkit.lab.interrupts import Interrupts

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

    _run([threading.Thread(target=play, args=(branch,), name="branch") for branch in branches], cancelled)
    for error in errors:
        if not isinstance(error, Cancelled):
            raise error


def _run(threads: Sequence[threading.Thread], cancelled: threading.Event) -> None:
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
