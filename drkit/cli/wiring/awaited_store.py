"""How services wait for a store that is away at their start: a mirror before its links begin, a page beside it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from drkit.model.errors import Unreachable

log = logging.getLogger(__name__)

WAIT_SECONDS = 2.0
_T = TypeVar("_T")


def once_it_answers(
    read: Callable[[], _T], stop: threading.Event, waiting: Callable[[Unreachable], object]
) -> _T | None:
    """What the store gives, once it answers; None: `stop` was set before. `waiting`: called with each attempt's error.

    Raises:
        DrkitError: it answers, and is missing, or another one than this drkit can use.
    """
    while not stop.is_set():
        try:
            return read()
        except Unreachable as error:
            waiting(error)
            log.warning("waiting for the store: %s", error)
            stop.wait(WAIT_SECONDS)
    return None
