"""Spark's progress: tasks done and to do, for whatever displays it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import StatusTracker
from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.3

Progress = Callable[[str], None]
"""Called with what is being done, in a few words."""

Tasks = Callable[[int, int], None]
"""Called with the tasks done and the tasks in all of the stages that run now."""


def timed(progress: Progress) -> Progress:
    """`progress` that logs when each step begins, in seconds since this was made (at debug level)."""
    began = time.monotonic()

    def say(step: str) -> None:
        log.debug("%.2f s: %s", time.monotonic() - began, step)
        progress(step)

    return say


def described(session: SparkSession, work: str, progress: Progress) -> Progress:
    """`progress` that names the step in Spark's own page, too: the jobs of each step carry it as their description."""

    def say(step: str) -> None:
        describe(session, f"{work}: {step}")
        progress(step)

    return say


def describe(session: SparkSession, work: str) -> None:
    """Name the jobs that this thread starts from now on, on Spark's own page."""
    session.sparkContext.setJobDescription(f"drkit {work}")


@contextmanager
def watching(session: SparkSession, tasks: Tasks | None) -> Iterator[None]:
    """Report the running stages' tasks until the block ends; from a thread of its own."""
    if tasks is None:
        yield
        return
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(session, tasks, over), name="drkit-spark-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _watch(session: SparkSession, tasks: Tasks, over: threading.Event) -> None:
    tracker: StatusTracker | None = None
    while not over.wait(_POLL_SECONDS):
        try:  # the JVM may be ended at any moment, also before the first look
            tracker = tracker or session.sparkContext.statusTracker()
            found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Exception:
            log.debug("Spark doesn't tell its tasks any more", exc_info=True)
            return
        stages = [stage for stage in found if stage is not None]
        if stages:
            tasks(sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages))
