"""All ways of comparing: an audit of a mirror's output with each of them, and the continuous one.

found = every_way(audit, topic, link=mirrored(bench, topic)); assert rows(found["full"]) == rows(found["default"])
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from drkit.audit.continuous.continuous_audit import ContinuousAudit, ContinuousRequest
from drkit.audit.spark.session import SparkRuntime
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.model.audit.audit_result import AuditResult
from drkit.model.audit.continuous_audit import AuditProgress
from drkit.model.topology import Link
from tests.support.audits.damage import Bench
from tests.support.wait import wait_until

_NAMES_THE_AUDIT = {"observed_at", "run"}


def mirrored(bench: Bench, pattern: str) -> Link:
    """Mirror the matching topics until everything is on the target; returns the link of these topics."""
    link = replace(bench.link, topics=(pattern,))
    assert MirrorRuntime(bench.config, link, bench.store).run(until_caught_up=True).caught_up
    return link


@contextmanager
def in_tasks() -> Iterator[None]:
    """Without space in the driver: Spark's tasks classify all differences, which stay with the executors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("drkit.audit.compare.first_pass.MEMORY_BUDGET", 0)
        yield


def every_way(
    audit: Callable[..., AuditResult], *topics: str, digests: bool = True, **options: Any
) -> dict[str, AuditResult]:
    """One audit after the other: by batches, decoded, by digest where that is available, in Spark's tasks."""
    found = {"default": audit(*topics, **options), "full": audit(*topics, full=True, **options)}
    if digests:
        found["digest"] = audit(*topics, from_digests=True, **options)
    with in_tasks():
        found["in tasks"] = audit(*topics, **options)
    return found


def rows(result: AuditResult, topic: str | None = None) -> list[dict[str, Any]]:
    """All findings (of a topic) on the disk, without the fields that name the audit itself; sorted."""
    table = pq.read_table(result.findings_path)
    kept = [name for name in table.column_names if name not in _NAMES_THE_AUDIT]
    return sorted((row for row in table.select(kept).to_pylist() if topic in {None, row["topic"]}), key=str)


def continuously(
    bench: Bench, link: Link, spark: SparkRuntime, folder: Path, url: str, agrees: Callable[[AuditProgress], None]
) -> None:
    """Run a continuous audit that begins now until its findings agree.

    Args:
        bench: both clusters, and the store at `url`.
        link: the link to audit.
        spark: the session.
        folder: the checkpoint's.
        url: the store's, which Spark's stream opens by itself.
        agrees: asserts that the sum is correct; called until it is.
    """
    told: list[object] = []
    request = ContinuousRequest(link, folder, url, 0.5)
    watch = ContinuousAudit(request, bench.store, bench.config, spark, lambda each, _: told.extend(each), told.append)
    stop = threading.Event()

    def found() -> bool:
        assert watch.progress is not None, told
        try:
            agrees(watch.progress)
        except AssertionError as error:
            raise AssertionError(f"{error}; told: {told}") from error
        return True

    with ThreadPoolExecutor(max_workers=1) as pool:
        running = pool.submit(watch.run, stop)
        try:
            wait_until(found, timeout=90, what="the continuous audit to find what was done")
        finally:
            stop.set()
            running.result(60)
