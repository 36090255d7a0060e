"""End processes that the caller has proved to be the lab's own."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable

import psutil

from drkit.lab import process

_POLL_SECONDS = 0.05
_KILL_SECONDS = 10.0


def kill(running: Iterable[psutil.Process]) -> None:
    """SIGKILL these processes and wait until they are gone."""
    listed = list(running)
    for each in listed:
        process.send(each, signal.SIGKILL)
    await_gone(listed, _KILL_SECONDS)


def stop(running: Iterable[psutil.Process], grace_seconds: float) -> list[psutil.Process]:
    """SIGTERM these processes, paused ones woken for it; SIGKILL what hasn't ended after the grace.

    Returns those that had to be killed.
    """
    listed = list(running)
    for each in listed:
        process.send(each, signal.SIGTERM)
        process.send(each, signal.SIGCONT)
    stubborn = await_gone(listed, grace_seconds)
    kill(stubborn)
    return stubborn


def await_gone(running: Iterable[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait until the processes have ended; returns those that have not."""
    deadline = time.monotonic() + seconds
    left = list(running)
    while True:
        left = [each for each in left if not process.gone(each)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_POLL_SECONDS)
