"""Ends a mirror's process because a partition is stuck, even if the stuck thread can't be ended."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from drkit.model.errors import DrkitError, ExitCode
from drkit.model.topology import Link, LinkId

SERVICE_SECONDS = 300.0
"""The watchdog's patience for a mirror that runs as a service."""
GRACE_SECONDS = 20.0
"""How long the runtimes may take to end in order once one is stuck."""
_LOOK_SECONDS = 0.2


class RunningMirrors(Protocol):
    """A thread that runs one link."""

    link: Link

    @property
    def stuck(self) -> DrkitError | None:
        """Why the watchdog ends it; None: it does not."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""

    def is_alive(self) -> bool:
        """Whether it has not ended."""


def watchdog_seconds(given: float | None, *, until_caught_up: bool) -> float | None:
    """The watchdog's patience: what was given (0: none), else that of a service; catching up has its own end."""
    if given is None:
        return None if until_caught_up else SERVICE_SECONDS
    return given or None


def wait_for(
    workers: Sequence[RunningMirrors],
    stop: threading.Event,
    say: Callable[[LinkId, DrkitError], None],
    *,
    grace_seconds: float = GRACE_SECONDS,
    leave: Callable[[int], None] = os._exit,
) -> None:
    """Wait until all have ended. When one is stuck the others are told to stop normally; if one still runs
    after `grace_seconds` the whole process is left, because nothing else ends a call that doesn't return.
    Acknowledged records are kept, as after any kill.
    """
    deadline: float | None = None
    while any(worker.is_alive() for worker in workers):
        for worker in workers:
            worker.join(_LOOK_SECONDS)
        stuck = next((worker for worker in workers if worker.stuck is not None), None)
        if stuck is None or stuck.stuck is None:
            continue
        stop.set()
        if deadline is None:
            deadline = time.monotonic() + grace_seconds
        elif time.monotonic() > deadline:
            say(stuck.link.id, stuck.stuck)
            sys.stdout.flush()
            sys.stderr.flush()
            leave(int(ExitCode.FAILED))
            return
