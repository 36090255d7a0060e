"""Residuals that are on both sides after all, elsewhere: pairing equal digests within a partition.

1. A digest that is left once on each side is one pair.
2. Of a digest left several times, first those that stand where the records around them say.
3. The others by their order: the n-th on the source with the n-th on the target.

Every digest is paired as often as both sides have it, so what stays unpaired is what one side has more
of, whatever the pairing. Where several records of a partition are equal in key, value, headers and
timestamp, which of them is which can't be known; 2 takes the explanation with the fewest movements near by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from drkit.audit.compare import Comparison
from drkit.audit.lines import Lines, beside, line_up
from drkit.audit.reading import Reader, keep

_SOURCE = ("p", "s", "e", "placed", "h1", "h2", "ts")
_TARGET = ("p", "t", "h1", "h2")


@dataclass(frozen=True, slots=True)
class Matching:
    """Records found elsewhere than at their place.

    `pairs`: `p`, `s`, `e`, `t`, `ts`; None where there are none, and then there are no `lines`.
    `last_source`: the highest paired source offset by partition.
    """

    pairs: DataFrame | None
    lines: Lines | None
    last_source: Mapping[int, int]


def match(reader: Reader, comparison: Comparison, source_left: DataFrame, target_left: DataFrame) -> Matching:
    """Pair residuals.

    Args:
        reader: reads the source again for what surrounds a pair.
        comparison: the first pass.
        source_left: source residuals (SOURCE_FIELDS).
        target_left: target residuals that may be paired (TARGET_FIELDS).
    """
    candidates = [number for number, tally in comparison.tallies.items() if tally.source_left and tally.target_left]
    if not candidates:
        return Matching(None, None, {})
    source = source_left.where(F.col("p").isin(candidates)).select(
        "p", "s", "e", "placed", F.col("s1").alias("h1"), F.col("s2").alias("h2"), F.col("s_ts").alias("ts")
    )
    target = target_left.where(F.col("p").isin(candidates)).select(
        "p", "t", F.col("t1").alias("h1"), F.col("t2").alias("h2")
    )
    shared = _shared(source, target)
    once = (F.col("on_source") == 1) & (F.col("on_target") == 1)
    counts = shared.agg(F.count_if(once).alias("single"), F.count_if(~once).alias("several")).first()
    if counts is None or counts["single"] + counts["several"] == 0:
        return Matching(None, None, {})
    pairs = shared.where(once).select("p", "s", "e", "t", "ts")
    if counts["several"]:
        several = shared.where(~once).select("p", "h1", "h2")
        left = _Left(
            source.join(several, ["p", "h1", "h2"], "left_semi").select(*_SOURCE),
            target.join(several, ["p", "h1", "h2"], "left_semi").select(*_TARGET),
        )
        pairs = pairs.unionByName(_pair_several(reader, comparison, pairs, left, counts["single"]))
    pairs = keep(pairs)
    last = _last_sources(pairs)
    return Matching(pairs, line_up(reader, comparison, pairs, sorted(last)), last)


def first_of(rows: DataFrame, keys: Sequence[str], order: str) -> DataFrame:
    """Of the rows that agree in `keys`, the one that is first by `order`."""
    nth = F.row_number().over(Window.partitionBy(*keys).orderBy(order))
    return rows.withColumn("nth", nth).where("nth = 1").drop("nth")


@dataclass(frozen=True, slots=True)
class _Left:
    """What is still to be paired."""

    source: DataFrame
    target: DataFrame

    def without(self, pairs: DataFrame) -> _Left:
        return _Left(
            self.source.join(pairs.select("p", "s"), ["p", "s"], "left_anti").select(*_SOURCE),
            self.target.join(pairs.select("p", "t"), ["p", "t"], "left_anti").select(*_TARGET),
        )


def _shared(source: DataFrame, target: DataFrame) -> DataFrame:
    """Digests left on both sides, with how often; kept."""
    both = source.unionByName(target, allowMissingColumns=True)
    counted = both.groupBy("p", "h1", "h2").agg(
        F.count("s").alias("on_source"),
        F.count("t").alias("on_target"),
        *(F.min(name).alias(name) for name in ("s", "e", "t", "ts")),
    )
    return keep(counted.where("on_source > 0 and on_target > 0"))


def _pair_several(reader: Reader, comparison: Comparison, single: DataFrame, left: _Left, singles: int) -> DataFrame:
    """Pairs of digests that are left more than once (`p`, `s`, `e`, `t`, `ts`)."""
    lines = line_up(reader, comparison, single, sorted(_last_sources(single))) if singles else None
    found: list[DataFrame] = []
    for side in ("before", "after"):
        shift = F.coalesce(F.col(f"{side}.d"), F.lit(0))
        expected = beside(left.source, lines, "s").where("placed").withColumn("t", F.col("e") + shift)
        meeting = expected.join(left.target, ["p", "t", "h1", "h2"]).select("p", "s", "e", "t", "ts")
        fitting = keep(first_of(meeting, ["p", "t"], "s"))
        found.append(fitting)
        left = left.without(fitting)
    by_source = Window.partitionBy("p", "h1", "h2").orderBy("s")
    by_target = Window.partitionBy("p", "h1", "h2").orderBy("t")
    ranked = left.source.withColumn("nth", F.row_number().over(by_source)).join(
        left.target.withColumn("nth", F.row_number().over(by_target)), ["p", "h1", "h2", "nth"]
    )
    return keep(found[0].unionByName(found[1]).unionByName(ranked.select("p", "s", "e", "t", "ts")))


def _last_sources(pairs: DataFrame) -> dict[int, int]:
    return {row["p"]: row["s"] for row in pairs.groupBy("p").agg(F.max("s").alias("s")).collect()}
