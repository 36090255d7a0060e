"""One Spark session for all audit tests, and a bench of both clusters for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drkit.audit.run import run_audit
from drkit.audit.spark.session import SparkRuntime, stop_session
from drkit.lab import Lab
from drkit.lab.toolchain import Toolchain
from drkit.model.audit.audit_result import AuditRequest, AuditResult, TopicChoice
from tests.support.audits.damage import Bench

Audit = Callable[..., AuditResult]


@pytest.fixture(scope="session")
def spark(toolchain: Toolchain) -> Iterator[SparkRuntime]:
    yield SparkRuntime(toolchain.spark_java_home, driver_memory="1g")
    stop_session()


@pytest.fixture
def bench(lab: Lab) -> Iterator[Bench]:
    made = Bench(lab)
    yield made
    made.store.close()


@pytest.fixture
def audit(bench: Bench, spark: SparkRuntime, tmp_path: Path) -> Audit:
    """Audit topics of the bench; the counts of every partition must add up."""
    runs: list[int] = []

    def run(*topics: str, **options) -> AuditResult:
        runs.append(1)
        progress, store = options.pop("progress", None), options.pop("store", bench.store)
        request = AuditRequest(
            link=options.pop("link", bench.link),
            out=str(tmp_path / f"audit-{len(runs)}"),
            topics=tuple(TopicChoice.parse(topic) for topic in topics),
            **options,
        )
        result = run_audit(request, store, bench.config, spark, progress=progress)
        for each in (result.counts, *(part.counts for part in result.partitions)):
            assert each.broken_identity() is None
        return result

    return run
