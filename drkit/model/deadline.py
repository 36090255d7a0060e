"""The moment by which a wait has to end, whatever it waits for: handed down, so that nested waits share it."""

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
    """A moment of the monotonic clock."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Self:
        """So many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then; 0 once it has passed."""
        return max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether nothing may be waited for any more."""
        return time.monotonic() >= self.at

    def within(self, seconds: float) -> Deadline:
        """This one, or so many seconds from now where that is earlier."""
        return min(self, Deadline.after(seconds))


def bounded(deadline: Deadline, call: Callable[[], T], name: str) -> T:
    """What `call` comes to, for calls that have no bound of their own (looking up a host's name, a slow answer).

    It runs on a thread of its own, which is left to itself at the deadline: what it holds, it has to give up itself.

    Args:
        deadline: how long to wait.
        call: what is called; what it raises is raised here.
        name: of the thread.

    Raises:
        TimeoutError: the deadline has passed.
    """
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again by who waits
            outcome.set_exception(error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return outcome.result(deadline.left)
