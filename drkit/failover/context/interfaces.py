"""Protocols of what a failback needs from packages that it can't import; the command line implements them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import platformdirs

from drkit.model.topology import Link

PATIENCE_SECONDS = 60.0
"""How long to wait for a cluster that is down while clients work."""


class MirrorPort(Protocol):
    """Runs a link's mirror in this process."""

    def catch_up(self, link: Link, say: Callable[[str], None], /, *, patience_seconds: float = PATIENCE_SECONDS) -> str:
        """Mirror until everything that each source partition held at the start is on the target and recorded; returns
        what was done, in words.

        On return it has stopped and released its lease. `patience_seconds`: how long nothing may move while a cluster
        is down.

        Raises:
            DrkitError: it could not.
        """


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What was kept of the records that only the link's source holds.

    `path`: the folder. `records`: by topic. `uncommitted`: by `topic:partition`, the log end up to which open
    transactions prevent reading: these records are not in it. `unreadable`: likewise, offsets [first, until) whose
    batches fail their CRC. `incomplete`: what nobody has looked at, in words.
    """

    path: str
    records: Mapping[str, int]
    uncommitted: Mapping[str, int] = field(default_factory=dict)
    unreadable: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    incomplete: tuple[str, ...] = ()


class Salvager(Protocol):
    """Keeps what only the link's source holds: Parquet, and a form that can be replayed."""

    def salvage(
        self,
        link: Link,
        topics: Sequence[str],
        positions: Sequence[Mapping[str, Any]],
        out: Path,
        say: Callable[[str], None],
        /,
    ) -> Salvaged:
        """Compare both logs of these topics of the source and write every record that the target lacks, and
        `positions`, into `out`, a new folder. `say` receives progress messages.

        The folder exists only if it is complete.

        Raises:
            DrkitError: it could not keep all of them.
        """

    def check(self, path: str, /) -> None:
        """Verify a salvage: every file exists and matches its manifest.

        Raises:
            DrkitError: it doesn't.
        """


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """An audit's answer: `clean` or `deviated`, one sentence of numbers, where its findings are."""

    verdict: str
    detail: str
    path: str | None = None


class Auditor(Protocol):
    """Compares both sides of a link, record by record."""

    def audit(self, link: Link, say: Callable[[str], None], /) -> AuditVerdict:
        """Audit every topic of the link. `say` receives progress messages.

        Raises:
            DrkitError: it could not.
        """


def default_salvage_root() -> Path:
    """The folder for salvages where none is named: of whoever runs the command."""
    return platformdirs.user_state_path("drkit") / "salvage"


@dataclass(frozen=True, slots=True)
class Ports:
    """All protocols. `salvage_root`: the folder that was named, with a folder for each run's salvage; None: the one
    that was named when the run began, or `default_salvage_root`. `seeder`: seeds with Spark, or None.
    """

    mirror: MirrorPort
    salvager: Salvager
    auditor: Auditor
    salvage_root: Path | None
    seeder: MirrorPort | None = None
