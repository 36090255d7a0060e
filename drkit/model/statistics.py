"""Statistics of a running mirror, per engine and per worker.

Counters start at 0 with each engine and only grow; `started_at` shows a restart. What isn't known is None, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """The counters of an engine; each engine fills those that it can.

    Args:
        records: acknowledged by the target since the engine began.
        bytes: of those records: whole batches as sent (compressed).
        batches_forwarded: source batches whose records went out untouched.
        batches_rebuilt: source batches that were taken apart and recreated, by reason
            (``altered``, ``compacted``, ``log_append_time``, ``old_format``, ``too_large`` …).
        batches_merged: source batches that were coalesced.
        markers_matched: transaction markers of the source matched by one on the target.
        records_dropped: records that a filter left out, by reason.
        in_flight_records, in_flight_bytes: sent and not yet acknowledged.
        fetch_requests, fetch_bytes: sent to, and received from the source.
        produce_requests: sent to the target.
        partitions_behind: partitions of which the source held more when they were last read.
        catch_up_bytes_per_second: the current rate limit for a backlog; None: no limit.
        target_latency_seconds: the 99th percentile of the target's recent answer times; None: not measured, because
            there is no backlog or nobody else uses the target.
        throttled_seconds: how long brokers throttled this client by quota.
    """

    records: int = 0
    bytes: int = 0
    batches_forwarded: int = 0
    batches_rebuilt: Mapping[str, int] = field(default_factory=dict)
    batches_merged: int = 0
    markers_matched: int = 0
    records_dropped: Mapping[str, int] = field(default_factory=dict)
    in_flight_records: int | None = None
    in_flight_bytes: int | None = None
    fetch_requests: int | None = None
    fetch_bytes: int | None = None
    produce_requests: int | None = None
    partitions_behind: int | None = None
    catch_up_bytes_per_second: float | None = None
    target_latency_seconds: float | None = None
    throttled_seconds: float | None = None

    def document(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "records": self.records,
            "bytes": self.bytes,
            "batches_forwarded": self.batches_forwarded,
            "batches_rebuilt": dict(self.batches_rebuilt),
            "batches_merged": self.batches_merged,
            "markers_matched": self.markers_matched,
            "records_dropped": dict(self.records_dropped),
            "in_flight_records": self.in_flight_records,
            "in_flight_bytes": self.in_flight_bytes,
            "fetch_requests": self.fetch_requests,
            "fetch_bytes": self.fetch_bytes,
            "produce_requests": self.produce_requests,
            "partitions_behind": self.partitions_behind,
            "catch_up_bytes_per_second": _whole(self.catch_up_bytes_per_second),
            "target_latency_seconds": _rounded(self.target_latency_seconds),
            "throttled_seconds": _rounded(self.throttled_seconds),
        }


@dataclass(frozen=True, slots=True)
class Latency:
    """From a canary's send on the source to its arrival at a reader of the target, in seconds.

    Args:
        p50, p99: of the records that arrived within the last `window_seconds`; None where none did.
        samples: their number.
        window_seconds: the window's length.
        waiting_seconds: the age of the oldest canary sent that has not arrived; 0 if all have.
        arrived, seconds: how many arrived since the worker began, and the sum of their latencies.
    """

    p50: float | None
    p99: float | None
    samples: int
    window_seconds: float
    waiting_seconds: float
    arrived: int = 0
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "p50_seconds": _rounded(self.p50),
            "p99_seconds": _rounded(self.p99),
            "samples": self.samples,
            "window_seconds": self.window_seconds,
            "waiting_seconds": round(self.waiting_seconds, 3),
            "arrived": self.arrived,
        }


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """One worker of a link, as of `at`. Rates are per second over the last few seconds.

    `worker` is the owner's name in the lease; `latency` is None where the link has no canary.
    """

    worker: str
    at: datetime
    started_at: datetime
    state: str
    reason: str | None
    partitions: int
    records_per_second: float
    bytes_per_second: float
    statistics: EngineStatistics
    latency: Latency | None = None

    def document(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "worker": self.worker,
            "at": self.at,
            "started_at": self.started_at,
            "state": self.state,
            "reason": self.reason,
            "partitions": self.partitions,
            "records_per_second": round(self.records_per_second, 1),
            "bytes_per_second": round(self.bytes_per_second, 1),
            "statistics": self.statistics.document(),
            "latency": None if self.latency is None else self.latency.document(),
        }


def quantile(ascending: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of the values don't exceed (nearest rank); None for no values."""
    if not ascending:
        return None
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


def _whole(rate: float | None) -> int | None:
    return None if rate is None else round(rate)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
