"""The first pass: every record of both sides, joined by place; what agrees is counted, the rest is kept.

    source   s  ──place──▶  e ═══ t   target
                            │
              equal digests: matched at its place      → one row for many records (a stretch)
              anything else: a residual                → one row, with both sides' fields

This is the only shuffle of all records. A stretch sums up the records that matched within one chunk of
target offsets, so that later steps know where they are without seeing them again. On a clean pair of
clusters nothing but stretches is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from drkit.audit.abreast import SourceLeft, Stretch, TargetLeft
from drkit.audit.reading import Reader, keep, merged
from drkit.audit.scope import Scope
from drkit.model.digests import Coverage

_STRETCHES = 20_000
"""About how many chunks there are over all partitions."""

UNREADABLE_FIELDS = ("s_until", "t_until")
"""Of a row that stands for offsets which can't be read: the offset behind them. They begin at `s` or `t`."""

STRETCH_FIELDS = ("p", "inside", "chunk", "n", "s_lo", "s_hi", "t_lo", "t_hi")
SOURCE_FIELDS = ("s", "e", "placed", "s1", "s2", "s_ts", "s_key", "s_null")
TARGET_FIELDS = ("t", "t1", "t2", "t_ts", "t_key", "t_null")

RESIDUAL_TYPES = {
    "s": "long",
    "e": "long",
    "placed": "boolean",
    "s1": "long",
    "s2": "long",
    "s_ts": "long",
    "s_key": "binary",
    "s_null": "boolean",
    "t": "long",
    "t1": "long",
    "t2": "long",
    "t_ts": "long",
    "t_key": "binary",
    "t_null": "boolean",
}
"""Columns of a residual, with their Spark types."""

_ARROW = {"long": pa.int64(), "boolean": pa.bool_(), "binary": pa.binary()}
RESIDUAL_ARROW = {name: _ARROW[kind] for name, kind in RESIDUAL_TYPES.items()}
"""The same with Arrow's types."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What the first pass found of one partition.

    `matched` counts all matched records, `matched_inside` those within the time window; `source_left`
    and `target_left` the residuals. `last_source`, `last_target`: the highest matched offsets.
    """

    matched: int = 0
    matched_inside: int = 0
    source_left: int = 0
    target_left: int = 0
    source_left_inside: int = 0
    target_left_inside: int = 0
    last_source: int | None = None
    last_target: int | None = None


Unreadable = Mapping[int, tuple[tuple[int, int], ...]]
"""Offsets [first, until) by the number of a partition, ascending and apart."""


class InHand(NamedTuple):
    """The rows of a comparison that are few enough to be held by the driver."""

    stretches: tuple[Stretch, ...]
    source_left: tuple[SourceLeft, ...]
    target_left: tuple[TargetLeft, ...]


@dataclass(frozen=True)
class Comparison:
    """The first pass: `rows` (stretches and residuals), its tally by partition, the chunk size.

    Stretch columns: `p`, `inside` (within the time window), `chunk`, `n` (records), `s_lo`, `s_hi`,
    `t_lo`, `t_hi` (first and last offsets). Residual columns: `p`, SOURCE_FIELDS, TARGET_FIELDS.
    `in_hand` holds all rows, too, where they are few. `coverage`: what was proven by digest. `source_unreadable`,
    `target_unreadable`: offsets that can't be read, of which there are no rows.
    """

    make: Callable[[], DataFrame]
    tallies: Mapping[int, Tally]
    shift: int
    in_hand: InHand | None = None
    coverage: Coverage | None = None
    source_unreadable: Unreadable = field(default_factory=dict)
    target_unreadable: Unreadable = field(default_factory=dict)

    @cached_property
    def rows(self) -> DataFrame:
        """All rows; made when they are first wanted."""
        return self.make()

    def stretches(self) -> DataFrame:
        """Matched records, summed up by chunk."""
        return self.rows.where("chunk is not null").select(*STRETCH_FIELDS)

    def source_left(self) -> DataFrame:
        """Source records without an equal record at their place."""
        return self.rows.where("s is not null and s_until is null").select("p", *SOURCE_FIELDS)

    def target_left(self) -> DataFrame:
        """Target records without an equal record that has its place there."""
        return self.rows.where("t is not null and t_until is null").select("p", *TARGET_FIELDS)


def compare(reader: Reader) -> Comparison:
    """Run the first pass record by record: reads both sides once."""
    scope = reader.scope
    shift = chunk_shift(scope)
    sides = reader.source(unreadable=True), reader.target(unreadable=True)
    return compared(scope, keep(joined_records(scope, *sides, shift)), shift)


def compared(
    scope: Scope,
    rows: DataFrame,
    shift: int,
    *,
    coverage: Coverage | None = None,
    source_unreadable: Iterable[tuple[int, int, int]] = (),
    target_unreadable: Iterable[tuple[int, int, int]] = (),
) -> Comparison:
    """The comparison that rows make: those of `joined_records`, which name unreadable offsets, too.

    Args:
        scope: what is compared.
        rows: kept.
        shift: of chunks.
        coverage: what was proven by digest.
        source_unreadable: further unreadable offsets: partition's number, first, until.
        target_unreadable: the same of the target.
    """
    found = rows.where("s_until is not null or t_until is not null").select("p", "s", "s_until", "t", "t_until")
    more = found.collect()
    clean = rows.where(
        "chunk is not null or (s is not null and s_until is null) or (t is not null and t_until is null)"
    )
    on_source = [*source_unreadable, *((row["p"], row["s"], row["s_until"]) for row in more if row["s_until"])]
    on_target = [*target_unreadable, *((row["p"], row["t"], row["t_until"]) for row in more if row["t_until"])]
    return Comparison(
        lambda: clean,
        tallies(clean, scope),
        shift,
        coverage=coverage,
        source_unreadable=by_partition(on_source),
        target_unreadable=by_partition(on_target),
    )


def by_partition(ranges: Iterable[tuple[int, int, int]]) -> Unreadable:
    """Ranges (partition's number, first, until) put together."""
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, first, until in ranges:
        found[number].append((first, until))
    return {number: tuple(members) for number, members in merged(found).items()}


def joined_records(scope: Scope, from_source: DataFrame, from_target: DataFrame, shift: int) -> DataFrame:
    """Join records of both sides by place: the rows of a `Comparison`.

    Args:
        scope: what is compared.
        from_source: as `Reader.source` gives them.
        from_target: as `Reader.target` gives them.
        shift: of chunks.
    """
    # One number for partition and place: what is joined by a single number is sorted by its bits alone.
    count = len(scope.partitions)
    source = from_source.select(
        F.when(F.col("placed"), F.col("e") * count + F.col("p")).alias("s_slot"),
        "p",
        "s",
        "e",
        F.col("h1").alias("s1"),
        F.col("h2").alias("s2"),
        F.col("ts").alias("s_ts"),
        F.col("key").alias("s_key"),
        F.col("null_value").alias("s_null"),
        F.col("unreadable_until").alias("s_until"),
    )
    target = from_target.select(
        (F.col("t") * count + F.col("p")).alias("t_slot"),
        F.col("p").alias("q"),
        "t",
        F.col("h1").alias("t1"),
        F.col("h2").alias("t2"),
        F.col("ts").alias("t_ts"),
        F.col("key").alias("t_key"),
        F.col("null_value").alias("t_null"),
        F.col("unreadable_until").alias("t_until"),
    )
    joined = source.join(target, F.col("s_slot") == F.col("t_slot"), "full_outer").withColumn(
        "placed", F.when(F.col("s").isNotNull(), F.col("s_slot").isNotNull())
    )
    same = (F.col("s1") == F.col("t1")) & (F.col("s2") == F.col("t2"))
    equal = F.coalesce(same & F.col("s_until").isNull() & F.col("t_until").isNull(), F.lit(False))
    marked = joined.withColumn("equal", equal)
    # One aggregation makes a stretch of equal records, which have no residual, and leaves every residual
    # as a group of its own.
    residual = F.struct(*SOURCE_FIELDS, *TARGET_FIELDS, *UNREADABLE_FIELDS)
    matched_source = F.when(F.col("equal"), F.col("s"))
    matched_target = F.when(F.col("equal"), F.col("t"))
    summed = marked.groupBy(
        F.coalesce("p", "q").alias("p"),
        F.when(F.col("equal"), within(scope, F.col("s_ts"))).alias("inside"),
        F.when(F.col("equal"), F.shiftright("t", shift)).alias("chunk"),
        F.when(~F.col("equal"), residual).alias("residual"),
    ).agg(
        F.count(matched_source).alias("n"),
        F.min(matched_source).alias("s_lo"),
        F.max(matched_source).alias("s_hi"),
        F.min(matched_target).alias("t_lo"),
        F.max(matched_target).alias("t_hi"),
    )
    return summed.select(*STRETCH_FIELDS, "residual.*")


def chunk_shift(scope: Scope) -> int:
    """How wide chunks are (2**shift target offsets): wider where there is more to read."""
    offsets = sum(each.target_end - each.target_from for each in scope.partitions)
    return max(10, (offsets // _STRETCHES).bit_length())


def within(scope: Scope, stamp: Column) -> Column:
    """Whether a timestamp (ms) is in the scope's time window."""
    inside = F.lit(True)
    if scope.since_ms is not None:
        inside = inside & (stamp >= F.lit(scope.since_ms))
    if scope.until_ms is not None:
        inside = inside & (stamp < F.lit(scope.until_ms))
    return inside


def tallies(rows: DataFrame, scope: Scope) -> dict[int, Tally]:
    """Sum up the rows of a `Comparison` by partition."""
    matched = F.col("chunk").isNotNull()
    of_source = F.col("s").isNotNull() & F.col("s_until").isNull()
    of_target = F.col("t").isNotNull() & F.col("t_until").isNull()
    sums = (
        rows.groupBy("p")
        .agg(
            F.sum(F.when(matched, F.col("n")).otherwise(0)).alias("matched"),
            F.sum(F.when(matched & F.col("inside"), F.col("n")).otherwise(0)).alias("matched_inside"),
            F.count_if(of_source).alias("source_left"),
            F.count_if(of_target).alias("target_left"),
            F.count_if(of_source & within(scope, F.col("s_ts"))).alias("source_left_inside"),
            F.count_if(of_target & within(scope, F.col("t_ts"))).alias("target_left_inside"),
            F.max("s_hi").alias("last_source"),
            F.max("t_hi").alias("last_target"),
        )
        .collect()
    )
    found = {row["p"]: Tally(**{name: row[name] for name in Tally.__dataclass_fields__}) for row in sums}
    return {each.number: found.get(each.number, Tally()) for each in scope.partitions}
