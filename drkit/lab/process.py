"""Child processes that outlive their parent and are provably the lab's own, and signals while they are started.

Each node's command line has a mark with the lab's folder and the node's name. The mark and the recorded start time
distinguish a node's process from a later one with the same pid. The mark also finds a node whose pid was never recorded
(the parent was killed at that moment). Nothing is ever signalled without that proof.

A KeyboardInterrupt between `spawn` and noting the pid would leave an unknown process behind. So, while an `Interrupts`
is entered, Ctrl-C, SIGTERM and SIGHUP are only noted, and every wait of the lab uses `wait` or `check`, which raise
where all processes are known.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import psutil

from drkit.files import write_atomically
from drkit.model.process import SignalEvent

_PROGRAM = "java"
_MARK = "-Ddrkit.lab.node="
_START_TOLERANCE = 2.0  # seconds; the kernel's boot time moves a little when the clock is corrected
_INHERITED_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH")


@dataclass(frozen=True, slots=True)
class SpawnRecord:
    """The record of a spawn. `started`: the process's start, seconds since the epoch."""

    pid: int
    started: float


def mark(lab: Path, node: str) -> str:
    """The argument that marks a node's process."""
    return f"{_MARK}{lab}#{node}"


def spawn(command: Sequence[str], console: Path) -> psutil.Process:
    """Start a process in its own session, with output to `console` (which is truncated first).

    posix_spawn rather than subprocess: this process doesn't wait for the node, signal masks and handlers are reset, and
    a terminal's Ctrl-C doesn't reach it.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _INHERITED_OPTIONS}
    pid = os.posix_spawn(
        command[0],
        list(command),
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(console), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE],
    )
    return psutil.Process(pid)  # at worst a zombie: only this process can reap it


def note(path: Path, process: psutil.Process) -> None:
    """Record the process, to distinguish it from a later one with its pid."""
    write_atomically(path, json.dumps({"pid": process.pid, "started": process.create_time()}) + "\n")


def noted(path: Path) -> SpawnRecord | None:
    """The record; None if there is none, or it can't be read (the mark still finds the process)."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return SpawnRecord(int(data["pid"]), float(data["started"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def proved(candidate: SpawnRecord | None, argument: str) -> psutil.Process | None:
    """The process, if the pid still belongs to the recorded one: start time and mark agree."""
    if candidate is None:
        return None
    try:
        process = psutil.Process(candidate.pid)
        same = abs(process.create_time() - candidate.started) < _START_TOLERANCE
        return process if same and argument in process.cmdline() and _alive(process) else None
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def marked(lab: Path) -> dict[str, psutil.Process]:
    """Every live Java process of this user with this lab's mark, by node name."""
    prefix = mark(lab, "")
    found: dict[str, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            if process.name() != _PROGRAM or process.uids().real != os.getuid():
                continue
            arguments = process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # a zombie is among the first
            continue
        for argument in arguments:
            if argument.startswith(prefix):
                found[argument.removeprefix(prefix)] = process
    return found


def is_paused(process: psutil.Process) -> bool:
    """Whether the process is stopped by SIGSTOP; False if it is gone."""
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


def send(process: psutil.Process, number: signal.Signals) -> bool:
    """Signal a proved process; psutil checks again that the pid wasn't reused. False: it is gone."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True


def gone(process: psutil.Process) -> bool:
    """Whether the process has ended (reaps a child of this process)."""
    return ending(process) is not None


def ending(process: psutil.Process) -> str | None:
    """How the process ended (reaps a child of this process), or ``""`` for another one's child; None while it lives."""
    with suppress(ChildProcessError):
        reaped, status = os.waitpid(process.pid, os.WNOHANG)
        if reaped != process.pid:
            return None
        code = os.waitstatus_to_exitcode(status)
        return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
    return None if process.is_running() and _alive(process) else ""


def named(pid: int) -> str:
    """A process in a message: `pid 123 (nginx)`; raises psutil.Error if it can't be looked at."""
    return f"pid {pid} ({psutil.Process(pid).name()})"


_LOCKS = Path("/proc/locks")
_LOCK_FIELDS = 6
"""Of a line there: number, kind, how, mode, pid, device and inode."""


def lock_holder(path: Path) -> str | None:
    """Another process that holds a lock on the file: `pid 123 (java)`, or `another process`; None: nobody, or there is
    no such file."""
    try:
        with path.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder_of(inode)
    except OSError:
        return None
    return None


def _holder_of(inode: int) -> str:
    with suppress(OSError, psutil.Error, ValueError):
        for line in _LOCKS.read_text(encoding="ascii").splitlines():
            fields = line.split()
            if len(fields) >= _LOCK_FIELDS and fields[5].rpartition(":")[2] == str(inode):
                return named(int(fields[4]))
    return "another process"


def lives(pid: int) -> bool:
    """Whether any process has this pid; one that only waits to be reaped doesn't count."""
    try:
        return _alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def _alive(process: psutil.Process) -> bool:
    """Whether it is neither dead nor a zombie; one whose other threads are still ending holds its ports until then."""
    try:
        ended = process.status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
        return not ended or process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False


_POLL_SECONDS = 0.05
_KILL_SECONDS = 10.0


def kill(running: Iterable[psutil.Process]) -> None:
    """SIGKILL these processes and wait until they are gone."""
    listed = list(running)
    for each in listed:
        send(each, signal.SIGKILL)
    await_gone(listed, _KILL_SECONDS)


def stop(running: Iterable[psutil.Process], grace_seconds: float) -> list[psutil.Process]:
    """SIGTERM these processes, and SIGCONT for paused ones; SIGKILL those that haven't ended after the grace.

    Returns those that had to be killed.
    """
    listed = list(running)
    for each in listed:
        send(each, signal.SIGTERM)
        send(each, signal.SIGCONT)
    stubborn = await_gone(listed, grace_seconds)
    kill(stubborn)
    return stubborn


def await_gone(running: Iterable[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Wait until the processes have ended; returns those that have not."""
    deadline = time.monotonic() + seconds
    left = list(running)
    while True:
        left = [each for each in left if not gone(each)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_POLL_SECONDS)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_Handler = Callable[[int, FrameType | None], Any] | int | None


class Interrupts:
    """Context manager that defers these signals; outside the main thread it does nothing.

    An ignored signal (nohup, a background job) stays ignored. Reentrant: only the outermost exit restores the handlers.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._woken = SignalEvent()
        self._previous: dict[int, _Handler] = {}
        self._depth = 0
        self._cleaning = False

    def __enter__(self) -> Self:
        self._depth += 1
        if self._depth == 1 and threading.current_thread() is threading.main_thread():
            heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._previous = {number: signal.signal(number, self._remember) for number in heeded}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
        if error is None:
            self.check()

    def check(self) -> None:
        """Raise the exception of a signal, if one came: KeyboardInterrupt, or SystemExit(128 + signal)."""
        if self._received is None or self._cleaning:
            return
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self._received)

    def wait(self, seconds: float) -> None:
        """Wait; raises like `check` as soon as a signal comes."""
        self.check()
        self._woken.wait(seconds)
        self.check()

    def clean_up(self) -> None:
        """Ignore signals from here on, while the started processes are being stopped."""
        self._cleaning = True

    def _remember(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - signal's signature
        self._received = number
        self._woken.set()
