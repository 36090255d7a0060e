"""What is measured: named cases, chosen so that each question of the issue has one, not the full cross product."""

from __future__ import annotations

from dataclasses import dataclass

from bench.batches import Codec
from bench.load import Shape

_KB = 1000


@dataclass(frozen=True, slots=True)
class BacklogCase:
    """A topic that lies there in full before the mirror starts.

    `records`: in a full run; `quick_records`: in a quick one. `named`: one that a target of the issue is
    about. `drkit_only`: the other mirror isn't run. `partitions`: of all `topics` together.
    """

    name: str
    records_a_batch: int
    record_bytes: int
    codec: Codec
    partitions: int
    records: int
    quick_records: int
    named: bool = False
    drkit_only: bool = False
    topics: int = 1

    @property
    def topic_names(self) -> list[str]:
        """Its topics; each has an equal share of the partitions and of the records."""
        return [f"bench-{self.name}-{number}" for number in range(self.topics)]

    def records_in(self, extent: Extent, asked: int | None) -> int:
        """How many records it gets in such a run. `asked`: for every case, instead of its own."""
        if asked is not None:
            return asked
        return self.records if extent is FULL else self.quick_records

    @property
    def partitions_a_topic(self) -> int:
        """Partitions of each topic."""
        return self.partitions // self.topics

    def shape(self, records: int) -> Shape:
        """Each topic, for this many records in all."""
        share = records // self.topics
        return Shape(share, self.record_bytes, self.codec, self.records_a_batch, self.partitions_a_topic)

    @property
    def description(self) -> str:
        """One line for people."""
        size = f"{self.record_bytes} B" if self.record_bytes < _KB else f"{self.record_bytes // _KB} KB"
        batch = "one a batch" if self.records_a_batch == 1 else f"{self.records_a_batch:,} a batch"
        partitions = "1 partition" if self.partitions == 1 else f"{self.partitions:,} partitions"
        return f"{size} JSON, {self.codec}, {batch}, {partitions}"


@dataclass(frozen=True, slots=True)
class LiveCase:
    """A steady stream; each record carries the time when it was sent."""

    name: str
    record_bytes: int
    codec: Codec
    partitions: int
    records_per_second: int = 5000
    named: bool = False

    @property
    def description(self) -> str:
        """One line for people."""
        partitions = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        return f"{self.records_per_second:,} records/s of {self.record_bytes:,} B JSON, {self.codec}, {partitions}"


_K, _M = 1_000, 1_000_000

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
"""What says whether memory and the mapping stay flat: as long as the longest, in the fewest batches."""
MANY_PARTITIONS = BacklogCase(
    "partitions-10000", 10, 100, "lz4", 10_000, 400 * _K, 200 * _K, drkit_only=True, topics=20
)
WARM_UP = BacklogCase("warm-up", 150, 100, "lz4", 8, 600 * _K, 100 * _K)

LIVE = (
    LiveCase("live", 100, "none", 8, named=True),
    LiveCase("live-1kb-1p", 1000, "lz4", 1),
)

TRANSLATE, LOOKUP, MOVE, SITE = "translate", "lookup", "move", "site"
STEPS = (
    *(case.name for case in BACKLOG),
    *(case.name for case in LIVE),
    *(TRANSLATE, MOVE, LOOKUP, MANY_PARTITIONS.name, SITE),
)
"""Everything, in the order in which it runs."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much a run does. Seconds are those of one live measurement and of its warm-up.

    `live_repeats`: how often a live case is measured at least, for its slowest hundredth varies much.
    `move_records`: on each partition of the topic that groups are moved on. `site_groups`: over all links;
    `site_repeats`: how often a site is failed over at least, for each way in which its sources die.
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
    site_groups: int = 1000
    site_partitions: int = 50
    site_repeats: int = 3

    def live_runs(self, repeat: int) -> int:
        """How often a live case is measured where others are `repeat` times."""
        return max(repeat, self.live_repeats)


FULL = Extent("full", 15, 8, 1000, 60_000, 10 * _M, 3000, 3)
QUICK = Extent(
    "quick",
    *(6, 4, 200, 20_000, 1 * _M, 1000, 1),
    move_groups=200,
    move_partitions=20,
    move_records=400,
    site_groups=60,
    site_partitions=10,
    site_repeats=1,
)
LOOKUP_BASE_ROWS = 10 * _K
