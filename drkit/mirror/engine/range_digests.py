"""The range digests of one partition, folded from the appends that the target acknowledged. Pure.

A range continues while batches are forwarded as they were, each behind the one before it, with one delta. Between two
of them the target may have markers, which stand for holes of the source: they hold no records, and both ends of the
range and every batch's place are bound. It ends where a batch was rebuilt (what drkit put together again is proven by
nothing but a comparison with the source), where the delta changes, and when it is large.

Digests are added up, so there is no state but numbers: what is open is a tuple that is replaced as a whole, which
another thread may read at any time.

Ranges that end early, over and over, would make rows without end. So a range is kept only where it is long, or where
few were kept for what was forwarded so far (`_ROW_RECORDS`, `_ROW_BYTES` a row); the others are simply not covered.
"""

from __future__ import annotations

from collections import deque

from drkit.model.digests import DIGEST_MASK, RangeDigest
from drkit.model.topology import TopicPartition

MOST_RECORDS = 256 * 1024
"""Records after which a range ends."""

MOST_BYTES = 256 << 20
"""Bytes after which it does."""

_ROW_RECORDS = 16 * 1024
_ROW_BYTES = 4 << 20
_CREDIT = 16.0


class RangeDigests:
    """See the module docstring. `take` is called on the engine's loop; `opened` on any thread.

    Args:
        tp: the partition.
        epoch: its topic's.
        ended: gets the ranges that ended and are to be kept.
    """

    __slots__ = ("_credit", "_ended", "_epoch", "_open", "_tp")

    def __init__(self, tp: TopicPartition, epoch: int, ended: deque[RangeDigest]) -> None:
        self._tp = tp
        self._epoch = epoch
        self._ended = ended
        self._credit = _CREDIT
        # source start, delta, target end, batches, records, sum of digests, bytes, whether it is kept
        self._open: tuple[int, int, int, int, int, int, int, bool] | None = None

    def take(self, source: int, target: int, count: int, size: int, digest: int | None) -> None:
        """An append was acknowledged.

        Args:
            source: of its first record.
            target: where that stands.
            count: its records.
            size: its bytes.
            digest: `placed_digest`; None where it doesn't stand for one batch of the source, as it is there.
        """
        opened = self._open
        if opened is not None:
            start, delta, end, batches, records, total, held, kept = opened
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
                self._open = (start, delta, target + count, batches + 1, records, total + digest, held, kept)
                return
            self._end(opened)
        if digest is not None:
            kept = self._credit >= 1
            self._credit -= kept
            self._open = (source, target - source, target + count, 1, count, digest, size, kept)

    def opened(self) -> RangeDigest | None:
        """The range that is open, as it is; None where there is none that is to be kept."""
        opened = self._open
        return None if opened is None or not opened[-1] else self._row(opened)

    def _end(self, opened: tuple[int, int, int, int, int, int, int, bool]) -> None:
        if opened[-1]:
            self._ended.append(self._row(opened))
        earned = max(opened[4] / _ROW_RECORDS, opened[6] / _ROW_BYTES)
        self._credit = min(_CREDIT, self._credit + earned)
        self._open = None

    def _row(self, opened: tuple[int, int, int, int, int, int, int, bool]) -> RangeDigest:
        start, delta, end, batches, records, total, _, _ = opened
        return RangeDigest(*self._tp, self._epoch, start + delta, end, start, batches, records, total & DIGEST_MASK)
