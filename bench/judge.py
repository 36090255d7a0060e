"""What a translated position would cost its group: records read again, records skipped. Pure.

A record is known by its offset on the source, which is found in its value on the target (the independent
reader puts the two together). A group that had read everything below the commit `c` on the source and goes
on at position `p` of the target reads again what lies below `c` and at or after `p`, and skips what lies at
or above `c` and before `p`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.results import TranslateRun


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int


class Commit(NamedTuple):
    """A group's position on the source: the offset of the next record to read."""

    group: str
    place: Place
    offset: int


class Copied(NamedTuple):
    """A record as it lies on the target."""

    target_offset: int
    source_offset: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Records that a group would read again, and those that it would never read."""

    reread: int
    skipped: int


def cost(log: Sequence[Copied], committed: int, position: int) -> Cost:
    """The cost of continuing at `position` of a target partition that holds `log`, in order of target offsets."""
    at = bisect_left(log, (position, -1))
    return Cost(
        reread=sum(record.source_offset < committed for record in log[at:]),
        skipped=sum(record.source_offset >= committed for record in log[:at]),
    )


def judge(
    peer: str,
    kind: str,
    commits: Sequence[Commit],
    answers: Mapping[str, int],
    logs: Mapping[Place, Sequence[Copied]],
) -> TranslateRun:
    """The sums and maxima for a mirror; `answers`: target positions by group, absent where it gave none."""
    costs = [
        cost(logs.get(commit.place, ()), commit.offset, answers[commit.group])
        for commit in commits
        if commit.group in answers
    ]
    return TranslateRun(
        peer=peer,
        kind=kind,
        commits=len(commits),
        answered=len(costs),
        exact=costs.count(Cost(0, 0)),
        reread_sum=sum(each.reread for each in costs),
        reread_max=max((each.reread for each in costs), default=0),
        skipped_sum=sum(each.skipped for each in costs),
        skipped_max=max((each.skipped for each in costs), default=0),
    )
