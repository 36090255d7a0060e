"""Child processes that outlive their parent and are provably the lab's own.

Each node's command line has a mark with the lab's folder and the node's name. The mark and the recorded start time
distinguish a node's process from a later one with the same pid. The mark also finds a node whose pid was never recorded
(the parent was killed at that moment). Nothing is ever signalled without that proof.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from drkit.files import write_atomically

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
    with suppress(ChildProcessError):
        reaped, _ = os.waitpid(process.pid, os.WNOHANG)
        return reaped == process.pid
    return not process.is_running() or not _alive(process)


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
