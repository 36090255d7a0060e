"""The logs of topics on one cluster: ids, starts and ends, looked at now."""

from __future__ import annotations

from collections.abc import Mapping

from drkit.failover.failback.live_log import LiveLog
from drkit.kafka.admin.cluster_admin import ClusterAdmin, TopicInfo
from drkit.model.topology import TopicPartition


def logs_of(admin: ClusterAdmin, found: Mapping[str, TopicInfo], names: Mapping[str, str]) -> dict[str, LiveLog]:
    """The logs of topics, by other names; `found`: those that are there."""
    tps = [
        TopicPartition(name, number)
        for name in sorted(set(names.values()) & found.keys())
        for number in range(found[name].partitions)
    ]
    starts, ends = admin.start_offsets(tps), admin.end_offsets(tps, committed=False)
    logs = {}
    for topic, name in names.items():
        info = found.get(name)
        if info is None:
            logs[topic] = LiveLog()
            continue
        numbers = [(number, TopicPartition(name, number)) for number in range(info.partitions)]
        logs[topic] = LiveLog(
            info.topic_id,
            {number: starts[tp] for number, tp in numbers},
            {number: ends[tp] for number, tp in numbers},
        )
    return logs
