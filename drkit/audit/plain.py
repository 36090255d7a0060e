"""Residuals that a few rules judge: what is lost, altered, foreign or unseen where nothing was moved or doubled.

The same definitions as `judge.py`, for the residuals that the driver holds and of which none is anywhere else: no
digest is left on both sides of a partition, no target residual equals a source record, and neither side compacts.
Then nothing is displaced and nothing must be paired, so that each is judged by its place alone, without Spark's joins:
a single altered record costs little more than none. Everything else is `judge.py`'s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from drkit.audit.abreast import SourceLeft, TargetLeft
from drkit.audit.abreast_tasks import Wanted, find_equal
from drkit.audit.compare import Comparison, InHand, Unreadable, by_partition
from drkit.audit.log_source import reached
from drkit.audit.places import place
from drkit.audit.reading import Reader, in_tasks, merged
from drkit.audit.scope import PartitionScope, Scope
from drkit.audit.search import MOST_NEEDLES, SHORTEST
from drkit.audit.spans import Span, share_out, wanted_tasks
from drkit.model.audit import FindingKind

SOURCE_RETIRED = "source_retired"
TARGET_RETIRED = "target_retired"
TARGET_APPENDED = "target_appended"
UNCOMPARED = "uncompared"
"""On the target, where the source can't be read."""


class Fate(NamedTuple):
    """What became of a residual; of a corrupted record both sides are given."""

    fate: str
    source: SourceLeft | None
    target: TargetLeft | None

    @property
    def p(self) -> int:
        """The partition's number."""
        return self._target.p if self.source is None else self.source.p

    @property
    def stamp(self) -> int:
        """The timestamp (ms) that it goes by: the source record's, else the target's."""
        return self._target.t_ts if self.source is None else self.source.s_ts

    @property
    def target_offset(self) -> int | None:
        """Where it stands on the target; an unreadable record is known by its place alone."""
        if self.target is not None:
            return self.target.t
        return self.source.e if self.source is not None and self.fate == FindingKind.UNREADABLE else None

    @property
    def _target(self) -> TargetLeft:
        assert self.target is not None  # noqa: S101 - one side is there
        return self.target


class Plain(NamedTuple):
    """All fates, and the highest mirrored position by partition."""

    fates: tuple[Fate, ...]
    through: dict[int, int | None]


def judge_plainly(
    reader: Reader, comparison: Comparison, bounds: Mapping[int, int], through: Mapping[int, int | None]
) -> Plain | None:
    """Judge the residuals in hand; None where it takes more than these rules.

    Args:
        reader: searches the source.
        comparison: the first pass.
        bounds: where a sealed link's part of the target ends, by partition.
        through: the highest mirrored position by partition.
    """
    in_hand = comparison.in_hand
    if in_hand is None:
        return None
    scope = reader.scope
    concerned = {row.p for row in in_hand.source_left} | {row.p for row in in_hand.target_left}
    if any(scope.partitions[each].source_compacted or scope.partitions[each].target_compacted for each in concerned):
        return None
    appended = [row for row in in_hand.target_left if row.p in bounds and row.t >= bounds[row.p]]
    mirrored = [row for row in in_hand.target_left if row.p not in bounds or row.t < bounds[row.p]]
    on_source = {(row.p, row.s1, row.s2) for row in in_hand.source_left}
    if any((row.p, row.t1, row.t2) in on_source for row in mirrored):
        return None
    images = source_images(scope.partitions, comparison.source_unreadable)
    uncompared = [row for row in mirrored if holds(images.get(row.p, ()), row.t)]
    mirrored = [row for row in mirrored if not holds(images.get(row.p, ()), row.t)]
    strangers = [row for row in mirrored if not _before_source_start(scope.partitions[row.p], row.t)]
    retired = [row for row in mirrored if _before_source_start(scope.partitions[row.p], row.t)]
    fates = [Fate(TARGET_APPENDED, None, row) for row in appended]
    fates += [Fate(SOURCE_RETIRED, None, row) for row in retired]
    fates += [Fate(UNCOMPARED, None, row) for row in uncompared]
    bad = comparison.target_unreadable
    unreadable = [row for row in in_hand.source_left if row.placed and holds(bad.get(row.p, ()), row.e)]
    fates += [Fate(FindingKind.UNREADABLE, row, None) for row in unreadable]
    source_left = [row for row in in_hand.source_left if not (row.placed and holds(bad.get(row.p, ()), row.e))]
    if not _nowhere_else(reader, in_hand, strangers):
        return None
    return _by_place(scope, source_left, strangers, fates, through)


def holds(ranges: Sequence[tuple[int, int]], offset: int) -> bool:
    """Whether one of these ranges [first, until), ascending and apart, holds an offset."""
    at = bisect_right(ranges, offset, key=lambda each: each[0]) - 1
    return at >= 0 and offset < ranges[at][1]


def source_images(partitions: Sequence[PartitionScope], ranges: Unreadable) -> Unreadable:
    """The target offsets that stand for ranges of source offsets."""
    return by_partition(
        (number, place(partitions[number].zones, first), place(partitions[number].zones, until - 1) + 1)
        for number, members in ranges.items()
        for first, until in members
    )


def _by_place(
    scope: Scope,
    source_left: Sequence[SourceLeft],
    strangers: Sequence[TargetLeft],
    fates: list[Fate],
    through: Mapping[int, int | None],
) -> Plain:
    mirrored = dict(through)
    standing = {(row.p, row.t): row for row in strangers}
    missing: list[SourceLeft] = []
    for row in source_left:
        position = through[row.p]
        known = scope.partitions[row.p].mirrored_through is not None or position is None
        reached_there = not known or (position is not None and row.s < position)
        there = standing.pop((row.p, row.e), None) if row.placed and reached_there else None
        if there is None:
            missing.append(row)
            continue
        fates.append(Fate(FindingKind.CORRUPTED, row, there))
        before = mirrored[row.p]
        mirrored[row.p] = row.s + 1 if before is None else max(before, row.s + 1)
    fates += [Fate(FindingKind.FOREIGN, None, row) for row in standing.values()]
    for row in missing:
        each, position = scope.partitions[row.p], mirrored[row.p]
        if each.target_start > 0 and row.e < each.target_start:
            fates.append(Fate(TARGET_RETIRED, row, None))
        elif position is not None and row.s < position:
            fates.append(Fate(FindingKind.LOST, row, None))
        else:
            fates.append(Fate(FindingKind.UNSEEN, row, None))
    return Plain(tuple(fates), mirrored)


def _before_source_start(each: PartitionScope, t: int) -> bool:
    """As `retired.before_source_start`, where nothing is displaced."""
    by_retention = each.source_start > 0 and each.first_place <= t < each.start_place
    return by_retention or (each.earlier_until is not None and t < each.earlier_until)


def _nowhere_else(reader: Reader, in_hand: InHand, strangers: Sequence[TargetLeft]) -> bool:
    """Whether no source record of their partition equals one of these; False also where that would be slow to tell.

    A record stands in a batch whose highest timestamp is at least its own, so stretches that are older are left out.
    """
    wanted: defaultdict[int, list[Wanted]] = defaultdict(list)
    for row in strangers:
        wanted[row.p].append(Wanted(row.t1, row.t2, row.t_ts, row.needle))
    for members in wanted.values():
        if len(members) > MOST_NEEDLES or any(len(each.needle) < SHORTEST for each in members):
            return False
    oldest = {number: min(each.stamp for each in members) for number, members in wanted.items()}
    ranges: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for stretch in in_hand.stretches:
        if stretch.p in oldest and stretch.newest >= oldest[stretch.p]:
            ranges[stretch.p].append((stretch.s_lo, stretch.s_hi + 1))
    scope = reader.scope
    spans = [
        Span(number, scope.partitions[number].topic, scope.partitions[number].partition, first, until, until)
        for number, found in merged(ranges).items()
        for first, until in found
    ]
    work = partial(
        find_equal, reached(scope.link.id.source, scope.source_cluster, committed=scope.source_committed), dict(wanted)
    )
    return not in_tasks(reader.spark, work, share_out(spans, wanted_tasks(spans, reader.parallel)))
