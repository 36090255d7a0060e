"""The matched records of a partition in which something moved, as lines: which are in order, and what is before and
after an offset. Pure.

A line is a complete range of matched records, or one record that was found elsewhere than at its place. Only chunks
with a moved record, on either side, are split, at the moved records; the rest stay the ranges of the first pass. So the
work grows with the damage, not with the topic.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

MOST_RUNS = 100_000
"""Runs of one partition that are put in order exactly. Beyond, the records that come before an earlier
one's copy count as reordered, which may be more than the fewest; the audit says so."""


class MatchedLine(NamedTuple):
    """Matched records: their offsets on both sides, how far they are displaced (target offset less the place), and how
    many they are. `moved`: one record that was found elsewhere."""

    s_lo: int
    s_hi: int
    t_lo: int
    t_hi: int
    displaced: int
    records: int
    moved: bool


@dataclass(frozen=True, slots=True)
class Ordered:
    """Lines in order, and those set aside: their records are reordered. `exact`: whether these are the fewest."""

    kept: tuple[MatchedLine, ...]
    aside: tuple[MatchedLine, ...]
    exact: bool


def put_in_order(lines: Iterable[MatchedLine]) -> Ordered:
    """Set the fewest records aside such that the others are in one order on both sides."""
    by_source = sorted(lines, key=attrgetter("s_lo"))
    runs = _runs(by_source)
    if len(runs) > MOST_RUNS:
        kept, aside, highest = list[MatchedLine](), list[MatchedLine](), -1
        for line in by_source:
            (kept if line.t_lo > highest else aside).append(line)
            highest = max(highest, line.t_hi)
        return Ordered(tuple(kept), tuple(aside), exact=False)
    chosen = set(heaviest_increasing([(rank, sum(line.records for line in members)) for rank, members in runs]))
    kept = [line for at, (_, members) in enumerate(runs) if at in chosen for line in members]
    aside = [line for at, (_, members) in enumerate(runs) if at not in chosen for line in members]
    return Ordered(tuple(kept), tuple(aside), exact=True)


def _runs(by_source: Sequence[MatchedLine]) -> list[tuple[int, list[MatchedLine]]]:
    """Lines that follow each other on both sides, with the rank of their first on the target."""
    ranks: dict[int, int] = {}
    total = 0
    for at in sorted(range(len(by_source)), key=lambda each: by_source[each].t_lo):
        ranks[at] = total
        total += by_source[at].records
    runs: list[tuple[int, list[MatchedLine]]] = []
    before = 0
    step = None
    for at, line in enumerate(by_source):
        if ranks[at] - before != step:
            step = ranks[at] - before
            runs.append((ranks[at], []))
        runs[-1][1].append(line)
        before += line.records
    return runs


class AdjacentLines(NamedTuple):
    """The lines in order before and after an offset; None where there is none. An offset within a line has that one
    before and after."""

    before: MatchedLine | None
    after: MatchedLine | None

    @property
    def within(self) -> bool:
        """Whether it is within a line, whose records all have one displacement."""
        return self.before is not None and self.before is self.after

    @property
    def displaced_before(self) -> int:
        """How far the records before are displaced."""
        return 0 if self.before is None else self.before.displaced

    @property
    def displaced_after(self) -> int:
        """How far the records after are displaced."""
        return self.displaced_before if self.after is None else self.after.displaced


class Neighbours:
    """Looks up what is in order beside an offset. Without lines nothing is displaced."""

    def __init__(self, kept: Iterable[MatchedLine] = ()) -> None:
        self._by_source = sorted(kept, key=attrgetter("s_lo"))
        self._by_target = sorted(self._by_source, key=attrgetter("t_lo"))

    def of_source(self, offset: int) -> AdjacentLines:
        """Beside a source offset."""
        return _beside(self._by_source, offset, attrgetter("s_lo"), attrgetter("s_hi"))

    def of_target(self, offset: int) -> AdjacentLines:
        """Beside a target offset."""
        return _beside(self._by_target, offset, attrgetter("t_lo"), attrgetter("t_hi"))


def _beside(
    lines: Sequence[MatchedLine],
    offset: int,
    low: Callable[[MatchedLine], int],
    high: Callable[[MatchedLine], int],
) -> AdjacentLines:
    """The lines beside an offset of one side. `lines`: in that side's order; `low`, `high`: their offsets there."""
    at = bisect_right(lines, offset, key=low)
    before = lines[at - 1] if at else None
    if before is not None and offset < high(before):
        return AdjacentLines(before, before)
    at = bisect_left(lines, offset, key=low)
    return AdjacentLines(before, lines[at] if at < len(lines) else None)


def heaviest_increasing(runs: Sequence[tuple[int, int]]) -> list[int]:
    """The positions, ascending, of the runs to keep: those left out are reordered, and are the fewest records.

    Runs are matched records that follow each other on both sides. Moving one record makes few runs, however long the
    partition. Within a run nothing is out of order, so what is sought is a heaviest increasing subsequence of target
    ranks:

        source   a b c d e f            runs       [a b] [c] [d e] [f]
        target   a b d e c f            ranks       0     4    2     5
                                        kept       [a b]      [d e] [f]      reordered: c

    Args:
        runs: (target rank, records) of each run in the source's order; ranks are distinct, records > 0.

    Of several heaviest choices the one found is the same each time. O(n log n) for n runs.
    """
    if not runs:
        return []
    # `ranks` and `weights` rise together: weights[i] is the heaviest chain that ends at or below ranks[i].
    ranks: list[int] = []
    weights: list[int] = []
    ends: list[int] = []  # the run each such chain ends with
    before = [-1] * len(runs)
    for position, (rank, records) in enumerate(runs):
        at = bisect_right(ranks, rank)
        weight = records + (weights[at - 1] if at else 0)
        before[position] = ends[at - 1] if at else -1
        stop = at
        while stop < len(weights) and weights[stop] <= weight:
            stop += 1  # lighter chains that end higher are of no use any more
        ranks[at:stop] = [rank]
        weights[at:stop] = [weight]
        ends[at:stop] = [position]
    chain: list[int] = []
    position = ends[-1]
    while position >= 0:
        chain.append(position)
        position = before[position]
    return chain[::-1]
