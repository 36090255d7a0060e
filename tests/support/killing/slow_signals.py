"""Signals whose answers take longer than what they interrupt would have waited."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from drkit.model.process import handled

_EVERY = 1.2
"""How much longer than its answer takes is it from one signal to the next."""


@contextmanager
def slow_signals(seconds: float) -> Iterator[list[int]]:
    """In the block one signal follows another, and each takes so long to answer; yields those that were answered. Of
    the main thread only."""
    answered: list[int] = []

    def answer(number: int, _frame: object) -> None:
        time.sleep(seconds)
        answered.append(number)

    with handled(answer, signal.SIGALRM):
        signal.setitimer(signal.ITIMER_REAL, seconds * _EVERY, seconds * _EVERY)
        try:
            yield answered
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
