"""Looking a position up in Cassandra as the number of mapping rows grows, through drkit's own store.

All rows are of one topic partition, which is Cassandra's worst case: one wide row. The same node holds the
small and the large mapping, in keyspaces of their own; lookups alternate between the two, so that both see
the same caches, compactions and neighbours.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cases import LOOKUP_BASE_ROWS, Extent
from bench.progress import Bar, Screen
from bench.results import LookupRun
from bench.stats import percentile
from drkit.lab import Lab
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import Store, open_store

_LINK = LinkId("primary", "dr")
_PLACE = TopicPartition("orders", 0)
_EPOCH = 1
_STRIDE = 40  # source offsets from one row to the next
_CHUNK = 5_000
_WARM_LOOKUPS = 300
_PARTITIONS = 1
_SEED = 7
_SETTLE_SECONDS = 20.0


@dataclass(slots=True)
class _Mapping:
    """A store with `rows` rows."""

    store: Store
    rows: int
    load_seconds: float

    def timed(self, dice: random.Random) -> float:
        """Seconds of one floor lookup somewhere.

        Raises:
            RuntimeError: the store answered wrongly.
        """
        number = dice.randrange(self.rows)
        wanted = number * _STRIDE + dice.randrange(_STRIDE)
        began = time.perf_counter()
        found = self.store.floor_mapping(_LINK, _PLACE, _EPOCH, wanted)
        took = time.perf_counter() - began
        if found != _row(number):
            raise RuntimeError(f"the row at or below {wanted} is {_row(number)}, and the store says {found}")
        return took


def measure(work: Path, screen: Screen, extent: Extent) -> list[LookupRun]:
    """Start a Cassandra, fill it, time the lookups; the small mapping's figures come first."""
    with _cassandra(work / "cassandra", screen) as lab:
        small = _filled(lab, "bench_small", LOOKUP_BASE_ROWS, screen)
        with closing(small.store):
            large = _filled(lab, "bench_large", extent.lookup_rows, screen)
            with closing(large.store):
                time.sleep(_SETTLE_SECONDS)  # compactions that loading began run on
                return _timed([small, large], extent.lookups)


def _timed(mappings: list[_Mapping], lookups: int) -> list[LookupRun]:
    dice = random.Random(_SEED)  # noqa: S311 - test data
    for _ in range(_WARM_LOOKUPS):
        for mapping in mappings:
            mapping.timed(dice)
    taken: list[list[float]] = [[] for _ in mappings]
    for _ in range(lookups):
        for mapping, times in zip(mappings, taken, strict=True):
            times.append(mapping.timed(dice) * 1000)
    return [
        LookupRun(
            rows=mapping.rows,
            partitions=_PARTITIONS,
            lookups=lookups,
            p50_ms=round(percentile(sorted(times), 0.5), 3),
            p99_ms=round(percentile(sorted(times), 0.99), 3),
            load_seconds=round(mapping.load_seconds, 1),
        )
        for mapping, times in zip(mappings, taken, strict=True)
    ]


def _filled(lab: Lab, keyspace: str, rows: int, screen: Screen) -> _Mapping:
    store = open_store(lab.store_url(keyspace))
    began = time.monotonic()
    with screen.bar(f"lookup: {rows:,} rows", rows) as bar:
        _append(store, rows, bar)
    return _Mapping(store, rows, time.monotonic() - began)


def _append(store: Store, rows: int, bar: Bar) -> None:
    for start in range(0, rows, _CHUNK):
        chunk = [_row(number) for number in range(start, min(rows, start + _CHUNK))]
        store.append_mappings(_LINK, chunk)
        bar.advance(len(chunk))


def _row(number: int) -> OffsetMapping:
    """Each row's delta is one less than the one before, as after a transaction marker that was left out."""
    source = number * _STRIDE
    return OffsetMapping(*_PLACE, _EPOCH, source, source - number)


@contextmanager
def _cassandra(folder: Path, screen: Screen) -> Iterator[Lab]:
    lab = Lab.up(folder, store="cassandra", clusters=(), say=screen.say)
    try:
        yield lab
    finally:
        lab.down()
