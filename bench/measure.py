"""What a process and its descendants used: CPU time and memory, from /proc."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

_LOOK_FOR_CHILDREN_SECONDS = 1.0


class ProcessTree:
    """CPU and memory of a child process and all that it starts.

    The CPU time of a descendant that has ended is still counted: its parent's account has it once it
    was waited for.
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
