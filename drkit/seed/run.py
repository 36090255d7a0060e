"""`bulk_seed`: bring over by Spark what a link's source holds now."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from drkit.audit.spark.failures import in_words
from drkit.audit.spark.session import SparkRuntime, quietly, spark_session
from drkit.config import Config
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.config.portable_config import packed
from drkit.mirror.engine.interface import Engine, KeepRows
from drkit.mirror.runtime.events import OnEvent
from drkit.mirror.runtime.mirror_runtime import MirrorReport, MirrorRuntime
from drkit.model.topology import Link
from drkit.seed.checks import check_seedable
from drkit.seed.engine import SparkEngine
from drkit.seed.ranges import RANGE_OFFSETS
from drkit.store.api import Store

if TYPE_CHECKING:
    from drkit.seed.spark import SparkJobs

_ADMIN_SECONDS = 10.0


def bulk_seed(
    config: Config,
    link: Link,
    store: Store,
    runtime: SparkRuntime,
    *,
    stop: threading.Event | None = None,
    on_progress: OnEvent | None = None,
    range_offsets: int = RANGE_OFFSETS,
) -> MirrorReport:
    """Bring over what each of the link's partitions holds now, in parallel tasks, and record it as a mirror does.

    It is a run of the mirror whose records move through Spark's tasks: killed at any moment, it is run again, or an
    ordinary mirror continues in its place.

    Args:
        config: the clusters.
        link: the link to run, in the direction in which its data flows.
        store: drkit's memory; only the driver speaks to it.
        runtime: what Spark is started from.
        stop: ends it early.
        on_progress: as the mirror's.
        range_offsets: offsets of one partition that one task brings over at most.

    Raises:
        ConfigError: a property of Spark's doesn't go with a seed.
        Refused: the link isn't forwarded in batches, or is sealed, reversed or paused.
        Unreachable: a cluster or the store stays away.
        DrkitError: Spark fails; says why.
    """
    from drkit.seed.spark import SparkJobs  # noqa: PLC0415 - PySpark loads only where it is used

    check_seedable(link)
    with in_words("the bulk seed"), quietly():
        session = spark_session(runtime)
        jobs = SparkJobs(session, _payload(config, link), f"drkit bulk seed of {link.id}")
    source = ClusterAdmin(link.id.source, config.clusters[link.id.source], timeout_seconds=_ADMIN_SECONDS)
    try:
        seeding = MirrorRuntime(config, link, store, engine=_maker(jobs, source, link, range_offsets))
        with in_words("the bulk seed"):
            return seeding.run(until_caught_up=True, stop=stop, on_progress=on_progress)
    finally:
        source.close()


def _maker(jobs: SparkJobs, source: ClusterAdmin, link: Link, range_offsets: int) -> Callable[..., Engine]:
    def make(*, keep_rows: KeepRows, may_produce: Callable[[], bool]) -> Engine:
        return SparkEngine(
            jobs,
            lambda tps: source.end_offsets(tps, committed=link.committed, partial=True),
            keep_rows=keep_rows,
            may_produce=may_produce,
            range_offsets=range_offsets,
            bytes_per_second=link.max_bytes_per_second,
        )

    return make


def _payload(config: Config, link: Link) -> dict[str, object]:
    source, target = (packed(alias, config.clusters[alias]) for alias in (link.id.source, link.id.target))
    return {
        "source": source,
        "target": target,
        "committed": link.committed,
        "buffer_bytes": link.buffer_bytes,
        "rack": "",  # a worker's own place isn't known here
    }
