"""A merge join of both sides of one partition: read side by side, batch by batch, and compared on the way. Pure.

    source batch ──place──▶ target batch that begins there, as many records, equal digest: proven, none is decoded
                            anything else: taken apart together with what is beside it, joined record by record

A source batch is proven by its digest if every one of its offsets has its own place in one zone of the mapping, so that
the target's batch holds those places and nothing else. Places rise with offsets and are unique; so records between two
proven pairs on one side can only belong to those between them on the other, and the open part is small, however long
the logs are. If batches overlap endlessly, the open part is joined up to where both sides have been read, and the few
records beyond stay open.

The result of a piece is returned in parts of bounded size, so memory doesn't grow with the damage.

Records that a consumer with CRC checks can't read are never matched: their offsets are returned as ranges, and the
batch is not compared.

A time window is decided for a whole batch if its highest timestamp suffices; otherwise its records are decoded.

A record's digest is the one that Spark's columns have (`record_frames.digest_columns`): `xxhash64` hashes its arguments
one after the other, each with the hash of those before as its seed; numbers as 4 or 8 bytes, little-endian; nulls are
skipped. Each argument's hash is XXH64.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from xxhash import xxh64_intdigest

from drkit.audit.compare.offset_zones import FOREVER, Zone
from drkit.audit.compare.undecoded_batches import digest
from drkit.audit.read.offset_ranges import Span
from drkit.kafka.protocol.record_batch import MAGIC, Batch
from drkit.kafka.protocol.record_columns import Headers, RecordColumns
from drkit.kafka.protocol.records import Damaged, read_old

_FIRST_SEED = 42  # Spark's
_INT, _LONG = struct.Struct("<i"), struct.Struct("<q")
_NULL = _INT.pack(-1)
_LONGEST_NEEDLE = 256
_BEYOND = 1 << 63

Digest = tuple[int, int]
"""Two signed numbers of 64 bits."""


def content_digest(key: bytes | None, value: bytes | None, stamp: int, headers: Headers | None) -> Digest:
    """128 bits over key, value, headers in their order, and timestamp (ms); null and empty differ."""
    parts: list[bytes] = []
    _add(parts, key)
    _add(parts, value)
    parts.append(_LONG.pack(stamp))
    parts.append(_INT.pack(len(headers or ())))
    for name, content in headers or ():
        parts.append(name.encode(errors="surrogateescape"))
        _add(parts, content)
    return _chained(1, parts), _chained(2, parts)


def longest(key: bytes | None, value: bytes | None) -> bytes:
    """The part of a record to look for it with: of its value or key, whichever is longer, as much as is of use."""
    return max((part for part in (value, key) if part is not None), key=len, default=b"")[:_LONGEST_NEEDLE]


def _add(parts: list[bytes], content: bytes | None) -> None:
    if content is None:
        parts.append(_NULL)
    else:
        parts.append(_INT.pack(len(content)))
        parts.append(content)


def _chained(start: int, parts: list[bytes]) -> int:
    seed = xxh64_intdigest(_INT.pack(start), _FIRST_SEED)
    for part in parts:
        seed = xxh64_intdigest(part, seed)
    return seed - (_BEYOND << 1) if seed >= _BEYOND else seed


A_PART = 5_000
"""Records without an equal one at their place from which on a part is handed over."""

MOST_OPEN = 50_000
"""Records, of both sides, that are decoded at a time."""

MOST_OPEN_BYTES = 32 << 20
"""Bytes of their batches, as they were read."""

_ROW_BYTES = 2_000
"""About what a residual takes in the driver's memory, with all that is made of it, beside its key and needle."""


class Piece(NamedTuple):
    """The unit of a merge join: offsets of both sides that belong together. `zones` are those of the source's offsets;
    the window is [since_ms, until_ms), open where None; chunks are 2**shift target offsets."""

    source: Span
    target: Span
    zones: tuple[Zone, ...]
    shift: int
    since_ms: int | None
    until_ms: int | None


class SourceLeft(NamedTuple):
    """A source record without an equal one at its place: its offset, its place or the nearest
    below, whether that is its own, digest, timestamp (ms), key, whether its value is null."""

    p: int
    s: int
    e: int
    placed: bool
    s1: int
    s2: int
    s_ts: int
    s_key: bytes | None
    s_null: bool


class TargetLeft(NamedTuple):
    """A target record without an equal one that has its place there. `needle`: its value or
    key, whichever is longer, to look for it with."""

    p: int
    t: int
    t1: int
    t2: int
    t_ts: int
    t_key: bytes | None
    t_null: bool
    needle: bytes


class MatchedRange(NamedTuple):
    """Matched records of one chunk: their number, their first and last offsets, and their highest timestamp."""

    p: int
    inside: bool
    chunk: int
    n: int
    s_lo: int
    s_hi: int
    t_lo: int
    t_hi: int
    newest: int


@dataclass(slots=True)
class PieceComparison:
    """The outcome of a piece, or of a part of it: batches proven equal and others, of both sides; what matched, what is
    left over.

    `source_count`, `target_count`: how many residuals there are, and `source_inside`: how many within the time window;
    the same as the rows, unless these `stay` behind as they are too many. `size`: about the bytes that they take.
    `source_unreadable`, `target_unreadable`: offsets [first, until) of each side that can't be read.
    """

    number: int
    equal: int = 0
    different: int = 0
    stretches: list[MatchedRange] = field(default_factory=list)
    source_left: list[SourceLeft] = field(default_factory=list)
    target_left: list[TargetLeft] = field(default_factory=list)
    source_unreadable: list[tuple[int, int]] = field(default_factory=list)
    target_unreadable: list[tuple[int, int]] = field(default_factory=list)
    source_count: int = 0
    target_count: int = 0
    source_inside: int = 0
    size: int = 0
    stays: bool = False

    def add(self, part: PieceComparison, most: int | None) -> None:
        """Add a part; where all rows would take more than `most` bytes, none are kept."""
        for name in ("equal", "different", "source_count", "target_count", "source_inside", "size"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        self.stretches += part.stretches
        self.source_unreadable += part.source_unreadable
        self.target_unreadable += part.target_unreadable
        self.stays = self.stays or (most is not None and self.size > most)
        if self.stays:
            self.source_left, self.target_left = [], []
        else:
            self.source_left += part.source_left
            self.target_left += part.target_left


def gathered(parts: Iterable[PieceComparison], most: int | None = None) -> PieceComparison:
    """The parts of one piece put together; where all rows would take more than `most` bytes, none are kept."""
    found = None
    for part in parts:
        found = found or PieceComparison(part.number)
        found.add(part, most)
    assert found is not None  # noqa: S101 - the last part is always there
    return found


class _Held(NamedTuple):
    """A batch: the offsets [start, stop) that it covers; `dense`: each of them is one of its records, all are there."""

    start: int
    stop: int
    dense: bool
    batch: Batch


def compare_piece(
    piece: Piece, source: Iterable[list[Batch]], target: Iterable[list[Batch]], *, full: bool = False
) -> Iterator[PieceComparison]:
    """Compare what both sides hold, part by part.

    Args:
        piece: what is compared.
        source: the source's batches, as `LogReader.read` gives them for `piece.source`.
        target: the target's.
        full: decode every record, also of batches that are equal.
    """
    return _MergeJoin(piece, full=full).run(_held(piece.source, source), _held(piece.target, target))


class _MergeJoin:
    """Walks along both sides; what is open is decoded once nothing more can belong to it."""

    def __init__(self, piece: Piece, *, full: bool) -> None:
        self._piece = piece
        self._full = full
        self._starts = [zone.first for zone in piece.zones]
        self._found = PieceComparison(piece.source.number)
        self._sums: dict[tuple[bool, int], list[int]] = {}
        self._source: list[_Held] = []
        self._target: list[_Held] = []
        self._source_rest = RecordColumns()
        self._target_rest = RecordColumns()
        self._open = 0
        self._reach = -1
        self._open_bytes = 0

    def run(self, source: Iterator[_Held], target: Iterator[_Held]) -> Iterator[PieceComparison]:
        """Compare all."""
        s, t = next(source, None), next(target, None)
        while s is not None or t is not None:
            if s is not None and t is not None and not self._full and self._proves(s, t):
                self._join()
                self._add_proven(s, t)
                self._found.equal += 1
                s, t = next(source, None), next(target, None)
            elif t is None or (s is not None and self._place(s.start) <= t.start):
                assert s is not None  # noqa: S101 - one of them is there
                self._take(self._source, s)
                self._reach = max(self._reach, self._place(s.stop - 1) + 1)
                s = next(source, None)
            else:
                self._take(self._target, t)
                self._reach = max(self._reach, t.stop)
                t = next(target, None)
            ends = [t.start] if t is not None else []
            ends += [self._place(s.start)] if s is not None else []
            if all(end >= self._reach for end in ends):
                self._join()
            elif self._open > MOST_OPEN or self._open_bytes > MOST_OPEN_BYTES:
                self._join(min(ends))
            if len(self._found.source_left) + len(self._found.target_left) >= A_PART:
                yield self._part()
        self._found.stretches = [
            MatchedRange(self._piece.source.number, *key, *sums) for key, sums in self._sums.items()
        ]
        yield self._part()

    def _part(self) -> PieceComparison:
        found, self._found = self._found, PieceComparison(self._piece.source.number)
        found.source_count, found.target_count = len(found.source_left), len(found.target_left)
        found.source_inside = sum(self._inside(row.s_ts) for row in found.source_left)
        found.size += _ROW_BYTES * (found.source_count + found.target_count)
        return found

    def _proves(self, s: _Held, t: _Held) -> bool:
        if not (s.dense and t.dense) or s.batch.records_count != t.batch.records_count:
            return False
        zone = self._zone(s.start)
        within = zone.valid_from <= s.start and s.stop <= zone.valid_until
        return (
            within
            and s.start + zone.delta == t.start
            and self._inside_all(s.batch.max_timestamp) is not None
            and digest(s.batch) == digest(t.batch)
            and t.batch.intact()  # the source's needn't be: its records are those that were mirrored
        )

    def _inside_all(self, newest: int) -> bool | None:
        """Whether a batch's records are within the window; None where its highest timestamp can't tell for all."""
        since, until = self._piece.since_ms, self._piece.until_ms
        if since is not None:
            return False if newest < since else None
        return True if until is None or newest < until else None

    def _inside(self, stamp: int) -> bool:
        since, until = self._piece.since_ms, self._piece.until_ms
        return (since is None or stamp >= since) and (until is None or stamp < until)

    def _zone(self, offset: int) -> Zone:
        return self._piece.zones[bisect_right(self._starts, offset) - 1]

    def _place(self, offset: int) -> int:
        return self._zone(offset).place(offset)

    def _add_proven(self, s: _Held, t: _Held) -> None:
        shift, newest = self._piece.shift, s.batch.max_timestamp
        inside = bool(self._inside_all(newest))
        back = s.start - t.start
        low = t.start
        while low < t.stop:
            chunk = low >> shift
            high = min(t.stop, (chunk + 1) << shift)
            self._add(inside, chunk, high - low, low + back, high - 1 + back, low, high - 1, newest)
            low = high

    def _add(self, inside: bool, chunk: int, n: int, s_lo: int, s_hi: int, t_lo: int, t_hi: int, newest: int) -> None:
        sums = self._sums.get((inside, chunk))
        if sums is None:
            self._sums[inside, chunk] = [n, s_lo, s_hi, t_lo, t_hi, newest]
            return
        sums[0] += n  # offsets rise on both sides
        sums[2] = s_hi
        sums[4] = t_hi
        sums[5] = max(sums[5], newest)

    def _join(self, read_to: int = FOREVER) -> None:
        """Join what is open record by record; what has its place beyond where both sides were read stays open."""
        if not (self._source or self._target or self._source_rest or self._target_rest):
            return
        source, target = self._source_rest, self._target_rest
        self._source_rest, self._target_rest = RecordColumns(), RecordColumns()
        _add_columns(source, self._piece.source, self._source, self._found.source_unreadable)
        _add_columns(target, self._piece.target, self._target, self._found.target_unreadable)
        self._found.different += len(self._source) + len(self._target)
        self._source, self._target, self._open, self._open_bytes = [], [], 0, 0
        shift = self._piece.shift
        at = dict(zip(target.offsets, range(len(target)), strict=True))
        matched: set[int] = set()
        for i, offset in enumerate(source.offsets):
            zone = self._zone(offset)
            placed = zone.valid_from <= offset < zone.valid_until
            e = zone.place(offset)
            j = at.get(e) if placed else None
            stamp = source.stamps[i]
            if (
                j is not None
                and source.values[i] == target.values[j]
                and source.keys[i] == target.keys[j]
                and stamp == target.stamps[j]
                and source.headers[i] == target.headers[j]
            ):
                matched.add(j)
                self._add(self._inside(stamp), e >> shift, 1, offset, offset, e, e, stamp)
            elif e < read_to:
                self._leave_source(source, i, e, placed=placed)
            else:
                self._source_rest.add_row(source, i)
        if len(matched) < len(target):
            for j, offset in enumerate(target.offsets):
                if j not in matched and offset < read_to:
                    self._leave_target(target, j)
                elif j not in matched:
                    self._target_rest.add_row(target, j)

    def _leave_source(self, source: RecordColumns, i: int, e: int, *, placed: bool) -> None:
        key, value, stamp = source.keys[i], source.values[i], source.stamps[i]
        first, second = content_digest(key, value, stamp, source.headers[i])
        self._found.size += len(key or b"")
        row = SourceLeft(self._found.number, source.offsets[i], e, placed, first, second, stamp, key, value is None)
        self._found.source_left.append(row)

    def _leave_target(self, target: RecordColumns, j: int) -> None:
        key, value, stamp = target.keys[j], target.values[j], target.stamps[j]
        first, second = content_digest(key, value, stamp, target.headers[j])
        needle = longest(key, value)
        self._found.size += len(key or b"") + len(needle)
        self._found.target_left.append(
            TargetLeft(self._found.number, target.offsets[j], first, second, stamp, key, value is None, needle)
        )

    def _take(self, side: list[_Held], held: _Held) -> None:
        side.append(held)
        self._open += held.batch.records_count
        self._open_bytes += len(held.batch.whole)


def _add_columns(columns: RecordColumns, span: Span, members: list[_Held], unreadable: list[tuple[int, int]]) -> None:
    """Add the records of these batches; the offsets of those that can't be read go to `unreadable`."""
    unreadable += [
        (held.start, held.stop) for held in members if not columns.add_readable(held.batch, span.first, span.until)
    ]


def _held(span: Span, answers: Iterable[list[Batch]]) -> Iterator[_Held]:
    """The batches that hold offsets of the span. One that reaches beyond it is cut, so it proves nothing."""
    first, until = span.first, span.until
    for found in answers:
        for batch in found:
            base = batch.base_offset
            if batch.magic < MAGIC:  # a wrapper's offset is that of the last message in it
                with suppress(Damaged):  # then its offset is all that is known of it
                    base = min((each.offset for each in read_old(batch.whole)), default=base)
                after = batch.base_offset + 1
            else:
                after = batch.last_offset + 1
            if after > first and base < until:
                whole = first <= base and after <= until
                dense = whole and batch.magic >= MAGIC and batch.records_count == after - base
                yield _Held(max(base, first), min(after, until), dense, batch)
