"""Starts, kills and stops the mirror's workers; notes and restarts one that ends by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import psutil

_GUARD_SECONDS = 0.1


class Worker:
    """One `drkit mirror` and its output. `log`: stderr; `events`: the JSON lines; `program`: Python's arguments before
    the verb."""

    def __init__(self, number: int, config: Path, folder: Path, program: Sequence[str] = ("-m", "drkit")) -> None:
        self.number = number
        self.started = 0
        self.log = folder / f"mirror-{number}.log"
        self.events = folder / f"mirror-{number}.jsonl"
        self.paused = False
        self._config = config
        self._program = program
        self._files: list[IO[bytes]] = []
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._close()
        self._files = [self.events.open("ab"), self.log.open("ab")]
        if _tail(self.events, 1) not in ([], [b""]):  # it was killed while it wrote: the next line isn't part of that
            self._files[0].write(b"\n")
            self._files[0].flush()
        self.started += 1
        self._begun = self.events.stat().st_size
        self._files[1].write(f"--- start {self.started} at {time.strftime('%H:%M:%S')}\n".encode())
        self._files[1].flush()
        return subprocess.Popen(
            [sys.executable, *self._program, "mirror", "--config", str(self._config), "--output", "json", "--verbose"],
            stdin=subprocess.DEVNULL,
            stdout=self._files[0],
            stderr=self._files[1],
            # its log is not a terminal: don't wrap lines
            env={**os.environ, "COLUMNS": "240", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def again(self) -> None:
        """Start it again."""
        self.paused = False
        self.process = self._start()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    def wait(self, seconds: float) -> int | None:
        """Wait for its exit code; None if it doesn't end."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def last(self) -> dict[str, Any] | None:
        """The last progress that it reported."""
        for line in reversed(_tail(self.events, 65_536)):
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event.get("type") == "progress":
                return dict(event)
        return None

    def told(self) -> bool:
        """Whether it has reported progress since its last start."""
        return self.events.stat().st_size > self._begun

    def said(self, begin: int, most: int = 40) -> list[str]:
        """The last lines of its log after this byte."""
        with self.log.open("rb") as log:
            log.seek(begin)
            return log.read().decode(errors="replace").splitlines()[-most:]

    def end_now(self) -> None:
        """Kill it, and close its files."""
        self.send(signal.SIGKILL)
        self.process.wait()
        self._close()

    def _close(self) -> None:
        for file in self._files:
            file.close()
        self._files = []


class Mirrors:
    """All workers of the link, with a guard that restarts those that end by themselves.

    `ended`: time, worker and exit code of each that ended by itself.
    """

    def __init__(self, count: int, config: Path, folder: Path) -> None:
        self.ended: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.workers = [Worker(number + 1, config, folder) for number in range(count)]
        self._guard = threading.Thread(target=self._watch, name="soak-guard", daemon=True)
        self._guard.start()

    def kill(self, worker: Worker) -> None:
        """SIGKILL, and start it again at once."""
        with self._lock:
            worker.send(signal.SIGKILL)
            worker.process.wait()
            worker.again()

    def pids(self) -> set[int]:
        """The live processes, including their children."""
        found: set[int] = set()
        for worker in self.workers:
            if worker.process.poll() is None:
                found.add(worker.process.pid)
                try:
                    found.update(child.pid for child in psutil.Process(worker.process.pid).children(recursive=True))
                except psutil.NoSuchProcess:
                    continue
        return found

    def connected(self) -> bool:
        """Whether every worker has mirrored since its last start (or has nothing to do)."""
        return all(worker.told() for worker in self.workers)

    def stop(self, seconds: float) -> list[int | None]:
        """SIGTERM; the exit codes, None for one that had to be killed."""
        self._end_guard()
        for worker in self.workers:
            worker.send(signal.SIGTERM)
        codes = [worker.wait(seconds) for worker in self.workers]
        self.close()
        return codes

    def close(self) -> None:
        """Kill the live workers."""
        self._end_guard()
        for worker in self.workers:
            worker.end_now()

    def _end_guard(self) -> None:
        self._stop.set()
        self._guard.join()

    def _watch(self) -> None:
        while not self._stop.wait(_GUARD_SECONDS):
            with self._lock:
                for worker in self.workers:
                    code = worker.process.poll()
                    if code is not None:
                        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                        self.ended.append({"at": at, "worker": worker.number, "code": code, "said": worker.said(0, 15)})
                        worker.again()


def _tail(path: Path, size: int) -> list[bytes]:
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - size))
        return file.read().splitlines()
