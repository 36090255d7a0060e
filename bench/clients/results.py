"""The measurements, as JSON (`bench/clients.json`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class Waited:
    """The measurements of one client in one disaster.

    `finds_by`: how it finds the cluster: `dns`, `address`, or, started again, by a directory's kind; `read_seconds`,
    `write_seconds`: from the disaster to its first good read and write on dr; None: not within the limit.
    `read_again`, `never_read`: records, by what its group saw and what dr holds; None where it read nothing on dr.
    `not_run`: why it was not measured.
    """

    kind: str
    settings: str
    finds_by: str
    restarted: bool
    read_seconds: float | None = None
    write_seconds: float | None = None
    read_again: int | None = None
    never_read: int | None = None
    not_run: str | None = None


@dataclass(frozen=True, slots=True)
class Disaster:
    """One disaster with all its clients.

    `way`: `killed` or `vanished`; `published_seconds`: from the disaster to when the directory named dr;
    `failover_seconds`: to the end of `drkit failover`; `limit_seconds`: how long the run waited for clients.
    """

    way: str
    finds_by: str
    published_seconds: float
    failover_seconds: float
    limit_seconds: float
    clients: Sequence[Waited]


@dataclass(frozen=True, slots=True)
class Results:
    """A whole run. `titles`, `settings`: of each kind; `not_run`: what this machine lacks."""

    machine: Mapping[str, str | int | float]
    titles: Mapping[str, str]
    settings: Mapping[str, Mapping[str, Mapping[str, str | int]]]
    not_run: Mapping[str, str]
    disasters: Sequence[Disaster] = ()

    def write(self, path: Path) -> None:
        """Write the results."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what `write` wrote."""
        return TypeAdapter(cls).validate_json(path.read_bytes())
