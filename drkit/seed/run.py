"""`bulk_seed`: copy with Spark the records that a link's source holds now."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from drkit.audit.spark.failures import in_words
from drkit.audit.spark.session import SparkRuntime, quietly, spark_session
from drkit.config import Config
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.config.client_config import packed
from drkit.lag.batch_comparison import BatchComparison, compare_known
from drkit.mirror.engine.interface import Engine, Goals, KeepRows
from drkit.mirror.runtime.events import OnEvent
from drkit.mirror.runtime.mirror_runtime import MirrorReport, MirrorRuntime
from drkit.model.topology import Link, TopicPartition
from drkit.seed.checks import check_seedable, seed_port
from drkit.seed.engine import SparkEngine
from drkit.seed.ledger import RANGE_OFFSETS
from drkit.seed.task import run_tasks
from drkit.store.api import Store
from drkit.store.link_notes import known_target_cluster
from drkit.store.producers import retired_producers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_ADMIN_SECONDS = 10.0

_MOST_TASKS = 256


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
    """Copy the current records of each of the link's partitions, in parallel tasks, and record it as a mirror does.

    It is a run of the mirror whose records move through Spark's tasks: if it is killed, run it again, or let an
    ordinary mirror continue.

    Args:
        config: the clusters.
        link: the link to run, in the direction in which its data flows.
        store: drkit's store; only the driver uses it.
        runtime: the installation that starts Spark.
        stop: ends it early.
        on_progress: as the mirror's.
        range_offsets: the most offsets of one partition for one task.

    Raises:
        ConfigError: a Spark property is incompatible with a seed.
        Refused: the link isn't forwarded in batches, or is sealed, reversed or paused.
        Unreachable: a cluster or the store stays away.
        DrkitError: Spark fails; says why.
    """
    check_seedable(link)
    with in_words("the bulk seed"), quietly():
        session = spark_session(runtime)
        jobs = SparkJobs(session, _payload(config, link, store), f"drkit bulk seed of {link.id}")
    source = ClusterAdmin(link.id.source, config.clusters[link.id.source], timeout_seconds=_ADMIN_SECONDS)
    try:
        seeding = MirrorRuntime(config, link, store, engine=_maker(jobs, source, link, range_offsets))
        with in_words("the bulk seed"):
            return seeding.run(until_caught_up=True, stop=stop, on_progress=on_progress)
    finally:
        source.close()


def _maker(jobs: SparkJobs, source: ClusterAdmin, link: Link, range_offsets: int) -> Callable[..., Engine]:
    def make(*, keep_rows: KeepRows, may_produce: Callable[[], bool], goals: Goals) -> Engine:
        return SparkEngine(
            jobs,
            goals,
            lambda read: _changed(compare_known(source, read)),
            keep_rows=keep_rows,
            may_produce=may_produce,
            range_offsets=range_offsets,
            bytes_per_second=link.max_bytes_per_second,
        )

    return make


def _changed(seen: BatchComparison) -> set[TopicPartition]:
    return {*seen.replaced, *seen.rewritten}


def _payload(config: Config, link: Link, store: Store) -> dict[str, object]:
    source, target = (packed(alias, config.clusters[alias]) for alias in (link.id.source, link.id.target))
    return {
        "source": source,
        "target": target,
        "producers": sorted(retired_producers(store, link.id, known_target_cluster(store, link.id) or "")),
        "committed": link.committed,
        "buffer_bytes": link.buffer_bytes,
        "rack": "",  # a worker's rack isn't known here
    }


class SparkJobs:
    """Runs the seed's tasks in a session. See `drkit.seed.engine.Jobs`.

    Args:
        session: the Spark session.
        payload: the input of each task besides its id and the driver's address. It holds secrets: it travels in
            Spark's task data, never in a plan, a property or a description.
        name: the jobs' name on Spark's page.

    Raises:
        ConfigError: a property of the session is incompatible with a seed.
    """

    def __init__(self, session: SparkSession, payload: Mapping[str, Any], name: str) -> None:
        self._context = session.sparkContext
        conf = self._context.getConf()
        self.port = seed_port(dict(conf.getAll()))
        self.host = conf.get("spark.driver.host", "127.0.0.1") or "127.0.0.1"
        self.bind = conf.get("spark.driver.bindAddress", self.host) or self.host
        self._payload = payload
        self._name = name
        self._group = f"drkit-seed-{id(self)}"
        self._pool = ThreadPoolExecutor(max_workers=_MOST_TASKS, thread_name_prefix="drkit-seed-job")

    def slots(self) -> int:
        """The cluster's cores for this application, at least one."""
        return max(1, min(_MOST_TASKS, self._context.defaultParallelism))

    def submit(self, task: str, port: int, key: bytes, ended: Callable[[BaseException | None], None]) -> None:
        """Run one task; see `drkit.seed.engine.Jobs`."""
        payload = json.dumps({**self._payload, "task": task, "host": self.host, "port": port, "key": key.hex()})
        self._pool.submit(self._run, task, payload, ended)

    def close(self) -> None:
        """Stop the running tasks; they also learn it on their own connections."""
        with suppress(Exception):  # a JVM that is gone runs none
            self._context.cancelJobGroup(self._group)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, task: str, payload: str, ended: Callable[[BaseException | None], None]) -> None:
        try:
            self._context.setJobGroup(self._group, f"{self._name}: {task}", interruptOnCancel=True)
            self._context.parallelize([payload], 1).mapPartitions(run_tasks).collect()
        except Exception as error:  # noqa: BLE001 - told to whoever decides
            ended(error)
        else:
            ended(None)
