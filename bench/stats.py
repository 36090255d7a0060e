"""Statistics: percentiles, medians, ratios that may be unknown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence


def percentile(ordered: Sequence[float], share: float) -> float:
    """The percentile `share` (0 to 1) of an ascending sequence (nearest rank).

    Raises:
        ValueError: nothing was measured, or a share outside 0 to 1.
    """
    if not ordered:
        raise ValueError("a percentile of nothing")
    if not 0 <= share <= 1:
        raise ValueError(f"a share of {share} is not between 0 and 1")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(values: Iterable[float | None]) -> float | None:
    """The median of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def ratio(above: float | None, below: float | None) -> float | None:
    """The quotient; None if either is unknown or `below` is 0."""
    if above is None or below is None or below == 0:
        return None
    return above / below
