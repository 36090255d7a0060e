"""What was removed from a target that its source still holds, in a status: as the mirror recorded it, or as it is seen
while no mirror runs that would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from drkit.kafka.admin.clusters import Clusters
from drkit.kafka.client.timestamp_scan import OffsetRange
from drkit.kafka.client.unexpired_records import Missing, unexpired
from drkit.mapping.target_start import Told, accepted_until, missing_until, purge_problem
from drkit.model.errors import AuthenticationError, Refused, Unreachable
from drkit.model.link_state import TARGET_PURGED, Problem
from drkit.model.offsets import Watermark
from drkit.model.topology import Link, TopicPartition
from drkit.store.api import Store


class LogStarts(NamedTuple):
    """Log starts of both sides as they are now, each by its own cluster's topic names."""

    source: Mapping[TopicPartition, int]
    target: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class PurgedFromTarget:
    """Source offsets [`begin`, `until`) that the source holds, and that were removed from the target."""

    begin: int
    until: int
    since: datetime


def purged_from_target(tp: TopicPartition, problems: Sequence[Problem], source_start: int) -> PurgedFromTarget | None:
    """What a problem on record says was removed from the target, as far as the source holds it now; None: nothing."""
    for problem in problems:
        if problem.kind != TARGET_PURGED or (problem.topic, problem.partition) != (tp.topic, tp.partition):
            continue
        if problem.unsure_from is not None and problem.unsure_until is not None:
            begin = max(problem.unsure_from, source_start)
            if begin < problem.unsure_until:
                return PurgedFromTarget(begin, problem.unsure_until, problem.since)
    return None


def with_unseen_purges(
    clusters: Clusters,
    store: Store,
    link: Link,
    watermarks: Mapping[TopicPartition, Watermark],
    starts: LogStarts,
    problems: Sequence[Problem],
    at: datetime,
) -> list[Problem]:
    """The problems on record, with what was removed from the target while no mirror looks.

    Costs no more than a few rows of each partition, unless something is missing.
    """
    seen: dict[TopicPartition, Watermark] = {}
    missing: dict[TopicPartition, Missing] = {}
    for tp, mark in watermarks.items():
        there = TopicPartition(link.target_topic(tp.topic), tp.partition)
        if tp not in starts.source or there not in starts.target:
            continue
        seen[tp] = replace(mark, source_start=starts.source[tp], target_start=starts.target[there])
        begin, until = starts.source[tp], missing_until(store, link.id, seen[tp])
        if begin < until:
            missing[tp] = Missing(OffsetRange(begin, until), there, emptied=starts.target[there] >= mark.target_end)
    if not missing:
        return list(problems)
    try:
        found = unexpired(
            clusters.admin(link.id.source, may_be_gone=True),
            clusters.admin(link.id.target, may_be_gone=True),
            missing,
            link.settings_policy,
            at_ms=int(at.timestamp() * 1000),
        )
    except (Unreachable, AuthenticationError, Refused):
        return list(problems)
    notes = store.notes(link.id, TARGET_PURGED)
    since = {place: problem.since for problem in problems if (place := _place(problem)) is not None}
    kept = [problem for problem in problems if _place(problem) not in seen]
    for tp, stretch in found.items():
        told = Told.parse(notes.get(str(tp)))
        begin = max(stretch.begin, accepted_until(told, seen[tp].epoch, recorded=tp in since))
        if begin < stretch.end:
            where = missing[tp].target.topic
            kept.append(purge_problem(link.id, seen[tp], where, begin, stretch.end, since.get(tp, at)))
    return kept


def _place(problem: Problem) -> TopicPartition | None:
    """The partition that a problem of this kind is of; None: it is of another kind."""
    if problem.kind != TARGET_PURGED or problem.partition is None:
        return None
    return TopicPartition(problem.topic, problem.partition)
