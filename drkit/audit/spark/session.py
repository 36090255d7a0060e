"""The Spark session of this process: starts without output, is reused by every audit, and is removed completely.

Nothing of Spark reaches stdout: drkit launches the JVM with its output in a log file of a temporary folder, which also
holds everything else that Spark writes and is removed at the end.

That folder is locked by its process, so the next one removes it if the process was killed: a process id could be
reused, or belong to another container that shares the folder for temporary files.
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TextIO

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkConf, SparkContext, StatusTracker
from pyspark.sql import SparkSession, SQLContext

import drkit
from drkit.audit.read.shipped_code import ARCHIVE, callables_archive, code_archive
from drkit.audit.spark.jvm import LOG, Jvm, Launch, launch_jvm
from drkit.model.errors import DrkitError
from drkit.model.process import keeping_context

PREFIX = "drkit-spark-"
OWNER = "owner"
"""The file that its process has locked."""


_mine: set[Path] = set()
"""Those of this process that are not removed yet."""


@dataclass(frozen=True, slots=True)
class TempDir:
    """`path` is this process's until it is removed."""

    path: Path
    _lock: TextIO

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()
        _mine.discard(self.path)


def make_folder(parent: Path | None = None, prefix: str = PREFIX) -> TempDir:
    """Make one (in the user's folder for temporary files), and remove those of that prefix that processes which were
    killed have left there."""
    parent = parent or Path(tempfile.gettempdir())
    sweep(parent, prefix)
    path = parent / f"{prefix}{secrets.token_hex(8)}"
    _mine.add(path)  # before it is there, so that an interrupt in between leaves nothing
    path.mkdir(mode=0o700)
    new = path / f"{OWNER}.new"
    lock = new.open("w")
    with suppress(OSError):  # on a file system without locks it stays nobody's to judge
        fcntl.flock(lock, fcntl.LOCK_EX)
        new.rename(path / OWNER)  # under this name it is locked from the first moment
    return TempDir(path, lock)


def sweep(parent: Path | None = None, prefix: str = PREFIX) -> None:
    """Remove this user's folders whose process is gone; one without an owner's file is nobody's to judge."""
    for path in (parent or Path(tempfile.gettempdir())).glob(f"{prefix}*"):
        with suppress(OSError):  # gone meanwhile, another user's, or in use
            if path.lstat().st_uid != os.getuid():
                continue
            with (path / OWNER).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)


@atexit.register
def _remove_mine() -> None:
    """What an interrupt kept its owner from removing."""
    for path in _mine:
        shutil.rmtree(path, ignore_errors=True)


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
    watcher = threading.Thread(
        target=keeping_context(_watch), args=(session, tasks, over), name="drkit-spark-watch", daemon=True
    )
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


_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""
_SPARK_LOG = "spark.log"
_HIDDEN = "(?i)secret|password|token|access[.]?key|jaas|keystore|truststore"
"""Names of properties and options whose values Spark is to show nowhere."""
_HIDDEN_OPTIONS = "spark.sql.redaction.options.regex"
_LOG_LINES = 40
# py4j logs the trace of what it raises anyway, and of its own end; what goes to the root logger, `quietly` keeps off
logging.getLogger("py4j").setLevel(logging.CRITICAL)
_DAEMON = "drkit.audit.spark.python_daemon"


@dataclass(frozen=True, slots=True)
class SparkRuntime:
    """What a session is made of.

    Args:
        java_home: a JAVA_HOME that PySpark 4 starts on.
        master: Spark's master URL.
        driver_memory: heap of the driver, which in local mode does the work too (`1g`, `1500m`).
        settings: further Spark properties.
    """

    java_home: Path
    master: str = "local[*]"
    driver_memory: str = "1g"
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def local(self) -> bool:
        """Whether the work is done in the driver itself."""
        return self.master.startswith("local")

    @property
    def at_home(self) -> bool:
        """Whether workers run this process's Python on this machine, with drkit where it has it."""
        return self.local and "spark.pyspark.python" not in self.settings and Path(drkit.__file__).is_file()


@dataclass(slots=True)
class _RunningSession:
    runtime: SparkRuntime
    session: SparkSession
    jvm: Jvm
    owned: TempDir
    pid: int

    @property
    def folder(self) -> Path:
        """Where Spark writes."""
        return self.owned.path


_lock = threading.RLock()
_alive: _RunningSession | None = None
_shipped: str | None = None
_starting: tuple[SparkRuntime, Future[SparkSession]] | None = None


@contextmanager
def session_starting(runtime: SparkRuntime, *, brief: bool = False) -> Iterator[Callable[[], SparkSession]]:
    """Have the session start on a thread of its own while the body does something else.

    Within such a block, another one for the same runtime waits for the start that is under way.

    Yields:
        what waits for the session; raises as `spark_session`. What has not started when the body ends is ended.
    """
    global _starting  # noqa: PLW0603 - as the session is one a process
    if _starting is not None and _starting[0] == runtime:
        under_way = _starting[1]

        def started() -> SparkSession:
            under_way.result()
            return spark_session(runtime, brief=brief)  # another one, where that has died since

        yield started
        return
    launch = Launch()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="drkit-spark-start") as pool:
        starting = pool.submit(spark_session, runtime, brief=brief, launch=launch)
        _starting = runtime, starting
        try:
            yield starting.result
        finally:
            _starting = None
            if not starting.done():  # nobody has waited for it, so nobody needs it
                launch.call_off()


def spark_session(runtime: SparkRuntime, *, brief: bool = False, launch: Launch | None = None) -> SparkSession:
    """The process's session: the one alive if it was made from an equal runtime, else a new one.

    A session that somebody else made in this process (`spark-submit`) is used as it is.

    Args:
        runtime: what to start it from.
        brief: the JVM has little to do itself, so it should start working soon rather than become fast.
        launch: told of a JVM that is started, so that somebody else may call it off.

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
            _ship_to(foreign)
            return foreign
        owned = make_folder()
        folder = owned.path
        # For good: whatever asks the session for something may be interrupted, and py4j logs the trace of that.
        logging.getLogger().addFilter(_not_of_py4j)
        try:
            with quietly():
                session, jvm = _start(runtime, folder, launch, brief=brief)
                context = session.sparkContext
                context.pythonExec = runtime.settings.get("spark.pyspark.python", sys.executable)  # not from variables
                if not runtime.at_home:
                    context.addPyFile(str(code_archive(folder)))
                _accumulate_quietly(context)
        except BaseException as error:
            tail = log_tail(folder)
            owned.remove()
            if not isinstance(error, Exception):
                raise
            raise DrkitError(
                f"Spark does not start on {runtime.master}: {_first_line(error)}",
                meaning=f"Its log ends with: {tail}" if tail else "It wrote no log",
                remedy="Check the master's address, free memory (--driver-memory) and the Java runtime",
            ) from error
        _alive = _RunningSession(runtime, session, jvm, owned, os.getpid())
        atexit.register(stop_session)
        return session


def _ship_to(session: SparkSession) -> None:
    """Give another's session drkit's code, once, and have it hide what our options hold."""
    global _shipped  # noqa: PLW0603 - as the session is one a process
    application = session.sparkContext.applicationId
    if _shipped != application:
        if not any(Path(each).name == ARCHIVE for each in session.sparkContext.listFiles):  # else by --py-files
            owned = make_folder()
            atexit.register(owned.remove)
            session.sparkContext.addPyFile(str(code_archive(owned.path)))
        session.conf.set(_HIDDEN_OPTIONS, f"(?:{session.conf.get(_HIDDEN_OPTIONS)})|{_HIDDEN}")
        _shipped = application


def is_own(session: SparkSession) -> bool:
    """Whether drkit started this session, and ends it."""
    return _alive is not None and _alive.session is session


def ship_callables(session: SparkSession, names: Iterable[str]) -> None:
    """Send the modules of callables (``module:function``) to the session's workers, those that are not installed."""
    if not (wanted := list(names)):
        return
    owned = make_folder() if _alive is None else _alive.owned
    archive = callables_archive(wanted, owned.path)
    if _alive is None:
        atexit.register(owned.remove)
    if archive is None:
        return
    with quietly():
        if archive.name not in {Path(each).name for each in session.sparkContext.listFiles}:
            session.sparkContext.addPyFile(str(archive))


def stop_session(*, gently: bool = True) -> None:
    """End the session that drkit started, if any, and remove all that Spark wrote for itself.

    Args:
        gently: let Spark stop first, where it runs on a cluster; on this machine there is nothing to hand back, and
            its stop takes longer than a small audit. Not after an interrupt: the answer to what was asked last may
            still be on its way, and would be taken for the answer to this.
    """
    global _alive
    with _lock:
        alive, _alive = _alive, None
        if alive is None or alive.pid != os.getpid():  # a forked child doesn't own its parent's JVM
            return
        with quietly():
            if gently and not alive.runtime.local:
                with suppress(Exception):  # a JVM that died already can't be stopped: what matters is that it is gone
                    alive.session.stop()
                alive.jvm.end()
            alive.jvm.kill()
            _forget_gateway()
        alive.owned.remove()


@contextmanager
def quietly() -> Iterator[None]:
    """Keep PySpark's noise off stderr.

    It leaves its sockets to the garbage collector, and py4j logs the trace of every call that a dying
    JVM didn't answer; the errors themselves are raised all the same.
    """
    root = logging.getLogger()
    inner = _not_of_py4j in root.filters  # the outer block continues without noise
    root.addFilter(_not_of_py4j)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)
            yield
    finally:
        if not inner:
            root.removeFilter(_not_of_py4j)


def _accumulate_quietly(context: SparkContext) -> None:
    """PySpark's server prints a trace where the JVM's connection is cut; that Spark then fails is told all the same."""
    server: Any = context._accumulatorServer  # noqa: SLF001 - no public way to it
    server.handle_error = lambda *_: None


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


_SEEN_GONE_SECONDS = 1.0
"""How long it may take after the JVM stopped answering."""


def how_jvm_ended() -> str | None:
    """How the JVM of the session that drkit started ended; None where it runs, or there is none."""
    if _alive is None:
        return None
    try:
        code = _alive.jvm.process.wait(timeout=_SEEN_GONE_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def log_tail(folder: Path | None = None) -> str:
    """The last lines of the JVM's log (of the session alive by default), or ``""``."""
    if folder is None:
        if _alive is None:
            return ""
        folder = _alive.folder
    lines: list[str] = []
    for name in (LOG, _SPARK_LOG):
        with suppress(OSError):
            lines += (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [line for line in lines if not line.startswith("\tat ")]  # frames of Java's traces
    return "\n".join(lines[-_LOG_LINES:])


def _start(runtime: SparkRuntime, folder: Path, launch: Launch | None, *, brief: bool) -> tuple[SparkSession, Jvm]:
    (folder / "log4j2.properties").write_text(_LOG4J.format(log=folder / _SPARK_LOG), encoding="utf-8")
    settings = _settings(runtime, folder, brief=brief)
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    jvm = launch_jvm(settings, runtime.java_home, folder, local=runtime.local, launch=launch)
    try:
        gateway = jvm.connect()
        # On the main thread SparkContext would put its own handler on SIGINT, in the middle of our calls to it.
        with ThreadPoolExecutor(max_workers=1) as pool:
            starting = pool.submit(lambda: SparkSession(SparkContext(conf=conf, gateway=gateway)))
            try:
                return starting.result(), jvm
            except Py4JJavaError as error:
                said = str(error.java_exception.getMessage() or error)  # now: the JVM that tells it is ended below
                raise RuntimeError(said) from None
            except BaseException:
                jvm.kill()  # or the thread would keep waiting for it
                raise
    except BaseException:
        jvm.kill()
        _forget_gateway()
        raise


def _settings(runtime: SparkRuntime, folder: Path, *, brief: bool) -> dict[str, str]:
    java_options = f"-Dlog4j2.configurationFile=file:{folder / 'log4j2.properties'} -Djava.io.tmpdir={folder}"
    if brief and runtime.local:
        java_options += " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # half the CPU of a cold start
    settings = {
        "spark.master": runtime.master,
        "spark.app.name": "drkit",
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
        "spark.redaction.regex": _HIDDEN,
        "spark.hadoop.fs.permissions.umask-mode": "077",  # Hadoop sets modes itself, whatever this process's umask is
        # A sort that went to disk often opens all its files at once, 3 MiB of heap each; without reading ahead, 1 MiB.
        "spark.unsafe.sorter.spill.read.ahead.enabled": "false",
        "spark.memory.storageFraction": "0.1",  # what is kept between steps goes to disk before a sort does
    }
    if runtime.local:
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if runtime.at_home:
        settings["spark.python.daemon.module"] = _DAEMON
    return settings | dict(runtime.settings)


def _answers(session: SparkSession) -> bool:
    """Whether the session's JVM lives and its context runs."""
    try:
        context = session.sparkContext
        return context._jsc is not None and not context._jsc.sc().isStopped()  # noqa: SLF001 - no public way to ask
    except (Py4JError, Py4JNetworkError, OSError):
        return False


def _forget_gateway() -> None:
    """Make PySpark start again: it would look for its next context in the JVM that is gone."""
    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark keeps these for good
    SparkContext._gateway = None  # noqa: SLF001 - as above
    SparkContext._jvm = None  # noqa: SLF001 - as above
    SparkContext._active_spark_context = None  # noqa: SLF001 - as above
    SparkSession._instantiatedSession = None  # noqa: SLF001 - as above
    SparkSession._activeSession = None  # noqa: SLF001 - as above
    SQLContext._instantiatedContext = None  # noqa: SLF001 - as above
    if gateway is not None:
        with suppress(Exception):  # its sockets went with the JVM
            gateway.shutdown()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
