"""A classification's requests to the logs beyond its residuals, and how they are read. Pure except for the reader.

A request concerns one partition. It says which offsets to read, takes batches, and returns an answer; answers of
several tasks are merged. So one task or many can answer the same request.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

from drkit.audit.compare.merge_join import Digest, SourceLeft, content_digest
from drkit.audit.compare.offset_zones import Zone
from drkit.audit.compare.undecoded_batches import ONE_BY_ONE, SHORTEST, holds_any
from drkit.kafka.protocol.record_batch import MAGIC, Batch
from drkit.kafka.protocol.record_columns import RecordColumns

Offsets = Sequence[tuple[int, int]]
"""Ranges [first, until) of offsets, ascending and apart."""

_MOST_NEEDLES = 1_000
"""Records that are looked for by their bytes; more are found as fast by decoding. In a batch of 1,000 records of 150
bytes that takes 15 µs for one, 0.1 ms for a hundred; decoding it 1 ms."""


class LogRequest(Protocol):
    """A request about the records of one partition, on one side."""

    @property
    def of_target(self) -> bool:
        """Whether it is about the target's log."""

    @property
    def beyond(self) -> int | None:
        """From here on up to the log's end of now it is asked; None: about the log that the audit began with."""

    def ranges(self, log: tuple[int, int]) -> Offsets:
        """What of the log [first, until) must be read."""
        ...

    def new(self) -> Any:
        """An empty answer."""
        ...

    def add(self, answer: Any, batch: Batch, first: int, until: int) -> None:
        """Add what a batch says; only its offsets in [first, until) count."""
        ...

    def merge(self, answer: Any, other: Any) -> None:
        """Add another task's answer to one."""
        ...


class Segment(NamedTuple):
    """Consecutive matched records, without a cut between them. Each is at its place."""

    n: int
    s_lo: int
    s_hi: int
    t_lo: int
    t_hi: int


@dataclass(frozen=True, slots=True)
class MatchedSegments:
    """How the records that matched at their place lie between offsets of interest: {key: Segment}, in any order.

    `within`: the offsets asked about; `source_cuts`, `target_cuts`: offsets of interest of either side, ascending;
    `unmatched`: the offsets of source records that did not match.
    """

    within: Offsets
    source_cuts: Sequence[int]
    target_cuts: Sequence[int]
    unmatched: frozenset[int]
    zones: tuple[Zone, ...]
    of_target: ClassVar[bool] = False
    beyond: ClassVar[None] = None

    def ranges(self, log: tuple[int, int]) -> Offsets:  # noqa: ARG002 - as the protocol has it
        """Those asked about."""
        return self.within

    def new(self) -> dict[tuple[int, int, int], Segment]:
        """By number of the range and numbers of cuts before it."""
        return {}

    def add(self, answer: dict[tuple[int, int, int], Segment], batch: Batch, first: int, until: int) -> None:
        """Add a batch's records."""
        at = bisect_right(self.within, first, key=lambda each: each[0])
        for offset in _columns(batch, first, until).offsets:
            if offset in self.unmatched:
                continue
            zone = zone_of(self.zones, offset)
            if not zone.valid_from <= offset < zone.valid_until:
                continue
            e = zone.place(offset)
            key = (at, bisect_right(self.source_cuts, offset), bisect_right(self.target_cuts, e))
            _widen(answer, key, Segment(1, offset, offset, e, e))

    def merge(self, answer: dict[tuple[int, int, int], Segment], other: Mapping[tuple[int, int, int], Segment]) -> None:
        """Add another task's."""
        for key, segment in other.items():
            _widen(answer, key, segment)


class WantedRecord(NamedTuple):
    """A record to look for: its digest and timestamp (ms), and bytes that it contains."""

    first: int
    second: int
    stamp: int
    needle: bytes


@dataclass(frozen=True, slots=True)
class FirstEqual:
    """The first source record that equals each of these: {digest: (offset, its place or the nearest below)}.

    `newest`: ranges of offsets with the highest timestamp in them; those that are older than all that is wanted are
    not read. None: unknown.
    """

    wanted: Sequence[WantedRecord]
    zones: tuple[Zone, ...]
    newest: Sequence[tuple[int, int, int]] | None = None
    of_target: ClassVar[bool] = False
    beyond: ClassVar[None] = None

    def ranges(self, log: tuple[int, int]) -> Offsets:
        """All of the log but what is older than every record wanted."""
        if self.newest is None:
            return [log]
        oldest = min((each.stamp for each in self.wanted), default=0)
        return [(first, until) for first, until, newest in self.newest if newest >= oldest]

    def new(self) -> dict[Digest, tuple[int, int]]:
        """By digest."""
        return {}

    def add(self, answer: dict[Digest, tuple[int, int]], batch: Batch, first: int, until: int) -> None:
        """Look in a batch. Its highest timestamp leaves most of the wanted out, their bytes nearly all others."""
        wanted = self.wanted
        if batch.magic >= MAGIC:
            newest = batch.max_timestamp
            wanted = [each for each in wanted if each.stamp <= newest]
            if not wanted:
                return
            few = len(wanted) <= ONE_BY_ONE
            needles = [each.needle for each in (wanted if few else self.wanted)]  # always the same, so prepared once
            searchable = len(needles) <= _MOST_NEEDLES and all(len(each) >= SHORTEST for each in needles)
            if searchable and not holds_any(batch, needles):
                return
        stamps = {each.stamp for each in wanted}
        digests = {(each.first, each.second) for each in wanted}
        columns = _columns(batch, first, until)
        for i, stamp in enumerate(columns.stamps):
            if stamp in stamps:
                digest = content_digest(columns.keys[i], columns.values[i], stamp, columns.headers[i])
                offset = columns.offsets[i]
                if digest in digests and (digest not in answer or offset < answer[digest][0]):
                    answer[digest] = (offset, zone_of(self.zones, offset).place(offset))

    def merge(self, answer: dict[Digest, tuple[int, int]], other: Mapping[Digest, tuple[int, int]]) -> None:
        """Add another task's."""
        for digest, found in other.items():
            answer[digest] = min(found, answer.get(digest, found))


@dataclass(slots=True)
class KeysFound:
    """The highest offset of each key that is there, and how many records there are of whatever key."""

    newest: dict[bytes, int] = field(default_factory=dict)
    records: int = 0


@dataclass(frozen=True, slots=True)
class NewestOfKeys:
    """The highest offset of each of these keys: `KeysFound`. `without`: offsets that don't count as one."""

    keys: frozenset[bytes]
    without: frozenset[int]
    of_target: bool = False
    beyond: ClassVar[None] = None

    def ranges(self, log: tuple[int, int]) -> Offsets:
        """All of the log."""
        return [log]

    def new(self) -> KeysFound:
        """By key."""
        return KeysFound()

    def add(self, answer: KeysFound, batch: Batch, first: int, until: int) -> None:
        """Look in a batch."""
        columns = _columns(batch, first, until)
        answer.records += len(columns)
        newest = answer.newest
        for offset, key in zip(columns.offsets, columns.keys, strict=True):
            if key in self.keys and offset not in self.without:
                assert key is not None  # noqa: S101 - it is one of the keys
                newest[key] = max(offset, newest.get(key, offset))

    def merge(self, answer: KeysFound, other: KeysFound) -> None:
        """Add another task's."""
        answer.records += other.records
        for key, offset in other.newest.items():
            answer.newest[key] = max(offset, answer.newest.get(key, offset))


@dataclass(frozen=True, slots=True)
class KeysBeyond:
    """Which of these keys have records from an offset on, up to the log's end of now: {key}.

    A cleaner goes by all that its log holds when it runs, also by what came after the audit had begun.
    """

    keys: frozenset[bytes]
    beyond: int
    of_target: bool

    def ranges(self, log: tuple[int, int]) -> Offsets:
        """All of the log; nothing where it hasn't grown."""
        return [log] if log[1] > log[0] else []

    def new(self) -> set[bytes]:
        """No keys."""
        return set()

    def add(self, answer: set[bytes], batch: Batch, first: int, until: int) -> None:
        """Look in a batch."""
        answer.update(key for key in _columns(batch, first, until).keys if key is not None and key in self.keys)

    def merge(self, answer: set[bytes], other: Iterable[bytes]) -> None:
        """Add another task's."""
        answer.update(other)


@dataclass(frozen=True, slots=True)
class MatchedRecords:
    """The records in these ranges that matched at their place, in order: a list of `SourceLeft`."""

    number: int
    within: Offsets
    unmatched: frozenset[int]
    zones: tuple[Zone, ...]
    of_target: ClassVar[bool] = False
    beyond: ClassVar[None] = None

    def ranges(self, log: tuple[int, int]) -> Offsets:  # noqa: ARG002 - as the protocol has it
        """Those asked about."""
        return self.within

    def new(self) -> list[SourceLeft]:
        """In order."""
        return []

    def add(self, answer: list[SourceLeft], batch: Batch, first: int, until: int) -> None:
        """Add a batch's records."""
        columns = _columns(batch, first, until)
        for i, offset in enumerate(columns.offsets):
            zone = zone_of(self.zones, offset)
            if offset in self.unmatched or not zone.valid_from <= offset < zone.valid_until:
                continue
            key, value, stamp = columns.keys[i], columns.values[i], columns.stamps[i]
            digest = content_digest(key, value, stamp, columns.headers[i])
            answer.append(SourceLeft(self.number, offset, zone.place(offset), True, *digest, stamp, key, value is None))

    def merge(self, answer: list[SourceLeft], other: Iterable[SourceLeft]) -> None:
        """Add another task's."""
        answer.extend(other)


def zone_of(zones: Sequence[Zone], offset: int) -> Zone:
    """The zone that a source offset lies in."""
    return zones[bisect_right(zones, offset, key=lambda each: each.first) - 1] if len(zones) > 1 else zones[0]


def _columns(batch: Batch, first: int, until: int) -> RecordColumns:
    """The records of a batch; none where it can't be read."""
    columns = RecordColumns()
    columns.add_readable(batch, first, until)
    return columns


def _widen(answer: dict[tuple[int, int, int], Segment], key: tuple[int, int, int], more: Segment) -> None:
    held = answer.get(key)
    answer[key] = (
        more
        if held is None
        else Segment(
            held.n + more.n,
            min(held.s_lo, more.s_lo),
            max(held.s_hi, more.s_hi),
            min(held.t_lo, more.t_lo),
            max(held.t_hi, more.t_hi),
        )
    )
