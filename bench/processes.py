"""Child processes of the bench: how they are started, metered and ended. Each dies with this process."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import psutil

from drkit.lab.start import last_lines

ROOT = Path(__file__).parents[1]
"""Where `-m bench…` is found from."""

CONFIG = "drkit.toml"
MIB = 1 << 20
_SET_PARENT_DEATH_SIGNAL = 1
_LIMIT_SECONDS = 900.0
_GRACE_SECONDS = 20.0
_POLL_SECONDS = 0.1
_LAST_CHARACTERS = 2000
_LOOK_FOR_CHILDREN_SECONDS = 1.0


class MeasurementFailed(Exception):
    """What was to be measured ended, failed, or did something else than it should."""


def say(line: str) -> None:
    """A line for people, on stderr: standard output is for results."""
    print(line, file=sys.stderr, flush=True)


# --- starting and ending ------------------------------------------------------------------------


def die_with_parent() -> None:
    """For `preexec_fn`: the kernel kills the child when this process ends, however it ends."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def spawn(command: Sequence[str], log: Path, *, cwd: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a child, both outputs to `log`. Call from the main thread only."""
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            start_new_session=True,  # a terminal's Ctrl-C is ours to pass on, in order
            preexec_fn=die_with_parent,  # noqa: PLW1509 - no lock is taken between fork and exec
        )


def end(children: Sequence[subprocess.Popen[Any]], grace_seconds: float = _GRACE_SECONDS) -> None:
    """SIGTERM, then SIGKILL what hasn't ended after the grace; returns when all are gone."""
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


def await_until(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Ask again and again until it is so.

    Raises:
        MeasurementFailed: not within so many seconds.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise MeasurementFailed(f"{what}: not within {seconds:g} s")
        time.sleep(_POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class Running:
    """A command that was launched and writes to `log`. `launched_at`: by the monotonic clock."""

    process: subprocess.Popen[bytes]
    log: Path
    launched_at: float

    @classmethod
    def launch(cls, command: Sequence[str], log: Path, cwd: Path) -> Self:
        """Start it, and note when."""
        at = time.monotonic()
        return cls(spawn(command, log, cwd=cwd), log, at)

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after a grace."""
        end([self.process])

    def last_words(self) -> str:
        """The end of what it wrote."""
        return "\n".join(line[:400] for line in last_lines(self.log, 5))

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """Stop it at the end of the block, whose failure names `what` was measured and has its last words."""
        try:
            yield
        except MeasurementFailed as error:
            raise MeasurementFailed(f"{what}: {error}\n{self.last_words()}") from error
        finally:
            self.stop()


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that ended: its standard output, seconds from its launch to its end, and its CPU seconds."""

    stdout: str
    seconds: float
    cpu_seconds: float


def run(command: Sequence[str], folder: Path, accepted: Collection[int] = (0,)) -> Ended:
    """Run a command in a folder to its end. An operator's own files (the journal's anchors) are kept out of it.

    Raises:
        MeasurementFailed: it ended with a code that isn't accepted; its last lines are in the message.
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
    """A command line of drkit with the drkit.toml of a folder."""
    return [sys.executable, "-m", "drkit", *words, "--config", str(folder / CONFIG)]


def _children_cpu() -> float:
    """CPU seconds of the children of this process that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Helper:
    """A module of the bench that runs as a process: says one word when it is ready, then answers in lines of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @classmethod
    @contextmanager
    def running(cls, module: str, *arguments: object, ready: str, patience_seconds: float = 0.0) -> Iterator[Self]:
        """`python -m bench.MODULE`, once it has said that it is ready; ended with the block.

        `patience_seconds`: for how long it may end by itself, once its standard input is closed.

        Raises:
            MeasurementFailed: it ended before; its message is on stderr.
        """
        command = [sys.executable, "-m", f"bench.{module}", *map(str, arguments)]
        with subprocess.Popen(
            command,
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
                helper._stdin.close()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(patience_seconds)
                end([process])

    def ask(self, line: str) -> dict[str, Any]:
        """What it answers to a line of its standard input."""
        self._stdin.write(f"{line}\n")
        self._stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """What it measured.

        Raises:
            MeasurementFailed: it ended without an answer; its message is on stderr.
        """
        line = self._line()
        if not line:
            raise MeasurementFailed("a helper of the bench failed; its message is above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def _stdin(self) -> IO[str]:
        assert self.process.stdin is not None  # noqa: S101 - it was given a pipe
        return self.process.stdin

    def _line(self) -> str:
        assert self.process.stdout is not None  # noqa: S101 - as above
        return self.process.stdout.readline()


# --- metering -----------------------------------------------------------------------------------


class ProcessTree:
    """CPU and memory of a child process and all that it starts, from /proc.

    The CPU time of a descendant that has ended is still counted: its parent's account has it once it was waited for.
    """

    def __init__(self, root: subprocess.Popen[Any]) -> None:
        self._root = psutil.Process(root.pid)
        self._members = [self._root]
        self._looked_at = 0.0
        self._peaks: dict[int, int] = {}

    def cpu_seconds(self) -> float:
        """User and system time used so far by all of them."""
        total = 0.0
        for member in self._living():
            with suppress(psutil.Error):
                times = member.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def rss_bytes(self) -> int:
        """Resident memory of all of them now (memory they share is counted for each)."""
        total = 0
        for member in self._living():
            with suppress(psutil.Error):
                total += member.memory_info().rss
        return total

    def peak_rss_bytes(self) -> int:
        """The sum of each one's highest resident memory, as the kernel noted it (`VmHWM`).

        Call it while they run, last of all just before the end; one that ended keeps its last figure.
        """
        for member in self._living():
            with suppress(OSError, ValueError):
                self._peaks[member.pid] = max(self._peaks.get(member.pid, 0), _high_water_mark(member.pid))
        return sum(self._peaks.values())

    def _living(self) -> list[psutil.Process]:
        if time.monotonic() - self._looked_at > _LOOK_FOR_CHILDREN_SECONDS:  # a walk over all of /proc
            with suppress(psutil.Error):
                self._members = [self._root, *self._root.children(recursive=True)]
            self._looked_at = time.monotonic()
        return self._members


def _high_water_mark(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"the kernel tells no VmHWM of process {pid}")


def cores() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))
