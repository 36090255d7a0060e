"""Interprets an audit's classifications for one group, by the group's positions on both sides.

Two questions decide about a record: had the group read it on the source (its offset is below the group's source
position), and will it read it on the target (its offset there is at or above the group's target position)?
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from drkit.audit.classify.run_classification import (
    SOURCE_RETIRED,
    TARGET_HIDDEN,
    TARGET_RETIRED,
    TARGET_UNPROVEN,
    Judgement,
)
from drkit.audit.compare.offset_zones import place
from drkit.audit.read.record_frames import ScopeReader, keep
from drkit.model.audit.audit_result import FindingKind
from drkit.model.audit.group_audit import Reason

_PAIR = "pair"
_COPY = "copy"
_HIDDEN = "hidden"
_SHOWN = 3
_APART = 1_000
_TYPES = {"p": pa.int32(), "source": pa.int64(), "target": pa.int64(), "border": pa.int64()}


class GroupBorder(NamedTuple):
    """A group's positions on a partition (`number` in the scope), and the first place at or above the source's."""

    number: int
    source: int | None
    target: int | None
    border: int | None


@dataclass(slots=True)
class Events:
    """What is to be said of one partition beside the records that stand at their place.

    `counts` by reason. `rescued`: records that were passed over, but of which a further copy is read. `first`:
    reason, source and target offset of the first of each reason. `aside`: how many target records between the
    group's position and its border don't stand at their place; `apart`: the first of them. `hidden`: records that it
    had not read and that stand behind an open transaction.
    """

    counts: dict[Reason, int] = field(default_factory=dict)
    rescued: int = 0
    first: list[tuple[Reason, int | None, int | None]] = field(default_factory=list)
    aside: int = 0
    apart: frozenset[int] = frozenset()
    hidden: int = 0


def find_events(reader: ScopeReader, judgement: Judgement, borders: Sequence[GroupBorder]) -> dict[int, Events]:
    """By partition number, what the judgement says of records on either side of a group's positions."""
    found = {each.number: Events() for each in borders}
    if judgement.classifications is None and judgement.pairs is None:
        return found
    limits = F.broadcast(reader.frame(_TYPES, borders))
    _set_apart(judgement, limits, found)
    events = keep(_told(judgement, limits))
    for row in events.groupBy("p", "reason").count().collect():
        if row["reason"] == _HIDDEN:
            found[row["p"]].hidden = row["count"]
        elif row["reason"] != _COPY:
            found[row["p"]].counts[Reason(row["reason"])] = row["count"]
    nth = F.row_number().over(Window.partitionBy("p", "reason").orderBy("s", "t"))
    shown = (F.col("nth") <= _SHOWN) & (F.col("reason") != _HIDDEN)
    first = events.withColumn("nth", nth).where(shown).orderBy("p", "reason", "nth")
    for row in first.collect():
        reason = Reason.DUPLICATED if row["reason"] == _COPY else Reason(row["reason"])
        found[row["p"]].first.append((reason, row["s"], row["t"]))
    _count_copies(reader, judgement, events, borders, found)
    return found


def _set_apart(judgement: Judgement, limits: DataFrame, found: Mapping[int, Events]) -> None:
    """Count the target records between position and border that the first pass left over."""
    if judgement.target_left is None:
        return
    low, high = F.least("target", "border"), F.greatest("target", "border")
    known = F.col("target").isNotNull() & F.col("border").isNotNull()
    inside = judgement.target_left.join(limits, "p")
    inside = keep(inside.where(known & (F.col("t") >= low) & (F.col("t") < high)).select("p", "t"))
    for row in inside.groupBy("p").count().collect():
        found[row["p"]].aside = row["count"]
    nth = F.row_number().over(Window.partitionBy("p").orderBy("t"))
    apart: defaultdict[int, list[int]] = defaultdict(list)
    for row in inside.withColumn("nth", nth).where(F.col("nth") <= _APART).collect():
        apart[row["p"]].append(row["t"])
    for number, offsets in apart.items():
        found[number].apart = frozenset(offsets)


def _told(judgement: Judgement, limits: DataFrame) -> DataFrame:
    """Every record that is not at its place and concerns the group: `p`, `reason`, `s`, `t`."""
    parts = []
    if judgement.classifications is not None:
        parts.append(judgement.classifications.select("outcome", "p", "s", "t"))
    if judgement.pairs is not None:
        parts.append(judgement.pairs.select(F.lit(_PAIR).alias("outcome"), "p", "s", "t"))
    rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    reason = F.coalesce(*(F.when(condition, F.lit(str(name))) for condition, name in _reasons()))
    told = rows.join(limits, "p").withColumn("reason", reason)
    return told.where("reason is not null").select("p", "reason", "s", "t")


def _reasons() -> list[tuple[Column, str]]:
    """Conditions and reasons; a condition on a position that isn't known doesn't hold."""
    outcome, s, t = F.col("outcome"), F.col("s"), F.col("t")
    read, unread = s < F.col("source"), s >= F.col("source")
    ahead, behind = t >= F.col("target"), t < F.col("target")
    both = outcome.isin(_PAIR, str(FindingKind.CORRUPTED))
    copy, retired = outcome == str(FindingKind.DUPLICATED), outcome == SOURCE_RETIRED
    return [
        (both & read & ahead, Reason.REREAD),
        (both & unread & behind, Reason.POSITION),
        ((outcome == str(FindingKind.CORRUPTED)) & unread & ahead, Reason.CORRUPTED),
        (copy & read & ahead, Reason.REREAD),
        (copy & unread & ahead, _COPY),
        (retired & ahead & (t < F.col("border")), Reason.REREAD),
        (retired & behind & (t >= F.col("border")), Reason.POSITION),
        ((outcome == str(FindingKind.LOST)) & unread, Reason.LOST),
        ((outcome == str(FindingKind.UNREADABLE)) & unread, Reason.UNREADABLE),
        ((outcome == str(FindingKind.UNSEEN)) & unread, Reason.UNMIRRORED),
        (outcome.isin(TARGET_RETIRED, TARGET_UNPROVEN) & unread, Reason.RETIRED),  # either leaves it unknown
        ((outcome == TARGET_HIDDEN) & unread, _HIDDEN),
    ]


def _count_copies(
    reader: ScopeReader,
    judgement: Judgement,
    events: DataFrame,
    borders: Sequence[GroupBorder],
    found: Mapping[int, Events],
) -> None:
    """Copies of records that the group had not read: the first that it reads is the record, others are seen twice."""
    copies = events.where(F.col("reason") == _COPY).groupBy("p", "s").agg(F.count("t").alias("copies"))
    paired = F.lit(None).cast("long").alias("paired")
    if judgement.pairs is None:
        copies = copies.withColumn("paired", paired)
    else:
        at = judgement.pairs.select("p", "s", F.col("t").alias("paired"))
        copies = copies.join(at, ["p", "s"], "left")
    target = {each.number: each.target for each in borders}
    for row in copies.toLocalIterator():
        number, into = row["p"], found[row["p"]]
        stands = row["paired"] if row["paired"] is not None else place(reader.scope.partitions[number].zones, row["s"])
        first = target[number]
        passed_over = first is not None and stands < first
        into.rescued += passed_over
        into.counts[Reason.DUPLICATED] = into.counts.get(Reason.DUPLICATED, 0) + row["copies"] - passed_over
