"""Whether a log still has what it held at its end when its topic was kept: by leader epochs and its last batch, as the
log may have grown again since."""

from __future__ import annotations

from collections.abc import Mapping

from drkit.failover.context.live_log import LastBatch, LiveLog, TopicKept
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lag.diverged_logs import as_mirrored, compare_logs
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
    return compare_logs(
        admin,
        [
            _as_mirrored(TopicPartition(name, number), each, end)
            for name, each in kept.items()
            for number, end in each.live.ends.items()
        ],
    ).diverged


def _as_mirrored(tp: TopicPartition, kept: TopicKept, end: int) -> Watermark:
    start, batch = kept.live.starts.get(tp.partition, 0), kept.live_batches.get(tp.partition)
    if batch is None:
        return as_mirrored(tp, end, start=start)
    return as_mirrored(
        tp, end, start=start, leader_epoch=batch.leader_epoch, last=SourceBatch(batch.last_offset, batch.crc)
    )
