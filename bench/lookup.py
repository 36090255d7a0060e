"""Measures lookups of positions in Cassandra as the number of mapping rows grows, with drkit's own store.

All rows are of one topic partition, Cassandra's worst case: one wide row. The same node holds the small and the large
mapping, in different keyspaces; lookups alternate between the two, so that both have the same caches, compactions and
neighbours.

Rows are written with drkit's own statement, in unlogged batches. A mirror appends rows in another way, each batch of a
partition conditional on the worker's claim and after the previous one, which suits its few rows, not ten million.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

from bench.mirrors import Scene
from bench.report import Row, percentile
from drkit.lab import Lab
from drkit.model.errors import Unreachable
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import Store, open_store
from drkit.store.cassandra.session import CassandraSession
from drkit.store.cassandra.statements import Statements
from drkit.store.cassandra.url import parse_cassandra_url

_LINK = LinkId("primary", "dr")
_PLACE = TopicPartition("orders", 0)
_EPOCH = 1
_STRIDE = 40  # source offsets from one row to the next
_CHUNK = 20_000  # rows per call: the store keeps many small batches of them in flight
_WARM_LOOKUPS = 2_000  # the node's code is compiled again after its restart
_SEED = 7
_ATTEMPTS = 5
_SETTLE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class _Mapping:
    """A keyspace with `rows` rows."""

    keyspace: str
    rows: int
    load_seconds: float

    def timed(self, store: Store, rng: random.Random) -> float:
        """Seconds of one floor lookup at a random position.

        Raises:
            RuntimeError: the store's answer is wrong.
        """
        number = rng.randrange(self.rows)
        wanted = number * _STRIDE + rng.randrange(_STRIDE)
        began = time.perf_counter()
        found = store.floor_mapping(_LINK, _PLACE, _EPOCH, wanted)
        took = time.perf_counter() - began
        if found != _row(number):
            raise RuntimeError(f"the row at or below {wanted} is {_row(number)}, and the store says {found}")
        return took


def measure(scene: Scene) -> Iterator[Row]:
    """Start a Cassandra node, fill it, time the lookups; the small mapping's figures come first."""
    rows, lookups = (10_000_000, 3000) if scene.full else (1_000_000, 1000)
    lab = Lab.up(scene.work / "cassandra", store="cassandra", clusters=(), say=scene.say)
    try:
        sizes = {"bench_small": 10_000, "bench_large": rows}
        mappings = [_filled(lab, keyspace, rows, scene) for keyspace, rows in sizes.items()]
        # else the small one would be served from memory, like only the newest rows of a real one
        scene.say("lookup: restarting Cassandra, so that both are read from their files")
        lab.restart("cassandra-1")
        time.sleep(_SETTLE_SECONDS)  # loading began compactions, which still run
        with ExitStack() as stores:
            opened = [stores.enter_context(closing(open_store(lab.store_url(each.keyspace)))) for each in mappings]
            scene.say(f"lookup: {lookups:,} lookups in each")
            yield from _timed(list(zip(mappings, opened, strict=True)), lookups)
    finally:
        lab.down()


def _timed(mappings: list[tuple[_Mapping, Store]], lookups: int) -> list[Row]:
    rng = random.Random(_SEED)  # noqa: S311 - test data
    for _ in range(_WARM_LOOKUPS):
        for mapping, store in mappings:
            mapping.timed(store, rng)
    taken: list[list[float]] = [[] for _ in mappings]
    for _ in range(lookups):
        for (mapping, store), times in zip(mappings, taken, strict=True):
            times.append(mapping.timed(store, rng) * 1000)
    found: list[Row] = []
    for (mapping, _), times in zip(mappings, taken, strict=True):
        p50, p99 = (round(percentile(sorted(times), share), 3) for share in (0.5, 0.99))
        seconds = round(mapping.load_seconds, 1)
        found.append({"rows": mapping.rows, "lookups": lookups, "p50_ms": p50, "p99_ms": p99, "load_seconds": seconds})
    return found


def _filled(lab: Lab, keyspace: str, rows: int, scene: Scene) -> _Mapping:
    open_store(lab.store_url(keyspace)).close()  # creates the tables
    began = time.monotonic()
    scene.say(f"lookup: loading {rows:,} rows")
    with closing(CassandraSession(parse_cassandra_url(lab.store_url(keyspace)))) as session:
        statement = Statements.prepare(session).put_mapping
        for start in range(0, rows, _CHUNK):
            made = map(_row, range(start, min(rows, start + _CHUNK)))
            values = [(str(_LINK), *row.tp, row.epoch, row.source_offset, row.target_offset) for row in made]
            for attempt in range(_ATTEMPTS, 0, -1):
                try:
                    session.write_all(statement, [values])
                except Unreachable:  # a busy node may be late; writing a row again is harmless
                    if attempt == 1:
                        raise
                else:
                    break
    return _Mapping(keyspace, rows, time.monotonic() - began)


def _row(number: int) -> OffsetMapping:
    """A row, whose delta is one less than the previous one's, as after a transaction marker."""
    source = number * _STRIDE
    return OffsetMapping(*_PLACE, _EPOCH, source, source - number)
