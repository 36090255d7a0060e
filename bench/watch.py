"""Watch a mirror from outside: the log ends of its target topic, and what its processes use meanwhile.

The one clock is this process's monotonic one. A record counts as being on the target when the partition's
high watermark there has passed it; on a single broker that is when it was appended. The watcher asks every
10 ms until the first record is seen, then every 20 ms: that is the resolution of both ends of the measured span.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.measure import ProcessTree
from bench.processes import MeasurementFailed
from bench.wire import Connection

_FIRST_POLL_SECONDS = 0.01
_POLL_SECONDS = 0.02
_MEMORY_SECONDS = 0.25


@dataclass(slots=True)
class Moment:
    """What was true at one look. `seconds`: since the launch."""

    seconds: float
    records: int
    cpu_seconds: float
    rss_bytes: int


@dataclass(slots=True)
class Watched:
    """A run as seen from outside. `moments`: about four a second from the first record on."""

    first: Moment
    last: Moment
    peak_rss_bytes: int
    complete: bool
    moments: list[Moment] = field(default_factory=list)


def watch(
    address: str,
    topics: Mapping[str, int],
    *,
    expected: int,
    launched_at: float,
    process: subprocess.Popen[bytes],
    quiet_seconds: float,
    limit_seconds: float,
    progress: Callable[[int], None],
) -> Watched:
    """Watch until `expected` records are on the target, or `limit_seconds` after the launch (then not `complete`).

    Args:
        address: host:port of the target's one broker.
        topics: the target topics, which need not exist yet, with their numbers of partitions.
        expected: records to wait for.
        launched_at: `time.monotonic()` of the launch.
        process: the mirror; it and its descendants are metered.
        quiet_seconds: longest time without a new record.
        limit_seconds: longest time in all.
        progress: gets the number of records so far.

    Raises:
        MeasurementFailed: the process ended, or was quiet for too long.
    """
    tree = ProcessTree(process)
    wanted = [(topic, range(partitions)) for topic, partitions in topics.items()]
    first: Moment | None = None
    seen = 0
    moments: list[Moment] = []
    moved_at = time.monotonic()
    with Connection(address) as connection:
        while True:
            records = sum(sum(connection.ends(topic, numbers).values()) for topic, numbers in wanted)
            now = time.monotonic()
            due = not moments or now - launched_at - moments[-1].seconds >= _MEMORY_SECONDS
            if records and (first is None or records >= expected or due):
                moments.append(Moment(now - launched_at, records, tree.cpu_seconds(), tree.rss_bytes()))
                first = first or moments[0]
                progress(records)
                tree.peak_rss_bytes()
            over = now - launched_at > limit_seconds
            if first is not None and (records >= expected or over):
                return Watched(first, moments[-1], tree.peak_rss_bytes(), records >= expected, moments)
            if records != seen:
                seen, moved_at = records, now
            if process.poll() is not None:
                raise MeasurementFailed(f"it ended with exit code {process.returncode} after {records:,} records")
            if now - moved_at > quiet_seconds or over:
                raise MeasurementFailed(f"no new record for {now - moved_at:.0f} s after {records:,} of {expected:,}")
            time.sleep(_FIRST_POLL_SECONDS if first is None else _POLL_SECONDS)
