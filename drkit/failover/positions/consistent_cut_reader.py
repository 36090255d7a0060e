"""`--consistent`: reads the cut's inputs from both clusters; `consistent_cut.py` decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.positions.consistent_cut import (
    ConsistentCut,
    Tails,
    beyond,
    consistent_cut,
    moment_of,
    streams_cut,
    transactions_cut,
)
from drkit.failover.snapshot.point_in_time import Moment
from drkit.failover.snapshot.selection import Selection
from drkit.failover.snapshot.snapshot import Snapshot
from drkit.kafka.client.record_probe import OffsetRange, Scanned
from drkit.model.errors import DrkitError
from drkit.model.topology import TopicPartition
from drkit.model.wording import and_more

_TAIL_OFFSETS = 1000
_SCAN_SECONDS = 10.0


def at_consistent_cut(
    estate: ClusterContext, snapshot: Snapshot, selection: Selection, not_after: datetime | None = None
) -> tuple[Snapshot, ConsistentCut]:
    """The latest instant at which every selected topic is complete, and the snapshot with its offsets by that time.

    `not_after`: an earlier instant of the run's other links.

    Raises:
        Refused: no such instant is known.
        DrkitError: the target can't be read.
    """
    covered = [
        tp
        for tp in snapshot.partitions
        if not selection.topics or any(chosen.covers(tp) for chosen in selection.topics)
    ]
    tails = Tails(_target_tails(estate, snapshot, covered), _missing(estate, snapshot, covered))
    cut = consistent_cut(snapshot, tails, covered)
    if not_after is not None and not_after < cut.instant:
        cut = replace(cut, instant=not_after)
    snapshot = stamped_from(estate, snapshot, moment_of(cut))
    cuts = [*_transactions(estate, snapshot, covered, cut, tails), *streams_cut(snapshot, covered)]
    return snapshot, replace(cut, beyond=beyond(snapshot, covered), cuts=tuple(cuts))


def stamped_from(estate: ClusterContext, snapshot: Snapshot, at: Moment) -> Snapshot:
    """The snapshot with each view's first target offset at or after the moment."""
    here = {view.target_tp: at.millis for view in snapshot.partitions.values() if view.on_target}
    found = estate.admin(snapshot.link.id.target).offsets_for_times(here)
    views = {tp: replace(view, at_offset=found.get(view.target_tp)) for tp, view in snapshot.partitions.items()}
    return replace(snapshot, partitions=views)


def _target_tails(
    estate: ClusterContext, snapshot: Snapshot, covered: Sequence[TopicPartition]
) -> dict[TopicPartition, Scanned]:
    """The tail of each partition on the target, by the source's name."""
    stretches = {}
    for tp in covered:
        view = snapshot.partitions[tp]
        if view.target_start is not None and view.target_end is not None:
            begin = max(view.target_start, view.target_end - _TAIL_OFFSETS)
            stretches[view.target_tp] = OffsetRange(begin, view.target_end)
    found = estate.admin(snapshot.link.id.target).scan(stretches, seconds=_SCAN_SECONDS)
    return {
        tp: found[snapshot.partitions[tp].target_tp] for tp in covered if snapshot.partitions[tp].target_tp in found
    }


def _missing(
    estate: ClusterContext, snapshot: Snapshot, covered: Sequence[TopicPartition]
) -> dict[TopicPartition, Scanned]:
    """Records that the target lacks, read from the source if it answers, including those held by open transactions."""
    stretches = {}
    ends = _true_ends(estate, snapshot, covered)
    for tp in covered:
        view = snapshot.partitions[tp]
        through = view.missing.through if view.missing.through is not None else view.source_start
        end = max(view.source_end or 0, ends.get(tp, 0))
        if view.source_end is not None and through is not None and through < end:
            stretches[tp] = OffsetRange(through, end)
    return _scan_source(estate, snapshot, stretches)


def _true_ends(
    estate: ClusterContext, snapshot: Snapshot, covered: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The source's high watermarks beyond its last stable offsets; nothing if it doesn't answer."""
    alias = snapshot.link.id.source
    if not snapshot.source.reachable:
        return {}
    try:
        admin = estate.admin(alias, may_be_gone=True)
        return admin.end_offsets(covered, committed=False, partial=True)
    except DrkitError:
        return {}


def _scan_source(
    estate: ClusterContext, snapshot: Snapshot, stretches: dict[TopicPartition, OffsetRange]
) -> dict[TopicPartition, Scanned]:
    """Its records; if it stops answering, every partition says so."""
    alias = snapshot.link.id.source
    if not snapshot.source.reachable:
        return {}
    try:
        admin = estate.admin(alias, may_be_gone=True)
        return admin.scan(stretches, seconds=_SCAN_SECONDS)
    except DrkitError as error:
        return {tp: Scanned(stretch.begin, reason=str(error)) for tp, stretch in stretches.items()}


def _transactions(
    estate: ClusterContext, snapshot: Snapshot, covered: Sequence[TopicPartition], cut: ConsistentCut, tails: Tails
) -> list[str]:
    """Sentences about transactions that the cut divides, or why they are unknown."""
    alias = snapshot.link.id.source
    millis = moment_of(cut).millis
    bounds = {tp: (snapshot.partitions[tp].source_start, snapshot.partitions[tp].source_end) for tp in covered}
    try:
        admin = estate.admin(alias, may_be_gone=True)
        found = admin.offsets_for_times(dict.fromkeys(covered, millis)) if snapshot.source.reachable else {}
    except DrkitError:
        found = {}
    cuts: dict[TopicPartition, int] = {}
    stretches = {}
    for tp, offset in found.items():
        start, end = bounds[tp]
        if start is not None and end is not None:
            cuts[tp] = end if offset is None else offset
            stretches[tp] = OffsetRange(max(start, cuts[tp] - _TAIL_OFFSETS), min(end, cuts[tp] + _TAIL_OFFSETS))
    around = _scan_source(estate, snapshot, stretches)
    read = {tp: scanned for tp, scanned in around.items() if scanned.reason is None}
    sentences = transactions_cut(millis, read, cuts)
    blind = sorted({tp.topic for tp in covered if tp not in read and _transactional(snapshot, tp, tails)})
    if blind:
        sentences.append(
            f"whether the instant divides a transaction is unknown on {and_more(blind)}: "
            f"{alias} can't be read there, and these topics hold transactions, or had records removed"
        )
    return sentences


def _transactional(snapshot: Snapshot, tp: TopicPartition, tails: Tails) -> bool:
    """Whether a partition may have transactions: the target's tail has markers, or the mapping has holes."""
    tail = tails.target.get(tp)
    return len(snapshot.partitions[tp].rows) > 1 or (tail is not None and any(batch.control for batch in tail.batches))
