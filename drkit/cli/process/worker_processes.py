"""The processes of `drkit mirror`: N workers under one parent, and a worker that ends because it is stuck.

With `--processes N` a parent starts and supervises N workers of the same links on one machine. It moves no records: it
forwards signals and whole lines of output, and restarts a child that died; meanwhile the others take over its share, as
with workers on other machines. A child exits when its parent is gone.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from rich.text import Text

from drkit.cli.output import OutputMode, OutputWriter
from drkit.cli.process.hangup import sighup_blocked
from drkit.model.errors import DrkitError, ExitCode
from drkit.model.topology import Link, LinkId

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_CALM_SECONDS = 60.0
_LOOK_SECONDS = 0.2
_PARENT_SECONDS = 0.5
_FINAL = frozenset({ExitCode.USAGE, ExitCode.REFUSED})


@dataclass(slots=True)
class _Child:
    """One place among the children: its process now, and how it did."""

    number: int
    process: subprocess.Popen[str]
    started_at: float
    readers: list[threading.Thread]
    pause: float = 0.0
    due: float | None = None
    code: int | None = None


class WorkerProcesses:
    """Runs children until told to stop, or (`until_done`) until all have ended.

    Args:
        count: how many.
        arguments: of each child's `drkit mirror`.
        writer: where their output goes.
        until_done: a child that ends with an exit code has done its work; else it is started again.
    """

    def __init__(self, count: int, arguments: Sequence[str], writer: OutputWriter, *, until_done: bool) -> None:
        self._command = [sys.executable, "-m", "drkit", "mirror", *arguments, "--supervised-by", str(os.getpid())]
        self._count = count
        self._writer = writer
        self._until_done = until_done
        self._lock = threading.Lock()
        self._children: list[_Child] = []
        # no SimpleQueue: up to Python 3.12 its `get` waits for ever where a signal is handled until after the timeout
        self._ends: queue.Queue[tuple[_Child, int]] = queue.Queue()

    def run(self, stop: threading.Event) -> ExitCode:
        """Supervise. Returns the exit code of the whole: the worst of the verdicts of those that ended for good."""
        children = self._children = [self._start(number) for number in range(1, self._count + 1)]
        stopping = False
        try:
            while any(child.code is None for child in children):
                if stop.is_set() and not stopping:
                    stopping = True
                    _send_signal(children, signal.SIGTERM)
                    for child in children:
                        if child.due is not None:
                            child.due, child.code = None, ExitCode.OK
                self._reap(stopping=stopping)
                if any(child.code in _FINAL for child in children):
                    stop.set()
                for child in children:
                    if child.due is not None and time.monotonic() >= child.due:
                        self._restart(child)
        finally:
            _send_signal(children, signal.SIGKILL)  # only what is left where this ends by an exception
        for child in children:
            for reader in child.readers:
                reader.join()
        worst = max(child.code or 0 for child in children)
        return ExitCode(worst) if worst in set(ExitCode) else ExitCode.FAILED

    def reload(self) -> None:
        """Have each child read its configuration again; it logs the outcome. Any thread may ask."""
        _send_signal(self._children, signal.SIGHUP)

    # -- children ----------------------------------------------------------------------------------

    def _start(self, number: int) -> _Child:
        child = _Child(number, self._spawn(), time.monotonic(), [])
        self._supervise(child)
        return child

    def _spawn(self) -> subprocess.Popen[str]:
        with sighup_blocked():  # a reload may follow before the child has begun
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C reaches the parent alone, which passes it on once
            )

    def _supervise(self, child: _Child) -> None:
        """Forward a child's output, and tell when it has ended."""
        process = child.process
        assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 - pipes, as asked for
        child.readers = [
            threading.Thread(target=_each_line, args=(process.stdout, self._stdout_lines(child.number)), daemon=True),
            threading.Thread(target=_each_line, args=(process.stderr, self._stderr_lines(child.number)), daemon=True),
        ]
        for reader in child.readers:
            reader.start()
        threading.Thread(target=lambda: self._ends.put((child, process.wait())), daemon=True).start()

    def _reap(self, *, stopping: bool) -> None:
        """Wait a moment for a child to end; decide whether it is started again."""
        try:
            child, code = self._ends.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            return
        died = code < 0
        if stopping or code in _FINAL or (self._until_done and not died):
            child.code = ExitCode.OK if stopping and died else code
            return
        at = time.monotonic()
        calm = at - child.started_at > _CALM_SECONDS
        child.pause = _FIRST_PAUSE if calm or not child.pause else min(child.pause * 2, _LONGEST_PAUSE)
        child.due = at + child.pause
        how = f"was ended by {signal.Signals(-code).name}" if died else f"ended with exit code {code}"
        self._say(f"process {child.number} ({child.process.pid}) {how}: starting it again in {child.pause:g} s")

    def _restart(self, child: _Child) -> None:
        for reader in child.readers:
            reader.join()
        child.process, child.started_at, child.due = self._spawn(), time.monotonic(), None
        self._supervise(child)

    # -- output ------------------------------------------------------------------------------------

    def _stdout_lines(self, number: int) -> Callable[[str], None]:
        """What takes a child's lines of data: JSON objects get the child's number."""

        def take(line: str) -> None:
            text = line
            if self._writer.mode is OutputMode.JSON:
                try:
                    text = json.dumps({**json.loads(line), "process": number}) + "\n"
                except (ValueError, TypeError):
                    text = line
            with self._lock:
                sys.stdout.write(text)
                sys.stdout.flush()

        return take

    def _stderr_lines(self, number: int) -> Callable[[str], None]:
        """What takes a child's remarks: a text gets the child's number before it, an event as a key."""
        if self._writer.events is None:
            return lambda line: self._say(line.rstrip("\n"), f"[{number}] ")
        events = self._writer.events

        def take(line: str) -> None:
            with self._lock:
                events.forward(line, process=number)

        return take

    def _say(self, line: str, before: str = "") -> None:
        with self._lock:
            self._writer.log.print(Text(f"{before}{line}"), soft_wrap=True)


def end_with_parent(parent: int, stop: threading.Event) -> None:
    """In a child: set `stop` once the process `parent` isn't its parent any more."""

    def watch() -> None:
        while not stop.wait(_PARENT_SECONDS):
            if os.getppid() != parent:
                stop.set()

    threading.Thread(target=watch, name="drkit-parent", daemon=True).start()


def _each_line(pipe: IO[str], take: Callable[[str], None]) -> None:
    with pipe:
        for line in pipe:
            take(line)


def _send_signal(children: Sequence[_Child], number: signal.Signals) -> None:
    for child in children:
        if child.process.poll() is None:
            child.process.send_signal(number)


SERVICE_SECONDS = 300.0
"""The watchdog's patience for a mirror that runs as a service."""
GRACE_SECONDS = 20.0
"""How long the runtimes may take to end in order once one is stuck."""


class RunningMirrors(Protocol):
    """A thread that runs one link."""

    link: Link

    @property
    def stuck(self) -> DrkitError | None:
        """Why the watchdog ends it; None: it does not."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""

    def is_alive(self) -> bool:
        """Whether it has not ended."""


def watchdog_seconds(given: float | None, *, until_caught_up: bool) -> float | None:
    """The watchdog's patience: what was given (0: none), else that of a service; catching up has its own end."""
    if given is None:
        return None if until_caught_up else SERVICE_SECONDS
    return given or None


def wait_for(
    workers: Sequence[RunningMirrors],
    stop: threading.Event,
    say: Callable[[LinkId, DrkitError], None],
    *,
    grace_seconds: float = GRACE_SECONDS,
    leave: Callable[[int], None] = os._exit,
) -> None:
    """Wait until all have ended. When one is stuck the others are told to stop normally; if one still runs
    after `grace_seconds` the whole process is left, because nothing else ends a call that doesn't return.
    Acknowledged records are kept, as after any kill.
    """
    deadline: float | None = None
    while any(worker.is_alive() for worker in workers):
        for worker in workers:
            worker.join(_LOOK_SECONDS)
        stuck = next((worker for worker in workers if worker.stuck is not None), None)
        if stuck is None or stuck.stuck is None:
            continue
        stop.set()
        if deadline is None:
            deadline = time.monotonic() + grace_seconds
        elif time.monotonic() > deadline:
            say(stuck.link.id, stuck.stuck)
            sys.stdout.flush()
            sys.stderr.flush()
            leave(int(ExitCode.FAILED))
            return
