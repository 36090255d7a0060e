"""Plays branches at the same time, each in a thread of its own.

Signals reach only the main thread. So an interrupt there cancels the branches (`environment.cancellation`), waits until
each has ended its processes, and continues.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from drkit.drill.environment.cancellation import Cancelled, cancelled_by

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

    def play(branch: Sequence[PlayStep]) -> None:
        with cancelled_by(cancelled):
            for step in branch:
                if ended.is_set() or cancelled.is_set():
                    return
                try:
                    succeeded = step()
                except BaseException:
                    ended.set()
                    raise
                if not succeeded:
                    ended.set()

    playing: list[Future[None]] = []
    with ThreadPoolExecutor(max_workers=len(branches), thread_name_prefix="branch") as pool:
        try:
            try:
                playing += (pool.submit(play, branch) for branch in branches)
                wait(playing)
            finally:
                cancelled.set()
        except BaseException:
            cancelled.set()  # again: a second signal may have come before the first one's `finally` set it
            _wait_whatever_comes(lambda: wait(playing))
            raise
    for each in playing:
        error = each.exception()
        if error is not None and not isinstance(error, Cancelled):
            raise error


def _wait_whatever_comes(wait_for_all: Callable[[], object]) -> None:
    """Wait although further signals come: no branch may act while the rollbacks run."""
    while True:
        try:
            wait_for_all()
        except (KeyboardInterrupt, SystemExit):
            continue
        return
