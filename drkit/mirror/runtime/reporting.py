"""A run's reports: progress events, statistics in the store, the canary's latency; and the watchdog.

Nothing here moves records or decides about them: failures here are reported and retried, and the mirror continues.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.mirror.engine.interface import Engine
from drkit.mirror.health.problems import Problems
from drkit.mirror.health.stalls import Stalls
from drkit.mirror.health.watchdog import PartitionObservation, Watchdog
from drkit.mirror.progress import MirrorProgress
from drkit.mirror.runtime.canary import Canary
from drkit.mirror.runtime.events import OnEvent, ProgressEvent
from drkit.mirror.runtime.periodic_task import Periodic
from drkit.model.clock import now
from drkit.model.errors import DrkitError
from drkit.model.offsets import LOOKS_WITHIN_SECONDS, Watermark
from drkit.model.statistics import EngineStatistics, WorkerStatistics
from drkit.model.topology import Link, is_canary
from drkit.store.api import LinkStore
from drkit.store.workers import forget_worker_statistics, put_worker_statistics

log = logging.getLogger(__name__)

SAVE_SECONDS = 3.0
_FRESH = timedelta(seconds=LOOKS_WITHIN_SECONDS)
_JOIN_SECONDS = 10.0
_REPORT_SHARE = 0.01
"""Part of a core: a report on ten thousand partitions is made every few seconds, one on a hundred each second."""
_HEALTHY = frozenset({"mirroring", "degraded"})  # else a cluster or the store is down, or all is paused


@dataclass(frozen=True, slots=True)
class RunView:
    """The parts of a run that reporting reads. All may be called from any thread.

    Args:
        state: the state of the run as in a progress event, and why.
        holds: whether a topic is paused.
        leads: whether this worker does the work that one worker of the link does for all.
        stalls: gets partitions that don't move.
        one_look: makes some work one look (`drkit.mirror.workers.worker.Worker.one_look`).
    """

    link: Link
    worker: str
    engine: Engine
    progress: MirrorProgress
    problems: Problems
    state: Callable[[], tuple[str, str | None]]
    holds: Callable[[str], bool]
    leads: Callable[[], bool]
    stalls: Stalls
    one_look: Callable[[Callable[[], None]], Callable[[], None]]


class Reporting:
    """Reports, stores statistics, runs the watchdog.

    Args:
        run: the run to report on.
        store: where statistics go.
        tell: the listener.
        canary: whether to send the link's canary (if it has one).
        watchdog_seconds: how long a partition may be stuck; None: no watchdog.
        ending: set when the run is to end.
        clusters: the source's administration, and both clusters, for the canary.
    """

    def __init__(
        self,
        run: RunView,
        store: LinkStore,
        tell: OnEvent,
        clusters: tuple[ClusterAdmin, ClusterConfig, ClusterConfig],
        *,
        canary: bool,
        watchdog_seconds: float | None,
        ending: threading.Event,
    ) -> None:
        self.stuck: DrkitError | None = None
        self._run = run
        self._store = store
        self._tell = tell
        self._started_at = now()
        self._rates = Rates()
        self._newest: WorkerStatistics | None = None
        self._watchdog = (
            None if watchdog_seconds is None else Watchdog(watchdog_seconds, time.monotonic, answering_only=True)
        )
        topic = run.link.canary_topic if canary else None
        admin, source, target = clusters
        self._canary = (
            None if topic is None else Canary(run.link, topic, admin, source, target, runs=run.leads, stop=ending)
        )
        self._reporting = Periodic("report", 1.0, run.one_look(self._report), ending, share=_REPORT_SHARE)
        self._saving = Periodic("statistics", SAVE_SECONDS, self._save, ending)

    @property
    def ends(self) -> BaseException | None:
        """Why the run should end: a partition is stuck, or a defect ended one of the threads here."""
        return self.stuck or self._reporting.failure or self._saving.failure

    def start(self) -> None:
        """Begin."""
        self._reporting.start()
        self._saving.start()
        if self._canary is not None:
            self._canary.start()

    def close(self) -> None:
        """Wait for the threads (after `ending` was set); remove this worker's statistics from the store."""
        joined = [self._reporting.join(_JOIN_SECONDS), self._saving.join(_JOIN_SECONDS)]
        if self._canary is not None:
            joined.append(self._canary.join(_JOIN_SECONDS))
        if not all(joined):
            log.warning("%s: still busy at the end: reporting", self._run.link.id)
        try:
            forget_worker_statistics(self._store, self._run.link.id, self._run.worker, now())
        except DrkitError as error:
            log.debug("%s: the statistics of this run stay in the store: %s", self._run.link.id, error)

    def _report(self) -> None:
        run, at = self._run, now()
        statistics = run.engine.statistics()
        records_per_second, bytes_per_second = self._rates.note(statistics)
        state, reason = run.state()
        latency = None if self._canary is None else self._canary.latency()
        watermarks = tuple(sorted(run.progress.current(), key=lambda watermark: watermark.tp))
        report = ProgressEvent(
            run.link.id,
            at,
            state,
            reason,
            statistics.records,
            records_per_second,
            tuple(mark for mark in watermarks if not is_canary(mark.topic)),
            statistics,
            bytes_per_second,
            latency,
            run.worker,
            self._started_at,
            tuple(sorted(run.problems.gone_topics())),
        )
        self._newest = report.numbers()
        self._tell(report)
        observations = self._observations(watermarks)
        healthy = state in _HEALTHY
        run.stalls.check(
            observations, {mark.tp: (mark.source_through, mark.target_end) for mark in watermarks}, healthy=healthy
        )
        if self._watchdog is not None and self.stuck is None:
            stuck = self._watchdog.check(observations, healthy=healthy)
            if stuck:
                first = stuck[0]
                self.stuck = first.error(run.link.id, run.engine.waits_for(first.tp), len(stuck) - 1)

    def _observations(self, watermarks: Iterable[Watermark]) -> list[PartitionObservation]:
        run, at = self._run, now()
        unasked = run.engine.unasked()
        return [
            PartitionObservation(
                mark.tp,
                mark.source_through,
                mark.source_end,
                fresh=at - mark.observed_at <= _FRESH,
                held=run.holds(mark.topic) or run.problems.halts(mark.tp) or mark.tp in unasked,
                target_end=mark.target_end,
            )
            for mark in watermarks
        ]

    def _save(self) -> None:
        if self._newest is not None:
            put_worker_statistics(self._store, self._run.link.id, self._newest)


WINDOW_SECONDS = 5.0


class Rates:
    """Records and bytes per second over the last few seconds. Not thread-safe.

    Args:
        clock: monotonic seconds.
        window_seconds: how far back; a single look longer ago than that still counts.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, window_seconds: float = WINDOW_SECONDS) -> None:
        self._clock = clock
        self._window = window_seconds
        self._seen: deque[tuple[float, int, int]] = deque([(clock(), 0, 0)])

    def note(self, statistics: EngineStatistics) -> tuple[float, float]:
        """Add the newest counters; returns (records, bytes) per second."""
        at = self._clock()
        self._seen.append((at, statistics.records, statistics.bytes))
        while len(self._seen) > 2 and self._seen[1][0] <= at - self._window:  # noqa: PLR2004 - two make a rate
            self._seen.popleft()
        then, records, size = self._seen[0]
        seconds = max(at - then, 0.001)
        return (statistics.records - records) / seconds, (statistics.bytes - size) / seconds
