"""The first pass, batches first: what a mirror forwarded untouched is proven equal without decoding a record.

    source batch  ──place, count, digest──▶  equal on the target: all its records matched at their places
                                             anything else: its offsets are read record by record

A batch can be proven by its digest where every one of its offsets has its own place in one zone of the
mapping, so that the batch on the target holds those places and nothing else. Places are nobody else's; so records
outside of proven batches have their places outside of them, too, and joining what is left over finds exactly what
joining everything would. What neither side holds a batch of (markers, aborted data, holes) is not read again.

A time window is decided for a whole batch where its highest timestamp says enough; else its records are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from drkit.audit.compare import RESIDUAL_TYPES, Comparison, Tally, chunk_shift, joined_records, tallies
from drkit.audit.reading import Pieces, Reader, keep, merged, ranges_of
from drkit.audit.scope import PartitionScope, Scope

MOST_RANGES = 100_000
"""Batches that differ, over all partitions, whose offsets are read as ranges of their own. A partition with more
than its share of them is read whole: by then ranges would cost more than they leave out."""

_FEWEST_RANGES = 1_000
_EXTENT = ("s_first", "s_until", "t_first", "t_until")
_TALLIED = ("matched", "matched_inside", "last_source", "last_target")


@dataclass(frozen=True, slots=True)
class _Left:
    """What is to be read record by record: ranges on both sides, and partitions that are read whole."""

    source: Pieces
    target: Pieces
    whole: tuple[PartitionScope, ...]


def compare_batches(reader: Reader, say: Callable[[str], None]) -> Comparison:
    """Run the first pass: both sides' batches, then the records of those that differ."""
    scope = reader.scope
    shift = chunk_shift(scope)
    batches = keep(_met(reader))
    sums = _sums(batches)
    differing = {number: each["different"] for number, each in sums.items() if each["different"]}
    equal = sum(each["equal"] for each in sums.values())
    say(f"{equal:,} batches are equal, {sum(differing.values()):,} differ or were rebuilt")
    left = _left(scope, batches, differing)
    whole = [each.number for each in left.whole]
    proven = batches.where("proven")
    stretches = _stretches(proven.where(~F.col("p").isin(whole)) if whole else proven, shift)
    nothing = {name: F.lit(None).cast(kind) for name, kind in RESIDUAL_TYPES.items()}
    rows = stretches.withColumns(nothing)
    if not differing:  # what is known of the batches is all there is to know, and nobody will look at the rows
        known = {number: Tally(**{name: each[name] for name in _TALLIED}) for number, each in sums.items()}
        return Comparison(rows, {each.number: known.get(each.number, Tally()) for each in scope.partitions}, shift)
    if left.source or left.target:
        found = reader.source_pieces(left.source), reader.target_pieces(left.target)
        rows = rows.unionByName(joined_records(scope, *found, shift))
    if left.whole:
        on_target = {each.number: (each.target_from, each.target_end) for each in left.whole}
        found = reader.source(ranges_of(left.whole)), reader.target(on_target)
        rows = rows.unionByName(joined_records(scope, *found, shift))
    rows = keep(rows)
    return Comparison(rows, tallies(rows, scope), shift)


def _met(reader: Reader) -> DataFrame:
    """Batches of both sides that meet, one row a pair; and those that meet none, one row each.

    Columns: `p`; `s_first`, `s_until`, `t_first`, `t_until` (null where a side has none); `proven`; `inside`
    (whether a proven batch's records are within the time window).
    """
    source, target = reader.source_batches(), reader.target_batches()
    digested = F.col("h1").isNotNull()
    within = (F.col("start") >= F.col("valid_from")) & (F.col("stop") <= F.col("valid_until"))
    placed = digested & F.coalesce(within, F.lit(False))
    absent = F.lit(None).cast("long")
    extent = (*_EXTENT, "newest")
    keys = ("p", "place", "n", "h1", "h2", "alone")
    of_source = source.select(
        "p",
        F.when(placed, F.col("start") + F.col("delta")).alias("place"),
        *(F.when(placed, F.col(name)).alias(name) for name in ("n", "h1", "h2")),
        F.when(~placed, F.col("start")).alias("alone"),
        F.col("start").alias("s_first"),
        F.col("stop").alias("s_until"),
        absent.alias("t_first"),
        absent.alias("t_until"),
        "newest",
    )
    of_target = target.select(
        "p",
        F.when(digested, F.col("start")).alias("place"),
        *(F.when(digested, F.col(name)).alias(name) for name in ("n", "h1", "h2")),
        F.when(~digested, -F.col("start") - 1).alias("alone"),  # no source batch has such a number
        absent.alias("s_first"),
        absent.alias("s_until"),
        F.col("start").alias("t_first"),
        F.col("stop").alias("t_until"),
        absent.alias("newest"),
    )
    met = of_source.unionByName(of_target).groupBy(*keys).agg(*(F.max(name).alias(name) for name in extent))
    inside, decided = _window(reader.scope)
    both = F.col("s_first").isNotNull() & F.col("t_first").isNotNull()
    return met.select("p", *_EXTENT, (both & decided).alias("proven"), inside.alias("inside"))


def _window(scope: Scope) -> tuple[Column, Column]:
    """Whether a batch's records are within the time window, and whether that can be told for all of them alike.

    The highest timestamp is known, the lowest isn't.
    """
    inside, decided = F.lit(True), F.lit(True)
    if scope.until_ms is not None:
        inside = decided = F.col("newest") < scope.until_ms
    if scope.since_ms is not None:
        inside, decided = F.lit(False), F.col("newest") < scope.since_ms
    return inside, decided


def _stretches(proven: DataFrame, shift: int) -> DataFrame:
    """Proven batches as stretches of matched records, cut at the borders of chunks."""
    first, last = F.shiftright("t_first", shift), F.shiftright(F.col("t_until") - 1, shift)
    cut = proven.withColumn("chunk", F.explode(F.sequence(first, last)))
    low = F.greatest("t_first", F.shiftleft("chunk", shift))
    high = F.least(F.col("t_until"), F.shiftleft(F.col("chunk") + 1, shift)) - 1
    displaced = F.col("s_first") - F.col("t_first")
    parts = cut.select("p", "inside", "chunk", low.alias("low"), high.alias("high"), displaced.alias("d"))
    return parts.groupBy("p", "inside", "chunk").agg(
        F.sum(F.col("high") - F.col("low") + 1).alias("n"),
        F.min(F.col("low") + F.col("d")).alias("s_lo"),
        F.max(F.col("high") + F.col("d")).alias("s_hi"),
        F.min("low").alias("t_lo"),
        F.max("high").alias("t_hi"),
    )


def _sums(batches: DataFrame) -> dict[int, Row]:
    """By partition: batches that are `equal` and `different`, and of the equal ones a `Tally`'s matched fields."""
    proven = F.col("proven")
    records = F.col("s_until") - F.col("s_first")
    sums = batches.groupBy("p").agg(
        F.count_if(proven).alias("equal"),
        F.count_if(~proven).alias("different"),
        F.coalesce(F.sum(F.when(proven, records)), F.lit(0)).alias("matched"),
        F.coalesce(F.sum(F.when(proven & F.col("inside"), records)), F.lit(0)).alias("matched_inside"),
        (F.max(F.when(proven, F.col("s_until"))) - 1).alias("last_source"),
        (F.max(F.when(proven, F.col("t_until"))) - 1).alias("last_target"),
    )
    return {row["p"]: row for row in sums.collect()}


def _left(scope: Scope, batches: DataFrame, differing: Mapping[int, int]) -> _Left:
    """What no proven batch covers; `differing` says how many such batches a partition has."""
    if not differing:
        return _Left({}, {}, ())
    most = max(_FEWEST_RANGES, MOST_RANGES // len(differing))
    whole = {number for number, count in differing.items() if count > most}
    singly = sorted(differing.keys() - whole)
    source: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    target: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    if singly:
        rows = batches.where(~F.col("proven")).where(F.col("p").isin(singly))
        for number, s_first, s_until, t_first, t_until in rows.select("p", *_EXTENT).collect():
            each = scope.partitions[number]
            if s_first is not None:
                source[number].append((max(s_first, each.source_from), min(s_until, each.source_end)))
            if t_first is not None:
                target[number].append((max(t_first, each.target_from), min(t_until, each.target_end)))
    return _Left(merged(source), merged(target), tuple(each for each in scope.partitions if each.number in whole))
