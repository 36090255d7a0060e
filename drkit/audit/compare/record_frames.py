"""Both sides of a scope as DataFrames, one row a record (`log_source.py`), and work in Spark's tasks.

`p` is the partition's number in the scope, `s` an offset of the source, `e` its place on the target, or the nearest
below, `t` an offset of the target, `h1` and `h2` the digest of the content.

Only committed records are read (unless the link mirrors uncommitted ones); other offsets (markers, aborted and
compacted records) have no rows. Each partition is read up to the end observed at the start, and reading fails if
retention removes records meanwhile: nothing is skipped silently.
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


class ScopeReader:
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

    def source_records(self, ranges: Ranges, *, unreadable: bool = False) -> DataFrame:
        """The source's records, of these partitions and offsets: all fields (`log_source.RECORD_ROW`), `s`, `e`, `h1`,
        `h2`, and `topic`, `partition`. `unreadable`: with a row for each stretch that can't be read."""
        scope = self.scope
        names = [(each.number, each.topic, each.partition) for each in scope.partitions]
        bounds = {each.number: (each.source_from, each.source_end) for each in scope.partitions}
        spans = _spans([each[1:] for each in names], bounds, ranges)
        rows = read_records(self.spark, scope.source_reached(), spans)
        if not unreadable:
            rows = rows.where("unreadable_until is null")
        named = self.frame({"p": pa.int32(), "topic": pa.string(), "partition": pa.int32()}, names)
        first, second = digest_columns()
        return (
            self._placed(rows)
            .withColumns({"s": F.col("offset"), "h1": first, "h2": second})
            .join(F.broadcast(named), "p")
        )

    def target_records(self, ranges: Ranges) -> DataFrame:
        """The target's records, and a row for each stretch that can't be read, of these partitions and offsets: all
        fields (`log_source.RECORD_ROW`), `t`, `h1`, `h2`."""
        scope = self.scope
        names = [(each.target_topic, each.partition) for each in scope.partitions]
        bounds = {each.number: (each.target_from, each.target_end) for each in scope.partitions}
        rows = read_records(self.spark, scope.target_reached(), _spans(names, bounds, ranges))
        first, second = digest_columns()
        return rows.withColumns({"t": F.col("offset"), "h1": first, "h2": second})

    def _placed(self, rows: DataFrame) -> DataFrame:
        """The source's rows with `e`."""
        delta = self._one_delta()  # offsets that were preserved, as a rule: then no zone is looked up
        if delta is not None:
            return rows.withColumn("e", F.col("offset") + F.lit(delta))
        placed = self._places.join(rows, "offset")
        place = F.least(F.col("offset") + F.col("delta"), F.col("valid_until") - 1 + F.col("delta"))
        return placed.withColumn("e", place).drop("delta", "valid_from", "valid_until")

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
    """Finds the zone that an offset lies in; made by `ScopeReader.zone_lookup`."""

    zones: DataFrame
    shifts: DataFrame

    def join(self, rows: DataFrame, offset: str) -> DataFrame:
        """Give each row its zone's `delta`, `valid_from` and `valid_until`; rows outside of every zone are dropped.

        Args:
            rows: has `p` and the column that `offset` names.
            offset: the column to look up.
        """
        bucketed = rows.join(self.shifts, "p").withColumn("wanted", F.expr(f"shiftright({offset}, shift)"))
        at = F.col(offset)
        return bucketed.join(
            self.zones,
            (F.col("p") == F.col("zp"))
            & (F.col("wanted") == F.col("bucket"))
            & (at >= F.col("first"))
            & (at < F.col("until")),
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


def _spans(names: Sequence[tuple[str, int]], bounds: Ranges, ranges: Ranges) -> list[Span]:
    """What is read of these ranges, within the bounds, for the partitions that `names` has by number."""
    cut = {
        number: (max(low, bounds[number][0]), min(high, bounds[number][1])) for number, (low, high) in ranges.items()
    }
    return [
        Span(number, *names[number], first, until, until) for number, (first, until) in cut.items() if first < until
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
    """Compute a frame now, once, and continue from the result (memory, then disk).

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
