"""Finds where the source may have lost what was mirrored of it: there, the mirror's digests prove nothing of it.

A source that lost records and has grown again since looks whole by its log's end. Its history of leader epochs
tells (`drkit.kafka.admin.source_divergence` says why); where it doesn't (any more), what a mirror noted when it could
be seen does. Where neither can tell, nothing is proven.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.leader_epochs import EpochEnd, kept_offsets
from drkit.model.digests import RangeDigest
from drkit.model.link_state import SOURCE_TRUNCATED
from drkit.model.offsets import Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import Store


def source_kept(
    link: LinkId, store: Store, source: ClusterAdmin, digests: Mapping[TopicPartition, Collection[RangeDigest]]
) -> dict[TopicPartition, int]:
    """By partition, the offset up to which its source surely has what was mirrored; left out: all that is in `digests`.

    Watermarks are read here, after the digests: one read before might not reach what they cover. One that doesn't reach
    it all the same (the mirror was killed between the two) says nothing of what is beyond.

    Raises:
        Unreachable: the source or the store doesn't answer.
    """
    marks = {tp: mark for tp, mark in store.watermarks(link).items() if tp in digests}
    ends = source.epoch_ends({tp: mark.leader_epoch for tp, mark in marks.items() if mark.leader_epoch is not None})
    kept = {tp: _kept(marks.get(tp), ends.get(tp)) for tp in digests}
    for problem in store.problems(link):
        if problem.kind == SOURCE_TRUNCATED:
            for tp in digests:
                if tp.topic == problem.topic and problem.partition in {None, tp.partition}:
                    kept[tp] = kept[tp] if tp in ends and kept[tp] < marks[tp].source_through else 0
    return {tp: kept[tp] for tp, rows in digests.items() if any(row.source_end > kept[tp] for row in rows)}


def _kept(mark: Watermark | None, end: EpochEnd | None) -> int:
    """Up to where the source surely has what was mirrored."""
    if mark is None or mark.leader_epoch is None or end is None:
        return 0
    kept = kept_offsets(mark.source_through, mark.leader_epoch, end)
    if kept is None:
        return mark.source_through
    return kept.offset if kept.exact else 0
