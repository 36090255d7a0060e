"""Source offsets that were removed from the target, and that no retention explains, as the link's clients left them.

Until a failover all that the target's log has lost is judged, by its settings and size now; the mapping rows, each kept
before what it is about was sent, tell what that was, whatever a mirror that was killed had recorded. After it the
target is its clients', who may remove anything: then what counts is what was recorded as removed before, and what lies
below the log's beginning as the failover saw it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.purged_records import Missing, find_purged
from drkit.kafka.client.record_probe import OffsetRange
from drkit.mapping.target_start import missing_until
from drkit.model.audit.audit_result import PlacementBasis
from drkit.model.clock import now, to_millis
from drkit.model.link_state import TARGET_PURGED, LinkControl, TopicState
from drkit.model.offsets import Watermark, merged_ranges
from drkit.model.topology import Link, TopicPartition
from drkit.store.api import Store
from drkit.store.link_notes import accepted_purges

if TYPE_CHECKING:
    from drkit.audit.compare.scope import PartitionScope

Ranges = tuple[tuple[int, int], ...]
"""Source offsets [begin, until), ascending and apart."""


def removed_records(
    link: Link,
    store: Store,
    control: LinkControl | None,
    states: Mapping[str, TopicState],
    watermarks: Mapping[TopicPartition, Watermark],
    partitions: Sequence[PartitionScope],
    source: ClusterAdmin,
    target: ClusterAdmin,
) -> dict[int, Ranges]:
    """What was removed, by the partition's number, of partitions that lack something.

    Raises:
        Unreachable: a cluster or the store doesn't answer.
    """
    moved = control is not None and not control.direction.serves_source
    marks = {each.tp: watermarks[each.tp] for each in partitions if each.mirrored_through is not None}
    missing: dict[TopicPartition, Missing] = {}
    for each in partitions:
        state, mark = states.get(each.topic), marks.get(each.tp)
        start, end = each.target_start, each.target_end
        if moved:  # where nothing was recorded, clients may have removed it
            start, end = (0, 0) if mark is None else (min(start, mark.target_start), mark.target_end)
        if state is None or start == 0 or each.basis is not PlacementBasis.MAPPING:
            continue  # never mirrored, or an earlier topic of the name was
        until = missing_until(store, link.id, _seen(each, state.epoch, start, end))
        if each.source_start < until:
            there = TopicPartition(each.target_topic, each.partition)
            missing[each.tp] = Missing(OffsetRange(each.source_start, until), there, emptied=start >= end)
    found: dict[TopicPartition, OffsetRange] = {}
    if missing:
        at = control.changed_at if moved and control is not None else now()
        found = find_purged(source, target, missing, link.settings_policy, at_ms=to_millis(at), sized=not moved)
    told = _recorded(link, store, marks) if moved else {}
    removed = {each.number: [*told.get(each.tp, ()), *_one(found.get(each.tp))] for each in partitions}
    return {number: tuple(merged_ranges(ranges)) for number, ranges in removed.items() if ranges}


def _seen(each: PartitionScope, epoch: int, target_start: int, target_end: int) -> Watermark:
    """A watermark of a mirror that had got to the end of both logs."""
    return Watermark(
        each.topic,
        each.partition,
        epoch,
        source_through=each.source_end,
        target_end=target_end,
        source_start=each.source_start,
        source_end=each.source_end,
        target_start=target_start,
        observed_at=now(),
    )


def _one(found: OffsetRange | None) -> Sequence[tuple[int, int]]:
    return () if found is None else (found,)


def _recorded(
    link: Link, store: Store, marks: Mapping[TopicPartition, Watermark]
) -> dict[TopicPartition, list[tuple[int, int]]]:
    """What the mirror or the failover found removed, whether an operator accepted it or not."""
    accepted = accepted_purges(store, link.id)
    found = {tp: list(accepted.get((tp, mark.epoch), ())) for tp, mark in marks.items()}
    for problem in store.problems(link.id):
        if problem.kind == TARGET_PURGED and problem.partition is not None and problem.missing is not None:
            tp = TopicPartition(problem.topic, problem.partition)
            if tp in found:
                found[tp].append(problem.missing)
    return found
