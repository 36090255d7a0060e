"""Classifies salvaged records against the current target: new key, conflicting key, identical.

A record is `new` only if no record of its key on the target is, or may be, later: neither after its own place, nor
among records from others (the target's own producers after a failover, a recreated topic, foreign records). A replay
would overwrite any such record for consumers that keep the last value of a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from drkit.audit.compare.offset_zones import FOREVER, place
from drkit.audit.compare.scope import PartitionScope, Scope
from drkit.audit.read.record_frames import ScopeReader, keep
from drkit.audit.run import ClassifiedScope
from drkit.config import Config
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.model.audit.audit_result import FindingKind, SalvageClass, SalvageKind
from drkit.model.topology import TopicPartition

_FEW = 100_000
_RECORDS_A_FILE = 1_000_000


def with_target_ends_now(scope: Scope, config: Config) -> Scope:
    """The scope read on to where the target's logs end now: its producers wrote while both sides were compared."""
    link = scope.link.id
    with ClusterAdmin(link.target, config.clusters[link.target]) as admin:
        found = admin.topics(sorted({each.target_topic for each in scope.partitions}))
        tps = [TopicPartition(name, number) for name, info in found.items() for number in range(info.partitions)]
        ends = admin.end_offsets(tps, committed=True)
    partitions = tuple(
        replace(each, target_end=max(each.target_end, ends.get(TopicPartition(each.target_topic, each.partition), 0)))
        for each in scope.partitions
    )
    return replace(scope, partitions=partitions)


def with_standing(
    found: ClassifiedScope, records: DataFrame, ranges: Mapping[int, tuple[int, int]], size: SalvageSize
) -> DataFrame:
    """`p`, `s` and `standing` of the records to keep.

    Reads the target from the first place of each partition's range on, or from where others wrote.

    Args:
        found: both sides, judged; the scope's target ends may lie beyond those that were judged.
        records: rows of `ScopeReader.source_records` with their `kind`, kept.
        ranges: by partition number, the source offsets [from, until) that hold them.
        size: how many they are.
    """
    reader = found.reader
    others = {each.number: _others_from(each, found) for each in reader.scope.partitions}
    bounds = {}
    for each in reader.scope.partitions:
        if each.number in ranges:
            first = place(each.zones, ranges[each.number][0]) if each.zones else each.target_start
            low = max(each.target_start, min(first, others[each.number]))
            if low < each.target_end:
                bounds[each.number] = (low, each.target_end)
    if not bounds:
        return records.select("p", "s", F.lit(SalvageClass.NEW.value).alias("standing"))
    there = size.together(_of_these(reader.target_records(bounds), records, size))
    hidden = there.groupBy("p").agg((F.max("unreadable_until") - 1).alias("hidden_at"))
    target = there.where("unreadable_until is null")
    equal = target.groupBy("p", "h1", "h2").agg(F.max("t").alias("equal_at"))
    keyed = target.where("key is not null").groupBy("p", "key").agg(F.max("t").alias("key_at"))
    # an altered record's own place holds what it was altered to
    begins = F.coalesce("e", F.lit(0)) + F.when(F.col("kind") == SalvageKind.CORRUPTED.value, 1).otherwise(0)
    return (
        records.select("p", "s", "key", "h1", "h2", begins.alias("begins"))
        .join(size.beside(equal), ["p", "h1", "h2"], "left")
        .join(size.beside(keyed), ["p", "key"], "left")
        .join(_strange_keys(found), ["p", "key"], "left")
        .join(F.broadcast(hidden), "p", "left")
        .join(F.broadcast(_limits(reader, others)), "p")
        .select(
            "p",
            "s",
            F.when(F.col("equal_at").isNotNull(), SalvageClass.IDENTICAL.value)
            .when(_later() | F.col("strange").isNotNull(), SalvageClass.CONFLICTING.value)
            .otherwise(SalvageClass.NEW.value)
            .alias("standing"),
        )
    )


def _of_these(target: DataFrame, records: DataFrame, size: SalvageSize) -> DataFrame:
    """Rows of the target that bear on these records, kept: of their keys, or equal where they have none; and what can't
    be read, which may be either."""
    keyless = F.col("key").isNull()
    mark = F.coalesce("key", F.concat_ws(" ", "h1", "h2").cast("binary"))
    marks = size.together(records.select("p", keyless.alias("keyless"), mark.alias("mark"))).distinct()
    rows = target.select("p", "t", "key", "h1", "h2", "unreadable_until", keyless.alias("keyless"), mark.alias("mark"))
    marked = rows.join(size.beside(marks.withColumn("of_these", F.lit(True))), ["p", "keyless", "mark"], "left").where(
        "of_these or unreadable_until is not null"
    )
    return keep(marked.drop("of_these", "keyless", "mark"))


def _later() -> Column:
    """Whether its key stands behind it, or may: what can't be read there may be of any key."""
    seen = F.col("key_at") >= F.least("begins", "others_from")
    hidden = F.col("key").isNotNull() & (F.col("hidden_at") >= F.least("begins", "others_from"))
    return F.coalesce(seen, F.lit(False)) | F.coalesce(hidden, F.lit(False))


def _others_from(each: PartitionScope, found: ClassifiedScope) -> int:
    """The target offset from which on records aren't the mirror's; FOREVER where that isn't known to be so."""
    if each.target_anew:
        return each.target_start
    return found.judgement.bounds.get(each.number, FOREVER)


def _strange_keys(found: ClassifiedScope) -> DataFrame:
    """`p`, `key`, `strange`: keys of target records that no source record stands for, before where others write."""
    classifications = found.judgement.classifications
    if classifications is None:
        types = {"p": pa.int32(), "key": pa.binary(), "strange": pa.bool_()}
        return F.broadcast(found.reader.frame(types, []))
    kinds = [FindingKind.FOREIGN.value, FindingKind.CORRUPTED.value]
    mine = F.col("outcome") == FindingKind.CORRUPTED.value
    odd = classifications.where(F.col("outcome").isin(kinds) & F.col("t_key").isNotNull())
    # an altered record of its own key stands in its place, not behind it
    odd = odd.where(~mine | ~F.coalesce(F.col("t_key") == F.col("s_key"), F.lit(False)))
    keys = odd.select("p", F.col("t_key").alias("key"), F.lit(True).alias("strange"))
    return F.broadcast(keys.coalesce(1).distinct()) if found.judgement.stayed is None else keys.distinct()


def _limits(reader: ScopeReader, others: Mapping[int, int]) -> DataFrame:
    return reader.frame({"p": pa.int32(), "others_from": pa.int64()}, sorted(others.items()))


@dataclass(frozen=True, slots=True)
class SalvageSize:
    """How Spark joins and writes a salvage, by its number of records.

    A failback at night salvages a few thousand records, and most of the time goes into the number of Spark's jobs: each
    shuffle is one or two. So a small salvage goes to one task, and to every task that joins with it; only a large one
    is shuffled.
    """

    records: int

    @property
    def few(self) -> bool:
        """Whether one task can take them all."""
        return self.records <= _FEW

    def beside(self, frame: DataFrame) -> DataFrame:
        """A frame of at most a row a record, to be joined with a longer one."""
        return F.broadcast(frame) if self.few else frame

    def together(self, frame: DataFrame) -> DataFrame:
        """A frame of about a row a record, to be summed up."""
        return frame.coalesce(1) if self.few else frame

    def spread(self, frame: DataFrame, *columns: str) -> DataFrame:
        """The records as they are written, those of equal columns together."""
        return frame.coalesce(1) if self.few else frame.repartition(-(-self.records // _RECORDS_A_FILE), *columns)
