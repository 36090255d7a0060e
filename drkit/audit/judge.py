"""What became of each residual: the audit's definitions, one after the other.

Target residuals, first reason that holds:

    target_appended   beyond what a sealed link mirrored
    uncompared        stands where the source can't be read
    (paired)          an equal source record is elsewhere in the partition: matched, displaced
    source_retired    stands for a record that the source's retention or compaction removed
    duplicated        equal to a source record, which is matched to another copy
    corrupted         stands where an unmatched source record should
    foreign           none of these

Source residuals:

    (paired), corrupted   as above
    unreadable            its place is in a batch of the target that can't be read
    target_retired        the target's retention or compaction removed it
    unseen                at or above the highest mirrored position
    lost                  none of these

Where a record should stand follows from its place and how far the records around it are displaced
(`lines.beside`), so one record missing early in a topic doesn't make the others corrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from drkit.audit.batches import compare_batches
from drkit.audit.compare import (
    RESIDUAL_ARROW,
    RESIDUAL_TYPES,
    SOURCE_FIELDS,
    TARGET_FIELDS,
    Comparison,
    Unreadable,
    compare,
)
from drkit.audit.lines import Lines, at_place, beside, ranges
from drkit.audit.matching import Matching, first_of, match
from drkit.audit.plain import (
    SOURCE_RETIRED,
    TARGET_APPENDED,
    TARGET_RETIRED,
    UNCOMPARED,
    Fate,
    judge_plainly,
    source_images,
)
from drkit.audit.reading import Reader, keep
from drkit.audit.retired import (
    before_source_start,
    before_target_start,
    compacted_on_source,
    compacted_on_target,
    displaced_after,
    displaced_before,
)
from drkit.audit.scope import PartitionScope
from drkit.audit.search import may_equal
from drkit.model.audit import Basis, FindingKind

__all__ = ["SOURCE_RETIRED", "TARGET_APPENDED", "TARGET_RETIRED", "UNCOMPARED", "Judgement", "judge"]

_LIMITS = {
    "p": pa.int32(),
    "source_start": pa.int64(),
    "target_start": pa.int64(),
    "target_end": pa.int64(),
    "start_place": pa.int64(),
    "first_place": pa.int64(),
    "earlier_until": pa.int64(),
    "recorded": pa.bool_(),
    "through": pa.int64(),
    "watermarked": pa.bool_(),
    "source_compacted": pa.bool_(),
    "target_compacted": pa.bool_(),
}


@dataclass(frozen=True)
class Judgement:
    """Every residual's fate. `through`: the highest mirrored position by partition; `bounds`: where a sealed
    link's part of the target ends. `settled`: all fates, where they are few and were judged by simple rules."""

    comparison: Comparison
    matching: Matching
    make: Callable[[], DataFrame | None]
    through: Mapping[int, int | None]
    bounds: Mapping[int, int]
    settled: tuple[Fate, ...] | None = None

    @cached_property
    def fates(self) -> DataFrame | None:
        """`fate`, `p`, SOURCE_FIELDS and TARGET_FIELDS (nulls where a side has no part); None where there are none."""
        return self.make()


def judge(reader: Reader, *, full: bool = False, say: Callable[[str], None] | None = None) -> Judgement:
    """Compare both sides and judge what differs.

    Args:
        reader: reads both sides.
        full: decode every record, also of batches that are equal on both sides.
        say: told what is being done.
    """
    comparison = compare(reader) if full else compare_batches(reader, say or _silent)
    bounds = _bounds(reader, comparison)
    if not any(tally.source_left or tally.target_left for tally in comparison.tallies.values()):
        return Judgement(
            comparison, Matching(None, None, {}), lambda: None, _through(reader, comparison, {}), bounds, ()
        )
    plain = judge_plainly(reader, comparison, bounds, _through(reader, comparison, {}))
    if plain is not None:
        make = partial(_settled_frame, reader, plain.fates)
        return Judgement(comparison, Matching(None, None, {}), make, plain.through, bounds, plain.fates)
    source_left, target_left = comparison.source_left(), comparison.target_left()
    appended = None
    if bounds:
        limit = F.broadcast(reader.frame({"p": pa.int32(), "bound": pa.int64()}, sorted(bounds.items())))
        bounded = target_left.join(limit, "p", "left")
        appended = bounded.where("t >= bound")
        target_left = bounded.where("bound is null or t < bound").drop("bound")
    matching = match(reader, comparison, source_left, target_left)
    through = _through(reader, comparison, matching.last_source)
    court = _Court(reader, comparison, matching, source_left, target_left, appended, through)
    parts = court.sit()
    if appended is not None:
        parts.append(_fate(appended, TARGET_APPENDED))
    if matching.lines is not None:
        parts.append(_reordered(reader, comparison, matching.lines, matching))
    fates = parts[0]
    for part in parts[1:]:
        fates = fates.unionByName(part)
    kept = keep(fates)
    return Judgement(comparison, matching, lambda: kept, court.through, bounds)


class _Court:
    """Judges residuals that were not paired, target first."""

    def __init__(
        self,
        reader: Reader,
        comparison: Comparison,
        matching: Matching,
        source_left: DataFrame,
        target_left: DataFrame,
        appended: DataFrame | None,
        through: Mapping[int, int | None],
    ) -> None:
        self._reader = reader
        self._comparison = comparison
        self._matching = matching
        self._appended = appended
        self.through = dict(through)
        source, target = source_left, target_left
        if matching.pairs is not None:
            source = source.join(matching.pairs.select("p", "s"), ["p", "s"], "left_anti")
            target = target.join(matching.pairs.select("p", "t"), ["p", "t"], "left_anti")
        self._unread: list[DataFrame] = []
        if comparison.target_unreadable:
            bad, source = _parted(reader, source, F.when(F.col("placed"), F.col("e")), comparison.target_unreadable)
            self._unread.append(_fate(bad.withColumn("t", F.col("e")), FindingKind.UNREADABLE))
        if comparison.source_unreadable:
            images = source_images(reader.scope.partitions, comparison.source_unreadable)
            aside, target = _parted(reader, target, F.col("t"), images)
            self._unread.append(_fate(aside, UNCOMPARED))
        limits = self._limits()
        self._source = keep(beside(source, matching.lines, "s").join(limits, "p"))
        self._target = keep(beside(target, matching.lines, "t").join(limits, "p"))

    def sit(self) -> list[DataFrame]:
        """The fates of all, as parts to be put together."""
        return self._unread + self._judged()

    def _judged(self) -> list[DataFrame]:
        if not any(tally.target_left for tally in self._comparison.tallies.values()):
            return self._missing(self._source)
        retired = before_source_start()
        parts = [_fate(self._target.where(retired), SOURCE_RETIRED)]
        target = self._target.where(~retired)
        target, compacted = self._without_compacted(target)
        if compacted is not None:
            parts.append(_fate(compacted, SOURCE_RETIRED))
        numbers = [row["p"] for row in target.select("p").distinct().collect()]
        if not numbers:
            return parts + self._missing(self._source)
        target, duplicated = self._without_duplicates(target, numbers)
        corrupted = self._corrupted(target)
        foreign = target.join(corrupted.select("p", "t"), ["p", "t"], "left_anti")
        parts += [
            _fate(duplicated, FindingKind.DUPLICATED),
            _fate(corrupted, FindingKind.CORRUPTED),
            _fate(foreign, FindingKind.FOREIGN),
        ]
        return parts + self._missing(self._source.join(corrupted.select("p", "s"), ["p", "s"], "left_anti"))

    def _missing(self, source: DataFrame) -> list[DataFrame]:
        """Fates of source records that nothing on the target stands for."""
        reader = self._reader
        retired = before_target_start()
        position = F.broadcast(
            reader.frame({"p": pa.int32(), "mirrored": pa.int64()}, [(n, v) for n, v in self.through.items()])
        )
        present = source.where(~retired).join(position, "p")
        below = F.coalesce(F.col("s") < F.col("mirrored"), F.lit(False))
        parts = [_fate(source.where(retired), TARGET_RETIRED), _fate(present.where(~below), FindingKind.UNSEEN)]
        lost = present.where(below)
        doubtful = lost.where("target_compacted")
        if any(each.target_compacted for each in reader.scope.partitions) and not doubtful.isEmpty():
            explained = keep(
                compacted_on_target(
                    reader, self._comparison, doubtful, self._source, strangers=self._target, appended=self._appended
                )
            )
            parts.append(_fate(lost.join(explained, ["p", "s"], "left_semi"), TARGET_RETIRED))
            lost = lost.join(explained, ["p", "s"], "left_anti")
        return [*parts, _fate(lost, FindingKind.LOST)]

    def _without_compacted(self, target: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        doubtful = target.where("source_compacted")
        if not any(each.source_compacted for each in self._reader.scope.partitions) or doubtful.isEmpty():
            return target, None
        explained = keep(compacted_on_source(self._reader, self._comparison, doubtful))
        return (
            target.join(explained, ["p", "t"], "left_anti"),
            target.join(explained, ["p", "t"], "left_semi"),
        )

    def _without_duplicates(self, target: DataFrame, numbers: list[int]) -> tuple[DataFrame, DataFrame]:
        """Part target residuals from those equal to a source record, whose first such offset becomes `s`.

        A residual that were equal to an unmatched source record would have been paired with it, so the
        source record found here is matched to another copy.
        """
        digest = ["p", "t1", "t2"]
        wanted = target.select("p", F.col("t1").alias("h1"), F.col("t2").alias("h2")).distinct()
        equal = (
            may_equal(self._reader, target, numbers)
            .join(wanted, ["p", "h1", "h2"], "left_semi")
            .groupBy("p", F.col("h1").alias("t1"), F.col("h2").alias("t2"))
            .agg(F.min("s").alias("s"), F.min_by("e", "s").alias("other"))
        )
        if self._matching.pairs is not None:
            paired = self._matching.pairs.select("p", "s", F.col("t").alias("paired"))
            equal = equal.join(paired, ["p", "s"], "left").withColumn("other", F.coalesce("paired", "other"))
        equal = keep(equal)
        return target.join(equal, digest, "left_anti"), _later_copy(target.join(equal, digest))

    def _corrupted(self, target: DataFrame) -> DataFrame:
        """Source residuals with the target residual that stands in their place; both are taken once.

        What the mirror had not reached can't be corrupted: what stands there is somebody else's. Where
        nothing is recorded, it may have reached whatever stands there, if it was there at all.
        """
        known = F.col("watermarked") | F.col("through").isNull()
        reached = ~known | F.coalesce(F.col("s") < F.col("through"), F.lit(False))
        found: list[DataFrame] = []
        source = self._source.where("placed").where(reached)
        left = target.select("p", *TARGET_FIELDS)
        for displaced in (displaced_before(), displaced_after()):
            meeting = source.withColumn("t", F.col("e") + displaced).where(_in_its_gap()).join(left, ["p", "t"])
            taken = keep(first_of(meeting, ["p", "t"], "s").select("p", *SOURCE_FIELDS, *TARGET_FIELDS))
            found.append(taken)
            source = source.join(taken.select("p", "s"), ["p", "s"], "left_anti")
            left = left.join(taken.select("p", "t"), ["p", "t"], "left_anti")
        both = found[0].unionByName(found[1])
        for row in both.groupBy("p").agg(F.max("s").alias("s")).collect():
            self.through[row["p"]] = _highest(self.through[row["p"]], row["s"])
        return both

    def _limits(self) -> DataFrame:
        """What is known of each partition, one row each."""
        rows = [self._limit(each) for each in self._reader.scope.partitions]
        return F.broadcast(self._reader.frame(_LIMITS, rows))

    def _limit(self, each: PartitionScope) -> tuple[int | bool | None, ...]:
        return (
            each.number,
            each.source_start,
            each.target_start,
            each.target_end,
            each.start_place,
            each.first_place,
            each.earlier_until,
            each.basis is Basis.MAPPING,
            self.through[each.number],
            each.mirrored_through is not None,
            each.source_compacted,
            each.target_compacted,
        )


def _settled_frame(reader: Reader, settled: Sequence[Fate]) -> DataFrame:
    """Fates that were judged plainly, as Spark has the others."""
    rows = []
    for each in settled:
        source, target = each.source, each.target
        of_source = (None,) * len(SOURCE_FIELDS) if source is None else source[1 : 1 + len(SOURCE_FIELDS)]
        of_target = (None,) * len(TARGET_FIELDS) if target is None else target[1 : 1 + len(TARGET_FIELDS)]
        row = [str(each.fate), each.p, *of_source, *of_target]
        row[2 + len(SOURCE_FIELDS)] = each.target_offset
        rows.append(row)
    return reader.frame({"fate": pa.string(), "p": pa.int32()} | RESIDUAL_ARROW, rows)


def _parted(reader: Reader, rows: DataFrame, offset: Column, ranges: Unreadable) -> tuple[DataFrame, DataFrame]:
    """Rows whose offset is in one of their partition's ranges, and the others."""
    types = {"rp": pa.int32(), "low": pa.int64(), "high": pa.int64()}
    table = reader.frame(types, [(number, *each) for number, members in ranges.items() for each in members])
    columns = rows.columns
    inside = (F.col("p") == F.col("rp")) & (offset >= F.col("low")) & (offset < F.col("high"))
    marked = keep(rows.join(F.broadcast(table), inside, "left"))
    return marked.where("rp is not null").select(*columns), marked.where("rp is null").select(*columns)


def _through(reader: Reader, comparison: Comparison, paired: Mapping[int, int]) -> dict[int, int | None]:
    """The highest mirrored position by partition; `paired`: the highest source offset found elsewhere."""
    return {
        each.number: _highest(
            each.mirrored_through, comparison.tallies[each.number].last_source, paired.get(each.number)
        )
        for each in reader.scope.partitions
    }


def _bounds(reader: Reader, comparison: Comparison) -> dict[int, int]:
    """For a sealed link: where its part of each target partition ends.

    A mirror that was killed may have written more than it recorded: what stands at its place there is
    its work, so the part reaches at least to the last such record.
    """
    return {
        each.number: max(each.sealed_at, (comparison.tallies[each.number].last_target or 0) + 1)
        if comparison.tallies[each.number].last_target is not None
        else each.sealed_at
        for each in reader.scope.partitions
        if each.sealed_at is not None
    }


def _highest(through: int | None, *offsets: int | None) -> int | None:
    """The highest mirrored position, given one and the offsets of mirrored records."""
    known = [each for each in (through, *(offset + 1 for offset in offsets if offset is not None)) if each is not None]
    return max(known, default=None)


def _later_copy(duplicated: DataFrame) -> DataFrame:
    """Of copies that stand next to each other the first is the record and the others are the duplicates.

    Places can't tell them apart, so one before its matched copy (`other`) gives its role to the next.
    """
    upward = Window.partitionBy("p", "s").orderBy(F.desc("t"))
    nth = F.row_number().over(upward)
    before = duplicated.where("t < other").withColumn("nth", nth)
    turned = before.withColumn(
        "t", F.when(F.col("other") - F.col("t") == F.col("nth"), F.col("t") + 1).otherwise(F.col("t"))
    )
    return duplicated.where("t > other").unionByName(turned.drop("nth"))


def _in_its_gap() -> Column:
    """Whether `t` lies between the records in order around a source row, so that no row reaches into
    another gap."""
    within = F.coalesce(F.col("before.s_lo") == F.col("after.s_lo"), F.lit(False))
    above = F.col("before").isNull() | (F.col("t") > F.col("before.t_hi"))
    below = F.col("after").isNull() | (F.col("t") < F.col("after.t_lo"))
    return within | (above & below)


def _reordered(reader: Reader, comparison: Comparison, lines: Lines, matching: Matching) -> DataFrame:
    """Matched records that are out of order."""
    aside = keep(lines.rows.where(~F.col("kept")))
    assert matching.pairs is not None  # noqa: S101 - there are no lines without pairs
    moved = (
        comparison.source_left()
        .join(matching.pairs.select("p", "s", "t"), ["p", "s"])
        .join(aside.where("moved").select("p", F.col("s_lo").alias("s")), ["p", "s"], "left_semi")
    )
    found = _fate(moved, FindingKind.REORDERED)
    stayed = aside.where(~F.col("moved"))
    wanted = ranges(stayed)
    if wanted:
        read = at_place(reader, comparison, wanted).withColumn("chunk", F.shiftright("e", comparison.shift))
        chunks = stayed.where("chunk is not null").select("p", "chunk")
        single = stayed.where("chunk is null").select("p", F.col("s_lo").alias("s"))
        columns = read.columns
        either = (
            read.join(chunks, ["p", "chunk"], "left_semi")
            .select(*columns)
            .unionByName(read.join(single, ["p", "s"], "left_semi").select(*columns))
            .select(
                "p",
                "s",
                "e",
                "placed",
                F.col("e").alias("t"),
                F.col("h1").alias("s1"),
                F.col("h2").alias("s2"),
                F.col("ts").alias("s_ts"),
                F.col("key").alias("s_key"),
                F.col("null_value").alias("s_null"),
            )
        )
        found = found.unionByName(_fate(either, FindingKind.REORDERED))
    return found


def _fate(rows: DataFrame, fate: str) -> DataFrame:
    """Rows in the shape of `Judgement.fates`; fields they don't have are null."""
    have = set(rows.columns)
    fields = [
        (F.col(name) if name in have else F.lit(None)).cast(kind).alias(name) for name, kind in RESIDUAL_TYPES.items()
    ]
    return rows.select(F.lit(str(fate)).alias("fate"), "p", *fields)


def _silent(_: str) -> None:
    """Tell nobody."""
