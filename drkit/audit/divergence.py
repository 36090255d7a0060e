"""Where the source no longer has what a mirror read of it: there, what the mirror kept proves nothing of the source.

A source that lost records and has grown again since looks whole by its log's end. Its history of leader epochs
tells (`drkit.mirror.divergence` says why); where it doesn't (any more), what a mirror noted when it could be seen does.
"""

from __future__ import annotations

from collections.abc import Collection

from drkit.kafka.admin import ClusterAdmin
from drkit.model.links import SOURCE_TRUNCATED
from drkit.model.topology import LinkId, TopicPartition
from drkit.store.api import Store


def source_kept(
    link: LinkId, store: Store, source: ClusterAdmin, tps: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Of those that lost something, the offset up to which they still have what was mirrored; 0 where that isn't known.

    Watermarks are read here, after the digests of `tps`: one read before might not reach what they cover.

    Raises:
        Unreachable: the source or the store doesn't answer.
    """
    marks = {tp: mark for tp, mark in store.watermarks(link).items() if tp in tps}
    ends = source.epoch_ends({tp: mark.leader_epoch for tp, mark in marks.items() if mark.leader_epoch is not None})
    kept = {tp: end.end for tp, end in ends.items() if end.end < marks[tp].source_through}
    for problem in store.problems(link):
        if problem.kind == SOURCE_TRUNCATED:
            for tp in tps:
                if tp.topic == problem.topic and problem.partition in {None, tp.partition}:
                    kept.setdefault(tp, 0)
    return kept
