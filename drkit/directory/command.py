"""A directory behind a user's command: it publishes a given entry, and prints the current one.

It is called as `COMMAND… publish` or `COMMAND… read`, with the link's name, and for publish all of the
entry, in its environment (`DRKIT_LINK`, `DRKIT_ACTIVE`, `DRKIT_BOOTSTRAP_SERVERS`, `DRKIT_EPOCH`,
`DRKIT_RUN`); publish also gets the entry's JSON on stdin. It exits with 0 when done and with 3 if the
current entry has a newer epoch. `read` writes the entry's JSON, or nothing if there is none or it can't tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from drkit.directory.api import Entry, from_json, must_write, to_json
from drkit.directory.process import ended, run_bounded
from drkit.model.clock import iso
from drkit.model.deadline import Deadline
from drkit.model.errors import Refused

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
        done = run_bounded((*self._command, "read"), {"DRKIT_LINK": self._link}, "", deadline)
        if done.code != 0:
            raise ended(self.name, "read", done)
        return from_json(done.out, self.name) if done.out.strip() else None

    def publish(self, entry: Entry) -> bool:
        """`COMMAND publish`, unless `COMMAND read` shows that the entry is current."""
        deadline = Deadline.after(self._timeout_seconds)
        if not must_write(self._read(deadline), entry, self.name):
            return False
        environment = {
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
