"""Both sides of a piece of one partition read abreast, batch by batch, and compared on the way. Pure.

    source batch ──place──▶ target batch that begins there, as many records, equal digest: proven, none is decoded
                            anything else: taken apart together with what stands beside it, joined record by record

A source batch is proven by its digest where every one of its offsets has its own place in one zone of the mapping,
so that the batch on the target holds those places and nothing else. Places rise with offsets and are nobody else's;
so what stands between two proven pairs on one side can only belong to what stands between them on the other, and
what is open at any moment is small, however long the logs are. Where more differs than a task shall hold
(`MOST_…`), the rest of its piece is left to Spark's joins.

What a consumer that checks CRCs can't read is never matched: its offsets are handed over as ranges, and what its batch
holds stays out of the comparison.

A time window is decided for a whole batch where its highest timestamp says enough; else its records are decoded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from drkit.audit.batch_rows import digest
from drkit.audit.digests import content_digest, longest
from drkit.audit.places import Zone
from drkit.audit.spans import Span
from drkit.kafka.batch import MAGIC, Batch
from drkit.kafka.contents import Columns
from drkit.kafka.records import Damaged, read_old

MOST_LEFT = 5_000
"""Records without an equal one at their place that a piece hands over itself."""

MOST_LEFT_BYTES = 8 << 20
"""What their keys and needles may hold."""

MOST_OPEN = 50_000
"""Records, of both sides, that are decoded at a time."""

MOST_OPEN_BYTES = 32 << 20
"""Bytes of their batches, as they were read."""


class Piece(NamedTuple):
    """What is read abreast: offsets of both sides that belong together. `zones` are those of the source's offsets;
    the window is [since_ms, until_ms), open where None; chunks are 2**shift target offsets."""

    source: Span
    target: Span
    zones: tuple[Zone, ...]
    shift: int
    since_ms: int | None
    until_ms: int | None


class SourceLeft(NamedTuple):
    """A source record without an equal one at its place (`compare.SOURCE_FIELDS`)."""

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
    """A target record without an equal one that has its place there (`compare.TARGET_FIELDS`). `needle`: its value or
    key, whichever is longer, to look for it with."""

    p: int
    t: int
    t1: int
    t2: int
    t_ts: int
    t_key: bytes | None
    t_null: bool
    needle: bytes


class Stretch(NamedTuple):
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
class Compared:
    """What came of a piece: batches proven equal and others, of both sides; what matched, what is left over.

    `source_unreadable`, `target_unreadable`: offsets [first, until) of each side that can't be read. `rest`: the
    offsets of source and target from which on nothing was compared; None where all was.
    """

    number: int
    equal: int = 0
    different: int = 0
    stretches: list[Stretch] = field(default_factory=list)
    source_left: list[SourceLeft] = field(default_factory=list)
    target_left: list[TargetLeft] = field(default_factory=list)
    source_unreadable: list[tuple[int, int]] = field(default_factory=list)
    target_unreadable: list[tuple[int, int]] = field(default_factory=list)
    rest: tuple[int, int] | None = None


class _Held(NamedTuple):
    """A batch: the offsets [start, stop) that it covers; `dense`: each of them is one of its records, all are there."""

    start: int
    stop: int
    dense: bool
    batch: Batch


def compare_piece(piece: Piece, source: Iterable[list[Batch]], target: Iterable[list[Batch]]) -> Compared:
    """Compare what both sides hold.

    Args:
        piece: what is compared.
        source: the source's batches, as `LogReader.read` gives them for `piece.source`.
        target: the target's.
    """
    return _Abreast(piece).run(_held(piece.source, source), _held(piece.target, target))


class _Abreast:
    """Walks along both sides; what is open is decoded once nothing more can belong to it."""

    def __init__(self, piece: Piece) -> None:
        self._piece = piece
        self._starts = [zone.first for zone in piece.zones]
        self._found = Compared(piece.source.number)
        self._sums: dict[tuple[bool, int], list[int]] = {}
        self._source: list[_Held] = []
        self._target: list[_Held] = []
        self._open = 0
        self._reach = -1
        self._open_bytes = 0
        self._left_bytes = 0

    def run(self, source: Iterator[_Held], target: Iterator[_Held]) -> Compared:
        """Compare all."""
        found = self._found
        s, t = next(source, None), next(target, None)
        while s is not None or t is not None:
            if s is not None and t is not None and self._proves(s, t):
                if self._source or self._target:
                    self._join()
                self._add_proven(s, t)
                found.equal += 1
                s, t = next(source, None), next(target, None)
                continue
            if t is None or (s is not None and self._place(s.start) <= t.start):
                assert s is not None  # noqa: S101 - one of them is there
                self._take(self._source, s)
                self._reach = max(self._reach, self._place(s.stop - 1) + 1)
                s = next(source, None)
            else:
                self._take(self._target, t)
                self._reach = max(self._reach, t.stop)
                t = next(target, None)
            apart = (s is None or self._place(s.start) >= self._reach) and (t is None or t.start >= self._reach)
            if apart:
                self._join()
            if self._too_much():
                self._leave(s, t)
                break
        found.stretches = [Stretch(found.number, *key, *sums) for key, sums in self._sums.items()]
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

    def _join(self) -> None:
        """Join what is open record by record."""
        source = _columns(self._piece.source, self._source, self._found.source_unreadable)
        target = _columns(self._piece.target, self._target, self._found.target_unreadable)
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
            else:
                self._leave_source(source, i, e, placed=placed)
        if len(matched) < len(target):
            for j in range(len(target)):
                if j not in matched:
                    self._leave_target(target, j)

    def _leave_source(self, source: Columns, i: int, e: int, *, placed: bool) -> None:
        key, value, stamp = source.keys[i], source.values[i], source.stamps[i]
        first, second = content_digest(key, value, stamp, source.headers[i])
        self._left_bytes += len(key or b"")
        row = SourceLeft(self._found.number, source.offsets[i], e, placed, first, second, stamp, key, value is None)
        self._found.source_left.append(row)

    def _leave_target(self, target: Columns, j: int) -> None:
        key, value, stamp = target.keys[j], target.values[j], target.stamps[j]
        first, second = content_digest(key, value, stamp, target.headers[j])
        needle = longest(key, value)
        self._left_bytes += len(key or b"") + len(needle)
        self._found.target_left.append(
            TargetLeft(self._found.number, target.offsets[j], first, second, stamp, key, value is None, needle)
        )

    def _take(self, side: list[_Held], held: _Held) -> None:
        side.append(held)
        self._open += held.batch.records_count
        self._open_bytes += len(held.batch.whole)

    def _too_much(self) -> bool:
        left = len(self._found.source_left) + len(self._found.target_left)
        return (
            self._open > MOST_OPEN
            or self._open_bytes > MOST_OPEN_BYTES
            or left > MOST_LEFT
            or self._left_bytes > MOST_LEFT_BYTES
        )

    def _leave(self, s: _Held | None, t: _Held | None) -> None:
        """Leave what is open, and all that comes after it, to others."""
        first_source = self._source[0] if self._source else s
        first_target = self._target[0] if self._target else t
        source, target = self._piece.source, self._piece.target
        self._found.rest = (
            source.until if first_source is None else first_source.start,
            target.until if first_target is None else first_target.start,
        )


def _columns(span: Span, members: list[_Held], unreadable: list[tuple[int, int]]) -> Columns:
    """The records of these batches; the offsets of those that can't be read go to `unreadable`."""
    columns = Columns()
    unreadable += [
        (held.start, held.stop) for held in members if not columns.add_readable(held.batch, span.first, span.until)
    ]
    return columns


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
