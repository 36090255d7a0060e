"""Child processes of the bench: started, metered from /proc, ended. Each dies with this process."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from drkit.lab.start import last_lines

ROOT = Path(__file__).parents[1]
"""The working directory for `-m bench…`."""

CONFIG = "drkit.toml"
MIB = 1 << 20
_SET_PARENT_DEATH_SIGNAL = 1
_LIMIT_SECONDS = 900.0
_GRACE_SECONDS = 20.0
_LAST_CHARACTERS = 2000
_INSIDE = "BENCH_NAMESPACE"


class MeasurementFailed(Exception):
    """The measured process ended, failed, or did something else than it should."""


def say(line: str) -> None:
    """Print a readable line to stderr: standard output is for results."""
    print(line, file=sys.stderr, flush=True)


def die_with_parent() -> None:
    """For `preexec_fn`: the kernel kills the child when this process ends for any reason."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def end(children: Sequence[subprocess.Popen[Any]], grace_seconds: float = _GRACE_SECONDS) -> None:
    """SIGTERM, then SIGKILL those that haven't ended after the grace; returns when all are gone."""
    for child in children:
        if child.poll() is None:
            child.terminate()
    deadline = time.monotonic() + grace_seconds
    for child in children:
        with suppress(subprocess.TimeoutExpired):
            child.wait(max(0.1, deadline - time.monotonic()))
        if child.poll() is None:
            child.kill()
            child.wait()


def wait_until(condition: Callable[[], bool], what: str, seconds: float, *, running: Running | None = None) -> None:
    """Poll until the condition holds. `running`: the command whose end ends the wait.

    Raises:
        MeasurementFailed: it doesn't within so many seconds, or the command has ended.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if running is not None and running.ended:
            raise MeasurementFailed(f"{what}: it ended\n{running.output_tail()}")
        if time.monotonic() > deadline:
            raise MeasurementFailed(f"{what}: not within {seconds:g} s")
        time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Running:
    """A launched command that writes both outputs to `log`. `launched_at`: by the monotonic clock."""

    process: subprocess.Popen[bytes]
    log: Path
    launched_at: float

    @classmethod
    def launch(cls, command: Sequence[str], log: Path, cwd: Path) -> Self:
        """Start it, and note the time. Call it only from the main thread."""
        at = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                start_new_session=True,  # this process forwards a terminal's Ctrl-C in order
                preexec_fn=die_with_parent,  # noqa: PLW1509 - no lock is taken between fork and exec
            )
        return cls(process, log, at)

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after a grace."""
        end([self.process])

    def output_tail(self) -> str:
        """The end of its output."""
        return "\n".join(line[:400] for line in last_lines(self.log, 5))

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """Stop it at the end of the block; a failure of the block names `what` and has the end of its output."""
        try:
            yield
        except MeasurementFailed as error:
            raise MeasurementFailed(f"{what}: {error}\n{self.output_tail()}") from error
        finally:
            self.stop()


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished command: its standard output, seconds from its launch to its end, and its CPU seconds."""

    stdout: str
    seconds: float
    cpu_seconds: float


def run(command: Sequence[str], folder: Path, accepted: Collection[int] = (0,)) -> Ended:
    """Run a command in a folder to its end. It doesn't see the operator's own files (the journal's anchors).

    Raises:
        MeasurementFailed: its exit code isn't accepted; the message has its last lines.
    """
    used, began = _children_cpu(), time.monotonic()
    ended = subprocess.run(
        list(command),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=_LIMIT_SECONDS,
        env={**os.environ, "XDG_STATE_HOME": str(folder)},
    )
    seconds, cpu = time.monotonic() - began, _children_cpu() - used
    if ended.returncode not in accepted:
        said = ended.stdout[-_LAST_CHARACTERS:] + ended.stderr[-_LAST_CHARACTERS:]
        raise MeasurementFailed(f"{' '.join(command[-6:])} ended with {ended.returncode}:\n{said}")
    return Ended(ended.stdout, seconds, cpu)


def drkit(folder: Path, *words: str) -> list[str]:
    """A command line of drkit, with the drkit.toml of a folder."""
    return [sys.executable, "-m", "drkit", *words, "--config", str(folder / CONFIG)]


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Helper:
    """A module of the bench as a process: prints one word when it is ready, then answers with lines of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @classmethod
    @contextmanager
    def running(cls, module: str, *arguments: object, ready: str, patience_seconds: float = 0.0) -> Iterator[Self]:
        """Start `python -m bench.MODULE`, and wait until it is ready; it ends with the block.

        `patience_seconds`: how long it may take to end by itself, once its standard input is closed.

        Raises:
            MeasurementFailed: it ended before it was ready; its message is on stderr.
        """
        with subprocess.Popen(
            [sys.executable, "-m", f"bench.{module}", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - no lock is taken between fork and exec
        ) as process:
            helper = cls(process)
            try:
                if helper._line().strip() != ready:
                    raise MeasurementFailed(f"{module} ended before it was {ready}; its message is above")
                yield helper
            finally:
                if process.stdin is not None:
                    process.stdin.close()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(patience_seconds)
                end([process])

    def ask(self, line: str) -> dict[str, Any]:
        """Its answer to a line of its standard input."""
        if self.process.stdin is not None:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Its measurements.

        Raises:
            MeasurementFailed: it ended without an answer; its message is on stderr.
        """
        line = self._line()
        if not line:
            raise MeasurementFailed("a helper of the bench failed; its message is above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _line(self) -> str:
        return "" if self.process.stdout is None else self.process.stdout.readline()


class ProcessTree:
    """Measures CPU and memory of a child process and all its descendants, from /proc.

    The CPU time of finished descendants counts, too: their parent's account includes it once it has waited for them.
    """

    def __init__(self, root: subprocess.Popen[Any]) -> None:
        self._root = psutil.Process(root.pid)
        self._members = [self._root]
        self._looked_at = 0.0
        self._peaks: dict[int, int] = {}

    def cpu_seconds(self) -> float:
        """The user and system time that all of them have used so far."""
        total = 0.0
        for member in self._living():
            with suppress(psutil.Error):
                times = member.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def rss_bytes(self) -> int:
        """The current resident memory of all of them (shared memory counts for each)."""
        total = 0
        for member in self._living():
            with suppress(psutil.Error):
                total += member.memory_info().rss
        return total

    def peak_rss_bytes(self) -> int:
        """The sum of each one's peak resident memory, by the kernel (`VmHWM`).

        Call it while they run, and again just before the end; one that has ended keeps its last figure.
        """
        for member in self._living():
            with suppress(OSError, ValueError):
                self._peaks[member.pid] = max(self._peaks.get(member.pid, 0), _high_water_mark(member.pid))
        return sum(self._peaks.values())

    def _living(self) -> list[psutil.Process]:
        if time.monotonic() - self._looked_at > 1.0:  # a walk over all of /proc
            with suppress(psutil.Error):
                self._members = [self._root, *self._root.children(recursive=True)]
            self._looked_at = time.monotonic()
        return self._members


def _high_water_mark(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"the kernel has no VmHWM of process {pid}")


# --- a command in its own network namespace, which ends with it, with its addresses, rules and settings -----------


def namespace_lacks(tools: Sequence[str], probe: str, what: str) -> str:
    """Why there can be none here; "": there can. `probe`: a shell command that must work in it, for `what`."""
    if os.geteuid() != 0:
        return "a network namespace and iptables need root"
    missing = [tool for tool in ("unshare", *tools) if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not on PATH"
    tried = subprocess.run(["unshare", "--net", "sh", "-c", probe], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no {what}: {tried.stderr.strip() or 'iptables failed'}"


def in_namespace() -> bool:
    """Whether this process runs in one; then its loopback interface is up."""
    inside = os.environ.get(_INSIDE) == "1"
    if inside:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return inside


def run_in_namespace(module: str, arguments: Sequence[str], *options: str) -> int:
    """Run `python -m MODULE` in one; returns its exit code. `options`: of `unshare`, besides `--net`."""
    os.environ[_INSIDE] = "1"
    child = subprocess.Popen(
        ["unshare", "--net", *options, sys.executable, "-m", module, *arguments],
        preexec_fn=die_with_parent,  # noqa: PLW1509 - no lock is taken between fork and exec
    )
    return child.wait()
