"""The range digests of one partition, computed from acknowledged appends. Pure.

A range continues while unchanged batches follow each other with one delta. Markers may be between two of them on the
target; they correspond to holes of the source and hold no records, and the digest binds the range's ends and every
batch's offset. A range ends at a rebuilt batch (only a comparison with the source proves that one), where the delta
changes, and when it is large. It keeps the checksum of the source's batch that ends it: by that batch an audit sees
whether the source still holds the range (`drkit.lag.batch_comparison`).

The open range is a tuple that is replaced as a whole, so another thread may read it at any time.

Many short ranges would make too many rows. So a range is kept only if it is long, or if few were kept for the records
forwarded so far (`_ROW_RECORDS`, `_ROW_BYTES` a row); the others aren't covered.
"""

from __future__ import annotations

from collections import deque

from drkit.model.digests import DIGEST_MASK, RangeDigest
from drkit.model.topology import TopicPartition

MOST_RECORDS = 256 * 1024
"""Records after which a range ends."""

MOST_BYTES = 256 << 20
"""Bytes after which a range ends."""

_ROW_RECORDS = 16 * 1024
_ROW_BYTES = 4 << 20
_CREDIT = 16.0


class RangeDigests:
    """See the module docstring. `take` is called on the engine's loop; `opened` on any thread.

    Args:
        tp: the partition.
        epoch: the topic's epoch.
        ended: receives ended ranges that are to be kept.
    """

    __slots__ = ("_credit", "_ended", "_epoch", "_open", "_tp")

    def __init__(self, tp: TopicPartition, epoch: int, ended: deque[RangeDigest]) -> None:
        self._tp = tp
        self._epoch = epoch
        self._ended = ended
        self._credit = _CREDIT
        # source start, delta, target end, batches, records, sum of digests, last checksum, bytes, whether it is kept
        self._open: tuple[int, int, int, int, int, int, int, int, bool] | None = None

    def take(self, source: int, target: int, count: int, size: int, digest: int | None, crc: int) -> None:
        """Add an acknowledged append.

        Args:
            source: the source offset of its first record.
            target: the target offset of that record.
            count: number of its records.
            size: number of its bytes.
            digest: `placed_digest`; None where it isn't one unchanged batch of the source.
            crc: that batch's checksum on the source.
        """
        opened = self._open
        if opened is not None:
            start, delta, end, batches, records, total, _, held, kept = opened
            if (
                digest is not None
                and target >= end
                and target - source == delta
                and records < MOST_RECORDS
                and held < MOST_BYTES
            ):
                records += count
                held += size
                kept = kept or records >= _ROW_RECORDS or held >= _ROW_BYTES
                self._open = (start, delta, target + count, batches + 1, records, total + digest, crc, held, kept)
                return
            self._end(opened)
        if digest is not None:
            kept = self._credit >= 1
            self._credit -= kept
            self._open = (source, target - source, target + count, 1, count, digest, crc, size, kept)

    def opened(self) -> RangeDigest | None:
        """The open range so far, or None where none is to be kept."""
        opened = self._open
        return None if opened is None or not opened[-1] else self._row(opened)

    def _end(self, opened: tuple[int, int, int, int, int, int, int, int, bool]) -> None:
        if opened[-1]:
            self._ended.append(self._row(opened))
        earned = max(opened[4] / _ROW_RECORDS, opened[7] / _ROW_BYTES)
        self._credit = min(_CREDIT, self._credit + earned)
        self._open = None

    def _row(self, opened: tuple[int, int, int, int, int, int, int, int, bool]) -> RangeDigest:
        start, delta, end, batches, records, total, crc, _, _ = opened
        total &= DIGEST_MASK
        return RangeDigest(*self._tp, self._epoch, start + delta, end, start, batches, records, total, crc)
