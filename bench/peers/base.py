"""What both mirrors have in common: a job, and a running command that can be ended."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.batches import Codec
from bench.clusters import Cluster
from bench.processes import end, spawn
from drkit.lab.start import last_lines

_GRACE_SECONDS = 20.0
_LINES = 5
_LINE_LENGTH = 400


@dataclass(frozen=True, slots=True)
class Job:
    """What a mirror is to do. `folder`: empty, for its files. `topics`: a regular expression (Java's and Python's).

    `codec`: that of the source's batches, for a mirror that compresses again. `live`: tuned for latency.
    `groups`: also carry group positions often enough to be read soon.
    """

    folder: Path
    source: Cluster
    target: Cluster
    topics: str
    codec: Codec
    live: bool = False
    groups: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """A mirror that was launched. `launched_at`: by the monotonic clock."""

    process: subprocess.Popen[bytes]
    log: Path
    launched_at: float

    def stop(self) -> None:
        """End it in order (SIGTERM), by force after a grace."""
        end([self.process], _GRACE_SECONDS)

    def last_words(self) -> str:
        """The end of what it wrote."""
        return "\n".join(line[:_LINE_LENGTH] for line in last_lines(self.log, _LINES))


class Peer(Protocol):
    """A mirror that can be measured. `name`: as in results; `title`: for people."""

    name: str
    title: str

    def launch(self, job: Job) -> Running:
        """Start it; returns at once."""

    def check(self, job: Job, running: Running) -> None:
        """Raise `MeasurementFailed` where it did not run as it was to; once it has mirrored something."""


def launched(command: list[str], log: Path, *, cwd: Path, environment: dict[str, str] | None = None) -> Running:
    """Start a command and note when."""
    at = time.monotonic()
    return Running(spawn(command, log, cwd=cwd, environment=environment), log, at)
