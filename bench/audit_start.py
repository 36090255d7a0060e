"""`drkit audit` of a small link as a command, from its launch to its end: what somebody waits for at night."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.audit_load import log_of
from bench.audit_ways import Job, remember
from bench.processes import CONFIG, drkit, run
from drkit.model.errors import DrkitError, ExitCode
from drkit.store import open_store

START = log_of(100_000, partitions=4)
LIMIT_SECONDS = 8.0
_REPEATED = 5


@dataclass(frozen=True, slots=True)
class Start:
    """Commands of one kind. `seconds`: the median from launch to end; `slowest` of them; `found`: findings of each."""

    records: int
    damaged: bool
    seconds: float
    slowest: float
    found: int

    @property
    def met(self) -> bool:
        """Whether it is as fast as it shall be."""
        return self.seconds <= LIMIT_SECONDS


def measure_starts(job: Job, topics: Mapping[bool, str], expected: int, say: Callable[[str], None]) -> list[Start]:
    """Run the command for each topic in turn, several times; one goes ahead, so that files are in the page cache.

    Args:
        job: the clusters; what is written goes to its folder.
        topics: by whether they are damaged.
        expected: how many findings the damaged one has.
        say: told what is measured.

    Raises:
        DrkitError: a command failed, or found something else.
    """
    folder = Path(job.folder)
    store = open_store(f"sqlite:///{folder / 'start.db'}")
    for topic in topics.values():
        remember(store, job, topic)
    store.close()
    (folder / CONFIG).write_text(_config(job, folder / "start.db"), encoding="utf-8")
    taken: dict[bool, list[float]] = {damaged: [] for damaged in topics}
    for number in range(_REPEATED + 1):
        for damaged, topic in topics.items():
            say(f"drkit audit, the whole command: {topic}")
            seconds, document = _command(folder, topic, folder / "out")
            if document["findings_total"] != (expected if damaged else 0):
                raise DrkitError(f"drkit audit found {document['findings_total']} in {topic}")
            if document["totals"]["source_records"] != START.loaded_records:
                raise DrkitError(f"drkit audit read {document['totals']['source_records']} records of {topic}")
            if number:
                taken[damaged].append(seconds)
    return [
        Start(START.loaded_records, damaged, round(median(each), 2), round(max(each), 2), expected if damaged else 0)
        for damaged, each in taken.items()
    ]


def _config(job: Job, store: Path) -> str:
    return (
        f'[clusters.primary]\nbootstrap_servers = "{job.source}"\n'
        f'[clusters.dr]\nbootstrap_servers = "{job.target}"\n'
        f'[store]\nurl = "sqlite:///{store}"\n'
        '[[links]]\nsource = "primary"\ntarget = "dr"\ntopics = [".*"]\n'
    )


def _command(folder: Path, topic: str, out: Path) -> tuple[float, dict[str, Any]]:
    """How long it took, and its document."""
    command = drkit(folder, "audit", "--topic", topic, "--out", str(out), "--output", "json")
    ended = run(command, folder, (ExitCode.OK, ExitCode.DEVIATION))
    shutil.rmtree(out, ignore_errors=True)
    document: dict[str, Any] = json.loads(ended.stdout)
    return ended.seconds, document
