"""The cases: one for each question, not the full cross product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench.clusters import Clusters
from bench.load import Codec, Shape
from drkit.lab.toolchain import Toolchain

TIMES = "×"  # noqa: RUF001 - the sign of a multiple
_KB = 1000
_K, _M = 1_000, 1_000_000


def _counted(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions:,} partitions"


@dataclass(frozen=True, slots=True)
class BacklogCase:
    """A topic that is complete before the mirror starts.

    `records`: in a full run; `quick_records`: in a quick one. `named`: whether a target is about it.
    """

    name: str
    records_a_batch: int
    record_bytes: int
    codec: Codec
    partitions: int
    records: int
    quick_records: int
    named: bool = False

    @property
    def topic(self) -> str:
        """Its topic."""
        return f"bench-{self.name}"

    def shape(self, extent: Extent) -> Shape:
        """The topic, in such a run."""
        records = self.records if extent is FULL else self.quick_records
        return Shape(records, self.record_bytes, self.codec, self.records_a_batch, self.partitions)

    @property
    def description(self) -> str:
        """A readable line."""
        size = f"{self.record_bytes} B" if self.record_bytes < _KB else f"{self.record_bytes // _KB} KB"
        batch = "one a batch" if self.records_a_batch == 1 else f"{self.records_a_batch:,} a batch"
        return f"{size} JSON, {self.codec}, {batch}, {_counted(self.partitions)}"


@dataclass(frozen=True, slots=True)
class LiveCase:
    """A steady stream; each record has the time at which it was sent."""

    name: str
    record_bytes: int
    codec: Codec
    partitions: int
    records_per_second: int = 5000
    named: bool = False

    @property
    def description(self) -> str:
        """A readable line."""
        rate = f"{self.records_per_second:,} records/s of {self.record_bytes:,} B JSON"
        return f"{rate}, {self.codec}, {_counted(self.partitions)}"


@dataclass(frozen=True, slots=True)
class SiteCase:
    """A site of three links whose sources die.

    `groups`: over all links, of so many `partitions` each; `limit_seconds`: from the command to verified positions;
    `repeats`: at least, for each way to die; `records`: of each partition.
    """

    name: str
    groups: int
    partitions: int
    limit_seconds: float
    repeats: int
    records: int = 1000

    @property
    def description(self) -> str:
        """A readable line."""
        return f"{self.groups:,} groups {TIMES} {self.partitions} partitions"


BACKLOG = (
    BacklogCase("large", 1000, 100, "lz4", 8, 10 * _M, 600 * _K, named=True),
    BacklogCase("middling", 150, 100, "lz4", 8, 10 * _M + 50, 300 * _K, named=True),
    BacklogCase("single", 1, 100, "none", 8, 10 * _M, 60 * _K, named=True),
    BacklogCase("large-zstd", 1000, 100, "zstd", 8, 2 * _M, 300 * _K),
    BacklogCase("large-none", 1000, 100, "none", 8, 2 * _M, 300 * _K),
    BacklogCase("large-1p", 1000, 100, "lz4", 1, 2 * _M, 300 * _K),
    BacklogCase("large-100p", 1000, 100, "lz4", 100, 3 * _M, 300 * _K),
    BacklogCase("large-1kb", 1000, 1000, "lz4", 8, 1 * _M, 100 * _K),
    BacklogCase("middling-none", 150, 100, "none", 8, 2 * _M, 300 * _K),
    BacklogCase("middling-1kb-zstd", 150, 1000, "zstd", 8, 600 * _K, 60 * _K),
    BacklogCase("middling-100p", 150, 100, "lz4", 100, 2 * _M, 300 * _K),
    BacklogCase("ten", 10, 100, "lz4", 8, 1 * _M, 100 * _K),
    BacklogCase("single-100p", 1, 100, "none", 100, 5 * _M, 60 * _K),
)
LONGEST = BACKLOG[0]
"""The case that shows whether memory and the mapping stay constant: the most records in the fewest batches."""
WARM_UP = BacklogCase("warm-up", 150, 100, "lz4", 8, 600 * _K, 100 * _K)

LIVE = (
    LiveCase("live", 100, "none", 8, named=True),
    LiveCase("live-1kb-1p", 1000, "lz4", 1),
)

SITES = (
    SiteCase("site-30", 3, 10, 3.0, 3),
    SiteCase("site", 999, 50, 5.0, 3),
    SiteCase("site-5000", 4998, 100, 30.0, 1, records=100),
)
SITE_WAYS = ("killed", "frozen", "silent")
"""How sources die: connections are refused; accepted, but never answered; not accepted (SYN is dropped)."""

TRANSLATE, MOVE, OUTAGE, LOOKUP, LARGE_LINK = "translate", "move", "outage", "lookup", "partitions-10000"
ON_THE_PAIR = (*(case.name for case in BACKLOG), *(case.name for case in LIVE), TRANSLATE, MOVE, OUTAGE)
"""The cases on one pair of clusters, one after the other; the other cases start their own."""

STEPS = (*ON_THE_PAIR, LOOKUP, LARGE_LINK, *(case.name for case in SITES))
"""All steps, in the order in which they run."""

LOOKUP_BASE_ROWS = 10 * _K


@dataclass(frozen=True, slots=True)
class Extent:
    """How much a run does. Seconds are those of one live measurement and of its warm-up.

    `live_repeats`: how often a live case is measured at least, for its slowest hundredth varies much.
    `move_records`: on each partition of the topic that groups are moved on. `site_groups`: of a site at most, over all
    links. `large_link_topics`: of ten partitions each; its mirror is left alone for `large_link_settle_seconds` before
    it is metered at rest. `outage_seconds`: for how long the target's producer is measured undisturbed.
    """

    name: str
    live_seconds: int
    live_warm_seconds: int
    commits: int
    translate_records: int
    lookup_rows: int
    lookups: int
    live_repeats: int
    move_groups: int = 1000
    move_partitions: int = 50
    move_records: int = 2000
    site_groups: int = 5000
    large_link_topics: int = 1000
    large_link_settle_seconds: float = 30.0
    large_link_idle_seconds: float = 60.0
    outage_partitions: int = 5000
    outage_records: int = 20 * _M
    outage_seconds: int = 20

    def site(self, case: SiteCase) -> SiteCase:
        """A site of this run."""
        return case if case.groups <= self.site_groups else replace(case, groups=self.site_groups, repeats=1)


FULL = Extent("full", 15, 8, 1000, 60_000, 10 * _M, 3000, 3)
QUICK = Extent(
    "quick",
    *(6, 4, 200, 20_000, 1 * _M, 1000, 1),
    move_groups=200,
    move_partitions=20,
    move_records=400,
    site_groups=60,
    large_link_topics=100,
    large_link_settle_seconds=15.0,
    large_link_idle_seconds=20.0,
    outage_partitions=500,
    outage_records=2 * _M,
    outage_seconds=5,
)


@dataclass(frozen=True, slots=True)
class Scene:
    """What a case is measured in. `work`: an existing folder for its files; `clusters`: the pair, which runs only for
    the cases of `ON_THE_PAIR`; `say`: gets a line for people about each step.
    """

    work: Path
    clusters: Clusters
    toolchain: Toolchain
    extent: Extent
    say: Callable[[str], None]
