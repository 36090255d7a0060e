"""Both sides of a scope as DataFrames, one row a record, through drkit's own data source (`log_source.py`).

Columns of `Reader.source`: `p` (the partition's number in the scope), `s` (offset), `e` (its place on the
target, or the nearest below), `placed` (whether `e` is its own), `h1`, `h2` (digest), `ts` (ms), `key`,
`null_value`. Of `Reader.target`: `p`, `t` (offset), `h1`, `h2`, `ts`, `key`, `null_value`. Both with
`unreadable=True`: and `unreadable_until`, not null in rows that stand for offsets that can't be read.

Only committed records are read (unless the link mirrors uncommitted ones); offsets without one (markers, aborted and
compacted records) are simply not there. Each partition is read up to the end observed at the start, and reading fails
where retention takes records away under it: nothing is skipped in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from drkit.audit.compare.offset_zones import Zone
from drkit.audit.compare.scope import Scope
from drkit.audit.read.log_source import read_records
from drkit.audit.read.offset_ranges import Span
from drkit.model.clock import YEAR_10000

_ZONE_TYPES = {
    "zp": pa.int32(),
    "bucket": pa.int64(),
    "first": pa.int64(),
    "until": pa.int64(),
    "delta": pa.int64(),
    "valid_from": pa.int64(),
    "valid_until": pa.int64(),
}

Ranges = Mapping[int, tuple[int, int]]
"""Offsets [from, until) by the number of a partition."""

Pieces = Mapping[int, Sequence[tuple[int, int]]]
"""Several ranges of offsets [from, until) by the number of a partition, ascending."""


class Reader:
    """Reads the sides of one scope. Every call makes a new DataFrame, which reads Kafka when it is used."""

    def __init__(self, spark: SparkSession, scope: Scope) -> None:
        self.spark = spark
        self.scope = scope

    @cached_property
    def _places(self) -> ZoneLookup:
        return self.zone_lookup(
            {each.number: each.zones for each in self.scope.partitions},
            {each.number: (each.source_from, each.source_end) for each in self.scope.partitions},
        )

    @property
    def parallel(self) -> int:
        """Tasks that run at a time."""
        return int(self.spark.sparkContext.defaultParallelism)

    def source(self, ranges: Ranges | None = None, *, unreadable: bool = False) -> DataFrame:
        """The source's records with their places; of these partitions and offsets only, where given."""
        return self.source_pieces(self._source_pieces(ranges), unreadable=unreadable)

    def source_pieces(self, pieces: Pieces, *, unreadable: bool = False) -> DataFrame:
        """The same of many ranges of a partition."""
        return self._placed(self._source_rows(pieces, unreadable=unreadable))

    def target(self, ranges: Ranges | None = None, *, unreadable: bool = False) -> DataFrame:
        """The target's records; of these partitions and offsets only, where given."""
        return self.target_pieces(self._target_pieces(ranges), unreadable=unreadable)

    def target_pieces(self, pieces: Pieces, *, unreadable: bool = False) -> DataFrame:
        """The same of many ranges of a partition."""
        return self._target_rows(pieces, unreadable=unreadable).select(
            "p", F.col("offset").alias("t"), *_content_columns()
        )

    def source_records(self, ranges: Ranges) -> DataFrame:
        """The source's records with all fields: `s`, `topic`, `partition`, and those of `log_source.RECORD_ROW`."""
        types = {"p": pa.int32(), "topic": pa.string(), "partition": pa.int32()}
        names = self.frame(types, [(each.number, each.topic, each.partition) for each in self.scope.partitions])
        rows = self._source_rows(self._source_pieces(ranges), unreadable=False).join(F.broadcast(names), "p")
        return rows.withColumn("s", F.col("offset"))

    def target_records(self, ranges: Ranges) -> DataFrame:
        """The target's records with all fields: those of `log_source.RECORD_ROW`."""
        return self._target_rows(self._target_pieces(ranges), unreadable=False)

    def _placed(self, numbered: DataFrame) -> DataFrame:
        delta = self._one_delta()  # offsets that were preserved, as a rule: then no zone is looked up
        if delta is not None:
            place = F.col("offset") + F.lit(delta)
            return numbered.select(
                "p", F.col("offset").alias("s"), place.alias("e"), F.lit(True).alias("placed"), *_content_columns()
            )
        placed = self._places.join(numbered, "offset")
        inside = (F.col("offset") >= F.col("valid_from")) & (F.col("offset") < F.col("valid_until"))
        place = F.least(F.col("offset") + F.col("delta"), F.col("valid_until") - 1 + F.col("delta"))
        return placed.select(
            "p", F.col("offset").alias("s"), place.alias("e"), inside.alias("placed"), *_content_columns()
        )

    def zone_lookup(self, cut: Mapping[int, Sequence[Zone]], bounds: Mapping[int, tuple[int, int]]) -> ZoneLookup:
        """A table to look zones up in.

        Args:
            cut: the zones by partition number, ascending.
            bounds: the offsets [from, until) that can occur.
        """
        table, shifts = zone_table(cut, bounds)
        return ZoneLookup(
            F.broadcast(self.spark.createDataFrame(table)),
            F.broadcast(self.frame({"p": pa.int32(), "shift": pa.int32()}, sorted(shifts.items()))),
        )

    def frame(self, types: Mapping[str, Any], rows: Iterable[Sequence[Any]]) -> DataFrame:
        """A small DataFrame from tuples; `types` are Arrow's, by column."""
        columns = list(zip(*rows, strict=True)) or [() for _ in types]
        arrays = [pa.array(values, kind) for values, kind in zip(columns, types.values(), strict=True)]
        return self.spark.createDataFrame(pa.table(dict(zip(types, arrays, strict=True))))

    def _source_pieces(self, ranges: Ranges | None) -> Pieces:
        bounds = {each.number: (each.source_from, each.source_end) for each in self.scope.partitions}
        return _within(bounds, ranges)

    def _target_pieces(self, ranges: Ranges | None) -> Pieces:
        bounds = {each.number: (each.target_from, each.target_end) for each in self.scope.partitions}
        return _within(bounds, ranges)

    def _source_rows(self, pieces: Pieces, *, unreadable: bool) -> DataFrame:
        scope = self.scope
        names = [(each.topic, each.partition) for each in scope.partitions]
        spans = _spans(names, pieces)
        rows = read_records(self.spark, scope.source_reached(), spans)
        return rows if unreadable else rows.where("unreadable_until is null")

    def _target_rows(self, pieces: Pieces, *, unreadable: bool) -> DataFrame:
        scope = self.scope
        names = [(each.target_topic, each.partition) for each in scope.partitions]
        rows = read_records(self.spark, scope.target_reached(), _spans(names, pieces))
        return rows if unreadable else rows.where("unreadable_until is null")

    def _one_delta(self) -> int | None:
        """The delta of all offsets that are read, where it is one and each of them has its own place."""
        deltas = {
            zone.delta if zone.valid_from <= each.source_from and zone.valid_until >= each.source_end else None
            for each in self.scope.partitions
            for zone in each.zones
            if zone.first < each.source_end and zone.until > each.source_from
        }
        return deltas.pop() if len(deltas) == 1 else None


@dataclass(frozen=True, slots=True)
class ZoneLookup:
    """Finds the zone that an offset lies in; made by `Reader.zone_lookup`."""

    zones: DataFrame
    shifts: DataFrame

    def join(self, rows: DataFrame, offset: str, *, how: str = "inner") -> DataFrame:
        """Give each row its zone's `delta`, `valid_from` and `valid_until`.

        Args:
            rows: has `p` and the column that `offset` names.
            offset: the column to look up.
            how: `inner` drops rows outside of every zone, `left` gives them nulls.
        """
        bucketed = rows.join(self.shifts, "p", how).withColumn("wanted", F.expr(f"shiftright({offset}, shift)"))
        at = F.col(offset)
        return bucketed.join(
            self.zones,
            (F.col("p") == F.col("zp"))
            & (F.col("wanted") == F.col("bucket"))
            & (at >= F.col("first"))
            & (at < F.col("until")),
            how,
        ).drop("zp", "bucket", "wanted", "shift", "first", "until")


def zone_table(
    cut: Mapping[int, Sequence[Zone]], bounds: Mapping[int, tuple[int, int]]
) -> tuple[pa.Table, dict[int, int]]:
    """Zones laid out for an equi-join: one row a zone and bucket of 2**shift offsets that it touches.

    Buckets are as wide as a partition's zones are on the average, so the table has at most about twice as
    many rows as there are zones, and a bucket few of them. Returns the table and the shifts by partition.
    """
    columns: dict[str, list[int]] = {name: [] for name in _ZONE_TYPES}
    shifts: dict[int, int] = {}
    for number, members in cut.items():
        low, high = bounds[number]
        shift = max(1, (high - low) // max(1, len(members))).bit_length()
        shifts[number] = shift
        for zone in members:
            first, until = max(zone.first, low), min(zone.until, high)
            for bucket in range(first >> shift, ((until - 1) >> shift) + 1 if until > first else first >> shift):
                row = (number, bucket, zone.first, zone.until, zone.delta, zone.valid_from, zone.valid_until)
                for name, value in zip(columns, row, strict=True):
                    columns[name].append(value)
    return pa.table({name: pa.array(values, _ZONE_TYPES[name]) for name, values in columns.items()}), shifts


def _within(bounds: Ranges, ranges: Ranges | None) -> Pieces:
    """These ranges, cut down to the bounds; all of the bounds, where none are given."""
    if ranges is None:
        return {number: [both] for number, both in bounds.items()}
    return {
        number: [(max(low, bounds[number][0]), min(high, bounds[number][1]))] for number, (low, high) in ranges.items()
    }


def _spans(names: Sequence[tuple[str, int]], pieces: Pieces) -> list[Span]:
    """What is read, for the partitions that `names` has by number."""
    return [
        Span(number, *names[number], first, until, until)
        for number, ranges in pieces.items()
        for first, until in ranges
        if first < until
    ]


def in_tasks(spark: SparkSession, work: Callable[[Iterable[Any]], Iterable[Any]], tasks: Sequence[Any]) -> list[Any]:
    """Run a task for each of these, in Spark's workers, and return all that the tasks yield, in their order.

    Where there is nothing to shuffle and the results are small, this costs a fraction of planning a DataFrame.

    Args:
        spark: what to run on.
        work: gets an iterable of the one thing that its task is about. It travels to the workers as code; what it is
            bound to is in no plan and in no log.
        tasks: what each task is about.
    """
    if not tasks:
        return []
    found: list[Any] = spark.sparkContext.parallelize(tasks, len(tasks)).mapPartitions(work).collect()
    return found


def keep(frame: DataFrame) -> DataFrame:
    """Compute a frame now, once, and go on from the result (memory, then disk).

    Its plan is cut off with it: steps that build on each other would otherwise make plans that grow
    exponentially, whatever the size of the data.
    """
    return frame.localCheckpoint(eager=True)


def digest_columns() -> tuple[Column, Column]:
    """128 bits over key, value, headers in their order, and timestamp; null and empty differ.

    Two XXH64 with different seeds. Every variable part is preceded by its length (-1: null), so no two
    contents have the same encoding; Spark's hash skips nulls, which alone would make them so.
    """
    header = F.transform(
        F.col("headers"),
        lambda each: F.struct(
            each["key"], F.coalesce(F.length(each["value"]), F.lit(-1)).alias("length"), each["value"]
        ),
    )
    parts = (
        F.coalesce(F.length("key"), F.lit(-1)),
        F.col("key"),
        F.coalesce(F.length("value"), F.lit(-1)),
        F.col("value"),
        F.col("stamp"),
        F.when(F.col("headers").isNull(), F.lit(0)).otherwise(F.size("headers")),
        F.when(F.col("headers").isNotNull(), header),
    )
    return F.xxhash64(F.lit(1), *parts), F.xxhash64(F.lit(2), *parts)


def date_column(name: str) -> Column:
    """The timestamp of a column of milliseconds; null where that is no date (as `drkit.model.clock.date_of`)."""
    stamp = F.col(name)
    return F.when((stamp >= 0) & (stamp < YEAR_10000), F.timestamp_millis(stamp))


def _content_columns() -> tuple[Column, ...]:
    first, second = digest_columns()
    return (
        first.alias("h1"),
        second.alias("h2"),
        F.col("stamp").alias("ts"),
        F.col("key"),
        F.col("value").isNull().alias("null_value"),
        F.col("unreadable_until"),
    )
