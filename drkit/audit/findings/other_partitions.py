"""Findings that explain each other across partitions: a record that was written to another partition of its topic.

In its own partition such a record is lost (or unseen), in the other one it is foreign. Both still count; each names the
other's offset: the n-th missing record of a digest belongs to the n-th foreign one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from drkit.audit.read.record_frames import keep
from drkit.model.audit.audit_result import Finding, FindingKind

COLUMNS = ("other_partition", "other_offset")
_MISSING = (FindingKind.LOST, FindingKind.UNSEEN)


def pair_findings(found: Sequence[Finding]) -> list[Finding]:
    """The findings, in their order, with the places of others that explain them."""
    foreign: defaultdict[tuple[str, str], deque[Finding]] = defaultdict(deque)
    for each in sorted(found, key=lambda each: (each.partition, each.target_offset or 0)):
        if each.kind is FindingKind.FOREIGN:
            foreign[each.topic, each.digest].append(each)
    if not foreign:
        return list(found)
    others: dict[int, tuple[int, int | None]] = {}
    for each in sorted(found, key=lambda each: (each.partition, each.source_offset or 0)):
        if each.kind in _MISSING and foreign[each.topic, each.digest]:
            there = foreign[each.topic, each.digest].popleft()
            others[id(each)] = there.partition, there.target_offset
            others[id(there)] = each.partition, each.source_offset
    return [
        replace(each, other_partition=others[id(each)][0], other_offset=others[id(each)][1])
        if id(each) in others
        else each
        for each in found
    ]


def explained(kinds: Mapping[FindingKind, int]) -> bool:
    """Whether findings of these numbers may explain each other."""
    return bool(kinds[FindingKind.FOREIGN] and any(kinds[kind] for kind in _MISSING))


def unpaired(frame: DataFrame) -> DataFrame:
    """Findings as a DataFrame with COLUMNS, of which none explains another."""
    nothing = {"other_partition": F.lit(None).cast("int"), "other_offset": F.lit(None).cast("long")}
    return frame.withColumns(nothing)


def pair_frame(frame: DataFrame) -> DataFrame:
    """The findings of a DataFrame with the places of others that explain them, kept; adds COLUMNS."""
    missing = _numbered(frame.where(F.col("kind").isin([str(kind) for kind in _MISSING])), "source_offset", "m")
    foreign = _numbered(frame.where(F.col("kind") == str(FindingKind.FOREIGN)), "target_offset", "f")
    pairs = keep(missing.join(foreign, ["topic", "digest", "nth"]).drop("digest", "nth"))
    if pairs.isEmpty():
        return unpaired(frame)
    of_missing = pairs.select(
        "topic",
        F.col("m_partition").alias("partition"),
        F.col("m_offset").alias("source_offset"),
        F.col("f_partition").alias("there"),
        F.col("f_offset").alias("there_offset"),
    )
    of_foreign = pairs.select(
        "topic",
        F.col("f_partition").alias("partition"),
        F.col("f_offset").alias("target_offset"),
        F.col("m_partition").alias("here"),
        F.col("m_offset").alias("here_offset"),
    )
    return keep(
        frame.join(of_missing, ["topic", "partition", "source_offset"], "left")
        .join(of_foreign, ["topic", "partition", "target_offset"], "left")
        .withColumn("other_partition", F.coalesce("there", "here"))
        .withColumn("other_offset", F.coalesce("there_offset", "here_offset"))
        .select(*frame.columns, *COLUMNS)
    )


def _numbered(rows: DataFrame, offset: str, side: str) -> DataFrame:
    """Records of each digest, numbered in the order of partitions and offsets."""
    nth = F.row_number().over(Window.partitionBy("topic", "digest").orderBy("partition", offset))
    return rows.select(
        "topic",
        "digest",
        nth.alias("nth"),
        F.col("partition").alias(f"{side}_partition"),
        F.col(offset).alias(f"{side}_offset"),
    )
