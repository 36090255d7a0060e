"""When the records of findings were stamped: counts by topic, kind and time, from the findings' Parquet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from drkit.model.clock import from_millis

BUCKETS = 60
_COLUMNS = ["kind", "topic", "timestamp"]


@dataclass(frozen=True, slots=True)
class OverTime:
    """Findings by time of stamp: `counts` by (topic, kind), one for each of BUCKETS equal parts of [first, last]."""

    first: datetime
    last: datetime
    counts: dict[tuple[str, str], list[int]]


def over_time(paths: Iterable[Path]) -> OverTime | None:
    """Count the findings in these Parquet folders; None where there are none. Memory doesn't grow with them."""
    sources = [ds.dataset(path, format="parquet") for path in paths]
    low, high = None, None
    for source in sources:
        for batch in source.to_batches(columns=["timestamp"]):
            if batch.num_rows:
                stamps = _millis(batch)
                low = int(stamps.min()) if low is None else min(low, int(stamps.min()))
                high = int(stamps.max()) if high is None else max(high, int(stamps.max()))
    if low is None or high is None:
        return None
    width = max(1, high - low)
    counts: dict[tuple[str, str], np.ndarray] = {}
    for source in sources:
        for batch in source.to_batches(columns=_COLUMNS):
            for topic in pc.unique(batch["topic"]).to_pylist():
                of_topic = batch.filter(pc.equal(batch["topic"], topic))
                for kind in pc.unique(of_topic["kind"]).to_pylist():
                    stamps = _millis(of_topic.filter(pc.equal(of_topic["kind"], kind)))
                    places = np.minimum((stamps - low) * BUCKETS // width, BUCKETS - 1)
                    found = np.bincount(places, minlength=BUCKETS)
                    counts[topic, kind] = counts.get((topic, kind), np.zeros(BUCKETS, np.int64)) + found
    return OverTime(from_millis(low), from_millis(high), {each: sums.tolist() for each, sums in counts.items()})


def _millis(batch: pa.RecordBatch) -> np.ndarray:
    stamps = batch["timestamp"].cast(pa.timestamp("us")).cast(pa.int64())
    return np.asarray(stamps.to_numpy(zero_copy_only=False)) // 1000
