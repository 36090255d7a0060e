"""What Spark's workers do for the first pass: read both sides' pieces, yield what came of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from drkit.audit.abreast import Compared, Piece, compare_piece
from drkit.audit.batch_rows import holds_any
from drkit.audit.by_digest import Proof, Provable, prove
from drkit.audit.digests import content_digest
from drkit.audit.log_tasks import failures, opened, settle
from drkit.audit.spans import Span
from drkit.kafka.batch import MAGIC, Batch
from drkit.kafka.contents import Columns


class Wanted(NamedTuple):
    """A record that is looked for: its digest and timestamp (ms), and bytes that it holds."""

    first: int
    second: int
    stamp: int
    needle: bytes


def compare_pieces(
    source: Mapping[str, Any], target: Mapping[str, Any], tasks: Iterable[Sequence[Piece]]
) -> Iterator[Compared]:
    """Compare the pieces of a task.

    Args:
        source: how to reach the cluster (`log_source.reached`).
        target: the same.
        tasks: the pieces; one task's, as Spark hands a partition over.

    Raises:
        RuntimeError: it failed; the text carries drkit's error.
    """
    settle()
    with failures(), opened(source) as of_source, opened(target) as of_target:
        for pieces in tasks:
            for piece in pieces:
                s, t = piece.source, piece.target
                with (
                    closing(of_source.read(s.topic, s.partition, s.first, s.until)) as source_batches,
                    closing(of_target.read(t.topic, t.partition, t.first, t.until)) as target_batches,
                ):
                    found = compare_piece(piece, source_batches, target_batches)
                yield found


def prove_ranges(target: Mapping[str, Any], shift: int, tasks: Iterable[Sequence[Provable]]) -> Iterator[Proof]:
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


def find_equal(
    cluster: Mapping[str, Any], wanted: Mapping[int, Sequence[Wanted]], tasks: Iterable[Sequence[Span]]
) -> Iterator[tuple[int, int]]:
    """Look for records: partition's number and digest's first half of each of them that is somewhere in a task's spans.

    Args:
        cluster: how to reach it.
        wanted: what to look for, by the partition's number.
        tasks: the spans; one task's.

    Raises:
        RuntimeError: it failed; the text carries drkit's error.
    """
    settle()
    with failures(), opened(cluster) as reader:
        for spans in tasks:
            found: defaultdict[int, set[int]] = defaultdict(set)
            for span in spans:
                for batches in reader.read(span.topic, span.partition, span.first, span.until):
                    for batch in batches:
                        found[span.number] |= _equal(batch, wanted[span.number])
            yield from ((number, first) for number, hits in found.items() for first in hits)


def _equal(batch: Batch, wanted: Sequence[Wanted]) -> set[int]:
    """Which of these a batch holds. Its highest timestamp leaves most out, their bytes nearly all others."""
    if batch.magic >= MAGIC:
        newest = batch.max_timestamp
        wanted = [each for each in wanted if each.stamp <= newest]
        if not wanted:
            return set()
        if not holds_any(batch, [each.needle for each in wanted]):
            return set()
    columns = Columns()
    columns.add_readable(batch, 0, batch.base_offset + 1 if batch.magic < MAGIC else batch.last_offset + 1)
    digests = {(each.first, each.second) for each in wanted}
    return {
        one[0]
        for one in map(content_digest, columns.keys, columns.values, columns.stamps, columns.headers)
        if one in digests
    }
