"""Rows of batches, as the data sources yield them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from xxhash import xxh3_128

from drkit.audit.spans import Span
from drkit.kafka.batch import CODEC_MASK, FIELDS, LOG_APPEND_TIME, MAGIC, Batch
from drkit.kafka.records import Damaged, decompress, read_old

_BATCH_ARROW = pa.schema(
    [("p", pa.int32())] + [(name, pa.int64()) for name in ("start", "stop", "n", "h1", "h2", "newest")]
)
_MERGED = 2
"""Batches of so few records are merged by a mirror as a rule: a digest of them is worth less than it costs."""


class BatchRows:
    """Rows of BATCH_ROW, gathered from batches in order. Pure.

    Args:
        digests: whether batches get one.
    """

    def __init__(self, *, digests: bool = True) -> None:
        self._digests = digests
        self._rows: list[tuple[int, int, int, int, int | None, int | None, int]] = []
        self._open: tuple[int, int, int, int, None, None, int] | None = None
        self._span = Span(0, "", 0, 0, 0, 0)

    def __len__(self) -> int:
        return len(self._rows)

    def begin(self, span: Span) -> None:
        """What is added from now on is of this span."""
        self._span = span

    def add(self, found: Sequence[Batch]) -> None:
        """Add the batches that are the span's: those that begin in it, and at its begin one that reaches into it."""
        number, _, _, first, until, end, begins = self._span
        rows = self._rows
        for batch in found:
            if batch.magic < MAGIC:
                self.end()
                if first <= batch.base_offset < until:
                    rows.append(_old_row(self._span, batch))
                continue
            base, after, count = batch.base_offset, batch.last_offset + 1, batch.records_count
            if after <= first or base >= until or (base < first and not begins):
                continue
            cut = base < first or after > end
            base, after = max(base, first), min(after, end)
            if count <= _MERGED:
                run = self._open
                if run is not None and run[2] == base:
                    self._open = (number, run[1], after, run[3] + count, None, None, max(run[6], batch.max_timestamp))
                else:
                    self.end()
                    self._open = (number, base, after, count, None, None, batch.max_timestamp)
                continue
            self.end()
            high, low = digest(batch) if self._digests and _whole(batch, base, after, cut=cut) else (None, None)
            rows.append((number, base, after, count, high, low, batch.max_timestamp))

    def end(self) -> None:
        """Close a row of several small batches."""
        if self._open is not None:
            self._rows.append(self._open)
            self._open = None

    def take(self) -> pa.RecordBatch:
        """The rows so far."""
        rows, self._rows = self._rows, []
        columns = list(zip(*rows, strict=True)) or [() for _ in _BATCH_ARROW]
        return pa.RecordBatch.from_arrays(
            [pa.array(values, kind.type) for values, kind in zip(columns, _BATCH_ARROW, strict=True)],
            schema=_BATCH_ARROW,
        )


def _whole(batch: Batch, base: int, after: int, *, cut: bool) -> bool:
    """Whether every offset is one of its records, and a consumer can read them."""
    return not cut and batch.records_count == after - base and batch.intact()


def digest(batch: Batch) -> tuple[int, int]:
    """128 bits over the records and what they are read by, as two signed numbers."""
    stamped = batch.attributes & LOG_APPEND_TIME
    prefix = FIELDS.pack(
        0,
        0,
        0,
        0,
        0,
        batch.attributes & (CODEC_MASK | LOG_APPEND_TIME),
        batch.last_delta,
        batch.base_timestamp,
        batch.max_timestamp if stamped else 0,
        0,
        0,
        0,
        batch.records_count,
    )
    state = xxh3_128(prefix)
    state.update(batch.records)
    both = state.digest()
    return int.from_bytes(both[:8], "big", signed=True), int.from_bytes(both[8:], "big", signed=True)


def _old_row(span: Span, batch: Batch) -> tuple[int, int, int, int, None, None, int]:
    """A message of an old format: a wrapper's offset is that of the last message in it."""
    try:
        inside = read_old(batch.whole)
    except Damaged:
        inside = []
    first = min((each.offset for each in inside), default=batch.base_offset)
    newest = max((each.timestamp for each in inside), default=-1)
    return (
        span.number,
        max(first, span.first) if span.begins else first,
        batch.base_offset + 1,
        len(inside),
        None,
        None,
        newest,
    )


def holds_any(batch: Batch, needles: Sequence[bytes]) -> bool:
    """Whether one of these is in a batch's plain bytes; always so of the old formats, which are decoded to know, and
    never of a batch that can't be read."""
    if batch.magic < MAGIC:
        return True
    if not batch.intact():
        return False
    try:
        plain = bytes(decompress(batch.codec, batch.records))
    except Damaged:
        return False
    return any(each in plain for each in needles)
