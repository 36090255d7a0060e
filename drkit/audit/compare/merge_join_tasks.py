"""What Spark's workers do for an audit: compare both sides' pieces, and answer what a classification asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from drkit.audit.compare.log_lookups import LogRequest
from drkit.audit.compare.merge_join import Piece, PieceComparison, compare_piece, gathered
from drkit.audit.compare.range_proof import Provable, RangeProof, prove
from drkit.audit.read.log_tasks import failures, opened, settle
from drkit.audit.read.offset_ranges import Span
from drkit.kafka.transform.transformed_reader import BatchReader


def compare_pieces(
    source: Mapping[str, Any],
    target: Mapping[str, Any],
    tasks: Iterable[Sequence[Piece]],
    *,
    full: bool = False,
    most: int | None = None,
) -> Iterator[PieceComparison]:
    """Compare the pieces of a task; one `PieceComparison` each.

    Args:
        source: how to reach the cluster (`log_source.reached`).
        target: the same.
        tasks: the pieces; one task's, as Spark hands a partition over.
        full: decode every record.
        most: bytes of residuals that are handed over of a piece; where there are more, none are.

    Raises:
        RuntimeError: it failed; the text carries drkit's error.
    """
    settle()
    with failures(), opened(source) as of_source, opened(target) as of_target:
        for pieces in tasks:
            for piece in pieces:
                yield gathered(read_piece(of_source, of_target, piece, full=full), most)


def read_piece(source: BatchReader, target: BatchReader, piece: Piece, *, full: bool) -> Iterator[PieceComparison]:
    """Compare one piece, part by part."""
    s, t = piece.source, piece.target
    with (
        closing(source.read(s.topic, s.partition, s.first, s.until)) as source_batches,
        closing(target.read(t.topic, t.partition, t.first, t.until)) as target_batches,
    ):
        yield from compare_piece(piece, source_batches, target_batches, full=full)


def prove_ranges(target: Mapping[str, Any], shift: int, tasks: Iterable[Sequence[Provable]]) -> Iterator[RangeProof]:
    """Say of each range of a task whether the target holds what its digest says.

    Args:
        target: how to reach the cluster.
        shift: of chunks.
        tasks: the ranges; one task's.

    Raises:
        RuntimeError: it failed; the text carries drkit's error.
    """
    settle()
    with failures(), opened(target) as reader:
        for claims in tasks:
            for each in claims:
                row = each.digest
                with closing(reader.read(each.topic, each.partition, row.target_start, row.target_end)) as answers:
                    proof = prove(each, answers, shift)
                yield proof


def answer_requests(
    cluster: Mapping[str, Any], requests: Mapping[int, LogRequest], tasks: Iterable[Sequence[Span]]
) -> Iterator[tuple[int, Any]]:
    """Answer requests from the spans of a task: the partition's number and the answer of each span.

    Args:
        cluster: how to reach it.
        requests: by the partition's number.
        tasks: the spans; one task's.

    Raises:
        RuntimeError: it failed; the text carries drkit's error.
    """
    settle()
    with failures(), opened(cluster) as reader:
        for spans in tasks:
            for span in spans:
                request = requests[span.number]
                answer = request.new()
                read_span(reader, span, request, answer)
                yield span.number, answer


def read_span(reader: BatchReader, span: Span, request: LogRequest, answer: Any) -> None:
    """Add to an answer what a span of the log says."""
    with closing(reader.read(span.topic, span.partition, span.first, span.until)) as answers:
        for batches in answers:
            for batch in batches:
                request.add(answer, batch, span.first, span.until)
