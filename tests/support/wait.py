"""Waiting for conditions, never for time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.05


def wait_until(predicate: Callable[[], T], timeout: float = 30.0, what: str = "the condition") -> T:
    """Call `predicate` until it returns something true, and return that.

    An AssertionError raised by `predicate` counts as "not yet"; the last one is shown on failure.
    Raises AssertionError when `timeout` seconds went by.
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
