"""Child processes of a drill: the mirror, the failover, the clients.

Each leads its own session, so that Ctrl-C on the terminal reaches only the drill, which then ends them in
order. Output goes to a log in the drill's folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

import drkit
from drkit.drill.environment.waiting import rest
from drkit.model.errors import DrkitError

STOP_SECONDS = 15.0
LOG_TAIL = 600
"""Characters of a log that a message quotes."""
LOOK_SECONDS = 0.05
"""The interval between checks of a process: whether it ended, stopped itself (SIGSTOP), or is to be ended."""


class Child:
    """A process that runs beside the drill until it is stopped. `env`: another environment than `environment()`."""

    def __init__(
        self, name: str, arguments: Sequence[str], log: Path, cwd: Path, *, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._arguments = list(arguments)
        self._log = log
        self._cwd = cwd
        self._env = environment() if env is None else dict(env)
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *self._arguments],
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The pid of the running process, or of the last one."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs; minus the signal if one ended it."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal.

        Raises:
            DrkitError: it isn't running.
        """
        if self.exit_code() is not None:
            raise DrkitError(f"{self.name} is not running: it ended with {self.ending()}", remedy=f"See {self._log}")
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait until it ends; returns its exit code."""
        while (code := self.exit_code()) is None:
            rest(LOOK_SECONDS)
        return code

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self._process.wait()

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> bool:
        """SIGTERM (a paused one is woken for it), and SIGKILL if that doesn't help in time.

        Returns whether it ended by itself.
        """
        if self.exit_code() is not None:
            return True
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False
        return True

    def restart(self) -> None:
        """Stop it if it runs, and start it again."""
        self.stop()
        self._process = self._start()

    def ending(self) -> str:
        """How it ended, with the last of its log."""
        return f"exit code {self.exit_code()}{_tail(self._log)}"


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished command. `exit_code` is None if it was ended after its timeout."""

    exit_code: int | None
    stdout: str
    log: str


def run_command(
    arguments: Sequence[str],
    log: Path,
    cwd: Path,
    timeout_seconds: float,
    at_stop: Callable[[subprocess.Popen[str]], None] | None = None,
    *,
    env: Mapping[str, str] | None = None,
) -> Finished:
    """Run a command to its end; stderr goes to `log`. Interrupted or cancelled, it is ended before the
    exception continues.

    `at_stop` is called each time the command stops itself (SIGSTOP); the command continues afterwards, and the time
    of the call doesn't count.
    `env`: another environment than `environment()`.
    """
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=cwd,
            env=environment() if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            text=True,
        )
        try:
            stdout = _communicate(process, timeout_seconds, at_stop)
        except subprocess.TimeoutExpired:
            return Finished(None, end(process), _tail(log))
        except BaseException:
            end(process)
            raise
    return Finished(process.returncode, stdout, _tail(log))


def _communicate(
    process: subprocess.Popen[str], timeout_seconds: float, at_stop: Callable[[subprocess.Popen[str]], None] | None
) -> str:
    """Its stdout until its end.

    Raises:
        subprocess.TimeoutExpired: it takes longer than the timeout.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        rest(0.0)
        left = max(0.0, deadline - time.monotonic())
        try:
            return process.communicate(timeout=min(left, LOOK_SECONDS))[0]
        except subprocess.TimeoutExpired:
            if at_stop is not None and _is_stopped(process):
                began = time.monotonic()
                at_stop(process)
                process.send_signal(signal.SIGCONT)
                deadline += time.monotonic() - began
            elif time.monotonic() >= deadline:
                raise


def _is_stopped(process: subprocess.Popen[str]) -> bool:
    try:
        return bool(psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False


def end(process: subprocess.Popen[str]) -> str:
    """SIGTERM (a paused one is woken for it), then SIGKILL; returns what it had written to stdout."""
    process.terminate()
    process.send_signal(signal.SIGCONT)
    try:
        return process.communicate(timeout=STOP_SECONDS)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0]


def wait_exited(children: Sequence[Child], timeout_seconds: float = STOP_SECONDS) -> None:
    """Wait for processes that were told to end, or should, with one timeout for all."""
    deadline = time.monotonic() + timeout_seconds
    while any(child.exit_code() is None for child in children) and time.monotonic() < deadline:
        rest(0.02)


def environment(*, configured: bool = False) -> dict[str, str]:
    """This process's environment without variables that name another drkit configuration.

    `configured`: with them, for commands that use the configuration of the drill's user.
    """
    kept = {name: value for name, value in os.environ.items() if configured or not name.startswith("DRKIT_")}
    root = str(Path(drkit.__file__).resolve().parents[1])
    kept["PYTHONPATH"] = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    return kept


def _tail(log: Path) -> str:
    if not log.exists():
        return ""
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    return f"; its log ends: {text[-LOG_TAIL:]}" if text else ""
