from collections.abc import Callable
from dataclasses import replace

import pytest

from bench.results import BacklogRun, LiveRun, Results

_BACKLOG = BacklogRun(
    case="large",
    peer="drkit",
    repeat=1,
    records=10_000_000,
    mirrored_records=10_000_000,
    complete=True,
    seconds=10.0,
    records_per_second=1_000_000.0,
    mb_per_second=100.0,
    cpu_seconds=2.0,
    cpu_seconds_per_million=0.2,
    launch_seconds=1.2,
    launch_cpu_seconds=0.9,
    peak_rss_mib=120.0,
    rss_first_half_mib=110.0,
    rss_second_half_mib=112.0,
)
_LIVE = LiveRun(
    case="live",
    peer="direct",
    repeat=1,
    records=100_000,
    records_per_second=5000.0,
    p50_ms=2.0,
    p99_ms=8.0,
    max_ms=20.0,
    cpu_share=None,
    peak_rss_mib=None,
)


@pytest.fixture
def results() -> Results:
    """Nothing measured."""
    return Results({"kafka": "4.3.1", "cores": 2}, "full")


@pytest.fixture
def backlog_run() -> Callable[..., BacklogRun]:
    """A backlog run of drkit's that meets every target, with some fields changed."""
    return lambda **changes: replace(_BACKLOG, **changes)


@pytest.fixture
def live_run() -> Callable[..., LiveRun]:
    """A live run, with some fields changed."""
    return lambda **changes: replace(_LIVE, **changes)
