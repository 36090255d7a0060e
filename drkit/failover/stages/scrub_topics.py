"""The topics that a scrub deletes, and what the live cluster has of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from drkit.failover.failback.failback_plan import ScrubTopic
from drkit.failover.failback.failback_snapshot import FailbackSnapshot, logs_of
from drkit.failover.failback.live_log import MISSING, RECREATED, LiveLog, gap_of, only_here
from drkit.failover.failback.topic_mapping import MappedTopic, PartitionMapping
from drkit.failover.run.cluster_context import ClusterContext
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.model.topology import TopicPartition, is_canary


def scrub_topics(snapshot: FailbackSnapshot) -> Iterator[ScrubTopic]:
    """Topics that the link mirrored and that are still the same incarnation, and those that a failback that was given
    up has recreated.
    """
    for name, live_topic in sorted(snapshot.live_names().items()):
        info = snapshot.topics.get(name)
        if info is None or not snapshot.is_ours(info) or is_canary(name):
            continue
        state, made, anew = snapshot.states.get(name), snapshot.back_states.get(name), snapshot.way_back(info)
        recorded = made.source_topic_id if anew and made is not None else state.target_topic_id if state else ""
        tps = [TopicPartition(name, partition) for partition in range(info.partitions)]
        topic = ScrubTopic(
            topic=name,
            topic_id=info.topic_id,
            live_topic=live_topic,
            partitions=info.partitions,
            replication_factor=info.replication_factor,
            epoch=max(each.epoch for each in (state, made) if each is not None),
            created_by_drkit=state.created_by_drkit if state is not None else False,
            config=dict(snapshot.configs_before.get(name, {}) if anew else {}) or dict(snapshot.configs.get(name, {})),
            starts={tp.partition: snapshot.starts[tp] for tp in tps if tp in snapshot.starts},
            ends={tp.partition: snapshot.ends[tp] for tp in tps if tp in snapshot.ends},
            live_topic_id=recorded,
            way_back=anew,
        )
        yield compared(topic, snapshot.live_logs.get(name, LiveLog()), snapshot.mappings)


def compared(topic: ScrubTopic, live: LiveLog, mappings: Mapping[TopicPartition, PartitionMapping]) -> ScrubTopic:
    """The topic with what the live cluster's log lacks of it."""
    gap = MISSING if live.topic_id is None else RECREATED if live.topic_id != topic.live_topic_id else None
    found = {}
    for number, end in topic.ends.items():
        mark, rows, _ = mappings.get(TopicPartition(topic.topic, number), PartitionMapping())
        there = None if gap is not None or number not in live.starts else (live.starts[number], live.ends[number])
        found[number] = only_here((topic.starts.get(number, 0), end), mark, rows, there)
    only = {number: each.offsets for number, each in found.items()}
    if gap is not None and not any(only.values()):
        gap = None  # it is empty, so nothing can be missing
    return replace(topic, live_starts=live.starts, only=only, gap=gap or gap_of(found) or "")


def live_logs(admin: ClusterAdmin, topics: Iterable[ScrubTopic]) -> dict[str, LiveLog]:
    """The live cluster's logs of these topics, by the names on the old primary."""
    names = {topic.topic: topic.live_topic for topic in topics}
    return logs_of(admin, admin.topics(sorted(set(names.values()))), names)


def mapped_topics(topics: Iterable[ScrubTopic]) -> list[MappedTopic]:
    """The keys for looking up their mappings."""
    return [
        MappedTopic(topic.topic, topic.live_topic, topic.partitions, topic.way_back, topic.live_starts)
        for topic in topics
    ]


def with_gaps_now(
    estate: ClusterContext, live: str, topics: Sequence[ScrubTopic], mappings: Mapping[TopicPartition, PartitionMapping]
) -> list[ScrubTopic]:
    """The topics with what the live cluster's logs lack of them now."""
    logs = live_logs(estate.admin(live), topics)
    return [compared(topic, logs[topic.topic], mappings) for topic in topics]
