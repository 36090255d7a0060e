"""Spark's JVM as a child process of drkit: its output goes to a file, and drkit ends it.

PySpark would launch it with this process's stdout, give no handle before it answers, and leave it running when
interrupted meanwhile. So drkit launches it and PySpark connects to it, as under `spark-submit`. That script starts
another JVM to find out how to start the real one; with this environment's Spark the answer is known, and one JVM is
enough.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

import drkit
from drkit.model.errors import DrkitError

LOG = "jvm.log"
_POLL_SECONDS = 0.02
_SECONDS_TO_ANSWER = 120
_SECONDS_TO_END = 20


_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
"""Packages that Spark 4.0 reaches into (its `JavaModuleOptions`)."""
_FLAGS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
)


class Launch:
    """The launch of a JVM, which another thread may cancel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._called_off = False

    def began(self, process: subprocess.Popen[bytes]) -> None:
        """The process is there."""
        with self._lock:
            self._process = process
            if self._called_off:
                _kill(process)

    def call_off(self) -> None:
        """End it at once; one that hasn't begun ends as it begins."""
        with self._lock:
            self._called_off = True
            if self._process is not None:
                _kill(self._process)


@dataclass(frozen=True, slots=True)
class Jvm:
    """A running JVM, alone in its process group; `port` and `secret` are where its gateway listens."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str

    def connect(self) -> Any:
        """A py4j gateway to it."""
        launch: Any = launch_gateway  # untyped in PySpark
        with _set({"PYSPARK_GATEWAY_PORT": str(self.port), "PYSPARK_GATEWAY_SECRET": self.secret}):
            return launch()

    def end(self) -> None:
        """Close its stdin, and make sure that it ends."""
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=_SECONDS_TO_END)
        self.kill()

    def kill(self) -> None:
        """End it at once, with all that it started."""
        _kill(self.process)


def launch_jvm(
    settings: Mapping[str, str], java_home: Path, folder: Path, *, local: bool, launch: Launch | None = None
) -> Jvm:
    """Start Spark's JVM and wait until it can be connected to.

    Args:
        settings: Spark's properties.
        java_home: its JAVA_HOME.
        folder: where it runs and writes its log (LOG).
        local: use the Spark of this environment whatever variables say.
        launch: told of the process as soon as there is one.

    Raises:
        DrkitError: it ended, or didn't answer in time; its log says why.
    """
    find_home: Any = _find_spark_home  # untyped in PySpark
    home = Path(pyspark.__file__).parent if local else Path(find_home())
    command = _java(settings, java_home, home) if local else [str(home / "bin" / "spark-submit")]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    address = folder / "gateway"
    environment = os.environ | {
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address),
    }
    if local:
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        environment.pop("SPARK_CONF_DIR", None)
        # Workers import drkit as this process does, compiled, not from an archive that each of them compiles again.
        paths = [str(Path(drkit.__file__).parents[1]), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with (folder / LOG).open("wb") as output:
        # A session of its own: the terminal's Ctrl-C is ours to handle, and it can be killed as a group.
        process = subprocess.Popen(
            [*command, "pyspark-shell"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    if launch is not None:
        launch.began(process)
    try:
        _await(process, address)
        return Jvm(process, *_read_address(address))
    except BaseException:
        _kill(process)
        raise


def _java(settings: Mapping[str, str], java_home: Path, home: Path) -> list[str]:
    """What `spark-submit` would run with these settings."""
    more = settings.get("spark.driver.extraClassPath")
    command = [str(java_home / "bin" / "java"), "-cp", os.pathsep.join(filter(None, [more, str(home / "jars" / "*")]))]
    command += _FLAGS
    command += [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
    command += shlex.split(settings.get("spark.driver.extraJavaOptions", ""))
    return [*command, f"-Xmx{settings['spark.driver.memory']}", "org.apache.spark.deploy.SparkSubmit"]


def _await(process: subprocess.Popen[bytes], address: Path) -> None:
    deadline = time.monotonic() + _SECONDS_TO_ANSWER
    while not address.is_file():
        if process.poll() is not None:
            raise DrkitError(f"the JVM ended with code {process.returncode}")
        if time.monotonic() > deadline:
            raise DrkitError(f"the JVM did not answer within {_SECONDS_TO_ANSWER} s")
        time.sleep(_POLL_SECONDS)


def _read_address(address: Path) -> tuple[int, str]:
    """Port (4 bytes) and secret (its length in 4 bytes, then UTF-8); written elsewhere and renamed here."""
    content = address.read_bytes()
    return int.from_bytes(content[:4], "big"), content[8 : 8 + int.from_bytes(content[4:8], "big")].decode()


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def _set(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables, for the length of the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
