"""Splits fetched batches into appends: forwarded as they are, or taken apart where they must be. Pure.

| what is fetched | becomes | reason |
|---|---|---|
| a batch whose offsets are complete | a run, its records byte for byte | - |
| several tiny ones in a row | one run | merged |
| a batch with compaction holes | runs, or one run with gaps | compacted |
| a batch that begins below the position | the rest of it | partly_mirrored |
| a batch with append time from the source broker | a run with the append time in each record | log_append_time |
| a batch above the target's limit | several runs | too_large |
| messages of format 0 or 1 | a run in format 2 | old_format |
| anything, where the link alters records | runs of what happens to them (`transform.batch_rebuilder`) | altered |
| a control batch, an aborted one, an emptied one | a hole | - |

A rebuilt batch keeps its codec. The Fetch response lists aborted transactions, read as Kafka's own
consumer does: a transaction counts from its first offset to its abort marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from drkit.kafka.protocol.coalescing import CoalescedRun, Found, merged
from drkit.kafka.protocol.committed_batches import CommittedFilter
from drkit.kafka.protocol.record_batch import CODEC_MASK, HEADER_BYTES, LOG_APPEND_TIME, MAGIC, Batch
from drkit.kafka.protocol.records import Damaged, RawRecord, build, read, read_old
from drkit.model.offsets import HOLES_ANYWHERE

_OLD_ATTRIBUTES_AT = 17
_TINY_COUNT = 24
MERGED_BYTES = 256 * 1024
_FEWEST_MERGED = 4
_HEADROOM = 0.9


class Hole(NamedTuple):
    """The source has no record from the end of the previous piece up to `source_next`."""

    source_next: int


class RecordRun(NamedTuple):
    """Records to be appended as one batch, at consecutive target offsets.

    `gaps`: (index in the run, source offset) of records that don't follow their predecessor on the
    source. `reason`: why it isn't forwarded unchanged, or None. `batches`: how many of the source's batches
    begin in it. `crc`: the checksum of the source's batch, where it is one forwarded unchanged.
    """

    source_first: int
    source_next: int
    records_count: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    payload: bytes | memoryview
    gaps: tuple[tuple[int, int], ...] = ()
    reason: str | None = None
    batches: int = 1
    crc: int = 0


Piece = Hole | RecordRun


class TooLarge(Exception):
    """A single record is larger than the target accepts."""

    def __init__(self, offset: int, size: int) -> None:
        super().__init__(f"the record at offset {offset} needs a batch of {size} bytes")
        self.offset = offset
        self.size = size


class SourceGap(Damaged):
    """Nothing is read at offsets [first, end) of a log that has no gaps: the broker skips what it can't find."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__(f"the broker skips offsets {first} to {end - 1}")
        self.first = first
        self.end = end


class Rules(NamedTuple):
    """How batches are split.

    `committed`: leave out aborted records. `limit`: the largest batch to build; `most`: the target topic's
    max.message.bytes, the limit for a single record that is larger than `limit`.
    `keeps_apart`: whether a hole of that many offsets separates two runs (so that it can be matched on the
    target) instead of being inside one run. `dense_from`: no gap is a hole from this source offset on.
    """

    committed: bool
    limit: int
    keeps_apart: Callable[[int], bool]
    most: int = 0
    dense_from: int = HOLES_ANYWHERE

    def check_gap(self, position: int, base_offset: int) -> None:
        """Check a batch that begins beyond the position.

        Raises:
            SourceGap: the offsets between are no hole.
        """
        first = max(position, self.dense_from)
        if base_offset > first:
            raise SourceGap(first, base_offset)


def pieces(
    batches: Sequence[Found], aborted: Sequence[tuple[int, int]], position: int, rules: Rules
) -> Iterable[Piece]:
    """Split batches into pieces to append from `position` (the next source offset) on, in order and without a gap.

    Args:
        batches: complete batches of one Fetch response, ascending.
        aborted: (producer id, first offset) of aborted transactions, from the same response.
        position: records below it are on the target already.
        rules: how batches are split.

    Raises:
        SourceGap: offsets are skipped, and no hole explains it.
        Damaged: a batch must be taken apart but can't be read.
        TooLarge: a record can't be appended.
    """
    if len(batches) == 1:  # the usual case in a steady stream
        run = _as_it_is(batches[0], position, rules.limit)
        if run is not None:
            return (run,)
    return _cut(batches, aborted, position, rules)


def _cut(batches: Sequence[Found], aborted: Sequence[tuple[int, int]], position: int, rules: Rules) -> Iterator[Piece]:
    cutter = _Cutter(aborted if rules.committed else (), position, rules)
    for batch in batches:
        if isinstance(batch, CoalescedRun):
            yield from cutter.take_joined(batch)
        else:
            yield from cutter.take(batch)
    yield from cutter.finish()


def _as_it_is(found: Found, position: int, limit: int) -> RecordRun | None:
    """The batch as a run, if it begins at the position and needs no change; else None."""
    if found.base_offset != position:
        return None
    if isinstance(found, CoalescedRun):
        return _joined(found) if len(found.payload) + HEADER_BYTES <= limit else None
    plain = found.attributes <= CODEC_MASK and found.magic >= MAGIC and found.records_count > 0
    return _forwarded(found) if plain and _is_complete(found, limit) else None


def _joined(run: CoalescedRun) -> RecordRun:
    """Small batches that were coalesced while they were read."""
    base, count = run.base_offset, run.records_count
    first, last = run.base_timestamp, run.max_timestamp
    return RecordRun(base, base + count, count, 0, first, last, run.payload, reason="merged", batches=run.batches)


def _forwarded(batch: Batch) -> RecordRun:
    """A batch forwarded unchanged."""
    base, count = batch.base_offset, batch.records_count
    first, last = batch.base_timestamp, batch.max_timestamp
    return RecordRun(base, batch.last_offset + 1, count, batch.attributes, first, last, batch.records, crc=batch.crc)


class _Cutter:
    """The state of one pass over fetched batches.

    `tiny`: consecutive complete small batches that may be coalesced; `old`: consecutive messages of an old format.
    """

    def __init__(self, aborted: Sequence[tuple[int, int]], position: int, rules: Rules) -> None:
        self._rules = rules
        self._position = position
        self._committed = CommittedFilter(aborted)
        self._tiny: list[Batch] = []
        self._old: list[Batch] = []
        self._size = 0
        self._most = min(MERGED_BYTES, rules.limit // 2)

    def take(self, batch: Batch) -> Iterator[Piece]:
        if batch.magic < MAGIC:
            yield from self._take_old(batch)
            return
        last = batch.last_offset
        empty = not self._committed.holds(batch)
        if last < self._position:
            return
        if batch.base_offset > self._position:
            yield from self.finish()  # old messages say where they end only then
            self._rules.check_gap(self._position, batch.base_offset)
        complete = not empty and batch.base_offset >= self._position and _is_complete(batch, self._rules.limit)
        if not (complete and self._tiny and _joins(self._tiny[-1], batch)):
            yield from self.finish()  # these come before the batch
        if empty:
            yield Hole(last + 1)
        elif complete:
            if batch.base_offset > self._position:
                yield Hole(batch.base_offset)
            self._tiny.append(batch)
            self._size += len(batch.whole)
            if batch.records_count > _TINY_COUNT or self._size >= self._most:
                yield from self.finish()
        else:
            yield from _taken_apart(batch, self._position, self._rules)
        self._position = max(self._position, last + 1)

    def take_joined(self, run: CoalescedRun) -> Iterator[Piece]:
        yield from self.finish()
        last = run.last_offset
        if last < self._position:
            return
        if run.base_offset > self._position:
            self._rules.check_gap(self._position, run.base_offset)
        if run.base_offset < self._position or len(run.payload) + HEADER_BYTES > self._rules.limit:
            records = [record for record in run.records() if record.offset >= self._position]
            yield from stretches(records, self._position, last + 1, 0, "merged", self._rules)
        else:
            if run.base_offset > self._position:
                yield Hole(run.base_offset)
            yield _joined(run)
        self._position = last + 1

    def _take_old(self, batch: Batch) -> Iterator[Piece]:
        """Gather messages of an old format: without compression each is a batch of its own."""
        if self._tiny or (self._old and old_codec(self._old[-1]) != old_codec(batch)):
            yield from self.finish()
        self._old.append(batch)
        self._size += len(batch.whole)
        if self._size >= self._most:
            yield from self.finish()

    def finish(self) -> Iterator[Piece]:
        """The remaining small batches and old messages."""
        if self._old:
            old, self._old, self._size = self._old, [], 0
            records = [record for batch in old for record in read_old(batch.whole) if record.offset >= self._position]
            if records:
                after = old[-1].base_offset + 1
                yield from stretches(records, self._position, after, old_codec(old[0]), "old_format", self._rules)
                self._position = after
        if self._tiny:
            tiny, self._tiny, self._size = self._tiny, [], 0
            yield from _together(tiny, self._rules)


def _is_complete(batch: Batch, limit: int) -> bool:
    """Whether a batch can be forwarded: complete, not stamped by the broker, not too large."""
    return (
        batch.records_count == batch.last_delta + 1
        and not batch.attributes & LOG_APPEND_TIME
        and len(batch.whole) <= limit
    )


def _joins(one: Batch, other: Batch) -> bool:
    """Whether two batches may be coalesced: adjacent, with the same codec, both ordinary."""
    return (
        other.magic >= MAGIC
        and other.base_offset == one.last_offset + 1
        and other.records_count == other.last_delta + 1
        and other.records_count <= _TINY_COUNT
        and (other.attributes & (CODEC_MASK | LOG_APPEND_TIME)) == (one.attributes & (CODEC_MASK | LOG_APPEND_TIME))
    )


def _together(batches: Sequence[Batch], rules: Rules) -> Iterator[Piece]:
    """Consecutive complete batches: a few are forwarded singly, more are coalesced.

    Coalescing decompresses, builds and compresses, which costs more than the saved requests where only a few
    batches come at a time: so a steady stream is forwarded, a backlog is coalesced.
    """
    if len(batches) < _FEWEST_MERGED:
        yield from map(_forwarded, batches)
        return
    codec = batches[0].codec
    found = merged(batches, _plain_room(rules))
    if found is None:
        records = [record for batch in batches for record in read(batch)]
        begun = len(batches)
        for run in _built(records, batches[-1].last_offset + 1, codec, "merged", rules):
            yield run._replace(batches=begun)
            begun = 0
        return
    begin = 0
    for count, built in found:
        first, last = batches[begin].base_offset, batches[begin + count - 1].last_offset
        yield RecordRun(first, last + 1, built.records_count, codec, *built[1:], reason="merged", batches=count)
        begin += count


def _taken_apart(batch: Batch, position: int, rules: Rules) -> Iterator[Piece]:
    if batch.attributes & LOG_APPEND_TIME:
        reason = "log_append_time"
    elif batch.records_count != batch.last_delta + 1:
        reason = "compacted"
    else:
        reason = "partly_mirrored" if batch.base_offset < position else "too_large"
    records = [record for record in read(batch) if record.offset >= position]
    yield from stretches(records, position, batch.last_offset + 1, batch.codec, reason, rules)


def old_codec(batch: Batch) -> int:
    """The codec of a message of format 0 or 1."""
    return batch.whole[_OLD_ATTRIBUTES_AT] & CODEC_MASK


def stretches(
    records: Sequence[RawRecord], position: int, source_next: int, codec: int, reason: str, rules: Rules
) -> Iterator[Piece]:
    """Runs and holes from records with holes between them: holes to be matched separate runs, others are inside one.

    Args:
        records: ascending, none below `position`.
        position: the next source offset.
        source_next: the source has no record from the last of these up to this offset.
        codec: of the runs.
        reason: why they are rebuilt.
        rules: how batches are split.

    Raises:
        TooLarge: a record can't be appended.
    """
    stretch: list[RawRecord] = []
    for record in records:
        gap = record.offset - position
        if gap and (not stretch or rules.keeps_apart(gap)):
            if stretch:
                yield from _built(stretch, position, codec, reason, rules)
                stretch = []
            yield Hole(record.offset)
        stretch.append(record)
        position = record.offset + 1
    if stretch:
        yield from _built(stretch, position, codec, reason, rules)
    if position < source_next:
        yield Hole(source_next)


def _built(
    records: Sequence[RawRecord], source_next: int, codec: int, reason: str, rules: Rules
) -> Iterator[RecordRun]:
    """Build runs from these records, as many as the target's limit requires."""
    room = _plain_room(rules)
    begin = size = 0
    for index, record in enumerate(records):
        needed = len(record.body) + 16
        if size + needed > room and index > begin:
            yield _run(records[begin:index], record.offset, codec, reason, rules)
            begin, size = index, 0
        size += needed
    yield _run(records[begin:], source_next, codec, reason, rules)


def _plain_room(rules: Rules) -> int:
    """How many bytes of plain records surely fit in a batch, however badly they compress."""
    return int((rules.limit - HEADER_BYTES) * _HEADROOM)


def _run(records: Sequence[RawRecord], source_next: int, codec: int, reason: str, rules: Rules) -> RecordRun:
    built = build(records, codec)
    size = HEADER_BYTES + len(built.payload)
    if size > rules.limit:  # the source may have compressed it better
        built = build(records, codec, tight=True)
        size = HEADER_BYTES + len(built.payload)
    if size > (rules.limit if len(records) > 1 else max(rules.limit, rules.most)):
        raise TooLarge(records[0].offset, size)
    gaps = []
    if records[-1].offset - records[0].offset != len(records) - 1:
        gaps = [
            (index, records[index].offset)
            for index in range(1, len(records))
            if records[index].offset != records[index - 1].offset + 1
        ]
    return RecordRun(
        records[0].offset,
        source_next,
        built.records_count,
        codec,
        built.base_timestamp,
        built.max_timestamp,
        built.payload,
        tuple(gaps),
        reason,
    )
