"""Detects records that were removed from a target and that its source still holds, where no mirror looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from drkit.kafka.admin.clusters import Clusters
from drkit.kafka.client.purged_records import Missing, find_purged
from drkit.kafka.client.record_probe import NOTHING, LogPosition, OffsetRange
from drkit.kafka.transform.provenance import read_hop
from drkit.mapping.target_start import MappingRows, missing_until, not_accepted, purge_problem
from drkit.model.errors import AuthenticationError, Refused, Unreachable
from drkit.model.link_state import TARGET_PURGED, Problem
from drkit.model.offsets import Watermark
from drkit.model.topology import Link, TopicPartition
from drkit.store.api import Store
from drkit.store.link_notes import JudgedStart, accepted_purges, judged_starts, newest_own

_PEEK_SECONDS = 5.0


class LogStarts(NamedTuple):
    """Current log starts of both sides, each by its own cluster's topic names."""

    source: Mapping[TopicPartition, int]
    target: Mapping[TopicPartition, int]


def with_unseen_purges(
    clusters: Clusters,
    store: Store,
    rows: MappingRows,
    link: Link,
    watermarks: Mapping[TopicPartition, Watermark],
    starts: LogStarts,
    problems: Sequence[Problem],
    at: datetime,
) -> tuple[list[Problem], dict[TopicPartition, str]]:
    """The recorded problems, with removals from the target of partitions that no mirror fetches (`watermarks`, as far
    as the target's log proves them); and those of them for which removals are unknown, with the reason.

    Costs no more than a few of `rows` (the store's) of each partition, unless something is missing.
    """
    seen: dict[TopicPartition, Watermark] = {}
    missing: dict[TopicPartition, Missing] = {}
    judged: Mapping[TopicPartition, JudgedStart] = judged_starts(store, link.id) if link.shares_target else {}
    if link.shares_target:
        unjudged = _tails_not_found(clusters, store, link, watermarks, starts)
        unjudged |= _not_judged(link, watermarks, starts, judged)
    else:
        unjudged = _beyond(link, watermarks, starts) | _source_silent(rows, link, watermarks, starts)
    for tp, mark in watermarks.items():
        there = TopicPartition(link.target_topic(tp.topic), tp.partition)
        if tp not in starts.source or there not in starts.target or (link.shares_target and tp in unjudged):
            continue
        seen[tp] = replace(mark, source_start=starts.source[tp], target_start=starts.target[there])
        if link.shares_target:
            gone = _judged_as(mark, judged.get(tp))
        else:
            gone = OffsetRange(0, missing_until(rows, link.id, seen[tp]))
        begin, until = max(starts.source[tp], gone.begin), gone.end
        if begin < until:
            missing[tp] = Missing(OffsetRange(begin, until), there, emptied=starts.target[there] >= mark.target_end)
    found: dict[TopicPartition, OffsetRange] = {}
    try:
        if missing:
            found = find_purged(
                clusters.admin(link.id.source, may_be_gone=True),
                clusters.admin(link.id.target, may_be_gone=True),
                missing,
                link.settings_policy,
                at_ms=int(at.timestamp() * 1000),
            )
    except (Unreachable, AuthenticationError, Refused) as error:
        silent = {tp: _unjudged(link, each.target, each.stretch, str(error)) for tp, each in missing.items()}
        return list(problems), unjudged | silent
    unread = {tp: mark for tp, mark in watermarks.items() if tp not in seen}
    problems = held_again(rows, link, unread, starts.target, problems)
    accepted = accepted_purges(store, link.id) if found else {}
    since = {place: problem.since for problem in problems if (place := _place(problem)) is not None}
    kept = [problem for problem in problems if _place(problem) not in seen]
    for tp, stretch in found.items():
        if left := not_accepted(stretch.begin, stretch.end, accepted.get((tp, seen[tp].epoch), ())):
            where = missing[tp].target.topic
            first = since.get(tp, seen[tp].observed_at)  # else it isn't known when it happened
            kept.append(purge_problem(link.id, seen[tp], where, *left, first))
    return kept, unjudged


def held_again(
    rows: MappingRows,
    link: Link,
    watermarks: Mapping[TopicPartition, Watermark],
    target_starts: Mapping[TopicPartition, int],
    problems: Sequence[Problem],
) -> list[Problem]:
    """The problems, those that name removals from the target without what its log holds by now: a broker that crashes
    may have again what was removed. Not where others write to the target, too.

    Args:
        rows: the mapping rows.
        link: the link.
        watermarks: of partitions whose topics on the target are the mirror's.
        target_starts: where logs begin now, by the target's partitions.
        problems: of the link.
    """
    if link.shares_target:
        return list(problems)
    left = []
    for problem in problems:
        tp = _place(problem)
        start = None if tp is None else target_starts.get(TopicPartition(link.target_topic(tp.topic), tp.partition))
        if tp is None or start is None or tp not in watermarks or problem.missing is None:
            left.append(problem)
            continue
        begin, end = problem.missing
        lacking = missing_until(rows, link.id, replace(watermarks[tp], target_start=start))
        if begin < lacking:
            left.append(problem if end <= lacking else replace(problem, unsure_until=lacking))
    return left


def _beyond(link: Link, watermarks: Mapping[TopicPartition, Watermark], starts: LogStarts) -> dict[TopicPartition, str]:
    """Partitions whose target's log begins beyond what is known as mirrored: the mirror died before it recorded that,
    and what is left doesn't tell."""
    found = {}
    for tp, mark in watermarks.items():
        there = TopicPartition(link.target_topic(tp.topic), tp.partition)
        start = starts.target.get(there, 0)
        if start > mark.target_end:
            found[tp] = (
                f"{there} on {link.id.target} begins at {start}, beyond what is known as mirrored (up to "
                f"{mark.target_end}): what the mirror had written below it, and who removed it, is known once it runs "
                "again"
            )
    return found


def _judged_as(mark: Watermark, judged: JudgedStart | None) -> OffsetRange:
    """Removals that a mirror found on a target with other writers: it may have died before it recorded them."""
    if judged is None or judged.epoch != mark.epoch:
        return OffsetRange(0, 0)
    return OffsetRange(judged.begin, judged.until)


def _not_judged(
    link: Link,
    watermarks: Mapping[TopicPartition, Watermark],
    starts: LogStarts,
    judged: Mapping[TopicPartition, JudgedStart],
) -> dict[TopicPartition, str]:
    """Partitions of which others write the target, too, and whose target has lost something since a mirror judged it.

    A watermark may have been kept by a mirror that died before it had judged what it saw.
    """
    found = {}
    for tp, mark in watermarks.items():
        there = TopicPartition(link.target_topic(tp.topic), tp.partition)
        start, last = starts.target.get(there, 0), judged.get(tp)
        known = last.target_start if last is not None and last.epoch == mark.epoch else 0
        if start > known:
            found[tp] = (
                f"{there} on {link.id.target} has lost target offsets {known} to {start - 1} since a mirror last "
                f"checked its beginning; which of them were {link.id.source}'s is known once it runs again"
            )
    return found


def _tails_not_found(
    clusters: Clusters, store: Store, link: Link, watermarks: Mapping[TopicPartition, Watermark], starts: LogStarts
) -> dict[TopicPartition, str]:
    """Partitions with other writers on the target where the link's newest record is no longer at its offset: the log
    was truncated, whatever was written to it since.

    Compaction may have removed it: nothing is reported if there is no record at that offset.
    """
    notes = newest_own(store, link.id)
    wanted: dict[LogPosition, TopicPartition] = {}
    for tp, mark in watermarks.items():
        there = TopicPartition(link.target_topic(tp.topic), tp.partition)
        place = notes[tp].now(mark) if tp in notes else None
        if place is not None and there in starts.target and place >= starts.target[there]:
            wanted[LogPosition(there, place)] = tp
    if not wanted:
        return {}
    found = clusters.admin(link.id.target, may_be_gone=True).probe_records(wanted, seconds=_PEEK_SECONDS, bodies=True)
    lost = {}
    for position, tp in wanted.items():
        seen = found[position]
        hop = read_hop(seen.body or b"") if seen.offset == position.offset else None
        ended = seen == NOTHING or seen.outside
        foreign = seen.offset == position.offset and (hop is None or hop[1:3] != tp)
        if ended or foreign:
            lost[tp] = (
                f"{position.tp} on {link.id.target} has lost its end: offset {position.offset} no longer has the last "
                f"record that was mirrored. How much more is missing is known once a mirror of {link.id} runs again"
            )
        elif seen.offset is None:
            lost[tp] = f"whether {position.tp} on {link.id.target} has lost its end isn't known: {seen.reason}"
    return lost


def _source_silent(
    rows: MappingRows, link: Link, watermarks: Mapping[TopicPartition, Watermark], starts: LogStarts
) -> dict[TopicPartition, str]:
    """Partitions whose silent source may still hold records that the target has lost since the mirror's last check,
    with the reason."""
    found = {}
    for tp, mark in watermarks.items():
        there = TopicPartition(link.target_topic(tp.topic), tp.partition)
        if tp in starts.source or starts.target.get(there, 0) <= mark.target_start:
            continue
        begin = max(mark.source_start, missing_until(rows, link.id, mark))
        until = missing_until(rows, link.id, replace(mark, target_start=starts.target[there]))
        if begin < until:
            found[tp] = _unjudged(link, there, OffsetRange(begin, until), f"{link.id.source} does not answer")
    return found


def _unjudged(link: Link, target: TopicPartition, stretch: OffsetRange, why: str) -> str:
    return (
        f"{target} on {link.id.target} lacks source offsets {stretch.begin} to {stretch.end - 1}; whether "
        f"retention removed them or somebody did isn't known, so they don't count: {why}"
    )


def _place(problem: Problem) -> TopicPartition | None:
    """The partition of a problem of this kind; None: it is of another kind."""
    if problem.kind != TARGET_PURGED or problem.partition is None:
        return None
    return TopicPartition(problem.topic, problem.partition)
