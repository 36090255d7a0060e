"""How salvaged records stand to what the target holds: new key, conflicting key, identical.

A record is compared with what its partition of the target holds from the first salvaged record's place on. Of its key
only what stands behind its own place counts: that, a replay would overwrite for whoever keeps the last of a key.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from drkit.audit.places import place
from drkit.audit.reading import Reader, keep
from drkit.model.audit import FindingKind, Standing


def with_standing(reader: Reader, wanted: DataFrame, ranges: Mapping[int, tuple[int, int]]) -> DataFrame:
    """`wanted` and, for each record, its `standing`.

    Reads these ranges of the source, and the target from the first place in them on.

    Args:
        reader: reads both sides.
        wanted: `p`, `s`, `kind` of the records.
        ranges: by partition number, the source offsets [from, until) that hold them.
    """
    if not ranges:
        return wanted.withColumn("standing", F.lit(Standing.NEW.value))
    bounds = {}
    for each in reader.scope.partitions:
        if each.number in ranges:
            first = place(each.zones, ranges[each.number][0]) if each.zones else each.target_start
            low = max(each.target_start, first)
            if low < each.target_end:
                bounds[each.number] = (low, each.target_end)
    records = reader.source(dict(ranges)).join(wanted, ["p", "s"])
    # an altered record's own place holds what it was altered to
    begins = F.coalesce("e", F.lit(0)) + F.when(F.col("kind") == FindingKind.CORRUPTED.value, 1).otherwise(0)
    records = records.select("p", "s", "kind", "key", "h1", "h2", begins.alias("begins"))
    if not bounds:
        return keep(records.select("p", "s", "kind", F.lit(Standing.NEW.value).alias("standing")))
    target = reader.target(bounds).select("p", "t", "key", "h1", "h2")
    target = keep(
        target.join(records.select("p", "key").distinct(), ["p", "key"], "left_semi").unionByName(
            target.where("key is null").join(records.select("p", "h1", "h2").distinct(), ["p", "h1", "h2"], "left_semi")
        )
    )
    equal = target.groupBy("p", "h1", "h2").agg(F.max("t").alias("equal_at"))
    keyed = target.where("key is not null").groupBy("p", "key").agg(F.max("t").alias("key_at"))
    return keep(
        records.join(equal, ["p", "h1", "h2"], "left")
        .join(keyed, ["p", "key"], "left")
        .select(
            "p",
            "s",
            "kind",
            F.when(F.col("equal_at").isNotNull(), Standing.IDENTICAL.value)
            .when(F.col("key_at") >= F.col("begins"), Standing.CONFLICTING.value)
            .otherwise(Standing.NEW.value)
            .alias("standing"),
        )
    )
