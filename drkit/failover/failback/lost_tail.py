"""Whether a log still has what it held at its end when its topic was kept: by leader epochs and its last batch, as the
log may have grown again since."""

from __future__ import annotations

from collections.abc import Mapping

from drkit.failover.context.live_log import LiveLog, TopicKept
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lag.diverged_logs import ComparedLogs, as_mirrored, compare_logs, last_batches
from drkit.model.offsets import LastBatch
from drkit.model.topology import TopicPartition


def live_batches(admin: ClusterAdmin, logs: Mapping[str, LiveLog]) -> dict[str, dict[int, LastBatch]]:
    """By topic and partition, the last batches of these logs (`last_batches`)."""
    ends = {
        TopicPartition(topic, number): end
        for topic, log in logs.items()
        for number, end in log.ends.items()
        if end > log.starts.get(number, 0)
    }
    found: dict[str, dict[int, LastBatch]] = {}
    for tp, batch in last_batches(admin, ends).items():
        found.setdefault(tp.topic, {})[tp.partition] = batch
    return found


def lost_tails(admin: ClusterAdmin, kept: Mapping[str, TopicKept]) -> ComparedLogs:
    """Partitions of these topics, the same ones still, that no longer hold what they held at their logs' ends (all of
    it is gone where it isn't known from where on), or may not. `kept`: by their names on the live cluster.

    Raises:
        Unreachable: no broker answers.
    """
    return compare_logs(
        admin,
        [
            as_mirrored(
                TopicPartition(name, number),
                end,
                start=each.live.starts.get(number, 0),
                last=each.live_batches.get(number),
            )
            for name, each in kept.items()
            for number, end in each.live.ends.items()
        ],
    )
