"""Whether a log still has what it held at its end when its topic was kept: by leader epochs and its last batch, as the
log may have grown again since.

It is compared as if it were the source of a mirror that had copied all of it at that time.
"""

from __future__ import annotations

from collections.abc import Mapping

from drkit.failover.context.live_log import LastBatch, LiveLog, TopicKept
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lag.diverged_logs import diverged
from drkit.model.clock import now
from drkit.model.offsets import SourceBatch, Watermark
from drkit.model.topology import TopicPartition


def last_batches(admin: ClusterAdmin, logs: Mapping[str, LiveLog]) -> dict[str, dict[int, LastBatch]]:
    """By topic and partition, the last batch of these logs; without those that are empty, that no leader answers for,
    or that have changed since."""
    held = {
        TopicPartition(topic, number): end - 1
        for topic, log in logs.items()
        for number, end in log.ends.items()
        if end > log.starts.get(number, 0)
    }
    last: dict[str, dict[int, LastBatch]] = {}
    for tp, batch in (admin.batches_at(held) if held else {}).items():
        if batch is not None and batch.last_offset == held[tp]:
            last.setdefault(tp.topic, {})[tp.partition] = LastBatch(batch.leader_epoch, batch.last_offset, batch.crc)
    return last


def lost_tails(admin: ClusterAdmin, kept: Mapping[str, TopicKept]) -> dict[TopicPartition, int]:
    """Partitions of these topics, the same ones still, that no longer hold what they held at their logs' ends, and the
    offset from which they don't (all of it where that isn't known). `kept`: by their names on the live cluster.

    Raises:
        Unreachable: no broker answers.
    """
    return diverged(
        admin,
        [
            _as_mirrored(TopicPartition(name, number), each, number, end)
            for name, each in kept.items()
            for number, end in each.live.ends.items()
        ],
    )


def _as_mirrored(tp: TopicPartition, kept: TopicKept, number: int, end: int) -> Watermark:
    batch = kept.live_batches.get(number)
    start = kept.live.starts.get(number, 0)
    return Watermark(
        topic=tp.topic,
        partition=number,
        epoch=0,
        source_through=end,
        target_end=end,
        source_start=start,
        source_end=end,
        target_start=start,
        observed_at=now(),
        leader_epoch=None if batch is None else batch.leader_epoch,
        source_batch=None if batch is None else SourceBatch(batch.last_offset, batch.crc),
    )
