"""Whether logs still hold what was read of them: by leader epochs and the last batch (`last_batches`).

A log may have grown again since it lost its end. Each is compared as if it were the source of a mirror that had copied
all of it at that time (`as_mirrored`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.source_divergence import divergence
from drkit.lag.batch_comparison import compare_batches
from drkit.model.clock import now
from drkit.model.offsets import LastBatch, SourceBatch, Watermark
from drkit.model.topology import TopicPartition


def as_mirrored(tp: TopicPartition, end: int, *, start: int = 0, last: LastBatch | None = None) -> Watermark:
    """The watermark of a log that was read from offset `start` up to `end`, as if it had been mirrored so far.

    `last`: its last batch; None: unknown.
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
        leader_epoch=None if last is None else last.leader_epoch,
        source_batch=None if last is None else SourceBatch(last.last_offset, last.crc),
    )


def last_batches(admin: ClusterAdmin, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, LastBatch]:
    """The last batches of logs that end there; without those that are empty, that no leader answers for in time, or
    whose batch goes on beyond that end.

    Raises:
        Unreachable: no broker answers.
    """
    last = {tp: end - 1 for tp, end in ends.items()}
    return {
        tp: LastBatch(batch.leader_epoch, batch.last_offset, batch.crc)
        for tp, batch in (admin.batches_at(last) if last else {}).items()
        if batch is not None and batch.last_offset == last[tp]
    }


class ComparedLogs(NamedTuple):
    """`diverged`: partitions that no longer hold what was read of them, and the offset from which they don't;
    `unproven`: others of which nothing shows that they still do: their cleaner has written the last batch anew, or
    removed it, nobody knows that batch, or no leader answers."""

    diverged: dict[TopicPartition, int]
    unproven: frozenset[TopicPartition]


def compare_logs(admin: ClusterAdmin, marks: Iterable[Watermark]) -> ComparedLogs:
    """Compare partitions with what was read of them up to these watermarks.

    Raises:
        Unreachable: no broker answers.
    """
    by_tp = {mark.tp: mark for mark in marks}
    if not by_tp:
        return ComparedLogs({}, frozenset())
    epochs = {tp: mark.leader_epoch for tp, mark in by_tp.items() if mark.leader_epoch is not None}
    ends = admin.epoch_ends(epochs)
    log_ends = admin.end_offsets(by_tp, committed=False)
    lost = {
        tp: found.kept.offset
        for tp, mark in by_tp.items()
        if (found := divergence(mark, ends.get(tp), log_ends.get(tp, 0))) is not None
    }
    batches = compare_batches(admin, [mark for tp, mark in by_tp.items() if tp not in lost])
    diverged = lost | {tp: by_tp[tp].source_start for tp in batches.replaced}
    left = by_tp.keys() - diverged.keys() - batches.same
    starts = admin.start_offsets(left, partial=True) if left else {}
    # a log that begins where reading had ended, or behind it, has nothing left that could be compared
    unproven = {tp for tp in left if starts.get(tp, 0) < by_tp[tp].source_through}
    return ComparedLogs(diverged, frozenset(unproven))
