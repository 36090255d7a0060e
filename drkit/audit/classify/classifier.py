"""Classifies each residual: the audit's only definitions, in order. Pure.

The first pass (`compare/merge_join.py`) leaves residuals: records of either side without an equal one at their place.
Target residuals, by the first reason that holds:

    target_appended   beyond what a sealed link mirrored
    source_retired    in the former copy of a topic that was accepted as a new one
    (paired)          an equal source record is elsewhere in the partition: matched, displaced
    uncompared        at an offset where the source can't be read, or the link's result is unknown
    source_retired    corresponds to a record that the source's retention or compaction removed
    duplicated        equal to a source record that is matched to another copy
    corrupted         in the place of an unmatched source record
    foreign           none of these

Source residuals:

    (paired), corrupted   as above
    unreadable            its place is in a batch of the target that can't be read
    target_hidden         its place is after an open transaction of the target
    target_retired        the target's retention or compaction removed it
    target_unproven       the target's compaction may have removed it: nothing shows that its tombstone was there
    unseen                at or above the highest mirrored position
    lost                  none of these

Matched records that are out of order are reordered: the smallest set that must be removed to restore order
(`ordering.py`). The expected offset of a record follows from its place and the displacement of the records around it,
so one missing record early in a topic doesn't make the others corrupted.

Pairs are equal digests within a partition:

1. A digest left once on each side is one pair.
2. Of a digest left several times, first pair those at the offsets that the records around them predict.
3. Pair the others in order: the n-th on the source with the n-th on the target.

Every digest is paired as often as both sides have it, so the unpaired ones are what one side has more of, whatever the
pairing. Which of several equal records (key, value, headers and timestamp) is which can't be known; step 2 takes the
explanation with the fewest movements nearby.

`classify` handles one partition. It requests what residuals don't show (`log_lookups.py`) as a generator, so that the
driver can answer many partitions at once, and a task one by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from drkit.audit.classify.compaction import (
    CompactedResiduals,
    PlaceOwners,
    compacted_on_source,
    compacted_on_target,
    highest_of_keys,
)
from drkit.audit.classify.ordering import AdjacentLines, MatchedLine, Neighbours, put_in_order
from drkit.audit.compare.log_lookups import (
    FirstEqual,
    KeysBeyond,
    KeysFound,
    LogRequest,
    MatchedSegments,
    NewestOfKeys,
    WantedRecord,
)
from drkit.audit.compare.merge_join import Digest, MatchedRange, SourceLeft, TargetLeft
from drkit.audit.compare.offset_zones import FOREVER, Zone
from drkit.model.audit.audit_result import FindingKind

SOURCE_RETIRED = "source_retired"
TARGET_RETIRED = "target_retired"
TARGET_UNPROVEN = "target_unproven"
"""Of the source: it is unknown whether the target's cleaner removed it, or it is lost."""
TARGET_HIDDEN = "target_hidden"
"""Of the source: the target record at its place is unknown, because readers of committed records don't get it yet."""
TARGET_APPENDED = "target_appended"
UNCOMPARED = "uncompared"
"""On the target, where nothing says what belongs there."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What is known of a partition beside its records.

    `start_place`: the place of the source's log start; `first_place`: the first target offset that stands for a source
    record; `recorded`: whether the mapping is known; `through`: the highest mirrored position by what was recorded and
    what matched at its place; `watermarked`: whether the mirror recorded one; `bound`: where a sealed link's part of
    the target ends; `earlier_until`: below it the target may stand for records of an earlier topic of this name.
    `unreadable`: target offsets that can't be read; `uncompared`: those that stand for what the source can't give, or
    were counted already. `purged`: ranges of source offsets that no retention removed there. `hidden`: target
    offsets [first, until) behind an open transaction. `partial`: equal records may be anywhere in the source's log.
    `target_compacted`: its cleaner explains what isn't there (`PartitionScope.compaction_explains`).
    `aborted`: the link mirrors records of aborted transactions, which the source's cleaner takes whatever their key;
    `altered`: callables of the user's decide what is on the target, and can't be asked about what it took.
    `shift`: of chunks.
    """

    number: int
    zones: tuple[Zone, ...]
    shift: int
    recorded: bool
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    start_place: int
    first_place: int
    through: int | None
    watermarked: bool
    bound: int | None = None
    earlier_until: int | None = None
    source_compacted: bool = False
    target_compacted: bool = False
    unreadable: tuple[tuple[int, int], ...] = ()
    uncompared: tuple[tuple[int, int], ...] = ()
    partial: bool = False
    purged: tuple[tuple[int, int], ...] = ()
    hidden: tuple[int, int] = (0, 0)
    aborted: bool = False
    altered: bool = False

    def appended(self, t: int) -> bool:
        """Whether a target residual is beyond what a sealed link mirrored."""
        return self.bound is not None and t >= self.bound

    def former(self, t: int) -> bool:
        """Whether a target residual is in the former copy of a topic that is mirrored anew behind it. Its records stand
        for none of the source, though they may be equal to some."""
        return self.recorded and self.earlier_until is not None and t < self.earlier_until


class Classification(NamedTuple):
    """The outcome of a residual, or of a matched record that is out of order. Offsets are null where a side has no
    part; rows where it isn't a residual of that side."""

    outcome: str
    p: int
    s: int | None
    t: int | None
    source: SourceLeft | None
    target: TargetLeft | None

    @property
    def stamp(self) -> int:
        """The timestamp (ms) that it goes by: the source record's, else the target's."""
        if self.source is not None:
            return self.source.s_ts
        assert self.target is not None  # noqa: S101 - one side is there
        return self.target.t_ts


class Pair(NamedTuple):
    """A record that was found elsewhere than at its place."""

    p: int
    s: int
    t: int
    stamp: int


@dataclass(slots=True)
class ClassifiedPartition:
    """One partition. `aside`: stretches of records that matched and are out of order, all of them;
    `through`: the highest mirrored position; `exact`: whether the reordered are the fewest."""

    limits: PartitionFacts
    through: int | None
    classifications: list[Classification] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    aside: tuple[MatchedLine, ...] = ()
    exact: bool = True


Steps = Generator[LogRequest, Any, ClassifiedPartition]


def classify(
    limits: PartitionFacts,
    source: Sequence[SourceLeft],
    target: Sequence[TargetLeft],
    stretches: Sequence[MatchedRange],
    runs: Sequence[MatchedLine] = (),
) -> Steps:
    """Classify every residual of a partition.

    Args:
        limits: what is known of it.
        source: its source residuals, by offset.
        target: its target residuals, by offset.
        stretches: what matched at its place.
        runs: what was paired already, in long runs (`displaced_runs.py`); not of a compacted topic.

    Yields:
        requests; each is to be sent its answer.
    """
    return _Classifier(limits, source, target, stretches, runs).run()


def reordered(number: int, record: SourceLeft, displaced: int = 0) -> Classification:
    """The classification of a record of a stretch or run that is out of order."""
    return Classification(FindingKind.REORDERED, number, record.s, record.e + displaced, record, None)


def holds(ranges: Sequence[tuple[int, int]], offset: int) -> bool:
    """Whether one of these ranges [first, until), ascending and apart, holds an offset."""
    at = bisect_right(ranges, offset, key=lambda each: each[0]) - 1
    return at >= 0 and offset < ranges[at][1]


class _Classifier:
    def __init__(
        self,
        limits: PartitionFacts,
        source: Sequence[SourceLeft],
        target: Sequence[TargetLeft],
        stretches: Sequence[MatchedRange],
        runs: Sequence[MatchedLine],
    ) -> None:
        self._limits = limits
        self._runs = sorted(runs)
        self._source = source
        self._target = target
        self._stretches = stretches
        self._found = ClassifiedPartition(limits, limits.through)
        self._through = limits.through
        self._paired: dict[int, int] = {}
        self._beside = Neighbours()
        # The source's records as they were compared: its cleaner may remove some of them meanwhile.
        self._compared = len(source) + sum(each.n for each in stretches) + sum(run.records for run in runs)

    def run(self) -> Steps:
        limits = self._limits
        appended = [row for row in self._target if limits.appended(row.t)]
        former = [row for row in self._target if limits.former(row.t)]
        mirrored = self._target
        if appended or former:
            mirrored = [row for row in mirrored if not (limits.appended(row.t) or limits.former(row.t))]
        self._add(TARGET_APPENDED, targets=appended)
        self._add(SOURCE_RETIRED, targets=former)
        if self._runs or (self._source and mirrored):
            yield from self._pair(mirrored)
        paired_target = set(self._paired.values())
        source = [row for row in self._source if row.s not in self._paired]
        target = [row for row in mirrored if row.t not in paired_target]
        unreadable = [row for row in source if row.placed and holds(limits.unreadable, row.e)]
        for row in unreadable:
            self._found.classifications.append(
                Classification(FindingKind.UNREADABLE, limits.number, row.s, row.e, row, None)
            )
        if unreadable:
            source = [row for row in source if not (row.placed and holds(limits.unreadable, row.e))]
        if limits.recorded and limits.hidden[0] < limits.hidden[1]:
            through = self._through or 0
            hidden = [row for row in source if row.placed and row.s < through and holds([limits.hidden], row.e)]
            self._add(TARGET_HIDDEN, sources=hidden)
            behind = {row.s for row in hidden}
            source = [row for row in source if row.s not in behind]
        self._add(UNCOMPARED, targets=[row for row in target if holds(limits.uncompared, row.t)])
        if limits.uncompared:
            target = [row for row in target if not holds(limits.uncompared, row.t)]
        left = yield from self._left_of_target(target)
        corrupted = self._corrupted(source, left)
        taken = set(corrupted.values())
        strange = UNCOMPARED if limits.altered and limits.source_compacted else FindingKind.FOREIGN
        self._add(strange, targets=[row for row in left if row.t not in taken])
        missing = [row for row in source if row.s not in corrupted]
        yield from self._missing(missing, source, target, appended)
        self._found.through = self._through
        return self._found

    def _add(self, outcome: str, *, sources: Iterable[SourceLeft] = (), targets: Iterable[TargetLeft] = ()) -> None:
        number = self._limits.number
        self._found.classifications += [Classification(outcome, number, row.s, None, row, None) for row in sources]
        self._found.classifications += [Classification(outcome, number, None, row.t, None, row) for row in targets]

    # pairs and order

    def _pair(self, mirrored: Sequence[TargetLeft]) -> Generator[LogRequest, Any, None]:
        sources, targets = _shared(self._source, mirrored)
        if not sources and not self._runs:
            return
        sought = yield from self._lines(
            [row for rows in sources.values() for row in rows], [row for rows in targets.values() for row in rows]
        )
        pairs: list[tuple[SourceLeft, TargetLeft]] = []
        several: list[Digest] = []
        for digest, rows in sources.items():
            if len(rows) == 1 and len(targets[digest]) == 1:
                pairs.append((rows[0], targets[digest][0]))
            else:
                several.append(digest)
        if several:
            around = Neighbours(put_in_order([*sought, *map(_moved, pairs)]).kept) if pairs else Neighbours()
            pairs += _pair_several({each: sources[each] for each in several}, targets, around)
        ordered = put_in_order([*sought, *map(_moved, pairs)])
        self._beside = Neighbours(ordered.kept)
        self._paired = {source.s: target.t for source, target in pairs}
        number = self._limits.number
        self._found.pairs = [Pair(number, source.s, target.t, source.s_ts) for source, target in pairs]
        self._found.exact = ordered.exact
        self._found.aside = tuple(line for line in ordered.aside if not line.moved)
        out_of_order = {line.s_lo for line in ordered.aside}  # where a stretch begins no residual is
        self._found.classifications += [
            Classification(FindingKind.REORDERED, number, source.s, target.t, source, None)
            for source, target in pairs
            if source.s in out_of_order
        ]
        highest = max([*self._paired, *(run.s_hi for run in self._runs)])
        self._through = max(highest + 1, self._through or 0)

    def _lines(
        self, sources: Sequence[SourceLeft], targets: Sequence[TargetLeft]
    ) -> Generator[LogRequest, Any, list[MatchedLine]]:
        """What matched at its place, in stretches that none of these records, that may have moved, stand within."""
        shift = self._limits.shift
        torn = {row.e >> shift for row in sources} | {row.t >> shift for row in targets}
        merged: dict[int, list[int]] = {}
        for each in self._stretches:
            held = merged.get(each.chunk)
            if held is None:
                merged[each.chunk] = [each.s_lo, each.s_hi, each.t_lo, each.t_hi, each.n]
            else:  # a time window, or the end of a piece, may have split them
                held[0], held[1] = min(held[0], each.s_lo), max(held[1], each.s_hi)
                held[2], held[3] = min(held[2], each.t_lo), max(held[3], each.t_hi)
                held[4] += each.n
        lines = self._runs + [
            MatchedLine(s_lo, s_hi, t_lo, t_hi, 0, n, moved=False)
            for chunk, (s_lo, s_hi, t_lo, t_hi, n) in merged.items()
            if chunk not in torn
        ]
        apart = sorted((held[0], held[1] + 1) for chunk, held in merged.items() if chunk in torn)
        if apart:
            answer = yield MatchedSegments(
                apart,
                sorted(row.s for row in sources),
                sorted(row.t for row in targets),
                frozenset(row.s for row in self._source if holds(apart, row.s)),
                self._limits.zones,
            )
            lines += [
                MatchedLine(each.s_lo, each.s_hi, each.t_lo, each.t_hi, 0, each.n, moved=False)
                for each in answer.values()
            ]
        return lines

    # target residuals

    def _left_of_target(self, target: Sequence[TargetLeft]) -> Generator[LogRequest, Any, list[TargetLeft]]:
        """Target residuals that stand for no source record that there is or was: corrupted or foreign."""
        limits = self._limits
        retired = [row for row in target if self._before_source_start(row)]
        self._add(SOURCE_RETIRED, targets=retired)
        if retired:
            gone = {row.t for row in retired}
            target = [row for row in target if row.t not in gone]
        if limits.source_compacted and target:
            explained = yield from self._taken_on_source(target)
            self._add(SOURCE_RETIRED, targets=[row for row in target if row.t in explained])
            target = [row for row in target if row.t not in explained]
        if not target:
            return []
        wanted = {(row.t1, row.t2): WantedRecord(row.t1, row.t2, row.t_ts, row.needle) for row in target}
        newest = None if limits.partial else self._newest()
        equal = yield FirstEqual(list(wanted.values()), limits.zones, newest)
        copies = [row for row in target if (row.t1, row.t2) in equal]
        self._found.classifications += self._duplicated(copies, equal)
        return [row for row in target if (row.t1, row.t2) not in equal]

    def _taken_on_source(self, target: Sequence[TargetLeft]) -> Generator[LogRequest, Any, set[int]]:
        """Which target residuals the source's compaction explains; their offsets. What is asked for first explains
        nearly all."""
        limits = self._limits
        explain = partial(
            compacted_on_source,
            [(row, self._beside.of_target(row.t)) for row in target],
            zones=limits.zones,
            occupied={row.s for row in self._source},
            # Beyond what was recorded a mirror that was killed wrote, too; where no mapping tells places, nobody did.
            log=(limits.source_start, limits.source_end if limits.recorded else self._through or 0),
            aborted=limits.aborted,
        )

        def keys() -> frozenset[bytes]:
            return frozenset(row.t_key for row in target if row.t_key is not None and row.t not in explained)

        explained: set[int] = set()
        found = (yield NewestOfKeys(keys(), frozenset())) if keys() else KeysFound()
        newest = found.newest
        explained = explain(newest)
        if keys():
            since = yield KeysBeyond(keys(), limits.source_end, of_target=False)
            newest |= dict.fromkeys(since, limits.source_end)
            explained = explain(newest) if since else explained
        if keys() and found.records != self._compared:
            matched = yield from self._newest_matched(keys())
            explained = explain(_later(newest, matched)) if matched else explained
        return explained

    def _newest_matched(self, keys: frozenset[bytes]) -> Generator[LogRequest, Any, dict[bytes, int]]:
        """By key, the highest source offset of a record that was found at its place: by the target, where the source
        has lost records since it was compared."""
        found = yield NewestOfKeys(keys, frozenset(row.t for row in self._target), of_target=True)
        lookup = PlaceOwners(self._limits.zones)
        stood = {key: lookup.source_of(t) for key, t in found.newest.items()}
        return {key: s for key, s in stood.items() if s is not None}

    def _newest(self) -> list[tuple[int, int, int]]:
        """Where source records that are on the target may equal others: among what matched and what was paired.

        One that is on neither would have been paired with its equal."""
        stretches = [(each.s_lo, each.s_hi + 1, each.newest) for each in self._stretches]
        paired = [(row.s, row.s + 1, row.s_ts) for row in self._source if row.s in self._paired]
        return [*stretches, *paired, *((run.s_lo, run.s_hi + 1, FOREVER) for run in self._runs)]

    def _matched_at(self, s: int, place: int) -> int:
        """The target offset that a source record is matched to."""
        if s in self._paired:
            return self._paired[s]
        at = bisect_right(self._runs, s, key=lambda run: run.s_lo) - 1
        return place + self._runs[at].displaced if at >= 0 and s <= self._runs[at].s_hi else place

    def _before_source_start(self, row: TargetLeft) -> bool:
        """Whether it stands for a source record that is no longer on the source: either retention took the source's
        beginning, or the whole topic was recreated there (and what is there now is equal to nothing of it)."""
        limits = self._limits
        if limits.earlier_until is not None and row.t < limits.earlier_until:
            return True
        return limits.first_place <= row.t < limits.start_place and self._beside.of_target(row.t).before is None

    def _before_target_start(self, row: SourceLeft) -> bool:
        """Whether its place is before the target's log start."""
        if self._limits.target_start <= 0 or holds(self._limits.purged, row.s):
            return False
        beside = self._beside.of_source(row.s)
        # Where the mapping is known, a log has as many places before its start as the mapping says: one record more
        # than that is a record lost, or one too many, although which one can't be told any more.
        displaced = 0 if self._limits.recorded else beside.displaced_after
        return beside.before is None and row.e + displaced < self._limits.target_start

    def _duplicated(self, copies: Sequence[TargetLeft], equal: dict[Digest, tuple[int, int]]) -> list[Classification]:
        """Further copies of source records.

        Of copies that stand next to each other the first is the record and the others are the duplicates. Places can't
        tell them apart, so one before its matched copy gives its role to the next.
        """
        number = self._limits.number
        found: list[Classification] = []
        earlier: defaultdict[int, list[TargetLeft]] = defaultdict(list)
        matched: dict[int, int] = {}
        for row in copies:
            s, place = equal[row.t1, row.t2]
            matched[s] = self._matched_at(s, place)
            if row.t < matched[s]:
                earlier[s].append(row)
            else:
                found.append(Classification(FindingKind.DUPLICATED, number, s, row.t, None, row))
        for s, rows in earlier.items():
            for nth, row in enumerate(sorted(rows, key=lambda each: -each.t), start=1):
                t = row.t + 1 if matched[s] - row.t == nth else row.t
                found.append(Classification(FindingKind.DUPLICATED, number, s, t, None, row))
        return found

    # what is in a record's place

    def _corrupted(self, source: Sequence[SourceLeft], target: Sequence[TargetLeft]) -> dict[int, int]:
        """Source residuals with the target residual that stands in their place; both are taken once.

        What the mirror had not reached can't be corrupted: what is there is somebody else's. Where
        nothing is recorded, it may have reached whatever stands there, if it was there at all.
        """
        limits, through = self._limits, self._through
        known = limits.watermarked or through is None
        standing = {row.t: row for row in target}
        taken: dict[int, int] = {}
        if not standing:
            return taken
        reached = [
            (row, self._beside.of_source(row.s))
            for row in source
            if row.placed and (not known or (through is not None and row.s < through))
        ]
        for after in (False, True):
            for row, beside in reached:
                t = row.e + (beside.displaced_after if after else beside.displaced_before)
                if row.s not in taken and t in standing and _in_its_gap(t, beside):
                    taken[row.s] = t
                    there = standing.pop(t)
                    self._found.classifications.append(
                        Classification(FindingKind.CORRUPTED, limits.number, row.s, t, row, there)
                    )
        if taken:
            self._through = max(max(taken) + 1, through or 0)
        return taken

    # source residuals

    def _missing(
        self,
        missing: Sequence[SourceLeft],
        unmatched: Sequence[SourceLeft],
        strangers: Sequence[TargetLeft],
        appended: Sequence[TargetLeft],
    ) -> Generator[LogRequest, Any, None]:
        """Classifications of source records that nothing on the target stands for."""
        limits, through = self._limits, self._through
        lost: list[SourceLeft] = []
        unseen: list[SourceLeft] = []
        retired: list[SourceLeft] = []
        for row in missing:
            if self._before_target_start(row):
                retired.append(row)
            elif through is not None and row.s < through:
                lost.append(row)
            else:
                unseen.append(row)
        if limits.target_compacted and lost:
            written = {row.t_key for row in appended if row.t_key is not None}
            explained = yield from self._taken_on_target(lost, unseen, unmatched, strangers, written)
            retired += [row for row in lost if row.s in explained.taken]
            self._add(TARGET_UNPROVEN, sources=[row for row in lost if row.s in explained.perhaps])
            lost = [row for row in lost if row.s not in explained.taken | explained.perhaps]
        self._add(TARGET_RETIRED, sources=retired)
        self._add(FindingKind.UNSEEN, sources=unseen)
        self._add(FindingKind.LOST, sources=lost)

    def _taken_on_target(
        self,
        lost: Sequence[SourceLeft],
        unseen: Sequence[SourceLeft],
        unmatched: Sequence[SourceLeft],
        strangers: Sequence[TargetLeft],
        written: set[bytes],
    ) -> Generator[LogRequest, Any, CompactedResiduals]:
        """Which source residuals the target's compaction explains, and which it may."""
        limits = self._limits
        above = [(row, self._beside.of_source(row.s)) for row in unseen if row.s_null]
        explain = partial(
            compacted_on_target,
            [(row, self._beside.of_source(row.s)) for row in lost],
            strangers=highest_of_keys((row.t_key, row.t) for row in strangers),
            occupied={row.t for row in self._target},
            log=(limits.target_start, limits.target_end),
            # behind what a sealed link mirrored, places are its target's own producers'
            unrecorded=[each for each in above if not limits.appended(each[0].e + each[1].displaced_before)],
        )

        def keys() -> frozenset[bytes]:
            return frozenset(row.s_key for row in lost if row.s_key is not None and row.s not in explained.taken)

        explained = CompactedResiduals(set(), set())
        found = (yield NewestOfKeys(keys(), frozenset(row.s for row in unmatched))) if keys() else KeysFound()
        newest = found.newest
        explained = explain(newest, written_since=written)
        if keys():
            since = yield KeysBeyond(keys(), limits.target_end, of_target=True)
            written = written | since
            explained = explain(newest, written_since=written) if since else explained
        if keys() and found.records != self._compared:
            matched = yield from self._newest_matched(keys())
            explained = explain(_later(newest, matched), written_since=written) if matched else explained
        return explained


def _later(newest: Mapping[bytes, int], matched: Mapping[bytes, int]) -> dict[bytes, int]:
    return dict(newest) | {key: max(s, newest.get(key, s)) for key, s in matched.items()}


def _shared(
    source: Iterable[SourceLeft], target: Iterable[TargetLeft]
) -> tuple[dict[Digest, list[SourceLeft]], dict[Digest, list[TargetLeft]]]:
    """The residuals whose digest is left on both sides."""
    on_source: defaultdict[Digest, list[SourceLeft]] = defaultdict(list)
    on_target: defaultdict[Digest, list[TargetLeft]] = defaultdict(list)
    for row in source:
        on_source[row.s1, row.s2].append(row)
    for there in target:
        if (there.t1, there.t2) in on_source:
            on_target[there.t1, there.t2].append(there)
    return {digest: rows for digest, rows in on_source.items() if digest in on_target}, dict(on_target)


def _pair_several(
    sources: dict[Digest, list[SourceLeft]], targets: dict[Digest, list[TargetLeft]], around: Neighbours
) -> list[tuple[SourceLeft, TargetLeft]]:
    """Pairs of digests that are left more than once."""
    found: list[tuple[SourceLeft, TargetLeft]] = []
    for digest, rows in sources.items():
        there = {row.t: row for row in targets[digest]}
        left = {row.s: row for row in rows}
        for after in (False, True):
            for row in rows:
                beside = around.of_source(row.s)
                line = beside.after if after else beside.before
                t = row.e + (0 if line is None else line.displaced)
                if row.s in left and row.placed and t in there:
                    found.append((left.pop(row.s), there.pop(t)))
        found += zip(
            sorted(left.values(), key=lambda row: row.s), sorted(there.values(), key=lambda row: row.t), strict=False
        )
    return found


def _moved(pair: tuple[SourceLeft, TargetLeft]) -> MatchedLine:
    source, target = pair
    return MatchedLine(source.s, source.s, target.t, target.t, target.t - source.e, 1, moved=True)


def _in_its_gap(t: int, beside: AdjacentLines) -> bool:
    """Whether `t` lies between the records in order around a source row, so that no row reaches into another gap."""
    if beside.within:
        return True
    above = beside.before is None or t > beside.before.t_hi
    below = beside.after is None or t < beside.after.t_lo
    return above and below
