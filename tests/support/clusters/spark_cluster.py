"""A standalone Spark cluster on this machine: a master and workers as separate processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from drkit.lab.ports import free_ports
from drkit.lab.process import mark
from drkit.lab.toolchain import Toolchain
from tests.support.clusters.guard import Guard
from tests.support.wait import wait_until

_HOST = "127.0.0.1"


@contextmanager
def spark_cluster(toolchain: Toolchain, folder: Path, *, workers: int = 2) -> Iterator[str]:
    """The master's URL, once so many workers of one core each have registered."""
    port, page = free_ports(2)
    url = f"spark://{_HOST}:{port}"
    master = ["org.apache.spark.deploy.master.Master", "--host", _HOST, "--port", str(port), "--webui-port", str(page)]
    worker = ["org.apache.spark.deploy.worker.Worker", "--host", _HOST, "--cores", "1", "--memory", "1g"]
    guard = Guard()  # a test process that is killed leaves none of them
    guard.watch(folder)
    running = [_start(toolchain, folder / "master", master)]
    try:
        for number in range(workers):
            place = folder / f"worker-{number}"
            running.append(_start(toolchain, place, [*worker, "--webui-port", "0", "--work-dir", str(place), url]))
        wait_until(lambda: _alive(page) == workers, timeout=120, what="the workers to register")
        yield url
    finally:
        for each in reversed(running):
            with suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()
        guard.close()


def _start(toolchain: Toolchain, folder: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True)
    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "JAVA_HOME": str(toolchain.spark_java_home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": mark(folder.parent.resolve(), folder.name),
        "SPARK_LOCAL_DIRS": str(folder),
    }
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )


def _alive(page: int) -> int:
    try:
        with urllib.request.urlopen(f"http://{_HOST}:{page}/json/", timeout=5) as answer:
            found: int = json.load(answer)["aliveworkers"]
            return found
    except (OSError, ValueError):  # no answer yet, or an incomplete page
        return 0
