"""What was removed from a target that its source still holds, as it is seen while no mirror runs that would see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from drkit.kafka.admin.clusters import Clusters
from drkit.kafka.client.timestamp_scan import OffsetRange
from drkit.kafka.client.unexpired_records import Missing, unexpired
from drkit.mapping.target_start import MappingRows, Told, accepted_until, missing_until, purge_problem
from drkit.model.errors import AuthenticationError, Refused, Unreachable
from drkit.model.link_state import TARGET_PURGED, Problem
from drkit.model.offsets import Watermark
from drkit.model.topology import Link, TopicPartition
from drkit.store.api import Store


class LogStarts(NamedTuple):
    """Log starts of both sides as they are now, each by its own cluster's topic names."""

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
    """The problems on record, with what was removed from the target while no mirror looks; and of which partitions it
    can't be said whether somebody removed something, with the reason.

    Costs no more than a few of `rows` (the store's) of each partition, unless something is missing.
    """
    seen: dict[TopicPartition, Watermark] = {}
    missing: dict[TopicPartition, Missing] = {}
    if link.shares_target:
        return list(problems), _of_many_writers(link, watermarks, starts)
    unjudged = _source_silent(rows, link, watermarks, starts)
    for tp, mark in watermarks.items():
        there = TopicPartition(link.target_topic(tp.topic), tp.partition)
        if tp not in starts.source or there not in starts.target:
            continue
        seen[tp] = replace(mark, source_start=starts.source[tp], target_start=starts.target[there])
        begin, until = starts.source[tp], missing_until(rows, link.id, seen[tp])
        if begin < until:
            missing[tp] = Missing(OffsetRange(begin, until), there, emptied=starts.target[there] >= mark.target_end)
    if not missing:
        return list(problems), unjudged
    try:
        found = unexpired(
            clusters.admin(link.id.source, may_be_gone=True),
            clusters.admin(link.id.target, may_be_gone=True),
            missing,
            link.settings_policy,
            at_ms=int(at.timestamp() * 1000),
        )
    except (Unreachable, AuthenticationError, Refused) as error:
        silent = {tp: _unjudged(link, each.target, each.stretch, str(error)) for tp, each in missing.items()}
        return list(problems), unjudged | silent
    notes = store.notes(link.id, TARGET_PURGED)
    since = {place: problem.since for problem in problems if (place := _place(problem)) is not None}
    kept = [problem for problem in problems if _place(problem) not in seen]
    for tp, stretch in found.items():
        told = Told.parse(notes.get(str(tp)))
        begin = max(stretch.begin, accepted_until(told, seen[tp].epoch, recorded=tp in since))
        if begin < stretch.end:
            where = missing[tp].target.topic
            kept.append(purge_problem(link.id, seen[tp], where, begin, stretch.end, since.get(tp, at)))
    return kept, unjudged


def _of_many_writers(
    link: Link, watermarks: Mapping[TopicPartition, Watermark], starts: LogStarts
) -> dict[TopicPartition, str]:
    """Partitions of which others write the target, too, and whose target has lost something since the mirror looked."""
    found = {}
    for tp, mark in watermarks.items():
        there = TopicPartition(link.target_topic(tp.topic), tp.partition)
        start = starts.target.get(there, 0)
        if start > mark.target_start:
            found[tp] = (
                f"{there} on {link.id.target} has lost target offsets {mark.target_start} to {start - 1} since the "
                f"mirror last looked; which of them were {link.id.source}'s is known once it runs again"
            )
    return found


def _source_silent(
    rows: MappingRows, link: Link, watermarks: Mapping[TopicPartition, Watermark], starts: LogStarts
) -> dict[TopicPartition, str]:
    """Partitions that a source which doesn't answer may still hold records of that the target has lost since the mirror
    looked, with what is to be said of them."""
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
    """The partition that a problem of this kind is of; None: it is of another kind."""
    if problem.kind != TARGET_PURGED or problem.partition is None:
        return None
    return TopicPartition(problem.topic, problem.partition)
