"""Runs the classification (`classifier.py`) of the residuals: on the driver, or in Spark's tasks for partitions with
too many. The number of jobs is bounded, whatever the damage.

On the driver all partitions advance together: their requests of one step are read in one job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import Row as RowOfSpark
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from drkit.audit.classify.classification_tasks import (
    CLASSIFICATION_ARROW,
    FACTS,
    PAIR,
    Unit,
    classification_row,
    classify_units,
)
from drkit.audit.classify.classifier import (
    SOURCE_RETIRED,
    TARGET_APPENDED,
    TARGET_HIDDEN,
    TARGET_RETIRED,
    TARGET_UNPROVEN,
    UNCOMPARED,
    Classification,
    ClassifiedPartition,
    Pair,
    PartitionFacts,
    classify,
    reordered,
)
from drkit.audit.compare.first_pass import Comparison, compare_batches
from drkit.audit.compare.log_lookups import LogRequest, MatchedRecords
from drkit.audit.compare.merge_join_tasks import answer_requests
from drkit.audit.compare.offset_zones import place
from drkit.audit.compare.record_frames import ScopeReader, in_tasks, keep
from drkit.audit.compare.scope import PartitionScope, Scope
from drkit.audit.read.log_tasks import opened
from drkit.audit.read.offset_ranges import Span, share_out, wanted_tasks
from drkit.audit.spark.failures import LogMoved
from drkit.model.audit.audit_result import PlacementBasis
from drkit.model.offsets import merged_ranges

__all__ = [
    "SOURCE_RETIRED",
    "TARGET_APPENDED",
    "TARGET_HIDDEN",
    "TARGET_RETIRED",
    "TARGET_UNPROVEN",
    "UNCOMPARED",
    "Judgement",
    "images",
    "judge",
]

_CLASSIFICATION_SCHEMA = from_arrow_schema(pa.schema(list(CLASSIFICATION_ARROW.items())))
_MOST_ASIDE = 50_000
"""How many records that are out of order at their place the driver holds, over all partitions."""


@dataclass(frozen=True)
class Judgement:
    """The classification of every residual.

    Args:
        reader: both sides.
        comparison: the first pass.
        through: the highest mirrored position by partition.
        bounds: where a sealed link's part of the target ends, by partition.
        settled: classifications that the driver holds.
        moved: records found at another offset than expected, as far as the driver holds them.
        in_spark: rows of CLASSIFICATION_ARROW of the other partitions, kept; None where there are none.
        inexact: partitions whose reordered records may be more than the fewest.
    """

    reader: ScopeReader
    comparison: Comparison
    through: Mapping[int, int | None]
    bounds: Mapping[int, int]
    settled: tuple[Classification, ...] = ()
    moved: tuple[Pair, ...] = ()
    in_spark: DataFrame | None = None
    inexact: frozenset[int] = frozenset()

    @property
    def stayed(self) -> DataFrame | None:
        """The classifications that the driver doesn't hold, with the same columns as `classifications`."""
        return None if self.in_spark is None else self.in_spark.where(~F.col("outcome").isin(PAIR, FACTS))

    @cached_property
    def classifications(self) -> DataFrame | None:
        """`outcome`, and the columns of `SourceLeft` and `TargetLeft` (nulls where a side has no part), or None."""
        settled = (
            self.reader.frame(CLASSIFICATION_ARROW, map(classification_row, self.settled)) if self.settled else None
        )
        return _both(settled, self.stayed)

    @cached_property
    def pairs(self) -> DataFrame | None:
        """`p`, `s`, `t`, `ts` of records found elsewhere than at their place; None where there are none."""
        types = {"p": pa.int32(), "s": pa.int64(), "t": pa.int64(), "ts": pa.int64()}
        moved = self.reader.frame(types, self.moved) if self.moved else None
        stayed = self.in_spark
        if stayed is not None:
            stayed = stayed.where(F.col("outcome") == PAIR).select("p", "s", "t", F.col("s_ts").alias("ts"))
        return _both(moved, stayed)

    @cached_property
    def target_left(self) -> DataFrame | None:
        """`p`, `t` of target records that the first pass left over; None where there are none."""
        rows = [(row.p, row.t) for each in self.comparison.in_hand.values() for row in each.target_left]
        held = self.reader.frame({"p": pa.int32(), "t": pa.int64()}, rows) if rows else None
        stayed = self.in_spark
        if stayed is not None:
            left = (F.col("outcome") == PAIR) | F.col("t1").isNotNull()
            stayed = stayed.where(left).select("p", "t")
        return _both(held, stayed)


def judge(reader: ScopeReader, *, full: bool = False, say: Callable[[str], None] | None = None) -> Judgement:
    """Compare both sides and classify what differs.

    Args:
        reader: reads both sides.
        full: decode every record, also of batches that are equal on both sides.
        say: receives progress messages.
    """
    comparison = compare_batches(reader, say or _silent, full=full)
    bounds = _bounds(reader, comparison)
    limits = {each.number: _limits(each, reader.scope, comparison, bounds) for each in reader.scope.partitions}
    classified = _on_driver(reader, comparison, [limits[number] for number in comparison.in_hand])
    too_long = _too_long(classified)
    classified = [each for each in classified if each.limits.number not in too_long]
    settled = [entry for each in classified for entry in each.classifications] + _reordered(
        reader, comparison, classified
    )
    through = {number: each.through for number, each in limits.items()}
    through |= {each.limits.number: each.through for each in classified}
    inexact = {each.limits.number for each in classified if not each.exact}
    rows = _in_spark(reader, comparison, [limits[number] for number in sorted(comparison.in_tasks | too_long)])
    if rows is not None:
        facts = rows.where(F.col("outcome") == FACTS).select("p", "s", "e", "placed", "t").collect()
        _check_unmoved(comparison, facts)
        for row in facts:
            through[row["p"]] = _highest(through[row["p"]], None if row["s"] is None else row["s"] - 1)
            if not row["placed"]:
                inexact.add(row["p"])
    pairs = tuple(pair for each in classified for pair in each.pairs)
    return Judgement(reader, comparison, through, bounds, tuple(settled), pairs, rows, frozenset(inexact))


def _check_unmoved(comparison: Comparison, facts: Iterable[RowOfSpark]) -> None:
    """Raise `LogMoved` where a partition was another one when it was compared again: its counts would contradict."""
    found: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in facts:
        found[row["p"]][0] += row["e"]
        found[row["p"]][1] += row["t"]
    for number, counts in found.items():
        tally = comparison.tallies[number]
        if counts != [tally.source_left, tally.target_left]:
            raise LogMoved("records were removed during the comparison", remedy="Run it again")


def _on_driver(
    reader: ScopeReader, comparison: Comparison, limits: Iterable[PartitionFacts]
) -> list[ClassifiedPartition]:
    """Classify the residuals of these partitions, which the driver holds."""
    found: list[ClassifiedPartition] = []
    steps = {
        each.number: classify(each, *comparison.in_hand[each.number], comparison.stretches[each.number])
        for each in limits
    }
    answers: dict[int, Any] = dict.fromkeys(steps)
    while steps:
        asked: dict[int, LogRequest] = {}
        for number, step in list(steps.items()):
            try:
                asked[number] = step.send(answers[number])
            except StopIteration as done:
                found.append(done.value)
                del steps[number]
        answers = _answers(reader, asked) if asked else {}
    return found


def _answers(reader: ScopeReader, requests: Mapping[int, LogRequest]) -> dict[int, Any]:
    """Read what is asked for, of many partitions at once."""
    scope = reader.scope
    answers = {number: request.new() for number, request in requests.items()}
    for of_target in (False, True):
        asked = {number: request for number, request in requests.items() if request.of_target is of_target}
        names = {n: scope.partitions[n].target_topic if of_target else scope.partitions[n].topic for n in asked}
        cluster = scope.target_reached() if of_target else scope.source_reached()
        logs = {n: _target_log(scope.partitions[n]) if of_target else _log(scope.partitions[n]) for n in asked}
        logs |= _grown(scope, cluster, asked, names)
        spans = [
            Span(number, names[number], scope.partitions[number].partition, first, until, until)
            for number, request in asked.items()
            for first, until in merged_ranges(request.ranges(logs[number]))
        ]
        if not spans:
            continue
        work = partial(answer_requests, cluster, asked)
        for number, answer in in_tasks(reader.spark, work, share_out(spans, wanted_tasks(spans, reader.parallel))):
            requests[number].merge(answers[number], answer)
    return answers


def _grown(
    scope: Scope, cluster: Mapping[str, Any], asked: Mapping[int, LogRequest], names: Mapping[int, str]
) -> dict[int, tuple[int, int]]:
    """What logs hold beyond what the audit began with, of the partitions of which that is asked."""
    beyond = {number: request.beyond for number, request in asked.items() if request.beyond is not None}
    if not beyond:
        return {}
    with opened(cluster) as reader:
        return {
            number: (first, reader.end(names[number], scope.partitions[number].partition, first))
            for number, first in beyond.items()
        }


def _too_long(classified: Sequence[ClassifiedPartition]) -> set[int]:
    """Partitions of which so many records are out of order at their place that tasks shall name them."""
    sizes = {each.limits.number: sum(line.records for line in each.aside) for each in classified}
    room = _MOST_ASIDE
    found: set[int] = set()
    for number in sorted(sizes, key=lambda each: (sizes[each], each)):
        room -= sizes[number]
        if room < 0:
            found.add(number)
    return found


def _reordered(
    reader: ScopeReader, comparison: Comparison, classified: Iterable[ClassifiedPartition]
) -> list[Classification]:
    """The records that matched at their place and are out of order."""
    requests: dict[int, LogRequest] = {
        number: MatchedRecords(
            number,
            merged_ranges((line.s_lo, line.s_hi + 1) for line in each.aside),
            frozenset(row.s for row in comparison.in_hand[number].source_left),
            each.limits.zones,
        )
        for each in classified
        for number in (each.limits.number,)
        if each.aside
    }
    if not requests:
        return []
    answers = _answers(reader, requests)
    return [reordered(number, record) for number, records in answers.items() for record in records]


def _in_spark(reader: ScopeReader, comparison: Comparison, limits: Sequence[PartitionFacts]) -> DataFrame | None:
    """Classify partitions in tasks; rows of CLASSIFICATION_ARROW, kept."""
    if not limits:
        return None
    scope = reader.scope
    units = [unit for each in limits for unit in _units(scope.partitions[each.number], comparison, each)]
    work = partial(
        classify_units,
        scope.source_reached(),
        scope.target_reached(),
        units,
        full=comparison.full,
    )
    return keep(reader.spark.range(0, len(units), 1, len(units)).mapInArrow(work, _CLASSIFICATION_SCHEMA))


def _units(each: PartitionScope, comparison: Comparison, limits: PartitionFacts) -> list[Unit]:
    """What tasks classify by themselves: the partition, or its parts where each record is judged by its place alone."""
    pieces, stretches = comparison.pieces[each.number], tuple(comparison.stretches[each.number])
    log = _log(each)
    alone = not comparison.tallies[each.number].target_left and not (each.source_compacted or each.target_compacted)
    if alone:
        return [Unit(limits, (piece,), (), log, alone=True) for piece in pieces]
    return [Unit(limits, tuple(pieces), stretches, log, alone=False)]


def _log(each: PartitionScope) -> tuple[int, int]:
    """Where equal records, and later ones of a key, are looked for on the source."""
    return (each.source_start if each.partial else each.source_from), each.source_end


def _target_log(each: PartitionScope) -> tuple[int, int]:
    return each.target_start, each.target_end


def _limits(each: PartitionScope, scope: Scope, comparison: Comparison, bounds: Mapping[int, int]) -> PartitionFacts:
    number = each.number
    return PartitionFacts(
        number=number,
        zones=each.zones,
        shift=comparison.shift,
        recorded=each.basis is PlacementBasis.MAPPING,
        source_start=each.source_start,
        source_end=each.source_end,
        target_start=each.target_start,
        purged=each.purged,
        hidden=each.hidden,
        target_end=each.target_end,
        start_place=each.start_place,
        first_place=each.first_place,
        through=_through(each, comparison.tallies[number].last_source),
        watermarked=each.mirrored_through is not None,
        bound=bounds.get(number),
        earlier_until=each.earlier_until,
        source_compacted=each.source_compacted,
        target_compacted=each.compaction_explains,
        unreadable=comparison.target_unreadable.get(number, ()),
        uncompared=tuple(merged_ranges([*images(each, comparison.source_unreadable.get(number, ())), *each.told])),
        partial=each.partial,
        aborted=not scope.link.committed,
        altered=scope.asks_callables,
    )


def _through(each: PartitionScope, last_matched: int | None) -> int | None:
    """The highest mirrored position: as it was recorded, by the last match, or by what was removed from the target."""
    removed = each.purged[-1][1] - 1 if each.purged else None
    return _highest(_highest(each.mirrored_through, last_matched), removed)


def images(each: PartitionScope, ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The target offsets that stand for ranges of source offsets."""
    return tuple(merged_ranges((place(each.zones, first), place(each.zones, until - 1) + 1) for first, until in ranges))


def _bounds(reader: ScopeReader, comparison: Comparison) -> dict[int, int]:
    """For a sealed link: where its part of each target partition ends.

    A mirror that was killed may have written more than it recorded: what is at its place there is
    its work, so the part reaches at least to the last such record.
    """
    return {
        each.number: max(each.sealed_at, (comparison.tallies[each.number].last_target or 0) + 1)
        if comparison.tallies[each.number].last_target is not None
        else each.sealed_at
        for each in reader.scope.partitions
        if each.sealed_at is not None
    }


def _highest(through: int | None, offset: int | None) -> int | None:
    """The highest mirrored position, given one and the offset of a mirrored record."""
    known = [each for each in (through, None if offset is None else offset + 1) if each is not None]
    return max(known, default=None)


def _both(first: DataFrame | None, second: DataFrame | None) -> DataFrame | None:
    if first is None or second is None:
        return second if first is None else first
    return first.unionByName(second)


def _silent(_: str) -> None:
    """Tell nobody."""
