"""Finds, below a place from which on both sides may differ, the last record that the target holds.

Positions behind that record and below the place stand in what the target doesn't carry (markers of transactions,
aborted records, what a filter leaves out): the next record that a group reads there is already one that may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.record_probe import LogPosition, ProbedRecord
from drkit.mapping.mapping_rows import source_at
from drkit.mapping.target_start import MappingRows
from drkit.mapping.translate import translate_by_rows
from drkit.model.errors import AuthenticationError, Refused, Unreachable
from drkit.model.link_state import RECREATED, Problem
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import Link, TopicPartition

_RECORDS_SECONDS = 5.0


@dataclass(slots=True)
class _Search:
    """Looks for the last record of `tp` in [`begin`, `end`). `last`: the last one that is known; `end` falls to where
    none stands above it."""

    tp: TopicPartition
    begin: int
    end: int
    last: int | None = None

    def places(self) -> list[LogPosition]:
        """Where to ask next which record follows: near the end, and ever further from it."""
        first = self.begin if self.last is None else self.last + 1
        steps = (self.end - (1 << power) for power in range((self.end - first).bit_length()))
        return [LogPosition(self.tp, place) for place in sorted({*(each for each in steps if each > first), first})]

    @property
    def over(self) -> bool:
        """Whether nothing is left to ask."""
        return (self.begin if self.last is None else self.last + 1) >= self.end

    def settle(self, seen: Mapping[LogPosition, ProbedRecord]) -> None:
        """Take what follows these places; what can't be read counts as no record."""
        for place in self.places():
            offset = seen[place].offset
            if offset is None or offset >= self.end:
                self.end = place.offset
                return
            self.last = offset


def with_exact_ends(
    admin: Callable[[], ClusterAdmin],
    rows: MappingRows,
    link: Link,
    marks: Mapping[TopicPartition, Watermark],
    problems: Sequence[Problem],
) -> list[Problem]:
    """The problems, with `Problem.exact_until` where the last record below the named range ends further down, or where
    that can't be found out. Not where the target has other writers: there positions aren't found by rows.

    Args:
        admin: connects to the target.
        rows: the mapping.
        link: the link.
        marks: watermarks.
        problems: of the link.

    Raises:
        Unreachable: the store doesn't answer.
    """
    if link.shares_target:
        return list(problems)
    rows_of = cache(lambda tp: rows.mappings(link.id, tp, marks[tp].epoch))  # a partition may have many problems
    searches: dict[int, tuple[Sequence[OffsetMapping], _Search]] = {}
    for number, problem in enumerate(problems):
        tp = TopicPartition(problem.topic, -1 if problem.partition is None else problem.partition)
        if not problem.unsure_from or problem.kind in RECREATED or tp not in marks:
            continue
        its = rows_of(tp)
        end = translate_by_rows(problem.unsure_from, its, marks[tp]).target_offset
        if end is not None:
            there = TopicPartition(link.target_topic(tp.topic), tp.partition)
            searches[number] = its, _Search(there, max(its[0].target_offset, marks[tp].target_start), end)
    try:
        _search(admin, [search for _, search in searches.values()])
    except (Unreachable, AuthenticationError, Refused):
        return [replace(each, exact_until=0) if at in searches else each for at, each in enumerate(problems)]
    return [_limited(each, *searches[at]) if at in searches else each for at, each in enumerate(problems)]


def _limited(problem: Problem, rows: Sequence[OffsetMapping], search: _Search) -> Problem:
    ends = source_at(rows, search.begin) if search.last is None else source_at(rows, search.last) + 1
    return replace(problem, exact_until=ends) if ends < (problem.unsure_from or 0) else problem


def _search(admin: Callable[[], ClusterAdmin], searches: Sequence[_Search]) -> None:
    while unsettled := [each for each in searches if not each.over]:
        places = [place for each in unsettled for place in each.places()]
        seen = admin().probe_records(places, seconds=_RECORDS_SECONDS)
        for each in unsettled:
            each.settle(seen)
