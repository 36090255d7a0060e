"""When the records of findings were stamped: counts by topic, kind and time, from the findings' Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from drkit.audit.findings.findings_files import findings_dataset
from drkit.model.clock import YEAR_10000, from_millis, to_millis

BUCKETS = 60
_COLUMNS = ["kind", "topic", "timestamp_ms"]


_MOST = 0.75
_FEW_BUCKETS = 3
_LOOKS = 6
_LEAST_MS = 60_000


@dataclass(frozen=True, slots=True)
class FindingsOverTime:
    """Findings by time of stamp: `counts` by (topic, kind), one for each of BUCKETS equal parts of [first, last].

    `earlier`, `later`: findings outside of these, at most a quarter: one odd stamp doesn't hide when the rest was.
    """

    first: datetime
    last: datetime
    counts: dict[tuple[str, str], list[int]]
    earlier: int = 0
    later: int = 0


def over_time(paths: Iterable[Path]) -> FindingsOverTime | None:
    """Count the findings in these Parquet folders; None where there are none. Memory doesn't grow with them."""
    sources = [findings_dataset(path) for path in paths]
    bounds = _bounds(sources, None)
    if bounds is None:
        return None
    found = _counted(sources, *bounds)
    for _ in range(_LOOKS):
        nearer = _nearer(found)
        bounds = None if nearer is None else _bounds(sources, nearer)
        if bounds is None:
            break
        found = _counted(sources, *bounds)
    return found


def _bounds(sources: Sequence[ds.Dataset], within: tuple[int, int] | None) -> tuple[int, int] | None:
    """The first and last stamp, in ms; None where there is none."""
    low, high = None, None
    for source in sources:
        for batch in source.to_batches(columns=["timestamp_ms"]):
            stamps = _millis(batch)
            if within is not None:
                stamps = stamps[(stamps >= within[0]) & (stamps <= within[1])]
            if len(stamps):
                low = int(stamps.min()) if low is None else min(low, int(stamps.min()))
                high = int(stamps.max()) if high is None else max(high, int(stamps.max()))
    return None if low is None or high is None else (low, high)


def _nearer(found: FindingsOverTime) -> tuple[int, int] | None:
    """The few neighbouring buckets that hold most findings, as [low, high] in ms; None where they are spread out."""
    low, width = to_millis(found.first), to_millis(found.last) - to_millis(found.first)
    sums = np.sum(list(found.counts.values()), axis=0)
    windows = np.convolve(sums, np.ones(_FEW_BUCKETS, np.int64), "valid")
    at = int(windows.argmax())
    everything = int(sums.sum()) + found.earlier + found.later
    if width < _LEAST_MS or windows[at] < everything * _MOST:
        return None
    return low + at * width // BUCKETS, low + -(-(at + _FEW_BUCKETS) * width // BUCKETS)


def _counted(sources: Sequence[ds.Dataset], low: int, high: int) -> FindingsOverTime:
    width = max(1, high - low)
    earlier = later = 0
    counts: dict[tuple[str, str], np.ndarray] = {}
    for source in sources:
        for batch in source.to_batches(columns=_COLUMNS):
            stamps = _millis(batch)
            earlier += int((stamps < low).sum())
            later += int((stamps > high).sum())
            for topic in pc.unique(batch["topic"]).to_pylist():
                of_topic = batch.filter(pc.equal(batch["topic"], topic))
                for kind in pc.unique(of_topic["kind"]).to_pylist():
                    stamps = _millis(of_topic.filter(pc.equal(of_topic["kind"], kind)))
                    stamps = stamps[(stamps >= low) & (stamps <= high)]
                    places = np.minimum((stamps - low) * BUCKETS // width, BUCKETS - 1)
                    found = np.bincount(places, minlength=BUCKETS)
                    counts[topic, kind] = counts.get((topic, kind), np.zeros(BUCKETS, np.int64)) + found
    return FindingsOverTime(
        from_millis(low), from_millis(high), {each: sums.tolist() for each, sums in counts.items()}, earlier, later
    )


def _millis(batch: pa.RecordBatch) -> np.ndarray:
    """The timestamps that are dates."""
    stamps = np.asarray(batch["timestamp_ms"].to_numpy(zero_copy_only=False))
    return stamps[(stamps >= 0) & (stamps < YEAR_10000)]
