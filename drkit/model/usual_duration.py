"""What a turn of repeated work takes, so that long work is repeated less often."""

from __future__ import annotations


class UsualDuration:
    """Long is what takes long twice in a row.

    A turn in which the process was stopped (SIGSTOP, a machine that slept) says nothing about the work: what it was to
    see is due at once, and what it saw is old.
    """

    def __init__(self) -> None:
        self._before: float | None = None

    def after(self, seconds: float) -> float:
        """What turns take, in seconds, once one has taken this long."""
        before, self._before = self._before, seconds
        return 0.0 if before is None else min(seconds, before)
