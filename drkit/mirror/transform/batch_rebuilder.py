"""Turns fetched batches into appends on a link that alters records: every batch is rebuilt. Pure.

Each record goes through the link's alteration (`drkit.kafka.transform.record_transform`); one that is left out is a
hole, like a compacted one. Records keep their source's codec; those of consecutive small batches are combined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from drkit.kafka.protocol.coalescing import CoalescedRun, Found
from drkit.kafka.protocol.committed_batches import CommittedFilter
from drkit.kafka.protocol.record_batch import MAGIC, Batch
from drkit.kafka.protocol.records import Damaged, RawRecord, read, read_old
from drkit.kafka.transform.record_transform import AlterationFailed
from drkit.mirror.engine.batch_splitter import MERGED_BYTES, Piece, RecordRun, Rules, old_codec, stretches

Alter = Callable[[Iterable[RawRecord]], Iterator[RawRecord]]
"""Yields altered records, in order, without those that are left out; raises AlterationFailed."""

REASON = "altered"


def altered_pieces(
    batches: Sequence[Found], aborted: Sequence[tuple[int, int]], position: int, rules: Rules, alter: Alter
) -> Iterator[Piece]:
    """Like `drkit.mirror.engine.batch_splitter.pieces`; pieces before an error are yielded first.

    Raises:
        AlterationFailed: a callable fails on a record.
        SourceGap: offsets are skipped, and no hole explains it.
        Damaged: a batch can't be read.
        TooLarge: a record can't be appended.
    """
    gathered = _Gathered(position, rules)
    committed = CommittedFilter(aborted if rules.committed else ())
    for found in batches:
        last = found.base_offset if isinstance(found, Batch) and found.magic < MAGIC else found.last_offset
        try:
            codec, records = _records(found, committed)
            if last < position:
                continue
            if found.base_offset > gathered.through and not (isinstance(found, Batch) and found.magic < MAGIC):
                rules.check_gap(gathered.through, found.base_offset)
            if codec is not None:
                if codec != gathered.codec or gathered.size >= gathered.most:
                    yield from gathered.flush()
                gathered.codec = codec
                due = records if found.base_offset >= position else (r for r in records if r.offset >= position)
                gathered.take(alter(due), found.batches if isinstance(found, CoalescedRun) else 1)
        except AlterationFailed as error:
            gathered.through = error.offset
            yield from gathered.flush()
            raise
        except Damaged:
            yield from gathered.flush()
            raise
        gathered.through = last + 1
    yield from gathered.flush()


def _records(found: Found, committed: CommittedFilter) -> tuple[int | None, Iterable[RawRecord]]:
    """Codec and records of a fetched batch; None if it holds no committed ones."""
    if isinstance(found, CoalescedRun):
        return 0, found.records()
    if found.magic < MAGIC:
        return old_codec(found), read_old(found.whole)
    return (found.codec, read(found)) if committed.holds(found) else (None, ())


class _Gathered:
    """Records of one codec to be combined. `through`: everything below it is included, or left out; `size`: their
    approximate bytes; `most`: flush at this number.
    """

    def __init__(self, position: int, rules: Rules) -> None:
        self.through = position
        self.codec = 0
        self.size = 0
        self.most = min(MERGED_BYTES, rules.limit // 2)
        self._begin = position
        self._batches = 0
        self._rules = rules
        self._records: list[RawRecord] = []

    def take(self, records: Iterator[RawRecord], batches: int) -> None:
        """Add the records of the next source batches; those before an error stay."""
        self._batches += batches
        gathered = self._records
        before = len(gathered)
        try:
            for record in records:
                gathered.append(record)
        finally:
            if len(gathered) > before:
                self.through = gathered[-1].offset + 1
                self.size += sum(len(record.body) for record in gathered[before:])

    def flush(self) -> Iterator[Piece]:
        """The gathered records, with the holes between and after them."""
        records, self._records, self.size = self._records, [], 0
        begin, self._begin = self._begin, self.through
        begun, self._batches = self._batches, 0
        for piece in stretches(records, begin, self.through, self.codec, REASON, self._rules):
            if isinstance(piece, RecordRun):
                yield piece._replace(batches=begun)
                begun = 0
            else:
                yield piece
