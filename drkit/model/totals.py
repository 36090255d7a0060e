"""Numbers of which some may be unknown (None), taken together: what isn't known of one isn't known of all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

_Number = TypeVar("_Number", int, float)


def total(values: Iterable[_Number | None]) -> _Number | None:
    """The sum; None where one is None. 0 where there is none."""
    known, complete = _known(values)
    return sum(known) if complete else None


def greatest(values: Iterable[_Number | None]) -> _Number | None:
    """The greatest; None where one is None, or there is none."""
    known, complete = _known(values)
    return max(known, default=None) if complete else None


def _known(values: Iterable[_Number | None]) -> tuple[list[_Number], bool]:
    """Those that are known, and whether all are."""
    found = list(values)
    known = [value for value in found if value is not None]
    return known, len(known) == len(found)
