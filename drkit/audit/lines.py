"""The matched records of partitions in which something moved, as lines: which are in order, and what
stands before and after a place.

A line is a stretch of matched records that is known to be whole, or one matched record. Only the chunks
in which a moved record stands, on either side, are taken apart into single records (read again from
the source, offsets only); the rest stay the stretches that the first pass made. So the work grows with
the damage, not with the topic.

Line columns: `p`, `s_lo`, `s_hi`, `t_lo`, `t_hi`, `d` (displacement: target offset less the place), `w`
(records), `chunk` (null for a single record), `moved`, `kept` (in order).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from drkit.audit.compare import Comparison
from drkit.audit.order import heaviest_increasing
from drkit.audit.reading import Ranges, Reader, keep

MOST_RUNS = 100_000
"""Runs of one partition that are put in order exactly. Beyond, the records that come before an earlier
one's copy count as reordered, which may be more than the fewest; the audit says so."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines, kept in memory and on disk. `inexact`: partitions with more than MOST_RUNS runs."""

    rows: DataFrame
    inexact: frozenset[int]


def line_up(reader: Reader, comparison: Comparison, pairs: DataFrame, numbers: Sequence[int]) -> Lines:
    """Put matched records and moved pairs of these partitions in order.

    Args:
        reader: reads the source again where stretches must be taken apart.
        comparison: the first pass.
        pairs: moved records: `p`, `s`, `e`, `t`.
        numbers: the partitions that have any.
    """
    shift = comparison.shift
    chunks = F.explode(F.array(F.shiftright("e", shift), F.shiftright("t", shift)))
    torn = keep(pairs.select("p", chunks.alias("chunk")).distinct())
    stretches = (
        comparison.stretches()
        .where(F.col("p").isin(list(numbers)))
        .groupBy("p", "chunk")
        .agg(*_merged())
        .withColumns({"d": F.lit(0).cast("long"), "moved": F.lit(False)})
    )
    whole = stretches.join(torn, ["p", "chunk"], "left_anti")
    apart = stretches.join(torn, ["p", "chunk"], "left_semi")
    single = (
        at_place(reader, comparison, ranges(apart))
        .withColumn("chunk", F.shiftright("e", shift))
        .join(F.broadcast(torn), ["p", "chunk"], "left_semi")
        .select(*_single(F.col("e"), F.lit(0).cast("long"), moved=False))
    )
    moved = pairs.select(*_single(F.col("t"), F.col("t") - F.col("e"), moved=True))
    ranked = keep(_ranked(whole.unionByName(single).unionByName(moved)))
    aside, inexact = _set_aside(reader, ranked)
    rows = ranked.join(aside, ["p", "run"], "left").withColumn(
        "kept",
        F.when(F.col("p").isin(sorted(inexact)), F.col("t_lo") > F.coalesce("highest", F.lit(-1))).otherwise(
            F.col("aside").isNull()
        ),
    )
    return Lines(keep(rows.drop("run", "rank", "highest", "aside")), inexact)


def at_place(reader: Reader, comparison: Comparison, wanted: Ranges) -> DataFrame:
    """The source records in these ranges that matched at their place (`Reader.source`'s columns)."""
    left = comparison.source_left().select("p", "s")
    return reader.source(wanted).where("placed").join(left, ["p", "s"], "left_anti")


def ranges(stretches: DataFrame) -> dict[int, tuple[int, int]]:
    """The source offsets that stretches reach over, by partition."""
    bounds = stretches.groupBy("p").agg(F.min("s_lo").alias("low"), F.max("s_hi").alias("high")).collect()
    return {row["p"]: (row["low"], row["high"] + 1) for row in bounds}


def beside(rows: DataFrame, lines: Lines | None, at: str) -> DataFrame:
    """Say what is in order before and after each row.

    Args:
        rows: has `p` and the column that `at` names: `s` (a source offset) or `t` (a target offset).
        lines: of the partitions in which something moved; None where nothing did.
        at: the side.

    Adds `before` and `after`: the line's `d`, `s_lo`, `s_hi`, `t_lo`, `t_hi`, or null where there is none.
    In a partition without lines both are null: nothing is displaced there. A row that stands within a
    stretch has it before and after.
    """
    line = F.struct("d", "s_lo", "s_hi", "t_lo", "t_hi")
    if lines is None:
        nothing = F.when(F.lit(False), F.struct(*(F.lit(0).cast("long").alias(name) for name in _LINE)))
        return rows.withColumns({"before": nothing, "after": nothing})
    marks = lines.rows.where("kept").select("p", F.col(f"{at}_lo").alias("pos"), line.alias("line"))
    both = rows.withColumns({"pos": F.col(at), "wanted": F.lit(True)}).unionByName(marks, allowMissingColumns=True)
    upward = Window.partitionBy("p").orderBy("pos").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    downward = Window.partitionBy("p").orderBy(F.desc("pos")).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    found = both.withColumns(
        {
            "before": F.last("line", ignorenulls=True).over(upward),
            "after": F.last("line", ignorenulls=True).over(downward),
        }
    ).where("wanted")
    within = F.col(at) < F.col(f"before.{at}_hi")
    return found.withColumn("after", F.when(within, F.col("before")).otherwise(F.col("after"))).drop(
        "pos", "wanted", "line"
    )


_LINE = ("d", "s_lo", "s_hi", "t_lo", "t_hi")


def _merged() -> list[Column]:
    """Stretches of one chunk taken together (a time window may have split them)."""
    return [
        F.sum("n").alias("w"),
        F.min("s_lo").alias("s_lo"),
        F.max("s_hi").alias("s_hi"),
        F.min("t_lo").alias("t_lo"),
        F.max("t_hi").alias("t_hi"),
    ]


def _single(target: Column, displacement: Column, *, moved: bool) -> list[Column]:
    return [
        F.col("p"),
        F.lit(None).cast("long").alias("chunk"),
        F.lit(1).cast("long").alias("w"),
        F.col("s").alias("s_lo"),
        F.col("s").alias("s_hi"),
        target.alias("t_lo"),
        target.alias("t_hi"),
        displacement.alias("d"),
        F.lit(moved).alias("moved"),
    ]


def _ranked(lines: DataFrame) -> DataFrame:
    """Number the runs: lines that follow each other on both sides. `rank` is a line's on the target;
    `highest` the highest target offset of the lines before it on the source."""
    by_source = Window.partitionBy("p").orderBy("s_lo")
    by_target = Window.partitionBy("p").orderBy("t_lo")
    so_far = (Window.unboundedPreceding, Window.currentRow)
    ranked = lines.withColumns(
        {
            "source_rank": F.sum("w").over(by_source.rowsBetween(*so_far)) - F.col("w"),
            "rank": F.sum("w").over(by_target.rowsBetween(*so_far)) - F.col("w"),
        }
    )
    shifted = ranked.withColumn("step", F.col("rank") - F.col("source_rank")).withColumns(
        {
            "breaks": (F.col("step") != F.lag("step").over(by_source)).cast("long"),
            "highest": F.max("t_hi").over(by_source.rowsBetween(Window.unboundedPreceding, -1)),
        }
    )
    run = F.coalesce(F.sum("breaks").over(by_source.rowsBetween(*so_far)), F.lit(0))
    return shifted.withColumn("run", run).drop("source_rank", "step", "breaks")


def _set_aside(reader: Reader, ranked: DataFrame) -> tuple[DataFrame, frozenset[int]]:
    """The runs that are out of order (`p`, `run`, `aside`), and the partitions with too many to tell."""
    runs = ranked.groupBy("p", "run").agg(F.sum("w").alias("records"), F.min("rank").alias("rank"))
    sizes = {row["p"]: row["count"] for row in runs.groupBy("p").count().collect()}
    inexact = frozenset(number for number, size in sizes.items() if size > MOST_RUNS)
    exact = runs.where(~F.col("p").isin(sorted(inexact))) if inexact else runs
    by_partition: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for row in exact.collect():
        by_partition[row["p"]].append((row["run"], row["rank"], row["records"]))
    aside = []
    for number, members in by_partition.items():
        members.sort()
        kept = set(heaviest_increasing([(rank, records) for _, rank, records in members]))
        aside += [(number, run, True) for position, (run, _, _) in enumerate(members) if position not in kept]
    types = {"p": pa.int32(), "run": pa.int64(), "aside": pa.bool_()}
    return F.broadcast(reader.frame(types, aside)), inexact
