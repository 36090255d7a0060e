"""A deadline that callers pass down, so that nested waits share it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Self, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """A point in time of the monotonic clock."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Self:
        """That many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then; 0 once it has passed."""
        return max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.at

    def within(self, seconds: float) -> Deadline:
        """This deadline, or that many seconds from now if that is earlier."""
        return min(self, Deadline.after(seconds))


def bounded(deadline: Deadline, call: Callable[[], T], name: str) -> T:
    """Call something that has no timeout of its own (a host name look-up, a slow answer), with a deadline.

    It runs on a thread of its own, which is abandoned at the deadline and must free its own resources.

    Args:
        deadline: how long to wait.
        call: the function; its exceptions are raised here.
        name: of the thread.

    Raises:
        TimeoutError: the deadline has passed.
    """
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
            outcome.set_exception(error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return outcome.result(deadline.left)
