"""Whether logs still hold what was read of them: by leader epochs and the last batch.

A log may have grown again since it lost its end. Each is compared as if it were the source of a mirror that had copied
all of it at that time (`as_mirrored`).
"""

from __future__ import annotations

from collections.abc import Iterable

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.source_divergence import divergence
from drkit.lag.batch_comparison import compare_batches
from drkit.model.clock import now
from drkit.model.offsets import SourceBatch, Watermark
from drkit.model.topology import TopicPartition


def as_mirrored(
    tp: TopicPartition, end: int, *, start: int = 0, leader_epoch: int | None = None, last: SourceBatch | None = None
) -> Watermark:
    """The watermark of a log that was read from offset `start` up to `end`, as if it had been mirrored so far.

    `leader_epoch`, `last`: of its last batch; None: unknown.
    """
    return Watermark(
        topic=tp.topic,
        partition=tp.partition,
        epoch=0,
        source_through=end,
        target_end=end,
        source_start=start,
        source_end=end,
        target_start=start,
        observed_at=now(),
        leader_epoch=leader_epoch,
        source_batch=last,
    )


def diverged(admin: ClusterAdmin, marks: Iterable[Watermark]) -> dict[TopicPartition, int]:
    """Partitions that no longer hold what was read of them up to these watermarks, and the offset from which they
    don't."""
    by_tp = {mark.tp: mark for mark in marks}
    if not by_tp:
        return {}
    epochs = {tp: mark.leader_epoch for tp, mark in by_tp.items() if mark.leader_epoch is not None}
    ends = admin.epoch_ends(epochs)
    log_ends = admin.end_offsets(by_tp, committed=False)
    lost = {
        tp: found.kept.offset
        for tp, mark in by_tp.items()
        if (found := divergence(mark, ends.get(tp), log_ends.get(tp, 0))) is not None
    }
    replaced = compare_batches(admin, [mark for tp, mark in by_tp.items() if tp not in lost]).replaced
    return lost | {tp: by_tp[tp].source_start for tp in replaced}
