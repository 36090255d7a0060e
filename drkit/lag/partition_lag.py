"""The lag of a partition, from its watermark and the problems of both logs. Pure.

A watermark describes the logs at the time when it was written. A problem describes changes since:

| problem | source records that the target has now |
|---|---|
| `topic_recreated`, `target_recreated` | nothing: the topic on one side was recreated |
| any that halts the partition and names source offsets (`source_truncated`, `foreign_writer`) | those below them |
| `target_purged`, `records_returned` | all but the ranges that they name |
| `store_recovered`, `store_older` | unknown: the mirror wrote more than the store's watermark shows |
| `source_topic_denied`, and the source's log end isn't visible | unknown |
| `source_truncated`, and nobody has seen the source's log end since | unknown |

So a lag is exact, or a bound with the reason, or None with the reason. It is never silently too low.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from drkit.model.link_state import (
    PARTED,
    RECREATED,
    ROWS_MISSING,
    SOURCE_TOPIC_DENIED,
    SOURCE_TRUNCATED,
    STORE_RECOVERED,
    TOPIC_RECREATED,
    Problem,
)
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import TopicPartition


@dataclass(frozen=True, slots=True)
class Gap:
    """Source offsets [`begin`, `until`) that the source holds and the target lacks, though later ones are there."""

    begin: int
    until: int
    since: datetime


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The records of a partition that its target lacks.

    `records`: source offsets that the source holds and the target lacks; None: unknown. `at_least`: a lower bound.
    `reason`: why it is None, a lower bound, or conservative. `through`: the source offset from which on all is missing;
    None: nothing of the source is known to be on the target. `gaps`: what is missing below `through`, ascending and
    apart. `since`: the time since which mirrored records are missing; None: none are. `parted_end`: of a source that
    holds other records than were mirrored, the log end by which `records` is counted; None: of any other. `at_most`: an
    upper bound, as from where on both sides differ isn't known.
    """

    records: int | None
    through: int | None = None
    gaps: tuple[Gap, ...] = ()
    since: datetime | None = None
    reason: str | None = None
    at_least: bool = False
    parted_end: int | None = None
    at_most: bool = False

    def lost_below(self, offset: int) -> int | None:
        """How many source offsets from `through` up to `offset` (a group's commit) never reached the target; None:
        unknown. A group that committed before the source lost its tail had read what the target holds."""
        if self.through is None:
            return None
        if offset <= self.through:
            return 0
        if self.records is None:
            return None
        end = offset if self.parted_end is None else min(offset, self.parted_end)
        return max(0, end - self.through)

    @property
    def mirrored_through(self) -> int | None:
        """The source offset up to which everything is on the target."""
        return self.through if self.through is None or not self.gaps else min(self.through, self.gaps[0].begin)


@dataclass(frozen=True, slots=True)
class Doubts:
    """Open questions about a partition after a check of both clusters.

    `unseen`: the source lost records of it, and may have lost more since. `unjudged`: why it is unknown whether both
    sides still hold what was mirrored; None: it is known. `gone`: the target has no such partition. `lost_since`: the
    time since which the target's log is known to be shorter than the mirrored records. `unsure`: why none of its
    positions is exact, whatever its mapping rows say; None: nothing stands against them.
    """

    unseen: bool = False
    unjudged: str | None = None
    gone: bool = False
    lost_since: datetime | None = None
    unsure: str | None = None


NO_DOUBTS = Doubts()


def partition_lag(
    tp: TopicPartition,
    mark: Watermark | None,
    problems: Iterable[Problem],
    *,
    start: int | None,
    end: int | None,
    first: OffsetMapping | None = None,
    doubts: Doubts = NO_DOUBTS,
) -> PartitionLag:
    """The lag of a partition.

    Args:
        tp: the partition, by its source topic.
        mark: its watermark, as far as the target's log confirms it; None: none was recorded.
        problems: of the link.
        start: the source's current log start; None: it didn't answer, so the watermark's is used.
        end: the source's current log end, likewise.
        first: the first mapping row; nothing below it was mirrored. None: not known.
        doubts: open questions after the check of the clusters.
    """
    mine = [problem for problem in problems if problem.concerns(tp)]
    anew = min((problem for problem in mine if problem.kind in RECREATED), key=_source_first, default=None)
    unknown = _unknown(mine, doubts, live=end is not None) if anew is None else None
    if unknown is not None:
        proven = None if mark is None or unknown.kind == SOURCE_TRUNCATED else _through(mark, mine)
        return PartitionLag(None, proven, reason=_why(unknown))
    if anew is not None and anew.kind == TOPIC_RECREATED:
        mark = None  # it belongs to the former topic
    if mark is None or anew is not None or doubts.gone:
        return _all_of_it(mark, anew, start, end)
    parted = [each for each in mine if each.kind in PARTED and each.differs_from is not None]
    cut = [each for each in parted if each.kind == SOURCE_TRUNCATED]
    if end is None and (unlooked := [each for each in cut if not seen_since(mark, each)]):
        through = _through(mark, unlooked)
        why = f"{unlooked[0].reason}; what it holds from source offset {through:,} on was not seen since"
        return PartitionLag(None, through, since=unlooked[0].since, reason=why)
    start, end = mark.source_start if start is None else start, mark.source_end if end is None else end
    through, since, reason = _through(mark, mine), doubts.lost_since, doubts.unjudged
    every = False
    for problem in mine:
        if problem.differs_from is not None:
            since = problem.since if since is None else min(since, problem.since)
            if problem.differs_from <= start:
                every, reason = True, reason or f"all that the source holds counts: {problem.reason}"
    above = max(through, start)
    records = max(0, end - above)
    gaps = gaps_of(mine, start, min(through, end))
    if since is not None and first is not None:
        # a log that lost its end may have regained its beginning: below the first row nothing was mirrored
        back = Gap(start, min(first.source_offset, end, above), since)
        behind = (replace(each, begin=max(each.begin, back.until)) for each in gaps)
        gaps = (*([back] if back.begin < back.until else ()), *(each for each in behind if each.begin < each.until))
    for gap in gaps:
        records += gap.until - gap.begin
        since = gap.since if since is None else min(since, gap.since)
    at_least = doubts.unjudged is not None
    return PartitionLag(
        records, through, gaps, since, reason, at_least, parted_end=end if parted else None, at_most=every
    )


def _through(mark: Watermark, problems: Iterable[Problem]) -> int:
    """The source offset from which on all is missing."""
    return min([mark.source_through, *(each.differs_from for each in problems if each.differs_from is not None)])


def seen_since(mark: Watermark, lost: Problem) -> bool:
    """Whether the source's log end in a watermark was seen after the source was found to have lost mirrored records: an
    earlier one may be an end of what it lost."""
    return mark.observed_at > lost.since


def _source_first(problem: Problem) -> bool:
    return problem.kind != TOPIC_RECREATED


def _unknown(mine: Sequence[Problem], doubts: Doubts, *, live: bool) -> Problem | None:
    """The problem that makes the number unknown; None: none does."""
    for problem in mine:
        if (
            problem.kind in ROWS_MISSING
            or (doubts.unseen and problem.kind == SOURCE_TRUNCATED)
            or (not live and problem.kind == SOURCE_TOPIC_DENIED)
        ):
            return problem
    return None


def _why(unknown: Problem) -> str:
    if unknown.kind != STORE_RECOVERED:
        return unknown.reason
    return (
        "the store was lost and recovered: how much had landed on the target since its copy was written isn't known of "
        f"{unknown.topic}"
    )


def _all_of_it(mark: Watermark | None, anew: Problem | None, start: int | None, end: int | None) -> PartitionLag:
    """The lag if the target has none of the source's records."""
    if mark is not None:
        start, end = mark.source_start if start is None else start, mark.source_end if end is None else end
    since = None if anew is None else anew.since
    if start is None or end is None:
        reason = "nothing was recorded about it" if anew is None else anew.reason
        return PartitionLag(None, since=since, reason=reason)
    return PartitionLag(end - start, since=since)


def gaps_of(problems: Iterable[Problem], start: int, through: int) -> tuple[Gap, ...]:
    """What problems of one partition name as missing of the source offsets [`start`, `through`), ascending; what
    several of them name counts once."""
    named = sorted((max(each.missing[0], start), each.missing[1], each.since) for each in problems if each.missing)
    gaps: list[Gap] = []
    for begin, end, since in named:
        first = max(begin, gaps[-1].until) if gaps else begin
        if first < min(end, through):
            gaps.append(Gap(first, min(end, through), since))
    return tuple(gaps)
