"""The seed's tasks as Spark jobs: one job of one task each, so that tasks come and go independently of each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from drkit.seed.checks import seed_port
from drkit.seed.task import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_TASKS = 256


class SparkJobs:
    """Runs the seed's tasks in a session. See `drkit.seed.engine.Jobs`.

    Args:
        session: where.
        payload: what each task is told besides its id and how it reaches the driver. It holds secrets: it travels in
            Spark's task data, never in a plan, a property or a description.
        name: what Spark's page is to call the jobs.

    Raises:
        ConfigError: a property of the session's doesn't go with a seed.
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
        """The cluster's cores that it gives this application, at least one."""
        return max(1, min(_MOST_TASKS, self._context.defaultParallelism))

    def submit(self, task: str, port: int, key: bytes, ended: Callable[[BaseException | None], None]) -> None:
        """Run one task; see `drkit.seed.engine.Jobs`."""
        payload = json.dumps({**self._payload, "task": task, "host": self.host, "port": port, "key": key.hex()})
        self._pool.submit(self._run, task, payload, ended)

    def close(self) -> None:
        """End the tasks that still run; they hear of it on their own lines, too."""
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
