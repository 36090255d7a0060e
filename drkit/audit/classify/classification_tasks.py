"""Classification in Spark's tasks, for partitions with more residuals than the driver can hold: each task compares them
again and classifies the residuals by the same definitions as the driver.

A unit is what one task classifies alone: a partition, or, if only source records are residuals and nothing is
compacted, any part of one, because then each record is judged by its own offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from drkit.audit.classify.classifier import (
    SOURCE_RETIRED,
    TARGET_APPENDED,
    Classification,
    ClassifiedPartition,
    Pair,
    PartitionFacts,
    Steps,
    classify,
    reordered,
)
from drkit.audit.classify.displaced_runs import Both, DisplacedRuns
from drkit.audit.compare.log_lookups import LogRequest, MatchedRecords
from drkit.audit.compare.merge_join import MatchedRange, Piece, TargetLeft
from drkit.audit.compare.merge_join_tasks import read_piece, read_span
from drkit.audit.read.log_tasks import failures, opened, settle
from drkit.audit.read.offset_ranges import Span
from drkit.kafka.transform.transformed_reader import BatchReader
from drkit.model.offsets import merged_ranges

PAIR = "pair"
"""A row that is no classification: a record that was found elsewhere (`s`, `t`, `s_ts`)."""
FACTS = "facts"
"""A row that is no classification: the highest mirrored position (`s`), whether the reordered are the fewest
(`placed`), and how many residuals there were of the source (`e`) and of the target (`t`)."""

_A_BLOCK = 10_000
_RANGE = 1 << 16

CLASSIFICATION_ARROW = {
    "outcome": pa.string(),
    "p": pa.int32(),
    "s": pa.int64(),
    "e": pa.int64(),
    "placed": pa.bool_(),
    "s1": pa.int64(),
    "s2": pa.int64(),
    "s_ts": pa.int64(),
    "s_key": pa.binary(),
    "s_null": pa.bool_(),
    "t": pa.int64(),
    "t1": pa.int64(),
    "t2": pa.int64(),
    "t_ts": pa.int64(),
    "t_key": pa.binary(),
    "t_null": pa.bool_(),
}
"""The columns of a classification: those of a residual of either side, null where it has no part."""

_NO_SOURCE: tuple[None, ...] = (None,) * 8
_NO_TARGET: tuple[None, ...] = (None,) * 6

Row = tuple[Any, ...]


class Unit(NamedTuple):
    """What one task classifies: these pieces of a partition. `log`: the source's offsets [first, until); `alone`:
    whether each record is judged by its own place."""

    limits: PartitionFacts
    pieces: tuple[Piece, ...]
    stretches: tuple[MatchedRange, ...]
    log: tuple[int, int]
    alone: bool


def classify_units(
    source: Mapping[str, Any],
    target: Mapping[str, Any],
    units: Sequence[Unit],
    blocks: Iterable[pa.RecordBatch],
    *,
    full: bool,
) -> Iterator[pa.RecordBatch]:
    """Compare and classify the units that a task is given by number; rows of CLASSIFICATION_ARROW.

    Args:
        source: how to reach the cluster (`log_source.reached`).
        target: the same.
        units: all there are.
        blocks: the task's, each with a column of numbers.
        full: decode every record.

    Raises:
        RuntimeError: it failed; the text carries drkit's error.
    """
    settle()
    with failures(), opened(source) as of_source, opened(target) as of_target:
        for block in blocks:
            for number in block.column(0).to_pylist():
                yield from _blocks(unit_rows(of_source, of_target, units[number], full=full))


def classification_row(entry: Classification) -> Row:
    """A classification as a row of CLASSIFICATION_ARROW."""
    of_source = _NO_SOURCE if entry.source is None else tuple(entry.source[1:])
    of_target = _NO_TARGET if entry.target is None else tuple(entry.target[1:7])
    return (str(entry.outcome), entry.p, entry.s, *of_source[1:], entry.t, *of_target[1:])


def rows_of(found: ClassifiedPartition) -> Iterator[Row]:
    """The classifications and pairs of a partition but those of its stretches set aside."""
    yield from map(classification_row, found.classifications)
    yield from map(_pair_row, found.pairs)


def unit_rows(source: BatchReader, target: BatchReader, unit: Unit, *, full: bool) -> Iterator[Row]:
    """Compare and classify a unit: its classifications, pairs and facts."""
    limits = unit.limits
    kept = DisplacedRuns({each.chunk for each in unit.stretches}, limits.shift)
    compacted = limits.source_compacted or limits.target_compacted
    of_source = of_target = 0
    for piece in unit.pieces:
        for part in read_piece(source, target, piece, full=full):
            of_source += part.source_count
            of_target += part.target_count
            if unit.alone:
                yield from rows_of(_answered(source, target, classify(limits, part.source_left, (), ()), unit))
            elif compacted:  # where it is asked which offsets are empty, every record counts
                kept.source_left += part.source_left
                kept.target_left += part.target_left
            else:  # either may be much, and needs nobody else
                appended = [row for row in part.target_left if limits.appended(row.t)]
                former = [row for row in part.target_left if limits.former(row.t)]
                yield from _aside(TARGET_APPENDED, appended)
                yield from _aside(SOURCE_RETIRED, former)
                mirrored = part.target_left[len(former) : len(part.target_left) - len(appended)]
                yield from _pair_rows(kept.add(part.source_left, mirrored))
    if unit.alone:
        yield _facts(limits.number, limits.through, of_source, of_target, exact=True)
        return
    yield from _pair_rows(kept.end())
    steps = classify(limits, sorted(kept.source_left), sorted(kept.target_left), unit.stretches, kept.runs)
    found = _answered(source, target, steps, unit)
    yield from rows_of(found)
    yield _facts(limits.number, found.through, of_source, of_target, exact=found.exact)
    unmatched = frozenset(row.s for row in kept.source_left)
    for line in found.aside:
        for first in range(line.s_lo, line.s_hi + 1, _RANGE):
            within = (first, min(first + _RANGE, line.s_hi + 1))
            request = MatchedRecords(limits.number, [within], unmatched, limits.zones)
            for record in _answer(source, request, unit):
                yield classification_row(reordered(limits.number, record, line.displaced))


def _aside(outcome: str, rows: Iterable[TargetLeft]) -> Iterator[Row]:
    """Target residuals that stand for nothing of the source, whatever stands there."""
    return (classification_row(Classification(outcome, row.p, None, row.t, None, row)) for row in rows)


def _facts(number: int, through: int | None, of_source: int, of_target: int, *, exact: bool) -> Row:
    return (FACTS, number, through, of_source, exact, *_NO_SOURCE[3:], of_target, *_NO_TARGET[1:])


def _pair_rows(pairs: Iterable[Both]) -> Iterator[Row]:
    for source, target in pairs:
        yield _pair_row(Pair(source.p, source.s, target.t, source.s_ts))


def _pair_row(pair: Pair) -> Row:
    return (PAIR, pair.p, pair.s, None, None, None, None, pair.stamp, None, None, pair.t, *_NO_TARGET[1:])


def _answered(source: BatchReader, target: BatchReader, steps: Steps, unit: Unit) -> ClassifiedPartition:
    """Run a classification to its end."""
    try:
        request = next(steps)
        while True:
            request = steps.send(_answer(target if request.of_target else source, request, unit))
    except StopIteration as done:
        found: ClassifiedPartition = done.value
        return found


def _answer(reader: BatchReader, request: LogRequest, unit: Unit) -> Any:
    answer = request.new()
    piece = unit.pieces[0].target if request.of_target else unit.pieces[0].source
    log = (unit.limits.target_start, unit.limits.target_end) if request.of_target else unit.log
    if request.beyond is not None:
        log = (request.beyond, reader.end(piece.topic, piece.partition, request.beyond))
    for first, until in merged_ranges(request.ranges(log)):
        read_span(reader, Span(unit.limits.number, piece.topic, piece.partition, first, until, until), request, answer)
    return answer


def _blocks(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    held: list[Row] = []
    for row in rows:
        held.append(row)
        if len(held) >= _A_BLOCK:
            yield _block(held)
            held = []
    if held:
        yield _block(held)


def _block(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, CLASSIFICATION_ARROW.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(CLASSIFICATION_ARROW))
