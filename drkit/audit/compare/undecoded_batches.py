"""Compares and searches batches without decoding their records. Pure.

The digest is 128 bits over the records' bytes and the header fields that they are read by: two batches with equal
digests hold equal records (key, value, headers, timestamp) at equal distances from their first offset. A mirror that
forwards a batch rewrites only other fields.

A search for one string is `bytes.find`. From a handful on they are looked for together: four bytes of a
string that is somewhere in the text begin at a multiple of four there, for one of four neighbouring places in the
string. So only every fourth place of the text is looked up in a table of such four bytes of all strings, by NumPy; what
the table has is compared in full. (A filter before the comparison, as Wu and Manber's algorithm for many patterns has
it: A fast algorithm for multi-pattern searching, 1994.)
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from xxhash import xxh3_128

from drkit.kafka.protocol.record_batch import CODEC_MASK, FIELDS, LOG_APPEND_TIME, MAGIC, Batch
from drkit.kafka.protocol.records import Damaged, PlainBuffer

Words = np.ndarray[tuple[int], np.dtype[np.uint32]]

SHORTEST = 8
"""Bytes; shorter strings would be found everywhere."""
ONE_BY_ONE = 10
"""So many are searched for one after the other."""
_GRAM = 4
_SLOTS_LOG2 = 18
_SPREAD = np.uint32(2654435761)  # Knuth's multiplicative hashing: 2**32 over the golden ratio
_SHIFT = np.uint32(32 - _SLOTS_LOG2)
_MOST_COMPARED = 2_000
"""More comparisons cost as much as a search for each string."""


def any_in(needles: Iterable[bytes], text: bytes | bytearray, end: int) -> bool:
    """Whether one of these, each of `SHORTEST` bytes or more, is in `text[:end]`."""
    each_once = tuple(dict.fromkeys(needles))
    if len(each_once) > ONE_BY_ONE:
        found = _together(each_once).found(text, end)
        if found is not None:
            return found
    return any(text.find(each, 0, end) >= 0 for each in each_once)


class _ByteScanner:
    """Looks for these at once. The first text decides which bytes of each are looked up: those that are the rarest
    there, as field names and the like are in every record."""

    def __init__(self, needles: Sequence[bytes]) -> None:
        self._needles = needles
        self._compared = np.zeros(1 << _SLOTS_LOG2, np.uint16)
        self._at: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)

    def found(self, text: bytes | bytearray, end: int) -> bool | None:
        """Whether one is in `text[:end]`; None: too much there is alike."""
        slots = _slots(np.frombuffer(text, "<u4", end // _GRAM))
        if not self._at:
            self._prepare(np.bincount(slots, minlength=1 << _SLOTS_LOG2))
        compared = self._compared[slots]
        hits = np.flatnonzero(compared)
        if compared[hits].sum(dtype=np.int64) > _MOST_COMPARED:
            return None
        return any(
            _stands(needle, text, hit * _GRAM - place, end)
            for hit, slot in zip(hits.tolist(), slots[hits].tolist(), strict=True)
            for place, needle in self._at[slot]
        )

    def _prepare(self, seen: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        for needle in self._needles:
            slots = _slots(np.frombuffer(b"".join(_grams(needle)), "<u4"))
            counts = seen[slots]
            first = int(np.argmin([counts[at : at + _GRAM].sum() for at in range(len(slots) - _GRAM + 1)]))
            for place in range(first, first + _GRAM):
                slot = int(slots[place])
                self._compared[slot] += 1
                self._at[slot].append((place, needle))


_together = lru_cache(maxsize=8)(_ByteScanner)


def _stands(needle: bytes, text: bytes | bytearray, at: int, end: int) -> bool:
    return 0 <= at <= end - len(needle) and text.startswith(needle, at)


def _slots(words: Words) -> Words:
    return (words * _SPREAD) >> _SHIFT


def _grams(needle: bytes) -> Iterable[bytes]:
    return (needle[at : at + _GRAM] for at in range(len(needle) - _GRAM + 1))


class _Local(threading.local):
    """What each thread that searches keeps."""

    def __init__(self) -> None:
        self.buffer = PlainBuffer()


_local = _Local()


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


def holds_any(batch: Batch, needles: Sequence[bytes]) -> bool:
    """Whether one of these is in a batch's plain bytes; always so of the old formats, which are decoded to know, and
    never of a batch that can't be read."""
    if batch.magic < MAGIC:
        return True
    if not batch.whole:  # an unreadable stretch; what a reader hands over otherwise, it has checked
        return False
    try:
        plain, end = _local.buffer.fill(batch.codec, batch.records)
    except Damaged:
        return False
    return any_in(needles, plain, end)
