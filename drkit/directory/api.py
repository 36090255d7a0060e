"""The content and guarantees of a directory; `tests/integration/directory` runs the same tests on each kind.

An entry's epoch decides: only an entry of a greater epoch replaces it, in one atomic step with the check
of the current one. So a stopped run that wakes up after a newer one has published changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from drkit.model.clock import iso
from drkit.model.errors import DrkitError, Refused

FORMAT = "drkit-directory/1"


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry of a link: the cluster that its clients should use.

    `active`: the cluster's alias. `bootstrap_servers`: `host:port`, several with commas. `epoch`: the
    version of the link's decision; it grows with each failover and failback.
    """

    link: str
    active: str
    bootstrap_servers: str
    epoch: int
    run: str
    at: datetime

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each bootstrap server."""
        found = []
        for server in self.bootstrap_servers.split(","):
            host, _, port = server.strip().rpartition(":")
            found.append((host.strip("[]"), int(port)))
        return tuple(found)

    def __str__(self) -> str:
        return f"{self.active} ({self.bootstrap_servers}), epoch {self.epoch}"


class Directory(Protocol):
    """One directory."""

    @property
    def name(self) -> str:
        """Its name in messages; holds no secret."""

    @property
    def confirms(self) -> bool:
        """Whether `read` always returns an existing entry; else None may also mean that it can't tell."""

    def read(self) -> Entry | None:
        """The current entry; None: there is none.

        Raises:
            Unreachable: it doesn't answer.
            DrkitError: it refuses, or what is there isn't drkit's.
        """

    def publish(self, entry: Entry) -> bool:
        """Publish it durably; returns whether that changed anything. Publishing twice changes nothing.

        Raises:
            Refused: there is an entry of a greater epoch, or one of the same epoch of another cluster.
            Unreachable: it doesn't answer; publishing again is safe.
            DrkitError: it refuses, or what is there isn't drkit's.
        """


def must_write(kept: Entry | None, wanted: Entry, where: str) -> bool:
    """Whether `wanted` must replace `kept`; False: it is there already. Pure.

    Raises:
        Refused: `kept` is newer.
    """
    if kept is None or kept.epoch < wanted.epoch:
        return True
    same = (kept.link, kept.active, kept.epoch) == (wanted.link, wanted.active, wanted.epoch)
    if same:
        return kept.bootstrap_servers != wanted.bootstrap_servers
    raise Refused(
        f"{where} says {kept} of {kept.link}, written by run {kept.run} at {iso(kept.at)}; "
        f"this run would write {wanted.active}, epoch {wanted.epoch}",
        meaning="The entry is of a newer decision (or of a store since replaced); it is not overwritten",
        remedy="If that decision is void, remove the entry there by hand",
    )


def to_json(entry: Entry) -> str:
    """The documented JSON of an entry (docs/directory.md), one object, ending in a newline."""
    body = {
        "format": FORMAT,
        "link": entry.link,
        "active": entry.active,
        "bootstrap_servers": [server.strip() for server in entry.bootstrap_servers.split(",")],
        "epoch": entry.epoch,
        "run": entry.run,
        "at": iso(entry.at),
    }
    return json.dumps(body, indent=2) + "\n"


def from_json(text: str | bytes, where: str) -> Entry:
    """Read the JSON of `to_json`.

    Raises:
        DrkitError: it is invalid.
    """
    try:
        body: Any = json.loads(text)
        found = body["format"]
        entry = Entry(
            link=str(body["link"]),
            active=str(body["active"]),
            bootstrap_servers=",".join(map(str, body["bootstrap_servers"])),
            epoch=int(body["epoch"]),
            run=str(body["run"]),
            at=datetime.fromisoformat(body["at"]),
        )
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise not_ours(where, f"{type(error).__name__}: {error}") from None
    if found != FORMAT:
        raise not_ours(where, f"its format is {found!r}, not {FORMAT}")
    return entry


def not_ours(where: str, why: str) -> DrkitError:
    """The error for a directory with something other than drkit's entry."""
    return DrkitError(
        f"{where} holds something that is not an entry of drkit ({why})",
        meaning="It is not overwritten: it may belong to another program",
        remedy="Remove it, or choose another location for the entry",
    )


def contended(where: str) -> DrkitError:
    """The error for a directory that changed at each attempt to write it."""
    return DrkitError(
        f"{where} changed each time it was about to be written",
        meaning="Another program writes there",
        remedy="Stop that program; then try again",
    )
