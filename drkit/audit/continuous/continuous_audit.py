"""The continuous audit: closed ranges reconciled as the mirror runs, with Structured Streaming.

    watermarks ──▶ stream of closed ranges ──▶ a batch ──▶ slices ──▶ reconciled ──▶ kept, told
                   (offsets in the checkpoint)                                       (progress, beside it)

Spark writes a batch's ranges to the checkpoint before it runs, and marks it done afterwards. In between, one atomic
step stores the sum with the batch's number. So after a SIGKILL a batch is either run again from its start, with none of
it in the sum, or known to be in the sum and skipped.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import TypeVar

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from drkit.audit.compare.scope import refuse_unknown_topics
from drkit.audit.continuous.closed_ranges import CountedRanges, begin, reconcile
from drkit.audit.continuous.target_tail import TargetTailAudit
from drkit.audit.continuous.watermark_stream import closed_ranges
from drkit.audit.read.shipped_code import callables_of
from drkit.audit.run import refuse_unmapped
from drkit.audit.spark.failures import LogMoved, in_words
from drkit.audit.spark.session import SparkRuntime, quietly, ship_callables, spark_session
from drkit.config import Config
from drkit.kafka.transform.record_transform import Alteration
from drkit.model.audit.audit_result import TopicChoice
from drkit.model.audit.continuous_audit import AuditProgress, ClosedRange, Reconciled, slices
from drkit.model.clock import from_millis, iso, now
from drkit.model.errors import AuthenticationError, ConfigError, DrkitError, Refused, Unreachable
from drkit.model.topology import Link
from drkit.store.api import Store

STATE_FILE = "progress.json"
LOCK_FILE = "lock"
STREAM = "stream"
OFFSETS_A_SLICE = 2_000_000
"""Source offsets that are compared at once: what memory is needed for."""

_NOTHING_CLOSED = "for a mirror to close a first range of these topics"
_POLL_SECONDS = 0.3
_RETRY_SECONDS = 5.0
_OVERDUE_SECONDS, _OVERDUE_INTERVALS = 600.0, 3

Found = TypeVar("Found")
Listener = Callable[[Sequence[Reconciled], AuditProgress], None]
"""Called after each batch with its ranges and the sum, and again while it raises Unreachable: not done before that."""


@dataclass(frozen=True, slots=True)
class ContinuousRequest:
    """What to audit and where progress is kept.

    `checkpoint`: a folder (made if missing), of one link for good. `store_url`: the store, for the stream's planner.
    `wanted`: what `TopicChoice` reads, empty: all of the link's. `from_now`: begin at what is mirrored now.
    """

    link: Link
    checkpoint: Path
    store_url: str
    interval_seconds: float = 10.0
    wanted: tuple[str, ...] = ()
    from_now: bool = False


class _StopAsked(Exception):
    """The audit was asked to stop; the batch is run again next time."""


class ContinuousAudit:
    """One link's continuous audit; `run` it once.

    Args:
        request: what to audit.
        store: mapping rows and watermarks.
        config: both clusters.
        runtime: what to run on.
        told: told of every batch.
        say: told in words what keeps it from working, once each time.
        began: told once the checkpoint is this process's, before the first batch.
    """

    def __init__(
        self,
        request: ContinuousRequest,
        store: Store,
        config: Config,
        runtime: SparkRuntime,
        told: Listener,
        say: Callable[[str], None],
        began: Callable[[AuditProgress], None] | None = None,
    ) -> None:
        self._request = request
        self._store = store
        self._config = config
        self._runtime = runtime
        self._told = told
        self._say = say
        self._began = began
        self._stop = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._working = threading.Lock()
        self._behind = TargetTailAudit(request.link, store, config)
        self._failure: BaseException | None = None
        self._progress: AuditProgress | None = None
        self.problem: str | None = None
        self._answered_at = time.monotonic()

    @property
    def progress(self) -> AuditProgress | None:
        """The sum up to now; None before it has begun."""
        return self._progress

    @property
    def works(self) -> bool:
        """Whether it compares: nothing keeps it waiting, and its last comparison isn't so long ago that it hangs."""
        overdue = max(_OVERDUE_SECONDS, _OVERDUE_INTERVALS * self._request.interval_seconds)
        return self.problem is None and time.monotonic() - self._answered_at < overdue

    def run(self, stop: threading.Event) -> AuditProgress:
        """Reconcile what is closed and what gets closed, until told to stop; returns the sum.

        Raises:
            Refused: the link keeps no mapping, or another process uses the checkpoint.
            ConfigError: the link has none of the topics asked for.
            DrkitError: the checkpoint can't be read, or Spark failed.
        """
        request, self._stop = self._request, stop
        refuse_unmapped(request.link, "a continuous audit")
        Alteration.of(self._config, request.link)
        with _held(request.checkpoint):
            self._progress = load_progress(request.checkpoint, str(request.link.id)) or AuditProgress(
                run=f"audit-{now().astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
                link=str(request.link.id),
                started_at=iso(now()) or "",
            )
            keep_progress(request.checkpoint, self._progress)
            if self._began is not None:
                self._began(self._progress)
            if not self._choices_checked():
                return replace(self._progress, waiting=self.problem)
            session = spark_session(self._runtime)
            ship_callables(session, callables_of(request.link))
            session.conf.set("spark.sql.shuffle.partitions", session.sparkContext.defaultParallelism)
            with in_words("the continuous audit"), quietly():
                stream = closed_ranges(
                    session, request.store_url, request.link.id, request.wanted, from_now=request.from_now
                )
                query = (
                    stream.writeStream.foreachBatch(self._batch)
                    .option("checkpointLocation", (request.checkpoint / STREAM).as_uri())
                    .trigger(processingTime=f"{max(1, round(request.interval_seconds * 1000))} milliseconds")
                    .start()
                )
                self._watch(query)
        return replace(self._progress, waiting=self.problem or (None if self._progress.ranges else _NOTHING_CLOSED))

    def _choices_checked(self) -> bool:
        """Whether the link has the topics asked for, or none were; False: it was stopped before a cluster answered.

        Raises:
            ConfigError: it has no such topic.
        """
        link, choices = self._request.link, tuple(map(TopicChoice.parse, self._request.wanted))
        if choices:
            cluster = self._config.clusters[link.id.source]
            try:
                self._patiently(lambda: refuse_unknown_topics(link, choices, self._store, cluster))
            except _StopAsked:
                return False
        return True

    def _watch(self, query: StreamingQuery) -> None:
        """Wait for the end, whoever brings it about."""
        due = time.monotonic() + self._request.interval_seconds
        try:
            while query.isActive and not self._stop.wait(_POLL_SECONDS):
                if time.monotonic() >= due and self._working.acquire(blocking=False):
                    try:
                        if not self._stop.is_set():  # what a batch was stopped waiting for stays told
                            self._look_behind()
                    finally:
                        self._working.release()
                    due = time.monotonic() + self._request.interval_seconds
            self._stop_or_raise(query)
        finally:
            self._stop.set()
            self._idle.wait()  # let a running slice finish: its answer may still arrive
            query.stop()

    def _stop_or_raise(self, query: StreamingQuery) -> None:
        if self._stop.is_set():
            return
        if isinstance(self._failure, DrkitError):
            raise self._failure
        failed = query.exception()
        if failed is not None:
            raise failed

    def _look_behind(self) -> None:
        """Audit the target behind all that is reconciled: between batches, as it belongs to no range."""
        progress = self._progress
        assert progress is not None  # noqa: S101 - `run` sets it before the stream begins
        try:
            found = self._behind.check(progress, partial(spark_session, self._runtime))
            if not found:
                self._works()
                return
            progress = progress.beheld(found)
            self._told([each.outcome for each in found], progress)
        except (Unreachable, AuthenticationError, LogMoved, ConfigError) as error:
            self._behind.again()
            if self.problem != error.what:
                self._say(f"waiting: {error.what}")
            self.problem = error.what
            return
        keep_progress(self._request.checkpoint, progress)
        self._progress = progress
        self._works()

    def _works(self) -> None:
        """All answered."""
        self.problem, self._answered_at = None, time.monotonic()

    def _batch(self, rows: DataFrame, batch: int) -> None:
        """One of the stream's batches, on a thread of Spark's."""
        self._idle.clear()
        try:
            with self._working:
                self._reconcile(rows, batch)
        except _StopAsked:
            raise
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._idle.set()

    def _reconcile(self, rows: DataFrame, batch: int) -> None:
        progress = self._progress
        assert progress is not None  # noqa: S101 - `run` sets it before the stream begins
        if batch <= progress.batch:  # stored, but Spark could not mark it done
            return
        if batch != progress.batch + 1:
            raise DrkitError(
                f"{self._request.checkpoint} is inconsistent: stream at batch {batch}, sum at {progress.batch}",
                meaning="One of its parts was restored from an earlier time; ranges between them are in no sum",
                remedy="Give another --checkpoint to start over",
            )
        closed = [ClosedRange(*row) for row in rows.collect()]
        kept, found, progress = self._begun(closed, batch, progress)
        for lot in slices(kept, OFFSETS_A_SLICE):
            found += self._patiently(partial(self._compared, lot, progress.told_of(lot)))
        at = now()
        oldest = min((each.closed_ms for each in closed), default=None)
        latency = 0.0 if oldest is None else max(0.0, (at - from_millis(oldest)).total_seconds())
        progress = progress.added(batch, found, at, latency) if closed else replace(progress, batch=batch)
        if closed:
            try:
                self._told(found, progress)  # also where a stop was asked for meanwhile
            except Unreachable:
                self._patiently(partial(self._told, found, progress))
        keep_progress(self._request.checkpoint, progress)
        self._progress = progress

    def _begun(
        self, closed: Sequence[ClosedRange], batch: int, progress: AuditProgress
    ) -> tuple[list[ClosedRange], list[Reconciled], AuditProgress]:
        """What of a batch is to be compared, what can be said at once, and the sum: where ranges begin is kept in it
        before anything is compared, so that a batch that is run again begins where it did."""
        unsure = [each for each in closed if each.opening or each.until - each.first > OFFSETS_A_SLICE]
        if not unsure:
            return list(closed), [], progress
        begins = progress.begins if progress.begins_of == batch else None
        kept, aside, found = self._patiently(
            lambda: begin(unsure, begins, self._request.link, self._store, self._config)
        )
        if begins is None:
            progress = replace(progress, begins=found, begins_of=batch)
            keep_progress(self._request.checkpoint, progress)
        return sorted({*closed} - {*unsure} | {*kept}), aside, progress

    def _compared(self, lot: Sequence[ClosedRange], told: CountedRanges) -> list[Reconciled]:
        return reconcile(lot, told, self._request.link, self._store, self._config, spark_session(self._runtime))

    def _patiently(self, look: Callable[[], Found]) -> Found:
        """Look; again and again while a cluster or the store doesn't answer."""
        while not self._stop.is_set():
            try:
                found = look()
            except (Unreachable, AuthenticationError, LogMoved) as error:
                if self.problem != error.what:
                    self._say(f"waiting: {error.what}")
                self.problem = error.what
                self._stop.wait(_RETRY_SECONDS)
            else:
                self._works()
                return found
        raise _StopAsked


def load_progress(checkpoint: Path, link: str) -> AuditProgress | None:
    """What was kept; None where nothing was.

    Raises:
        Refused: it is another link's.
        DrkitError: it can't be read.
    """
    path = checkpoint / STATE_FILE
    try:
        progress = AuditProgress.from_json(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        if (checkpoint / STREAM / "offsets").exists():
            raise DrkitError(
                f"{checkpoint} is inconsistent: {STATE_FILE} is missing beside the stream's checkpoint",
                meaning="Ranges reconciled before are in no sum",
                remedy="Give another --checkpoint to start over",
            ) from None
        return None
    except OSError as error:
        raise DrkitError(f"{path} can't be read: {error.strerror or error}", remedy="Check its permissions") from error
    if progress.link != link:
        raise Refused(
            f"{checkpoint} is the checkpoint of {progress.link}, not of {link}", remedy="Give another --checkpoint"
        )
    return progress


def keep_progress(checkpoint: Path, progress: AuditProgress) -> None:
    """Keep the sum, in one atomic and durable step."""
    path = checkpoint / STATE_FILE
    new = path.with_suffix(".new")
    with new.open("w", encoding="utf-8") as file:
        file.write(progress.to_json())
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(checkpoint, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _held(checkpoint: Path) -> Iterator[None]:
    """Hold the checkpoint's folder; the lock dies with the process."""
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
        file = (checkpoint / LOCK_FILE).open("a")
    except OSError as error:
        raise DrkitError(
            f"{checkpoint} can't be made: {error.strerror or error}", remedy="Give another --checkpoint"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"another continuous audit is running on {checkpoint}",
                meaning="Two of them would count the same ranges",
                remedy="Stop it first, or give another --checkpoint",
            ) from None
        yield
