"""One client of a run: two processes, a reader and a writer, and their output."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from bench.clients.kinds import Event, Kind, Spec
from bench.processes import ROOT, end, spawn

TOPIC = "clients"
STOP_SECONDS = 3.0
"""The time that a supervisor gives a process to end by itself."""


@dataclass
class Process:
    """One role, with one application process after the other. All append to `log`."""

    kind: Kind
    spec: Spec
    values: Counter[str] = field(default_factory=Counter)
    events: list[Event] = field(default_factory=list)
    _MOST_STARTS: ClassVar[int] = 100
    _child: subprocess.Popen[bytes] | None = None
    _starts: int = 0
    _log: Path = Path()
    _read_bytes: int = 0

    def start(self, bootstrap: str) -> None:
        """Start it on these servers, once the previous one has ended."""
        self.stop()
        self.read_output()
        self._starts += 1
        role = "read" if self.spec.reads else "write"
        self._log = self.spec.folder / f"{self.spec.name}-{role}-{self._starts}.log"
        self._read_bytes = 0
        spec = replace(self.spec, bootstrap=bootstrap)
        if not spec.reads:  # each value is written once: otherwise nobody could see what a group has read
            number = self._MOST_STARTS * spec.number + self._starts
            spec = replace(spec, name=f"{spec.name}.{self._starts}", number=number)
        self._child = spawn(self.kind.command(spec), self._log, cwd=ROOT)

    def terminate(self) -> None:
        """SIGTERM."""
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._child is None or self._child.poll() is not None

    def stop(self) -> None:
        """SIGTERM, then SIGKILL."""
        if self._child is not None:
            end([self._child], STOP_SECONDS)

    def read_output(self) -> None:
        """Read its new output."""
        if not self._starts:
            return
        with self._log.open("rb") as log:
            log.seek(self._read_bytes)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            event = self.kind.event(line)
            if event is not None:
                self.events.append(event)
                self.values[event.value] += 1

    def first(self, chosen: Callable[[Event], bool]) -> float | None:
        """The time of the first such event."""
        return next((event.at for event in self.events if chosen(event)), None)

    def last_lines(self) -> str:
        """The end of its output."""
        return " | ".join(self._log.read_text(errors="replace").splitlines()[-3:])[-400:] if self._starts else ""


@dataclass
class Client:
    """Reader and writer of one kind with one set of settings. `finds_by`: as in `results.Waited`.

    `restart_on`: the servers on which both are started again once they have ended, or at `kill_at`.
    """

    kind: Kind
    settings: str
    finds_by: str
    restarted: bool
    reader: Process
    writer: Process
    restart_on: str | None = None
    kill_at: float = 0.0

    @property
    def both(self) -> tuple[Process, Process]:
        """Its processes."""
        return self.reader, self.writer


def client(kind: Kind, settings: str, finds_by: str, number: int, folder: Path, *, restarted: bool) -> Client:
    """A client that isn't started yet. `number`: unique in the run."""
    name = f"{kind.name}-{number}"
    chosen = kind.variants[settings]
    reader = Process(kind, Spec(True, "", TOPIC, name, number, chosen, folder))
    writer = Process(kind, Spec(False, "", TOPIC, name, number, chosen, folder))
    return Client(kind, settings, finds_by, restarted, reader, writer)
