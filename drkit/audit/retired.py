"""What one side's own clean-up removed is no anomaly of the mirror: which residuals that explains.

Retention takes the beginning of a log: a record whose place is before the other side's log start.

Compaction takes a record out of the middle once a later record of its key is there, and leaves its offset
empty. So a record that is missing on a compacted side is explained only where

- its place there is empty: nothing else stands in it, and the records around it are no closer together
  than on the other side (a record that was never written leaves no gap), each empty place explaining
  one record; and
- a later record of its key is there, also one that was written there after a failover; or it is a tombstone
  and nothing older of its key is left, as tombstones go too, after `delete.retention.ms`.

The newest value of a key is never explained away.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from drkit.audit.compare import Comparison
from drkit.audit.places import FOREVER, Zone, place
from drkit.audit.reading import Reader, ranges_of
from drkit.audit.scope import PartitionScope


def displaced_before() -> Column:
    """How far the records before a row are displaced (needs `lines.beside`)."""
    return F.coalesce(F.col("before.d"), F.lit(0))


def displaced_after() -> Column:
    """How far the records after a row are displaced."""
    return F.coalesce(F.col("after.d"), F.col("before.d"), F.lit(0))


def before_source_start() -> Column:
    """Target residuals that stand for source records which are no longer on the source, all of them.

    Either retention took the source's beginning, or the whole topic was made anew there.
    """
    place = F.col("t") - _displaced_at_head()
    by_retention = (
        F.col("before").isNull()
        & (F.col("source_start") > 0)
        & (place < F.col("start_place"))
        & (place >= F.col("first_place"))
    )
    return by_retention | F.coalesce(F.col("t") < F.col("earlier_until"), F.lit(False))


def before_target_start() -> Column:
    """Source residuals whose place is before the target's log start."""
    place = F.col("e") + _displaced_at_head()
    return F.col("before").isNull() & (F.col("target_start") > 0) & (place < F.col("target_start"))


def _displaced_at_head() -> Column:
    """How far records before all that matched are displaced.

    Where the mapping is known, a log has as many places before its start as the mapping says: one record
    more than that is a record lost, or one too many, although which one can't be told any more.
    """
    return F.when(F.col("recorded"), F.lit(0)).otherwise(displaced_after())


def compacted_on_target(
    reader: Reader,
    comparison: Comparison,
    left: DataFrame,
    unmatched: DataFrame,
    *,
    strangers: DataFrame,
    appended: DataFrame | None,
) -> DataFrame:
    """Which source residuals the target's compaction explains (`p`, `s`).

    Args:
        reader: reads the keys of the source again.
        comparison: the first pass.
        left: the residuals in question, in compacted partitions, with `beside` and the partition's limits.
        unmatched: all source records without an equal one on the target (`p`, `s`).
        strangers: target records without an equal one on the source (`p`, `t`, `t_key`).
        appended: what a sealed link's target got after it, from producers of its own (the same columns): each
            is later than whatever was mirrored, so the target's cleaner takes older records of its key away.
    """
    keys = left.where("s_key is not null").select("p", F.col("s_key").alias("key")).distinct()
    numbers = [each for each in reader.scope.partitions if each.target_compacted]
    there = (
        reader.source(ranges_of(numbers))
        .join(keys, ["p", "key"], "left_semi")
        .join(unmatched.select("p", "s"), ["p", "s"], "left_anti")
        .groupBy("p", "key")
        .agg(F.max("s").alias("newest_there"))
    )
    newest_left = left.groupBy("p", F.col("s_key").alias("key")).agg(F.max_by("s_null", "s").alias("ends_in_tombstone"))
    odd = strangers.select("p", F.col("t_key").alias("key")).distinct().withColumn("stranger", F.lit(True))
    known = (
        left.withColumn("key", F.col("s_key"))
        .join(there, ["p", "key"], "left")
        .join(newest_left, ["p", "key"], "left")
        .join(odd, ["p", "key"], "left")
    )
    superseded = F.coalesce(F.col("s") < F.col("newest_there"), F.lit(False))
    if appended is not None:
        later = appended.select("p", F.col("t_key").alias("key")).where("key is not null").distinct()
        known = known.join(later.withColumn("written_since", F.lit(True)), ["p", "key"], "left")
        superseded |= F.col("written_since").isNotNull()
    deleted = F.col("newest_there").isNull() & F.col("stranger").isNull() & F.col("ends_in_tombstone")
    explained = known.where("placed").where(superseded | F.coalesce(deleted, F.lit(False)))
    return _one_each(
        explained,
        comparison.target_left().select("p", F.col("t").alias("gap")),
        F.col("e") + displaced_before(),
        F.col("e") + displaced_after(),
        (F.col("before.t_hi"), F.col("after.t_lo"), _inside("s")),
        (F.col("target_start"), F.col("target_end")),
        "s",
    )


def compacted_on_source(reader: Reader, comparison: Comparison, left: DataFrame) -> DataFrame:
    """Which target residuals the source's compaction explains (`p`, `t`).

    Args:
        reader: reads the keys of the source again.
        comparison: the first pass.
        left: the residuals in question, in compacted partitions, with `beside` and the partition's limits.
    """
    keys = left.where("t_key is not null").select("p", F.col("t_key").alias("key")).distinct()
    numbers = [each for each in reader.scope.partitions if each.source_compacted]
    newest = (
        reader.source(ranges_of(numbers))
        .join(keys, ["p", "key"], "left_semi")
        .groupBy("p", "key")
        .agg(F.max("s").alias("newest_there"))
    )
    tombstones = (
        left.where("t_null").groupBy("p", F.col("t_key").alias("key")).agg(F.max("t").alias("newest_tombstone"))
    )
    known = (
        left.where("t_key is not null")
        .withColumn("key", F.col("t_key"))
        .join(newest, ["p", "key"], "left")
        .join(tombstones, ["p", "key"], "left")
    )
    for side, displaced in (("before", displaced_before()), ("after", displaced_after())):
        known = known.withColumn("place", F.col("t") - displaced)
        known = _with_source_of(reader, known, numbers, f"stood_{side}")
    stood = F.coalesce(F.col("stood_before"), F.col("stood_after"))
    superseded = F.coalesce((F.col("newest_there") > stood) | (F.col("newest_tombstone") > F.col("t")), F.lit(False))
    return _one_each(
        known.where(superseded | F.col("t_null")),
        comparison.source_left().select("p", F.col("s").alias("gap")),
        F.col("stood_before"),
        F.col("stood_after"),
        (F.col("before.s_hi"), F.col("after.s_lo"), _inside("t")),
        (F.col("source_start"), F.coalesce(F.col("through"), F.lit(0))),
        "t",
    )


def _one_each(
    rows: DataFrame,
    occupied: DataFrame,
    first: Column,
    second: Column,
    between: tuple[Column, Column, Column],
    log: tuple[Column, Column],
    at: str,
) -> DataFrame:
    """Of the rows between the same two records, the first ones, as many as there are empty offsets for them.

    Args:
        rows: the rows (`p` and `at`).
        occupied: offsets of the other side that hold an unmatched record (`p`, `gap`).
        first: where a row would stand going by what is before it.
        second: the same by what is after it.
        between: the offsets that it must lie between, and whether they don't matter.
        log: the other side's offsets [from, until).
        at: the column that tells rows apart.
    """
    above, below, inside = between
    start, end = log
    of_first = F.when(inside | below.isNull() | (first < below), first)
    of_second = F.when(inside | above.isNull() | (second > above), second)
    gap = [F.coalesce(above, F.lit(-1)).alias("from"), F.coalesce(below, F.lit(-1)).alias("to")]
    tried = rows.select(
        "p", at, start.alias("start"), end.alias("end"), *gap, of_first.alias("a"), of_second.alias("b")
    )
    for name in ("a", "b"):
        taken = occupied.select("p", F.col("gap").alias(name), F.lit(True).alias(f"taken_{name}"))
        tried = tried.join(taken, ["p", name], "left")
        free = F.col(f"taken_{name}").isNull() & F.col(name).between(F.col("start"), F.col("end") - 1)
        tried = tried.withColumn(f"free_{name}", F.when(free, F.col(name)))
    fitting = tried.where("free_a is not null or free_b is not null")
    keys = ["p", "from", "to"]
    room = fitting.groupBy(*keys).agg(
        F.size(F.array_distinct(F.array_compact(F.flatten(F.collect_set(F.array("free_a", "free_b")))))).alias("room")
    )
    nth = F.row_number().over(Window.partitionBy(*keys).orderBy(at))
    return fitting.withColumn("nth", nth).join(room, keys).where("nth <= room").select("p", at)


def _inside(at: str) -> Column:
    """Whether a row stands within a stretch, whose records all have one displacement."""
    return F.coalesce(F.col(f"before.{at}_lo") == F.col(f"after.{at}_lo"), F.lit(False))


def _with_source_of(reader: Reader, rows: DataFrame, partitions: Sequence[PartitionScope], name: str) -> DataFrame:
    """Add the source offset whose place `place` is, as `name`; null where it is nobody's."""
    inverse = {each.number: _inverse(each.zones) for each in partitions}
    bounds = {each.number: (0, max(each.target_end, place(each.zones, each.source_end)) + 1) for each in partitions}
    found = reader.zone_lookup(inverse, bounds).join(rows, "place", how="left")
    inside = (F.col("place") >= F.col("valid_from")) & (F.col("place") < F.col("valid_until"))
    return found.withColumn(name, F.when(inside, F.col("place") + F.col("delta"))).drop(
        "place", "delta", "valid_from", "valid_until"
    )


def _inverse(cut: Sequence[Zone]) -> list[Zone]:
    """Zones of target offsets: those whose places are taken, and what is between them."""
    turned: list[Zone] = []
    last = -FOREVER
    for zone in cut:
        if zone.valid_from >= zone.valid_until:
            continue
        first, until = zone.valid_from + zone.delta, min(zone.valid_until + zone.delta, FOREVER)
        turned.append(Zone(last, first, 0, 0, 0))
        turned.append(Zone(first, until, -zone.delta, first, until))
        last = until
    turned.append(Zone(last, FOREVER, 0, 0, 0))
    return turned
