"""The moment by which a wait has to end, whatever it waits for: handed down, so that nested waits share it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self


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
