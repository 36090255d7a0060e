"""The seed's tasks as Spark jobs: one job of one task each, so that tasks come and go independently of each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from drkit.model.errors import ConfigError
from drkit.seed.task import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PORT = "spark.drkit.seed.port"
"""Spark property: the port at which the driver listens for the seed's tasks (any that is free by default)."""

_MOST_TASKS = 256


class SparkJobs:
    """Runs the seed's tasks in a session. See `drkit.seed.engine.Jobs`.

    Args:
        session: where.
        payload: what each task is told besides its id and how it reaches the driver. It holds secrets: it travels in
            Spark's task data, never in a plan, a property or a description.

    Raises:
        ConfigError: a property of the session's doesn't go with a seed.
    """

    def __init__(self, session: SparkSession, payload: Mapping[str, Any]) -> None:
        self._context = session.sparkContext
        conf = self._context.getConf()
        if conf.get("spark.speculation", "false") == "true":
            raise ConfigError(
                "spark.speculation is true: Spark would start second copies of the seed's tasks and kill the first",
                remedy="Give --spark-conf spark.speculation=false",
            )
        port = conf.get(PORT, "0") or "0"
        if not port.isdecimal():
            raise ConfigError(f"{PORT} is {port!r}", remedy="Give the number of a port")
        self.host = conf.get("spark.driver.host", "127.0.0.1") or "127.0.0.1"
        self.bind = conf.get("spark.driver.bindAddress", self.host) or self.host
        self.port = int(port)
        self._payload = payload
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
            self._context.setJobGroup(self._group, f"drkit bulk seed: {task}", interruptOnCancel=True)
            self._context.parallelize([payload], 1).mapPartitions(run_tasks).collect()
        except Exception as error:  # noqa: BLE001 - told to whoever decides
            ended(error)
        else:
            ended(None)
