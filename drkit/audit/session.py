"""One Spark session for this process: started quietly, reused by every audit, gone without a trace.

Nothing of Spark reaches stdout: the JVM is launched by drkit with its output in a log file of a
temporary folder, which also holds everything else that Spark writes and is removed at the end.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from drkit.model.errors import DrkitError

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""
_LOG_LINES = 40


@dataclass(frozen=True, slots=True)
class SparkRuntime:
    """What a session is made of.

    Args:
        java_home: a JAVA_HOME that PySpark 4 starts on.
        jars: the Kafka connector and what it needs.
        master: Spark's master URL.
        driver_memory: heap of the driver, which in local mode does the work too (`1g`, `1500m`).
        settings: further Spark properties.
    """

    java_home: Path
    jars: tuple[Path, ...]
    master: str = "local[*]"
    driver_memory: str = "1g"
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def local(self) -> bool:
        """Whether the work is done in the driver itself."""
        return self.master.startswith("local")


@dataclass(slots=True)
class _Alive:
    runtime: SparkRuntime
    session: SparkSession
    folder: Path
    pid: int


_lock = threading.RLock()
_alive: _Alive | None = None


def spark_session(runtime: SparkRuntime, *, brief: bool = False) -> SparkSession:
    """The process's session: the one alive if it was made from an equal runtime, else a new one.

    A session that somebody else made in this process (`spark-submit`) is used as it is.

    Args:
        runtime: what to start it from.
        brief: there is little to do, so a new JVM should start working soon rather than become fast.

    Raises:
        DrkitError: Spark doesn't start; says why and where its log was.
    """
    global _alive  # noqa: PLW0603 - Spark allows one context a process, so its owner is one a process too
    with _lock:
        if _alive is not None:
            if _alive.runtime == runtime and _answers(_alive.session):
                return _alive.session
            stop_session()
        foreign = SparkSession.getActiveSession()
        if foreign is not None:
            return foreign
        folder = Path(tempfile.mkdtemp(prefix="drkit-spark-"))
        try:
            session = _start(runtime, folder, brief=brief)
        except Exception as error:
            tail = log_tail(folder)
            shutil.rmtree(folder, ignore_errors=True)
            raise DrkitError(
                f"Spark does not start on {runtime.master}: {_first_line(error)}",
                meaning=f"Its log ends with: {tail}" if tail else "It wrote no log",
                remedy="Check the master's address, free memory (--driver-memory) and the Java runtime",
            ) from error
        _alive = _Alive(runtime, session, folder, os.getpid())
        atexit.register(stop_session)
        return session


def stop_session() -> None:
    """Stop the session that drkit started, if any, and remove all that Spark wrote for itself."""
    global _alive
    with _lock:
        alive, _alive = _alive, None
        if alive is None or alive.pid != os.getpid():  # a forked child doesn't own its parent's JVM
            return
        gateway = SparkContext._gateway  # noqa: SLF001 - PySpark offers no other way to end its JVM
        with quietly():
            with suppress(Exception):  # a JVM that died already can't be stopped: what matters is that it is gone
                alive.session.stop()
            _end_jvm(gateway)
        shutil.rmtree(alive.folder, ignore_errors=True)


@contextmanager
def quietly() -> Iterator[None]:
    """PySpark leaves its sockets to the garbage collector; Python's warnings of that say nothing of use."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)
        yield


def log_tail(folder: Path | None = None) -> str:
    """The last lines of the JVM's log (of the session alive by default), or ``""``."""
    if folder is None:
        if _alive is None:
            return ""
        folder = _alive.folder
    lines: list[str] = []
    for name in ("jvm.log", "spark.log"):
        with suppress(OSError):
            lines += (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-_LOG_LINES:])


def _start(runtime: SparkRuntime, folder: Path, *, brief: bool) -> SparkSession:
    log = folder / "spark.log"
    (folder / "log4j2.properties").write_text(_LOG4J.format(log=log), encoding="utf-8")
    conf = SparkConf(loadDefaults=False)
    for name, value in _settings(runtime, folder, brief=brief).items():
        conf.set(name, value)
    with (folder / "jvm.log").open("w") as output, _environment(runtime), _own_interrupts():
        launch: Any = launch_gateway  # untyped in PySpark
        gateway = launch(conf, {"stdout": output, "stderr": output, "cwd": str(folder)})
        return SparkSession(SparkContext(conf=conf, gateway=gateway))


def _settings(runtime: SparkRuntime, folder: Path, *, brief: bool) -> dict[str, str]:
    jars = [str(jar) for jar in runtime.jars]
    java_options = f"-Dlog4j2.configurationFile=file:{folder / 'log4j2.properties'} -Djava.io.tmpdir={folder}"
    if brief and runtime.local:
        java_options += " -XX:TieredStopAtLevel=1"  # half the CPU of a cold start; slower from a few million records on
    settings = {
        "spark.master": runtime.master,
        "spark.app.name": "drkit audit",
        "spark.driver.memory": runtime.driver_memory,
        "spark.driver.extraJavaOptions": java_options,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.pyspark.python": sys.executable,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.sources.useV1SourceList": "",  # the Kafka connector's newer reader costs less a record
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore",
    }
    if runtime.local:
        settings |= {
            "spark.driver.extraClassPath": ":".join(jars),  # beside the driver no copy is needed
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        }
    else:
        settings["spark.jars"] = ",".join(jars)
    return settings | dict(runtime.settings)


@contextmanager
def _environment(runtime: SparkRuntime) -> Iterator[None]:
    """The JVM's environment: PySpark hands on this process's, so it is set for the launch alone."""
    wanted: dict[str, str | None] = {
        "JAVA_HOME": str(runtime.java_home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": None,  # a left-over would override what is asked for here
    }
    if runtime.local:
        wanted |= {
            "SPARK_HOME": str(Path(pyspark.__file__).parent),  # another Spark's home would start another Spark
            "SPARK_CONF_DIR": None,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
    before = {name: os.environ.get(name) for name in wanted}
    _set_environment(wanted)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """SparkContext puts its own handler on SIGINT; whoever handles it in this process goes on doing so."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if main and before is not None:
            signal.signal(signal.SIGINT, before)


def _answers(session: SparkSession) -> bool:
    """Whether the session's JVM lives and its context runs."""
    try:
        context = session.sparkContext
        return context._jsc is not None and not context._jsc.sc().isStopped()  # noqa: SLF001 - no public way to ask
    except (Py4JError, Py4JNetworkError, OSError):
        return False


def _end_jvm(gateway: object) -> None:
    """End the JVM: it goes when its stdin closes. PySpark would start the next context in the old one."""
    process = getattr(gateway, "proc", None)
    with suppress(Exception):  # py4j's sockets may be gone with the JVM
        gateway.shutdown()  # type: ignore[attr-defined]  # py4j is untyped
    SparkContext._gateway = None  # noqa: SLF001 - as above
    SparkContext._jvm = None  # noqa: SLF001 - as above
    if process is None:
        return
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(timeout=20)
    except Exception:  # noqa: BLE001 - TimeoutExpired or an interrupt: either way it must not outlive us
        process.kill()
        process.wait()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
