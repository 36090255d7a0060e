"""Finds what a source holds below a watermark that was never mirrored, by reading both sides from the last records on.

A source that was set back to an older copy of its disks and has grown again holds other records where it held what was
mirrored, or where it held nothing that the link carries: records that it leaves out, aborted ones, markers. A log loses
records at its end only. So from the last record on that is the same on both sides, every record of the source that the
link carries must be where the mapping says, as the link makes it. That is asked where nothing else tells: the checksum
of the last mirrored batch does, but not where the cleaner wrote it anew, nor where the log ends below it now.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.record_probe import OffsetRange
from drkit.kafka.protocol import record_body
from drkit.kafka.protocol.records import Damaged, RawRecord
from drkit.mapping.target_start import MappingRows
from drkit.model.clock import now, to_millis
from drkit.model.errors import DrkitError
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topics.removing import CLEANUP, TOMBSTONES_KEPT, is_compacted
from drkit.model.topology import LinkId, TopicPartition

if TYPE_CHECKING:
    from drkit.kafka.client.log_reader import LogReader
    from drkit.kafka.transform.record_transform import Alteration

SECONDS = 10.0
"""For all partitions, and for one answer of a broker."""
_A_PARTITION_SECONDS = 0.1
_FIRST_LOOK, _FURTHER = 8, 16
"""How many of the target's last offsets are compared first, and how many times as many next, while none of them is the
same record on both sides: both logs held that one before either could part from the other."""


@dataclass(frozen=True, slots=True)
class LinkSides:
    """What both sides of a link are compared with.

    `target_topic`: the target's name of a source topic; `rows`: the store's mapping rows; `alteration`: what the link
    does to records, None: it carries each as it is; `committed`: whether it leaves out records of aborted transactions;
    `left`: clients have moved to the target, and write there behind what was mirrored.
    """

    link: LinkId
    source: ClusterAdmin
    target: ClusterAdmin
    target_topic: Callable[[str], str]
    rows: MappingRows
    alteration: Alteration | None
    committed: bool
    left: bool = False


class UnmirroredTail(NamedTuple):
    """`first`: the first offset of each partition at which its source holds a record that the link carries and never
    mirrored, 0 where there may be earlier ones; `same_until`: of these, the offset behind the last record below it that
    both sides hold (the target may hold others up to there); `unread`: why others could not be read."""

    first: dict[TopicPartition, int]
    same_until: dict[TopicPartition, int]
    unread: dict[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class _Tail:
    """What is compared of a partition: the target's `there`, up to `mark`'s end (empty: it has no record), and `here`
    of the source; `rows`: in force there; `whole`: the source has nothing further back; `purged`: the target had."""

    mark: Watermark
    target: TopicPartition
    there: OffsetRange
    here: OffsetRange
    rows: Sequence[OffsetMapping]
    whole: bool
    purged: bool = False

    def place(self, source_offset: int) -> int:
        """The target offset of a source offset by the rows."""
        above = bisect_right(self.rows, source_offset, key=lambda row: row.source_offset)
        return self.there.end if not self.rows else source_offset + self.rows[max(0, above - 1)].delta


@dataclass(frozen=True, slots=True)
class _Logs:
    """What is known of both logs: the rows of the link, its mark, the log starts, and the source's end."""

    link: LinkId
    mark: Watermark
    target: TopicPartition
    rows: MappingRows
    target_start: int
    source_start: int
    source_end: int

    def tails(self) -> Iterator[_Tail]:
        """Further and further back, until all that both sides hold is in it.

        Raises:
            _Incomparable: a mirror took rows back meanwhile.
        """
        mark, end = self.mark, min(self.mark.source_through, self.source_end)
        bottom = max(mark.source_start, self.source_start)
        first = self.rows.next_mapping(self.link, mark.tp, mark.epoch, -1)
        lowest = max(self.target_start, mark.target_end if first is None else first.target_offset)
        span = _FIRST_LOOK
        while lowest < mark.target_end - span:
            begin = mark.target_end - span
            if not (rows := self._in_force(begin)):
                raise _Incomparable(f"the mapping rows of {mark.tp} changed meanwhile")
            here = OffsetRange(max(begin - rows[0].delta, bottom), end)
            yield _Tail(mark, self.target, OffsetRange(begin, mark.target_end), here, rows, whole=here.begin == bottom)
            if here.begin == bottom:
                return
            span *= _FURTHER
        there = OffsetRange(min(lowest, mark.target_end), mark.target_end)
        here, purged = OffsetRange(bottom, end), first is not None and lowest > first.target_offset
        yield _Tail(mark, self.target, there, here, self._in_force(lowest), whole=True, purged=purged)

    def _in_force(self, target_offset: int) -> list[OffsetMapping]:
        """The row that holds at an offset of the target, and all above it; empty: the target has no record."""
        mark = self.mark
        row = self.rows.last_valid_mapping(self.link, mark.tp, mark.epoch, target_offset)
        if row is None or target_offset >= mark.target_end:
            return []
        rows = [row]
        while (following := self.rows.next_mapping(self.link, mark.tp, mark.epoch, rows[-1].source_offset)) is not None:
            if following.source_offset >= mark.source_through:
                break
            rows.append(following)
        return rows


def seconds_for(partitions: int) -> float:
    """How long reading that many partitions may take where a run waits for it: with a fixed time, a resume would get no
    further."""
    return SECONDS + partitions * _A_PARTITION_SECONDS


def unmirrored_tail(sides: LinkSides, marks: Iterable[Watermark], *, seconds: float = SECONDS) -> UnmirroredTail:
    """Compare these partitions; nobody but the mirror writes to their target.

    `marks`: how far they count as mirrored, and where the target ends for that. `seconds`: for all of them; the rest is
    unread.

    Raises:
        Unreachable: a cluster or the store doesn't answer.
    """
    from drkit.kafka.client.log_reader import LogReader  # noqa: PLC0415 - it loads asyncio, and most commands need none

    source, target, committed = sides.source, sides.target, sides.committed
    there = {mark: TopicPartition(sides.target_topic(mark.topic), mark.partition) for mark in marks}
    found = UnmirroredTail({}, {}, {})
    if not there:
        return found
    starts = target.start_offsets(there.values(), partial=True)
    target_ends = target.end_offsets(there.values(), committed=False, partial=True)
    for mark, tp in there.items():
        if target_ends.get(tp, 0) < mark.target_end:
            found.unread[mark.tp] = f"{tp} on {target.alias} doesn't reach {mark.target_end}, where it ended"
    begins = source.start_offsets([mark.tp for mark in there], partial=True)
    ends = source.end_offsets([mark.tp for mark in there], committed=committed, partial=True)
    within = _Within(seconds)
    with (
        LogReader(source.alias, source.cluster, timeout_seconds=SECONDS, committed=committed) as ours,
        LogReader(target.alias, target.cluster, timeout_seconds=SECONDS, committed=False) as theirs,
    ):
        reading = _Reading(ours, theirs, target, sides.alteration, within, sides.left)
        for mark, tp in sorted(there.items(), key=lambda each: each[0].tp):
            if mark.tp in found.unread:
                continue
            if within.is_over():
                found.unread[mark.tp] = f"what it holds below source offset {mark.source_through} wasn't read in time"
                continue
            end = ends.get(mark.tp, 0)
            target_start = starts.get(tp, mark.target_start)
            logs = _Logs(sides.link, mark, tp, sides.rows, target_start, begins.get(mark.tp, 0), end)
            try:
                first, same_until = _first_unmirrored(reading, logs)
            except (DrkitError, Damaged, _Incomparable) as error:
                found.unread[mark.tp] = f"what it holds below source offset {mark.source_through} is unread: {error}"
                continue
            if first is not None:
                found.first[mark.tp], found.same_until[mark.tp] = first, same_until
            elif end < mark.source_through:
                found.unread[mark.tp] = f"source offsets from {end} on can't be read (an open transaction?)"
    return found


class _Incomparable(Exception):
    """Reading took too long, or the target no longer has what the source's records would equal."""


class _Within:
    """The seconds in which all partitions are to be read."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds

    def is_over(self) -> bool:
        """Whether they have passed."""
        return time.monotonic() > self._until

    def check(self) -> None:
        """Raise `_Incomparable` if they have passed."""
        if self.is_over():
            raise _Incomparable(f"not within {self._seconds:g} s")


class _Reading(NamedTuple):
    """What both sides are read with, and within what time. `left`: as `LinkSides.left`."""

    ours: LogReader
    theirs: LogReader
    target: ClusterAdmin
    alteration: Alteration | None
    within: _Within
    left: bool

    def cleaner(self, target: TopicPartition) -> _Cleaner | None:
        """The target's cleaner, if it works on a topic."""
        settings = self.target.topic_configs({target.topic}, keys=(CLEANUP, TOMBSTONES_KEPT)).get(target.topic, {})
        if not is_compacted(settings):
            return None
        return _Cleaner(to_millis(now()) - int(settings.get(TOMBSTONES_KEPT, "0")))


class _Cleaner(NamedTuple):
    """A log cleaner. `removes_until`: tombstones from before then (Unix milliseconds) may be removed, and what they
    delete with them."""

    removes_until: int

    def may_have_removed(self, record: RawRecord) -> bool:
        """Whether a record is such a tombstone."""
        return record.timestamp <= self.removes_until and record_body.decode(bytes(record.body))[1] is None


class _Seen(NamedTuple):
    """Of a tail: whether a record is the same on both sides; the first offset of the source with a record that the link
    carries and that the target lacks or never had at that place; and the one behind the last record below it that is
    the same."""

    equal: bool
    first: int | None
    same_until: int


def _first_unmirrored(reading: _Reading, logs: _Logs) -> tuple[int | None, int]:
    """The first one of a partition, and the offset behind the last record that is the same; 0: there may be earlier
    ones."""
    found = False
    for tail in logs.tails():
        try:
            seen = _compare(reading, tail)
        except (_Incomparable, Damaged):
            if found:
                return 0, 0
            raise
        if seen.equal or tail.whole:
            return seen.first, seen.same_until
        found = found or seen.first is not None
    raise AssertionError("the last tail is whole")


def _compare(reading: _Reading, tail: _Tail) -> _Seen:
    from drkit.kafka.transform.record_transform import AlterationFailed  # noqa: PLC0415 - loads librdkafka

    tp, equal, same_until = tail.mark.tp, False, tail.here.begin
    theirs = _records(reading.theirs, tail.target, tail.there, reading.within)
    held = {each.offset: (each.timestamp, bytes(each.body)) for each in theirs}
    asked, cleaner = False, None
    last: dict[bytes, int] = {}
    removed: dict[bytes, int] = {}  # if both sides have a later record of the key, or the source an old tombstone
    alone = set[bytes]()  # those of which the target holds no later record
    records = _records(reading.ours, tp, tail.here, reading.within)
    try:
        for record in records if reading.alteration is None else reading.alteration.records(tp, records):
            place, key = tail.place(record.offset), _key(record.body)
            there = held.get(place)
            if there is not None and there == (record.timestamp, bytes(record.body)):
                equal, same_until = True, record.offset + 1
                removed.pop(key, None)
                alone.discard(key)
                continue
            if there is None and not asked:
                asked, cleaner = True, reading.cleaner(tail.target)
                last = _last_of_keys(held) if cleaner is not None else {}
            # a cleaner removes what a tombstone deletes before the tombstone
            if there is None and cleaner is not None and key not in last and cleaner.may_have_removed(record):
                removed.pop(key, None)
                alone.discard(key)
                continue
            if there is None and last.get(key, -1) > place:
                removed.setdefault(key, record.offset)
                continue
            if tail.purged and not equal and (place < tail.there.begin or not tail.rows):
                raise _Incomparable(f"{tail.target} begins at {tail.there.begin}, and no later record is on both sides")
            if there is None and cleaner is not None:
                removed.setdefault(key, record.offset)
                alone.add(key)
                continue
            first = min((record.offset, *removed.values()))
            return _Seen(equal, first, min(first, same_until))
    except AlterationFailed as error:
        raise Damaged(str(error)) from error
    if reading.left and alone:
        raise _Incomparable(f"the cleaner of {tail.target} may have removed it, as clients write there")
    lacking = min(removed.values(), default=None)
    return _Seen(equal, lacking, same_until if lacking is None else min(lacking, same_until))


def _last_of_keys(held: Mapping[int, tuple[int, bytes]]) -> dict[bytes, int]:
    """The last offset of each key."""
    return {_key(body): offset for offset, (_, body) in sorted(held.items())}


def _key(body: bytes | memoryview) -> bytes:
    """A record's key; b"" for none, which no compacted topic holds."""
    return record_body.decode(bytes(body))[0] or b""


def _records(reader: LogReader, tp: TopicPartition, stretch: OffsetRange, within: _Within) -> Iterator[RawRecord]:
    with closing(reader.records(tp.topic, tp.partition, stretch.begin, stretch.end)) as records:
        for record in records:
            within.check()
            yield record
