"""The results, written after every single measurement, so that an interrupted run can continue.

One JSON document: `machine`, `extent`, and a list for each kind of measurement; its keys are the fields of
the classes here. Unknown values are null.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from bench.stats import median
from drkit.files import write_atomically
from drkit.model.errors import ConfigError


@dataclass(frozen=True, slots=True)
class BacklogRun:
    """One mirror over one backlog. `seconds`: from the first to the last record on the target.

    `cpu_seconds`: of the process tree in that span; `launch_*`: until the first record. `complete`: false if time ran
    out; then the rates are of the finished part. `mapping_bytes`: of the mapping rows in drkit's store after the run
    (None for the other mirror). `uneven_partitions`: those with another end on the target than on the source after the
    mirror was stopped.
    """

    case: str
    peer: str
    repeat: int
    records: int
    mirrored_records: int
    complete: bool
    seconds: float
    records_per_second: float | None
    mb_per_second: float | None
    cpu_seconds: float
    cpu_seconds_per_million: float | None
    launch_seconds: float
    launch_cpu_seconds: float
    peak_rss_mib: float
    rss_first_half_mib: float
    rss_second_half_mib: float
    uneven_partitions: int = 0
    mapping_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LiveRun:
    """End-to-end latency at a steady rate, in milliseconds. `peer` is `direct` for a reader of the source.

    `cpu_share`: of one core, by the mirror's process tree (None for `direct`).
    """

    case: str
    peer: str
    repeat: int
    records: int
    records_per_second: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    cpu_share: float | None
    peak_rss_mib: float | None


@dataclass(frozen=True, slots=True)
class TranslateRun:
    """The cost of a mirror's translated positions for the groups that committed on one kind of topic.

    Sums and maxima are over the commits for which it has a position.
    """

    peer: str
    kind: str
    commits: int
    answered: int
    exact: int
    reread_sum: int
    reread_max: int
    skipped_sum: int
    skipped_max: int


@dataclass(frozen=True, slots=True)
class LookupRun:
    """Floor lookups in Cassandra with drkit's store, in milliseconds."""

    rows: int
    lookups: int
    p50_ms: float
    p99_ms: float
    load_seconds: float


@dataclass(frozen=True, slots=True)
class MoveRun:
    """Every group moved once by one tool. `seconds`: from its launch to its end; `cpu_seconds`: of its process."""

    tool: str
    groups: int
    partitions: int
    repeat: int
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class SiteRun:
    """One failover of a whole site whose sources died. `case`: by name. `seconds`: from the command's launch to its
    end; `rto_seconds`: from its begin to verified positions; `cpu_seconds`: of the command; `stages`: seconds of each,
    of the slowest link.
    """

    way: str
    links: int
    groups: int
    partitions: int
    repeat: int
    seconds: float
    rto_seconds: float
    stages: dict[str, float]
    cpu_seconds: float | None = None
    case: str = "site"


@dataclass(frozen=True, slots=True)
class LargeLinkRun:
    """A link of very many partitions. In seconds, except for `idle_share` (of a core) and `peak_rss_mib`.

    `created`: the time of a bare client to create as many topics on an otherwise idle broker, the lower bound for a
    mirror of new topics. `first`, `moving`: from the mirror's launch until the first record, and until one of every
    partition, is on the target, whose topics the mirror creates. `again_first`, `again_moving`: the same for a second
    launch, with existing topics and new records in each. `commands`: wall-clock seconds of each command from its launch
    to its end (`page`: until it was served completely); `commands_cpu`: their CPU seconds.
    """

    topics: int
    partitions: int
    repeat: int
    created: float
    first: float
    moving: float
    moving_cpu: float
    again_first: float
    again_moving: float
    idle_share: float
    peak_rss_mib: float
    commands: dict[str, float]
    commands_cpu: dict[str, float]


@dataclass(frozen=True, slots=True)
class OutageRun:
    """One backlog of many partitions, copied beside a producer on the target. `policy`: the link's `catch_up`.

    `alone_…`: the latency of the producer's records without the mirror, in milliseconds; the others: with it.
    `seconds`: from the mirror's launch to its end.
    """

    policy: str
    repeat: int
    partitions: int
    records: int
    alone_p50_ms: float
    alone_p99_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    seconds: float
    records_per_second: float


@dataclass(slots=True)
class Results:
    """All measurements of a run."""

    machine: dict[str, Any]
    extent: str
    backlog: list[BacklogRun] = field(default_factory=list)
    live: list[LiveRun] = field(default_factory=list)
    translate: list[TranslateRun] = field(default_factory=list)
    lookup: list[LookupRun] = field(default_factory=list)
    moves: list[MoveRun] = field(default_factory=list)
    sites: list[SiteRun] = field(default_factory=list)
    large_links: list[LargeLinkRun] = field(default_factory=list)
    outages: list[OutageRun] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def rows(self, kind: str, **where: object) -> list[Any]:
        """The measurements of one list with these values."""
        return [run for run in getattr(self, kind) if all(getattr(run, name) == value for name, value in where.items())]

    def typical(self, kind: str, measure: str, **where: object) -> float | None:
        """The median of one field over those rows; None if it was not measured."""
        return median(getattr(run, measure) for run in self.rows(kind, **where))

    def save(self, path: Path) -> None:
        """Write the document, atomically."""
        write_atomically(path, json.dumps(asdict(self), indent=1) + "\n")


def load(path: Path) -> Results:
    """The results in a file.

    Raises:
        ConfigError: the file doesn't exist, or holds no results of the bench.
    """
    try:
        return TypeAdapter(Results).validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} holds no results of the bench: {error}", remedy="Run without --resume to measure again"
        ) from error
