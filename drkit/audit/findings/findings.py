"""From classifications to results: counts by partition, the findings' Parquet, the first findings.

A record that was written to another partition of its topic is lost (or unseen) in its own and foreign in the other.
Both findings still count, and each names the other's offset: the n-th missing record of a digest belongs to the n-th
foreign one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from drkit.audit.classify.classification_tasks import FACTS, PAIR
from drkit.audit.classify.classifier import Classification
from drkit.audit.classify.run_classification import (
    SOURCE_RETIRED,
    TARGET_APPENDED,
    TARGET_HIDDEN,
    TARGET_RETIRED,
    TARGET_UNPROVEN,
    UNCOMPARED,
    Judgement,
)
from drkit.audit.compare.first_pass import within
from drkit.audit.compare.record_frames import ScopeReader, date_column, keep
from drkit.audit.compare.scope import PartitionScope, Scope
from drkit.audit.findings.findings_files import write_frame, write_rows
from drkit.model.audit.audit_result import ANY_AGE, Counts, Finding, FindingKind, PartitionAudit
from drkit.model.clock import to_millis
from drkit.model.errors import DrkitError

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


MOST_FINDINGS = 1_000
"""How many findings a result holds itself."""

_FINDING_FIELDS = tuple(each.name for each in fields(Finding))

_GRAVITY = {str(kind): position for position, kind in enumerate(FindingKind)}
_OF_TARGET = (str(FindingKind.DUPLICATED), str(FindingKind.FOREIGN))


OutcomeCounts = Mapping[int, Mapping[str, int]]
"""By partition number and outcome, within the time window; an outcome that isn't there counts 0. PAIR counts records
that were found elsewhere than at their place."""


def outcome_counts(scope: Scope, judgement: Judgement) -> OutcomeCounts:
    """What a judgement comes to in figures: one look, from which all other figures follow."""
    counts: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for entry in judgement.settled:
        if scope.within(entry.stamp):
            counts[entry.p][str(entry.outcome)] += 1
    for pair in judgement.moved:
        if scope.within(pair.stamp):
            counts[pair.p][PAIR] += 1
    if judgement.in_spark is not None:
        inside = judgement.in_spark.where((F.col("outcome") != FACTS) & within(scope, _stamp()))
        for row in inside.groupBy("p", "outcome").count().collect():
            counts[row["p"]][row["outcome"]] += row["count"]
    return counts


def count(scope: Scope, judgement: Judgement, counts: OutcomeCounts) -> tuple[PartitionAudit, ...]:
    """The counts of every partition, within the time window.

    Raises:
        DrkitError: an identity between the counts doesn't hold (a defect of drkit).
    """
    window = scope.since_ms is not None or scope.until_ms is not None
    return tuple(_partition(each, judgement, counts[each.number], window=window) for each in scope.partitions)


def hand_over(
    reader: ScopeReader, judgement: Judgement, counts: OutcomeCounts, path: Path, run: str
) -> tuple[int, tuple[Finding, ...]]:
    """Write all findings within the time window as Parquet, none too; `run` names the audit in it.

    Returns:
        how many they are, and the first MOST_FINDINGS: gravest kinds first, then by topic, partition and offset.
    """
    if judgement.in_spark is None:
        few = few_findings(reader.scope, judgement.settled)
        _write_few(few, path, reader.scope, run)
        return len(few), tuple(few[:MOST_FINDINGS])
    kinds = Counter({kind: sum(of[str(kind)] for of in counts.values()) for kind in FindingKind})
    total = kinds.total()
    frame = findings_frame(reader, judgement, run, paired=explained(kinds)) if total else None
    if frame is None:
        _write_few([], path, reader.scope, run)
        return 0, ()
    write_frame(frame, path, total)
    return total, first_findings(frame)


def uncompared(counts: OutcomeCounts) -> set[int]:
    """The partitions with records of the target that could be compared with nothing."""
    return {number for number, of in counts.items() if of[UNCOMPARED]}


def unproven(counts: OutcomeCounts) -> dict[int, int]:
    """Partitions with source records of which it isn't known whether the target's cleaner took them, and how many."""
    return {number: of[TARGET_UNPROVEN] for number, of in counts.items() if of[TARGET_UNPROVEN]}


def unseen_before(scope: Scope, judgement: Judgement, instant: datetime) -> int:
    """How many unseen records are stamped before an instant (`ANY_AGE`: how many there are), and how many offsets of
    the source stand behind a transaction that has been open since before it, or nobody knows since when."""
    limit = math.inf if instant == ANY_AGE else to_millis(instant)
    held = sum(each.outcome == FindingKind.UNSEEN and each.stamp < limit for each in judgement.settled)
    held += sum(
        each.source_hidden.end - each.source_hidden.begin
        for each in scope.partitions
        if each.source_hidden_since is None or each.source_hidden_since < limit
    )
    if judgement.stayed is None:
        return held
    unseen = judgement.stayed.where(F.col("outcome") == str(FindingKind.UNSEEN))
    return held + (unseen if instant == ANY_AGE else unseen.where(F.col("s_ts") < limit)).count()


def findings_frame(reader: ScopeReader, judgement: Judgement, run: str, *, paired: bool) -> DataFrame | None:
    """All findings within the time window, kept; None where there are none.

    Columns as in `findings_files.SCHEMA`. `paired`: some of them may explain each other across partitions.
    """
    if judgement.classifications is None:
        return None
    names = [(each.number, each.topic, each.target_topic, each.partition) for each in reader.scope.partitions]
    types = {"p": pa.int32(), "topic": pa.string(), "target_topic": pa.string(), "partition": pa.int32()}
    of_target = F.col("outcome").isin(*_OF_TARGET)
    corrupted = F.col("outcome") == str(FindingKind.CORRUPTED)
    rows = judgement.classifications.where(F.col("outcome").isin([str(kind) for kind in FindingKind]))
    rows = (
        rows.withColumn("stamp", _stamp())
        .where(within(reader.scope, F.col("stamp")))
        .join(F.broadcast(reader.frame(types, names)), "p")
    )
    target_digest = _digest("t1", "t2")
    frame = rows.select(
        F.col("outcome").alias("kind"),
        "topic",
        "target_topic",
        "partition",
        F.col("s").alias("source_offset"),
        F.col("t").alias("target_offset"),
        date_column("stamp").alias("timestamp"),
        F.col("stamp").alias("timestamp_ms"),
        F.when(of_target, F.col("t_key")).otherwise(F.col("s_key")).alias("key"),
        F.when(of_target, target_digest).otherwise(_digest("s1", "s2")).alias("digest"),
        F.when(corrupted, date_column("t_ts")).alias("target_timestamp"),
        F.when(corrupted, F.col("t_ts")).alias("target_timestamp_ms"),
        F.when(corrupted, F.col("t_key")).alias("target_key"),
        F.when(corrupted, target_digest).alias("target_digest"),
        F.lit(str(reader.scope.link.id)).alias("link"),
        F.lit(run).alias("run"),
        F.lit(reader.scope.observed_at).cast("timestamp").alias("observed_at"),
    )
    return pair_frame(keep(frame)) if paired else keep(unpaired(frame))


def first_findings(frame: DataFrame | None) -> tuple[Finding, ...]:
    """The first MOST_FINDINGS: gravest kinds first, then by topic, partition and offset."""
    if frame is None:
        return ()
    gravity = F.coalesce(*(F.when(F.col("kind") == kind, F.lit(at)) for kind, at in _GRAVITY.items()))
    offset = F.coalesce("source_offset", "target_offset")
    first = frame.orderBy(gravity, "topic", "partition", offset, "target_offset").limit(MOST_FINDINGS)
    return tuple(_finding(row) for row in first.select(*_FINDING_FIELDS).collect())


def few_findings(scope: Scope, settled: Iterable[Classification]) -> list[Finding]:
    """The findings among these classifications, in the order in which results have them."""
    found = [
        _few_finding(scope.partitions[entry.p], entry)
        for entry in settled
        if str(entry.outcome) in _GRAVITY and scope.within(entry.stamp)
    ]
    return pair_findings(sorted(found, key=_order))


def _order(each: Finding) -> tuple[int, str, int, int, int]:
    offsets = [offset for offset in (each.source_offset, each.target_offset) if offset is not None]
    beside = -1 if each.target_offset is None else each.target_offset
    return _GRAVITY[each.kind], each.topic, each.partition, offsets[0], beside


def _few_finding(each: PartitionScope, entry: Classification) -> Finding:
    source, target = entry.source, entry.target
    of_source = None if source is None else (source.s_ts, source.s_key, source.s1, source.s2)
    of_target = None if target is None else (target.t_ts, target.t_key, target.t1, target.t2)
    stamp, key, first, second = of_source or of_target or (0, None, 0, 0)
    both = of_target if source is not None else None
    return Finding(
        kind=FindingKind(entry.outcome),
        topic=each.topic,
        target_topic=each.target_topic,
        partition=each.partition,
        source_offset=entry.s,
        target_offset=entry.t,
        timestamp_ms=stamp,
        key=key,
        digest=_hex(first, second),
        target_timestamp_ms=None if both is None else both[0],
        target_key=None if both is None else both[1],
        target_digest=None if both is None else _hex(both[2], both[3]),
    )


def _hex(first: int, second: int) -> str:
    """As `_digest`."""
    return "".join(f"{each % (1 << 64):016x}" for each in (first, second))


def _write_few(found: Sequence[Finding], path: Path, scope: Scope, run: str) -> None:
    common = {"link": str(scope.link.id), "run": run, "observed_at": scope.observed_at}
    rows = [
        asdict(each)
        | {"kind": each.kind.value, "timestamp": each.timestamp, "target_timestamp": each.target_timestamp}
        | common
        for each in found
    ]
    write_rows(rows, path)


def _partition(
    each: PartitionScope, judgement: Judgement, outcomes: Mapping[str, int], *, window: bool
) -> PartitionAudit:
    tally = judgement.comparison.tallies[each.number]
    kinds = {kind.value: outcomes[kind.value] for kind in FindingKind}
    matched = tally.matched_inside + outcomes[PAIR]
    unreadable = kinds["unreadable"]
    extra = kinds["duplicated"] + kinds["corrupted"] + kinds["foreign"]
    aside = outcomes[SOURCE_RETIRED] + outcomes[TARGET_APPENDED] + outcomes[UNCOMPARED]
    gone = outcomes[TARGET_RETIRED] + outcomes[TARGET_UNPROVEN] + outcomes[TARGET_HIDDEN]
    # A corrupted record is in the window by its source's stamp, so with a window the target's records
    # can't be told by their own stamps alone; without one they are counted independently.
    target_records = unreadable + (matched + extra if window else tally.matched + tally.target_left - aside)
    counts = Counts(
        source_records=tally.matched_inside + tally.source_left_inside - gone,
        target_records=target_records,
        matched=matched,
        source_retired=outcomes[SOURCE_RETIRED],
        target_retired=outcomes[TARGET_RETIRED],
        target_appended=outcomes[TARGET_APPENDED],
        **kinds,
    )
    broken = counts.broken_identity()
    if broken is not None and judgement.reader.scope.asks_callables:
        raise DrkitError(
            f"the counts of {each.topic}:{each.partition} contradict each other: {broken}",
            meaning="A callable of the link gave another result when it was called again with the same record",
            remedy="Correct the filter or transform: it must always give the same result for a record",
        )
    if broken is not None:
        raise DrkitError(
            f"the audit's counts of {each.topic}:{each.partition} contradict each other: {broken}",
            meaning="This is a bug of drkit: you can't rely on this audit",
            remedy="Report it, with the two topics if you can",
        )
    return PartitionAudit(
        topic=each.topic,
        target_topic=each.target_topic,
        partition=each.partition,
        basis=each.basis,
        counts=counts,
        source_start=each.source_start,
        source_end=each.source_end,
        target_start=each.target_start,
        target_end=each.target_end,
        mirrored_through=judgement.through[each.number],
        target_bound=judgement.bounds.get(each.number),
    )


def _stamp() -> Column:
    """The timestamp (ms) of a classification: the source record's, else the target's."""
    return F.coalesce("s_ts", "t_ts")


def _digest(first: str, second: str) -> Column:
    """128 bits as 32 hexadecimal digits."""
    return F.lower(F.concat(*(F.lpad(F.hex(name), 16, "0") for name in (first, second))))


def _finding(row: Row) -> Finding:
    values = row.asDict()
    for name in ("key", "target_key"):
        values[name] = None if values[name] is None else bytes(values[name])
    return Finding(**values | {"kind": FindingKind(values["kind"])})
