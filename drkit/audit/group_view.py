"""One group's view of a failover: what it missed, what it sees twice, counted in records.

    source   ────────────── S ───────────────   S: the next it would have read (`source_offset`)
             read before    │  not read
    target   ────── T ──────┼─────── end        T: the next it reads (`target_offset`)
                    └ again ┘                   place of S: the first place at or above S

Records at their place between T and the place of S are read again, or, if T is beyond it, were skipped: these are
counted on the target. Everything else (lost, altered, moved, copied, never mirrored) comes record by record from the
audit's classification. While the source can't be read, only the former is known.

Two questions decide about such a record: had the group read it on the source (its offset is below the group's source
position), and will it read it on the target (its offset there is at or above the group's target position)?
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from drkit.audit.classify.classifier import holds
from drkit.audit.classify.run_classification import (
    SOURCE_RETIRED,
    TARGET_HIDDEN,
    TARGET_RETIRED,
    TARGET_UNPROVEN,
    Judgement,
)
from drkit.audit.compare.offset_zones import Zone, first_place, source_of, zones
from drkit.audit.compare.offset_zones import place as place_of
from drkit.audit.compare.record_frames import ScopeReader, keep
from drkit.audit.findings.findings import outcome_counts
from drkit.audit.findings.unreadable import hidden_target, unreadable_source, unreadable_target
from drkit.audit.findings.witnesses import read_content
from drkit.audit.run import ClassifiedScope, judged, refuse_altered
from drkit.audit.spark.failures import in_words
from drkit.audit.spark.session import Progress, SparkRuntime, Tasks, watching
from drkit.config import Config
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.log_reader import LogReader
from drkit.kafka.protocol.record_batch import MAGIC
from drkit.kafka.protocol.record_columns import RecordColumns
from drkit.model.audit.audit_result import AuditRequest, FindingKind, TopicChoice
from drkit.model.audit.group_audit import (
    CountBasis,
    GroupAudit,
    GroupCounts,
    GroupMove,
    GroupPartition,
    GroupPositions,
    GroupWitness,
    Reason,
)
from drkit.model.clock import iso, now
from drkit.model.offsets import Watermark
from drkit.model.topology import Link, TopicPartition
from drkit.store.api import Store

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
        stands = (
            row["paired"] if row["paired"] is not None else place_of(reader.scope.partitions[number].zones, row["s"])
        )
        first = target[number]
        passed_over = first is not None and stands < first
        into.rescued += passed_over
        into.counts[Reason.DUPLICATED] = into.counts.get(Reason.DUPLICATED, 0) + row["copies"] - passed_over


MOST_WITNESSES = 3
"""Records shown of each partition and reason."""


@dataclass(frozen=True, slots=True)
class _Log:
    """What is known of a partition's log on the target: [start, end) of what the mirror wrote there, and places.
    `unreadable`: target offsets [first, until) that can't be read, as far as that is known already. `uncompared`:
    offsets that concern the group and can't be compared; `why`: the reasons."""

    place: GroupPositions
    zones: tuple[Zone, ...]
    start: int
    end: int
    watermark: Watermark | None = None
    unreadable: tuple[tuple[int, int], ...] = ()
    uncompared: int = 0
    why: tuple[str, ...] = ()

    @property
    def border(self) -> int | None:
        """The first place at or above the group's source position; None where places aren't known."""
        at = self.place.source_offset
        return None if at is None or not self.zones else first_place(self.zones, at)

    def between(self) -> tuple[Reason, int, int] | None:
        """The target offsets between the group's position and its border, and what they are to it; None: not known."""
        at, border = self.place.target_offset, self.border
        if at is None or border is None:
            return None
        low, high = (min(max(each, self.start), self.end) for each in sorted((at, border)))
        return Reason.REREAD if at < border else Reason.POSITION, low, high


def audit_group(
    move: GroupMove,
    link: Link,
    store: Store,
    config: Config,
    spark: Callable[[], SparkRuntime],
    *,
    out: str,
    full: bool = False,
    progress: Progress,
    tasks: Tasks | None = None,
) -> GroupAudit:
    """Count what a group missed and sees twice.

    Args:
        move: its positions before and after.
        link: the link that it was moved along.
        store: mapping rows and watermarks.
        config: both clusters.
        spark: what to run on; called only where both sides are compared.
        out: an audit's folder; nothing is written there.
        full: as `AuditRequest.full`.
        progress: told what is being done.
        tasks: told Spark's tasks done and in all.

    Raises:
        Unreachable: the target or the store doesn't answer.
        Refused: the link alters what it carries.
        DrkitError: Spark failed.
    """
    began = time.monotonic()
    if move.unreadable is not None or not move.places:
        logs, observed_at = _by_mapping(move, link, store, config), now()
        events: Mapping[int, Events] = {}
        means, notes = CountBasis.MAPPING, _unread(move)
    else:
        refuse_altered(link, f"the view of {move.group}")
        choices = _choices(move)
        request = AuditRequest(link=link, out=out, topics=choices, full=full)
        found = judged(request, store, config, spark(), f"the view of {move.group}", progress, tasks)
        scope = found.reader.scope
        places = {(place.topic, place.partition): place for place in move.places}
        with in_words(f"the view of {move.group}"):
            logs = _by_records(found, places)
        progress(f"placing {move.group} among what differs")
        with in_words(f"the view of {move.group}"), watching(found.reader.spark, tasks):
            events = find_events(
                found.reader, found.judgement, [_border(number, log) for number, log in enumerate(logs)]
            )
        observed_at, means, notes = scope.observed_at, CountBasis.RECORDS, scope.notes
    progress("counting on the target")
    partitions, witnesses = [], []
    with LogReader(link.id.target, config.clusters[link.id.target]) as target:
        for number, log in enumerate(logs):
            counted, shown = _counted(log, events.get(number), target, compared=means is CountBasis.RECORDS)
            partitions.append(counted)
            witnesses += shown
    return GroupAudit(
        move=move,
        means=means,
        partitions=tuple(partitions),
        witnesses=tuple(_contents(witnesses, link, config, readable=means is CountBasis.RECORDS)),
        observed_at=observed_at,
        seconds=time.monotonic() - began,
        notes=tuple(notes),
    )


def _by_records(found: ClassifiedScope, places: Mapping[tuple[str, int], GroupPositions]) -> list[_Log]:
    """The target's logs, and what can't be compared of what the group had not read."""
    scope, judgement = found.reader.scope, found.judgement
    counts = outcome_counts(scope, judgement)
    of_source = judgement.comparison.source_unreadable
    words: defaultdict[int, list[str]] = defaultdict(list)
    for number, reason in unreadable_source(scope, of_source):
        words[number].append(reason)
    of_target, hidden = unreadable_target(scope, judgement), hidden_target(scope, counts)
    logs = []
    for each in scope.partitions:
        place = places[each.topic, each.partition]
        unread, unseen = place.source_offset or 0, place.target_offset or 0
        uncompared = sum(max(0, until - max(first, unread)) for first, until in of_source.get(each.number, ()))
        why = tuple(words[each.number]) if uncompared else ()
        if (behind := hidden.get(each.number)) is not None:
            why += (behind.words,)
        if (hindrance := of_target.get(each.number)) is not None and hindrance.until > unseen:
            uncompared += hindrance.offsets
            why += (hindrance.words,)
        logs.append(
            _Log(
                place,
                () if each.by_content_only else each.zones,
                each.target_start,
                each.target_end,
                unreadable=judgement.comparison.target_unreadable.get(each.number, ()),
                uncompared=uncompared,
                why=why,
            )
        )
    return logs


def _choices(move: GroupMove) -> tuple[TopicChoice, ...]:
    by_topic: defaultdict[str, set[int]] = defaultdict(set)
    for place in move.places:
        by_topic[place.topic].add(place.partition)
    return tuple(TopicChoice(topic, frozenset(numbers)) for topic, numbers in sorted(by_topic.items()))


def _unread(move: GroupMove) -> tuple[str, ...]:
    return () if move.unreadable is None else (f"{move.unreadable}: counts are by the target and the mapping alone",)


def _by_mapping(move: GroupMove, link: Link, store: Store, config: Config) -> list[_Log]:
    """The target's logs as they are, up to where the mirror got."""
    watermarks = store.watermarks(link.id)
    tps = [TopicPartition(place.target_topic, place.partition) for place in move.places]
    with ClusterAdmin(link.id.target, config.clusters[link.id.target]) as admin:
        starts, ends = admin.start_offsets(tps), admin.end_offsets(tps, committed=True)
    logs = []
    for place, there in zip(move.places, tps, strict=True):
        mark = watermarks.get(TopicPartition(place.topic, place.partition))
        rows = [] if mark is None else store.mappings(link.id, mark.tp, mark.epoch)
        start = starts.get(there, 0)
        end = start if mark is None else max(start, min(ends.get(there, 0), mark.target_end))
        logs.append(_Log(place, zones(rows) if rows else (), start, end, mark if rows else None))
    return logs


def _border(number: int, log: _Log) -> GroupBorder:
    return GroupBorder(number, log.place.source_offset, log.place.target_offset, log.border)


def _counted(
    log: _Log, events: Events | None, target: LogReader, *, compared: bool
) -> tuple[GroupPartition, list[GroupWitness]]:
    place, notes = log.place, [*log.place.why, *log.why]
    between = log.between() if log.zones else None
    if not log.zones:
        notes.append(
            "the mirror recorded nothing of this partition, or that isn't known any more: which record is at which "
            "offset, and what the group missed, is unknown"
        )
    known: dict[Reason, int] = {}
    witnesses: list[GroupWitness] = []
    if between is not None:
        reason, low, high = between
        aside, apart = (0, frozenset[int]()) if events is None else (events.aside, events.apart)
        count, first, unreadable = _read(target, log, low, high, apart)
        known = {Reason.REREAD: 0, Reason.POSITION: 0, reason: count - aside}
        if unreadable and not compared:  # whether records stand there only the source could tell
            del known[reason]
            notes.append(f"{unreadable} offsets of the target from {low} to {high - 1} can't be read")
        witnesses += [_witness(reason, place, source_of(log.zones, offset), offset) for offset in first]
        if place.target_offset is not None and place.target_offset < log.start:
            gone = log.start - place.target_offset
            notes.append(f"the target's log begins at {log.start}: {gone} offsets from its position on are gone there")
    counts = GroupCounts(
        position=known.get(Reason.POSITION), reread=known.get(Reason.REREAD), uncompared=log.uncompared
    )
    if compared and events is not None and place.source_offset is not None and log.zones:
        counts = _with_events(counts, events, placed=place.target_offset is not None, notes=notes)
        witnesses += [_witness(reason, place, s, t) for reason, s, t in events.first]
    elif log.watermark is not None and place.source_offset is not None:
        mark = log.watermark
        beyond = max(0, mark.source_end - max(place.source_offset, mark.source_through))
        counts = replace(counts, unmirrored_at_least=beyond)
        notes.append(
            f"as seen at {iso(mark.observed_at)}, {beyond} source offsets from its position on were not mirrored; what "
            "was written after that, or lost, is not known"
        )
    return GroupPartition(place, counts, tuple(notes)), witnesses


def _with_events(counts: GroupCounts, events: Events, *, placed: bool, notes: list[str]) -> GroupCounts:
    found = events.counts
    counts = replace(counts, uncompared=counts.uncompared + events.hidden)
    retired = found.get(Reason.RETIRED, 0)
    if retired:
        notes.append(
            f"{retired} records from its position on were on the target and have been removed there by retention or "
            "compaction: whether it read them before that is not known"
        )
    if not placed:
        return replace(
            counts,
            lost=found.get(Reason.LOST, 0),
            unreadable=found.get(Reason.UNREADABLE, 0),
            unmirrored=found.get(Reason.UNMIRRORED, 0),
            retired=retired,
        )
    return replace(
        counts,
        position=_plus(counts.position, found.get(Reason.POSITION, 0) - events.rescued),
        lost=found.get(Reason.LOST, 0),
        unreadable=found.get(Reason.UNREADABLE, 0),
        unmirrored=found.get(Reason.UNMIRRORED, 0),
        corrupted=found.get(Reason.CORRUPTED, 0),
        reread=_plus(counts.reread, found.get(Reason.REREAD, 0)),
        duplicated=found.get(Reason.DUPLICATED, 0),
        retired=retired,
    )


def _plus(count: int | None, more: int) -> int | None:
    return None if count is None else count + more


def _read(target: LogReader, log: _Log, low: int, high: int, apart: frozenset[int]) -> tuple[int, list[int], int]:
    """How many records stand in [low, high) of the target, the offsets of the first that aren't set `apart`, and how
    many offsets can't be read."""
    count = unreadable = 0
    first: list[int] = []
    at = low
    for batches in target.read(log.place.target_topic, log.place.partition, low, high):
        for batch in batches:
            begin, at = at, max(at, min(batch.last_offset + 1, high))
            known = batch.readable and not holds(log.unreadable, max(batch.base_offset, begin))
            whole = batch.magic >= MAGIC and begin <= batch.base_offset and batch.last_offset < high
            if known and whole and len(first) >= MOST_WITNESSES:
                count += batch.records_count
                continue
            columns = RecordColumns()
            if known and columns.add_readable(batch, begin, high):
                count += len(columns)
                first += [offset for offset in columns.offsets if offset not in apart][: MOST_WITNESSES - len(first)]
            else:
                unreadable += at - max(batch.base_offset, begin)
    return count, first, unreadable


def _witness(reason: Reason, place: GroupPositions, source: int | None, target: int | None) -> GroupWitness:
    return GroupWitness(reason, place.topic, place.partition, source, target)


def _contents(found: Sequence[GroupWitness], link: Link, config: Config, *, readable: bool) -> list[GroupWitness]:
    """The witnesses with what they hold: as it is on the target, or, what isn't there, on the source."""
    shown: list[GroupWitness] = []
    sides = {True: link.id.target, False: link.id.source}
    with (
        LogReader(sides[True], config.clusters[sides[True]]) as target,
        LogReader(sides[False], config.clusters[sides[False]]) as source,
    ):
        for each in found:
            if each.target_offset is not None:
                shown.append(_with_content(each, target, link.target_topic(each.topic), each.target_offset))
            elif each.source_offset is not None and readable:
                shown.append(_with_content(each, source, each.topic, each.source_offset))
            else:
                shown.append(each)
    return shown


def _with_content(witness: GroupWitness, reader: LogReader, topic: str, offset: int) -> GroupWitness:
    content = read_content(reader, topic, witness.partition, offset)
    if isinstance(content, str):
        return replace(witness, problem=content)
    return replace(witness, stamp=content.stamp, key=content.key, value=content.value)
