"""Runs mirrors on threads of this process, and drkit's commands, with a test's own configuration."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from drkit.mirror.runtime.events import MirrorEvent
from drkit.mirror.runtime.mirror_runtime import MirrorReport, MirrorRuntime
from tests.support.commands.in_process import in_process

_SECONDS = 60
_OWN_PROCESS = {"audit", "demo", "drill", "failback", "lab", "mirror", "reprotect", "resume", "salvage", "serve"}
"""Verbs that tune or end their process, or start others in it. Their plans do none of that."""


@dataclass
class Running:
    """A runtime on a thread, with its events."""

    stop: threading.Event = field(default_factory=threading.Event)
    events: list[MirrorEvent] = field(default_factory=list)
    report: MirrorReport | None = None
    error: BaseException | None = None
    thread: threading.Thread | None = None

    def end(self) -> MirrorReport:
        """Stop it, and return its report; raises its error."""
        self.stop.set()
        return self.result()

    def result(self) -> MirrorReport:
        """Wait for its end."""
        assert self.thread is not None
        self.thread.join(_SECONDS)
        assert not self.thread.is_alive(), "the runtime did not end"
        if self.error is not None:
            raise self.error
        assert self.report is not None
        return self.report


@contextmanager
def on_threads(**runtimes: Callable[[], MirrorRuntime]) -> Iterator[dict[str, Running]]:
    """Create and run runtimes, each on a thread, while the body runs; stops those that haven't ended by themselves.

    `Running.error` has the error of one.
    """
    running = {name: Running() for name in runtimes}
    for name, made in runtimes.items():
        running[name].thread = threading.Thread(target=_work, args=(made, running[name]), name=f"test-{name}")
        running[name].thread.start()
    try:
        yield running
    finally:
        for each in running.values():
            each.stop.set()
        for each in running.values():
            assert each.thread is not None
            each.thread.join(_SECONDS)


def _work(made: Callable[[], MirrorRuntime], running: Running) -> None:
    try:
        running.report = made().run(stop=running.stop, on_progress=running.events.append)
    except BaseException as error:  # noqa: BLE001 - handed to the test
        running.error = error


class Commands:
    """Runs drkit's commands with one configuration file."""

    def __init__(self, config_path: Path) -> None:
        self.config_path = config_path
        self._processes: list[subprocess.Popen[str]] = []

    def drkit(self, *arguments: str, own_process: bool = False) -> subprocess.CompletedProcess[str]:
        """Run any verb to its end; in this process, unless that makes a difference or the caller says so."""
        command = self._command(*arguments)
        if own_process or (arguments[0] in _OWN_PROCESS and "--dry-run" not in arguments):
            return subprocess.run(
                command, capture_output=True, text=True, timeout=400, check=False, stdin=subprocess.DEVNULL
            )
        ended = in_process([*arguments, "--config", str(self.config_path)])
        return subprocess.CompletedProcess(command, ended.code, ended.out, ended.err)

    def process(self, *arguments: str) -> subprocess.Popen[str]:
        """`drkit mirror` as a separate process."""
        command = self._command("mirror", *arguments)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._processes.append(process)
        return process

    @staticmethod
    def kill(process: subprocess.Popen[str]) -> None:
        """SIGKILL."""
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=20)

    def close(self) -> None:
        """End the processes that still run."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=20)

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "drkit", *arguments, "--config", str(self.config_path)]
