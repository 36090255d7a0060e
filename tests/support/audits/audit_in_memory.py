"""An audit of two logs in memory: split, compared and classified by the code of Spark's tasks and of the driver.

_, findings = InMemory(Log.of(source, 20), Log.of(target, 20), places).classified()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from drkit.audit.classify.classification_tasks import CLASSIFICATION_ARROW, Unit, unit_rows
from drkit.audit.classify.classifier import ClassifiedPartition, PartitionFacts, Steps, classify, reordered
from drkit.audit.compare.first_pass import cut_up
from drkit.audit.compare.log_lookups import LogRequest, MatchedRecords
from drkit.audit.compare.merge_join import Piece, PieceComparison, compare_piece
from drkit.audit.compare.merge_join_tasks import read_span
from drkit.audit.compare.offset_zones import Zone, nominal, place, zones
from drkit.audit.compare.scope import PartitionScope
from drkit.audit.read.offset_ranges import Span
from drkit.kafka.protocol.record_batch import Batch, parse
from drkit.model.audit.audit_result import FindingKind, PlacementBasis
from drkit.model.offsets import OffsetMapping, merged_ranges
from tests.support.audits.damage import Expected, Record
from tests.support.links.batches import Plain, batch_bytes

SHIFT = 4
TOPIC, COPY = "t", "copy.of.t"
FINDINGS = {kind.value for kind in FindingKind}


@dataclass
class Log:
    """Batches as (base offset, records)."""

    batches: list[tuple[int, list[Plain]]] = field(default_factory=list)
    start: int = 0

    @classmethod
    def of(cls, records: Sequence[Record], size: int) -> Log:
        """Consecutive records, so many per batch."""
        rows = [(each.stamp, each.key, each.value, list(each.headers)) for each in records]
        return cls([(at, rows[at : at + size]) for at in range(0, len(rows), size)])

    @property
    def end(self) -> int:
        return max((base + len(rows) for base, rows in self.batches), default=0)

    def read(self, first: int, until: int) -> Iterator[list[Batch]]:
        """Like `LogReader.read`, with one batch per response."""
        for base, rows in self.batches:
            if base + len(rows) > first and base < until:
                yield list(parse(memoryview(batch_bytes(rows, base_offset=base))))


@dataclass
class InMemory:
    """Both logs of a partition, and the target offset of each record."""

    source: Log
    target: Log
    places: Mapping[int, int]
    through: int | None = None
    source_compacted: bool = False
    target_compacted: bool = False
    aborted: bool = False
    altered: bool = False
    source_bound: int | None = None
    """The source's end when the audit began; None: as it is."""
    target_bound: int | None = None
    """The target's."""
    sealed_at: int | None = None
    """The end of a sealed link's part of the target."""
    known: Mapping[str, Any] = field(default_factory=dict)
    """Other facts about the partition: fields of `PartitionFacts`."""
    requests: list[LogRequest] = field(default_factory=list)

    @property
    def zones(self) -> tuple[Zone, ...]:
        rows: list[OffsetMapping] = []
        for s, t in sorted(self.places.items()):
            if not rows or rows[-1].delta != t - s:
                rows.append(OffsetMapping("t", 0, 0, s, t))
        return zones(rows) if rows else nominal(self.source.start, self.target.start)

    def scope(self) -> PartitionScope:
        return PartitionScope(
            number=0, topic=TOPIC, target_topic=COPY, partition=0,
            source_start=self.source.start, source_end=_bound(self.source, self.source_bound),
            target_start=self.target.start, target_end=_bound(self.target, self.target_bound),
            source_from=self.source.start, target_from=self.target.start,
            zones=self.zones, basis=PlacementBasis.MAPPING if self.places else PlacementBasis.CONTENT,
            first_place=min(self.places.values(), default=self.target.start),
            mirrored_through=self.through, sealed_at=None, earlier_until=None,
            source_compacted=self.source_compacted, target_compacted=self.target_compacted,
        )  # fmt: skip

    def pieces(self, parallel: int) -> list[Piece]:
        scope = SimpleNamespace(partitions=(self.scope(),), since_ms=None, until_ms=None)
        return [piece for task in cut_up(scope, parallel, SHIFT) for piece in task]

    def compared(self, parallel: int, *, full: bool) -> PieceComparison:
        """The outcomes of all parts as one."""
        found = PieceComparison(0)
        for piece in self.pieces(parallel):
            source = self.source.read(piece.source.first, piece.source.until)
            target = self.target.read(piece.target.first, piece.target.until)
            for part in compare_piece(piece, source, target, full=full):
                found.add(part, None)
        return found

    def limits(self, found: PieceComparison) -> PartitionFacts:
        scope = self.scope()
        last = max((each.s_hi + 1 for each in found.stretches), default=None)
        known = [each for each in (self.through, last) if each is not None]
        limits = PartitionFacts(
            number=0, zones=scope.zones, shift=SHIFT, recorded=bool(self.places), source_start=scope.source_start,
            source_end=scope.source_end, target_start=scope.target_start, target_end=scope.target_end,
            start_place=place(scope.zones, scope.source_start), first_place=scope.first_place,
            through=max(known, default=None), watermarked=self.through is not None,
            source_compacted=self.source_compacted, target_compacted=self.target_compacted,
            aborted=self.aborted, altered=self.altered, bound=self.sealed_at,
        )  # fmt: skip
        return replace(limits, **self.known)

    def classified(
        self, *, parallel: int = 1, full: bool = False, meanwhile: Callable[[], None] | None = None
    ) -> tuple[ClassifiedPartition, set[Expected]]:
        """The driver's classification, and its findings. `meanwhile`: called once both sides are compared."""
        found = self.compared(parallel, full=full)
        if meanwhile is not None:
            meanwhile()
        limits = self.limits(found)
        result = self.driven(classify(limits, found.source_left, found.target_left, found.stretches))
        unmatched = frozenset(row.s for row in found.source_left)
        ranges = merged_ranges((line.s_lo, line.s_hi + 1) for line in result.aside)
        aside = [reordered(0, row) for row in self.answer(MatchedRecords(0, ranges, unmatched, limits.zones))]
        classifications = [*result.classifications, *aside]
        assert len({(each.s, each.t) for each in classifications}) == len(classifications)
        return result, {
            (str(each.outcome), each.s, each.t) for each in classifications if str(each.outcome) in FINDINGS
        }

    def driven(self, steps: Steps) -> ClassifiedPartition:
        """A finished classification."""
        answer = None
        try:
            while True:
                answer = self.answer(steps.send(answer))
        except StopIteration as done:
            result: ClassifiedPartition = done.value
            return result

    def in_a_task(self, *, parallel: int = 1, full: bool = False) -> tuple[Counter[str], set[Expected]]:
        """A task's classification: the number of rows of each kind, and the findings among them."""
        rows = self.task_rows(parallel=parallel, full=full)
        findings = [(row["outcome"], row["s"], row["t"]) for row in rows if row["outcome"] in FINDINGS]
        assert len(set(findings)) == len(findings)
        return Counter(row["outcome"] for row in rows), set(findings)

    def task_rows(self, *, parallel: int = 1, full: bool = False, alone: bool = False) -> list[dict[str, Any]]:
        """All rows of a task. `alone`: it judges each record by its own offset."""
        found = self.compared(parallel, full=full)
        log = (self.source.start, self.scope().source_end)
        unit = Unit(self.limits(found), tuple(self.pieces(parallel)), tuple(found.stretches), log, alone=alone)
        return [
            dict(zip(CLASSIFICATION_ARROW, row, strict=True))
            for row in unit_rows(_Reader(self.source, TOPIC), _Reader(self.target, COPY), unit, full=full)
        ]

    def answer(self, request: LogRequest) -> object:
        """Like tasks, each of which reads some of the ranges."""
        self.requests.append(request)
        answer = request.new()
        log, topic = (self.target, COPY) if request.of_target else (self.source, TOPIC)
        end = self.scope().target_end if request.of_target else self.scope().source_end
        asked = (log.start, end) if request.beyond is None else (request.beyond, log.end)
        for first, until in merged_ranges(request.ranges(asked)):
            other = request.new()
            read_span(_Reader(log, topic), Span(0, topic, 0, first, until, until), request, other)
            request.merge(answer, other)
        return answer


@dataclass
class _Reader:
    """Reads the log of one topic, like `LogReader`."""

    log: Log
    topic: str

    def read(self, topic: str, _partition: int, first: int, until: int) -> Iterator[list[Batch]]:
        assert topic == self.topic
        return self.log.read(first, until)

    def end(self, topic: str, _partition: int, _known: int) -> int:
        assert topic == self.topic
        return self.log.end


def _bound(log: Log, bound: int | None) -> int:
    return log.end if bound is None else bound
