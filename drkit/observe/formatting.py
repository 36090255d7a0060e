"""Formats workers' numbers and problems' locations, the same for the page and the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from drkit.model.link_state import WHOLE_LINK, Problem
from drkit.model.statistics import EngineStatistics, Latency, WorkerStatistics
from drkit.model.wording import counted

_STEP = 1000.0
_WORTH_SAYING = 2.0
_IN_SECONDS = 10.0


def place(problem: Problem) -> str:
    """`orders:3`, `orders`, or nothing if it is about the whole link."""
    return "" if problem.topic == WHOLE_LINK else problem.place


def place_unless_named(problem: Problem) -> str:
    """`place`, or nothing if the problem's reason names it."""
    found = place(problem)
    return "" if found in problem.reason else found


def loss(records: int | None, *, lower_bound: bool) -> str:
    """`12 records`, `12 records or more`, `not known`."""
    if records is None:
        return "not known"
    return counted(records, "record") + (" or more" if lower_bound else "")


def short(worker: str) -> str:
    """The readable part of a worker's name: host and process id."""
    return ":".join(worker.split(":")[:2])


def throughput(worker: WorkerStatistics) -> str:
    """`1,200/s · 3.4 MB/s`."""
    return f"{worker.records_per_second:,.0f}/s · {size(worker.bytes_per_second)}/s"


def in_flight(statistics: EngineStatistics) -> str:
    """`1,200 records · 3.4 MB`; a question mark for unknown values."""
    waiting = statistics.in_flight_records
    records = "? records" if waiting is None else counted(waiting, "record")
    held = "? B" if statistics.in_flight_bytes is None else size(statistics.in_flight_bytes)
    return f"{records} · {held}"


def catching_up(statistics: EngineStatistics) -> str | None:
    """`12 partitions behind, copied at 30.2 MB/s at most, the target answers within 3 ms`; None: nothing is behind."""
    behind = statistics.partitions_behind
    if not behind:
        return None
    parts = [f"{counted(behind, 'partition')} behind"]
    if statistics.catch_up_bytes_per_second is not None:
        parts.append(f"copied at {size(statistics.catch_up_bytes_per_second)}/s at most")
    if statistics.target_latency_seconds is not None:
        parts.append(f"the target answers within {_ms(statistics.target_latency_seconds)}")
    return ", ".join(parts)


def treatment(statistics: EngineStatistics) -> str:
    """Batches by treatment: `1,204 forwarded, 3 merged, 7 rebuilt (aborted 5, compacted 2)`."""
    parts = [f"{statistics.batches_forwarded:,} forwarded"] if statistics.batches_forwarded else []
    if statistics.batches_merged:
        parts.append(f"{statistics.batches_merged:,} merged")
    rebuilt = sum(statistics.batches_rebuilt.values())
    if rebuilt:
        parts.append(f"{rebuilt:,} rebuilt ({_by_reason(statistics.batches_rebuilt)})")
    if statistics.markers_matched:
        parts.append(f"{statistics.markers_matched:,} markers matched")
    dropped = sum(statistics.records_dropped.values())
    if dropped:
        parts.append(f"{dropped:,} left out ({_by_reason(statistics.records_dropped)})")
    if parts:
        return ", ".join(parts)
    return "batches are not counted" if statistics.records else "nothing sent yet"


def latency(found: Latency | None) -> str:
    """`p50 4 ms · p99 12 ms`, with the age of a late canary; another text without measurements."""
    if found is None:
        return "no canary"
    measured = "none arrived"
    if found.p50 is not None and found.p99 is not None:
        measured = f"p50 {_ms(found.p50)} · p99 {_ms(found.p99)}"
    if found.waiting_seconds < _WORTH_SAYING:
        return measured
    return f"{measured} · one is on its way for {found.waiting_seconds:.0f} s"


def size(count: float) -> str:
    """Bytes with a unit: `3.4 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < _STEP:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= _STEP
    return f"{count:,.1f} TB"


def _by_reason(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(counts.items()))


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds < _IN_SECONDS else f"{seconds:,.1f} s"
