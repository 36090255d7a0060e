"""Processes of this machine, told apart for good: whoever left a name behind can be known to be dead.

A pid comes again, so a process is known by when it started, too: in ticks since the machine's boot, as the kernel keeps
it. A wall-clock time of that would move with every step of the clock. Pids are of one pid namespace of one boot.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_UNKNOWN = "unknown"
_DIGITS = 12
_STATE, _STARTED = 0, 19  # behind the name in parentheses: fields 3 and 22 of proc(5)
_ENDED = frozenset({"Z", "X", "x"})


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process. `started`: in ticks since the boot; `machine`: its kernel's boot and pid namespace, as a word."""

    pid: int
    started: int
    machine: str

    @classmethod
    def of(cls, pid: int | None = None) -> ProcessIdentity:
        """A living process, by default the current one. Without a /proc it is never known to be dead.

        Raises:
            ProcessLookupError: there is no such process.
        """
        pid = os.getpid() if pid is None else pid
        machine = this_machine()
        if machine == _UNKNOWN:
            return cls(pid, 0, machine)
        try:
            return cls(pid, _look(pid)[1], machine)
        except FileNotFoundError as error:
            raise ProcessLookupError(f"there is no process {pid}") from error

    def known_dead(self) -> bool:
        """Whether it was a process of this machine and has ended. False: it lives, or that is unknown."""
        if self.machine == _UNKNOWN or self.machine != this_machine():
            return False
        try:
            state, started = _look(self.pid)
        except OSError:  # it has ended; or it is somebody else's, and hidden (`hidepid`)
            return not _exists(self.pid)
        return state in _ENDED or started != self.started


@cache
def this_machine() -> str:
    """The kernel's boot and the pid namespace, within which a pid is one process's; "unknown" without a /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return _UNKNOWN
    return hashlib.sha256(f"{boot}/{namespace}".encode()).hexdigest()[:_DIGITS]


def _look(pid: int) -> tuple[str, int]:
    """The state of a process, a letter, and when it started."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    fields = text.rpartition(")")[2].split()
    return fields[_STATE], int(fields[_STARTED])


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
