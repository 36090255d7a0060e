"""Waits for conditions, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.05


def wait_until(predicate: Callable[[], T], timeout: float = 30.0, what: str = "the condition") -> T:
    """Call `predicate` until its result is true, and return the result.

    An AssertionError of `predicate` counts as "not yet"; a failure shows the last one.
    Raises AssertionError after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    last: object = None
    while True:
        try:
            last = predicate()
        except AssertionError as error:
            last = error
        else:
            if last:
                return last
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come about within {timeout} s; last seen: {last!r}")
        time.sleep(_POLL_SECONDS)
