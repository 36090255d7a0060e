"""Events of a running mirror: progress about once a second, problems as they arise, the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drkit.model.link_state import Problem
from drkit.model.offsets import Watermark
from drkit.model.statistics import EngineStatistics, Latency, WorkerStatistics
from drkit.model.topology import LinkId
from drkit.model.totals import total
from drkit.model.wording import and_more, counted


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """The progress of a link's mirror. `state`: mirroring, degraded, paused or waiting, `reason` why.

    `records`: acknowledged since the runtime began; `records_per_second`: over the last interval.
    `halted`: halted partitions (or, with partition None, topics). `statistics`: the engine's
    counters. `latency`: of the canary, None where the link has none. `worker`: its name in the store;
    `started_at`: when the runtime began. `gone`: topics that the source has deleted and the target still has: nothing
    of them is behind, and no look at the source shows them.
    """

    link: LinkId
    at: datetime
    state: str
    reason: str | None
    records: int
    records_per_second: float
    watermarks: tuple[Watermark, ...]
    statistics: EngineStatistics
    bytes_per_second: float
    latency: Latency | None
    worker: str
    started_at: datetime
    gone: tuple[str, ...] = ()

    @property
    def on_source(self) -> tuple[Watermark, ...]:
        """The watermarks of the topics that the source has."""
        return tuple(mark for mark in self.watermarks if mark.topic not in self.gone)

    @property
    def lag_records(self) -> int | None:
        """Source offsets not yet mirrored, over all partitions of topics that the source has; None: this worker has
        begun none, or could not look at one of them lately."""
        marks = self.on_source
        return total(mark.lag_at(self.at)[0] for mark in marks) if marks else None

    @property
    def lag_seconds(self) -> float | None:
        """The age of the oldest end not yet reached, or of the oldest look; None: none has begun here."""
        return max((mark.lag_at(self.at)[1] for mark in self.on_source), default=None)

    def lag_in_words(self) -> str:
        """For people: records, seconds and partitions, and which topics the source has no more."""
        records, seconds = self.lag_records, self.lag_seconds
        if seconds is None:
            lag = "" if self.gone else "no partition has begun"
        elif records is None:
            lag = f"not known how far behind, the source was not seen for {seconds:.1f} s"
        else:
            lag = f"{records:,} behind ({seconds:.1f} s), {counted(len(self.on_source), 'partition')}"
        if not self.gone:
            return lag
        held = f"gone on {self.link.source} and held on {self.link.target}: {and_more(self.gone)}"
        return f"{lag}; {held}" if lag else held

    def numbers(self) -> WorkerStatistics:
        """The worker's statistics."""
        return WorkerStatistics(
            self.worker,
            self.at,
            self.started_at,
            self.state,
            self.reason,
            len(self.watermarks),
            self.records_per_second,
            self.bytes_per_second,
            self.statistics,
            self.latency,
        )

    def document(self) -> dict[str, Any]:
        """As one JSON object (docs/schemas/mirror.schema.json)."""
        return {
            "type": "progress",
            "link": str(self.link),
            "at": self.at,
            "worker": self.worker,
            "started_at": self.started_at,
            "state": self.state,
            "reason": self.reason,
            "records": self.records,
            "records_per_second": round(self.records_per_second, 1),
            "bytes_per_second": round(self.bytes_per_second, 1),
            "lag_records": self.lag_records,
            "lag_seconds": self.lag_seconds,
            "gone": list(self.gone),
            "statistics": self.statistics.document(),
            "latency": None if self.latency is None else self.latency.document(),
            "partitions": [_partition(self.at, watermark) for watermark in self.on_source],
        }


@dataclass(frozen=True, slots=True)
class ProblemEvent:
    """A new problem that an operator must know."""

    link: LinkId
    problem: Problem

    def document(self) -> dict[str, Any]:
        """As one JSON object."""
        return {"type": "problem", "link": str(self.link), **problem_document(self.problem)}


@dataclass(frozen=True, slots=True)
class DoneEvent:
    """The runtime stopped normally. `caught_up` is None where it wasn't asked to catch up."""

    link: LinkId
    at: datetime
    records: int
    caught_up: bool | None
    halted: tuple[Problem, ...]

    def document(self) -> dict[str, Any]:
        """As one JSON object."""
        return {
            "type": "done",
            "link": str(self.link),
            "at": self.at,
            "records": self.records,
            "caught_up": self.caught_up,
            "halted": [problem_document(problem) for problem in self.halted],
        }


MirrorEvent = ProgressEvent | ProblemEvent | DoneEvent
OnEvent = Callable[[MirrorEvent], None]


def problem_document(problem: Problem) -> dict[str, Any]:
    """A problem as a JSON object."""
    return {
        "kind": problem.kind,
        "topic": problem.topic,
        "partition": problem.partition,
        "reason": problem.reason,
        "remedy": problem.remedy,
        "halted": problem.halted,
        "since": problem.since,
        "unsure_from": problem.unsure_from,
        "unsure_until": problem.unsure_until,
    }


def _partition(at: datetime, watermark: Watermark) -> dict[str, Any]:
    """`lag_records` as last seen; `lag_seconds` tells where that was long ago."""
    return {
        "topic": watermark.topic,
        "partition": watermark.partition,
        "source_start": watermark.source_start,
        "source_end": watermark.source_end,
        "mirrored_through": watermark.source_through,
        "target_end": watermark.target_end,
        "lag_records": watermark.lag_records,
        "lag_seconds": watermark.lag_at(at)[1],
    }
