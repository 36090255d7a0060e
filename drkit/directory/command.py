"""Users' commands: run without a shell, with a timeout that holds even if one leaves processes behind; and a directory
behind one, which publishes a given entry, and prints the current one.

The command of a directory is called as `COMMAND… publish` or `COMMAND… read`, with that word (`DRKIT_ACTION`) and the
link's name (`DRKIT_LINK`), and for publish all of the entry, in its environment (`DRKIT_ACTIVE`,
`DRKIT_BOOTSTRAP_SERVERS`, `DRKIT_EPOCH`, `DRKIT_RUN`, `DRKIT_AT`); publish also gets the
entry's JSON on stdin. It exits with 0 when done, and with 3 if the current entry has a newer epoch. `read` writes the
entry's JSON, or nothing if there is none or it can't tell.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from drkit.directory.api import Entry, from_json, must_write, to_json
from drkit.model.clock import Deadline, iso
from drkit.model.errors import DrkitError, Refused, Unreachable
from drkit.model.process import given_umask

_SHOWN = 300
_REAPING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a command. `code` is negative if a signal ended it."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """The last line that it wrote to stderr (or stdout)."""
        lines = [line.strip() for line in (self.err.strip() or self.out.strip()).splitlines() if line.strip()]
        return lines[-1][:_SHOWN] if lines else ""


def run_bounded(command: Sequence[str], environment: Mapping[str, str], given: str, deadline: Deadline) -> Done:
    """Run a command in a session of its own; at the timeout everything in the session is killed.

    Processes that it moved to another session survive, and drkit doesn't wait for them.

    Args:
        command: program and arguments.
        environment: added to this process's.
        given: its stdin.
        deadline: the latest end.

    Raises:
        DrkitError: it can't be started.
        Unreachable: it did not end in time.
    """
    seconds = deadline.left
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
            errors="replace",
            start_new_session=True,
            umask=given_umask(),
        )
    except (OSError, ValueError) as error:
        raise DrkitError(
            f"{command[0]} can't be started: {error}", remedy="Check the command in the configuration"
        ) from error
    try:
        out, err = process.communicate(given, timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        raise Unreachable(
            f"{command[0]} did not end within {round(seconds, 1):g} s and was killed",
            remedy="See why it hangs, or give it more time (timeout_seconds)",
        ) from None
    except BaseException:
        _kill(process)
        raise
    return Done(process.returncode, out, err)


def ended(name: str, what: str, done: Done) -> DrkitError:
    """The error for a command that failed."""
    how = f"signal {-done.code}" if done.code < 0 else f"exit code {done.code}"
    said = f": {done.said}" if done.said else ""
    return DrkitError(f"{name} failed to {what} ({how}){said}", remedy="Correct what it names")


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill its session. Its pipes are closed unread: a process of another session may hold their other ends."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):  # an unkillable process is left to the kernel
        process.wait(_REAPING_SECONDS)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


_STALE = 3


class CommandDirectory:
    """A command as a directory."""

    def __init__(self, command: Sequence[str], link: str, timeout_seconds: float) -> None:
        self._command = tuple(command)
        self._link = link
        self._timeout_seconds = timeout_seconds

    @property
    def name(self) -> str:
        """The program."""
        return f"command {self._command[0]}"

    @property
    def confirms(self) -> bool:
        """It may be unable to read the entry: then it writes nothing."""
        return False

    def read(self) -> Entry | None:
        """The entry of `COMMAND read`."""
        return self._read(Deadline.after(self._timeout_seconds))

    def _read(self, deadline: Deadline) -> Entry | None:
        done = run_bounded((*self._command, "read"), {"DRKIT_ACTION": "read", "DRKIT_LINK": self._link}, "", deadline)
        if done.code != 0:
            raise ended(self.name, "read", done)
        return from_json(done.out, self.name) if done.out.strip() else None

    def publish(self, entry: Entry) -> bool:
        """`COMMAND publish`, unless `COMMAND read` shows that the entry is current."""
        deadline = Deadline.after(self._timeout_seconds)
        if not must_write(self._read(deadline), entry, self.name):
            return False
        environment = {
            "DRKIT_ACTION": "publish",
            "DRKIT_LINK": entry.link,
            "DRKIT_ACTIVE": entry.active,
            "DRKIT_BOOTSTRAP_SERVERS": entry.bootstrap_servers,
            "DRKIT_EPOCH": str(entry.epoch),
            "DRKIT_RUN": entry.run,
            "DRKIT_AT": str(iso(entry.at)),
        }
        done = run_bounded((*self._command, "publish"), environment, to_json(entry), deadline)
        if done.code == _STALE:
            raise Refused(
                f"{self.name} refuses epoch {entry.epoch}: {done.said or 'a newer one stands there'}",
                meaning="A newer decision stands there; it is not overwritten",
                remedy="`drkit runs` shows who decided",
            )
        if done.code != 0:
            raise ended(self.name, "publish", done)
        return True
