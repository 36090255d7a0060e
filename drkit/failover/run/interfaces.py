"""What a failback needs of packages that it can't import: protocols that the command line implements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from drkit.model.topology import Link

PATIENCE_SECONDS = 60.0
"""While clients work, a cluster that is down is waited for so long."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """How a mirror ended: `records` brought over, and whether a worker of its own did it."""

    records: int
    reason: str


class MirrorPort(Protocol):
    """Runs a link's mirror in this process."""

    def catch_up(
        self, link: Link, say: Callable[[str], None], /, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> CaughtUp:
        """Mirror until all that each source partition held at the start is on the target and recorded.

        It has stopped, and its lease is given up, on return. `patience_seconds`: how long nothing may move while a
        cluster is down.

        Raises:
            DrkitError: it could not.
        """


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What was kept of the records that only the link's source holds.

    `path`: the folder it is in. `records`: by topic. `uncommitted`: by `topic:partition`, the log end up to which open
    transactions keep records from being read: these are not in it. `unreadable`: the same of offsets [first, until)
    whose batches fail their checksum.
    """

    path: str
    records: Mapping[str, int]
    uncommitted: Mapping[str, int] = field(default_factory=dict)
    unreadable: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)


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
        """Compare both logs of these topics of the source and write every record that the target doesn't hold, and
        `positions`, into `out`, a new folder. `say` is told what is being done.

        A folder that is there afterwards is whole.

        Raises:
            DrkitError: it could not keep all of them.
        """

    def check(self, path: str, /) -> None:
        """Read a salvage back: every file is there, as its manifest says.

        Raises:
            DrkitError: it isn't.
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
        """Audit every topic of the link. `say` is told what is being done.

        Raises:
            DrkitError: it could not.
        """


@dataclass(frozen=True, slots=True)
class Ports:
    """All of them. `salvage_root`: the folder that gets a folder for each run's salvage. `seeder`: brings over what
    Spark is to bring over; None where that isn't at hand.
    """

    mirror: MirrorPort
    salvager: Salvager
    auditor: Auditor
    salvage_root: Path
    seeder: MirrorPort | None = None
