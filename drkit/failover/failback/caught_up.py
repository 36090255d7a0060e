"""Whether an old primary holds nothing of its own, so that a failback needs to delete nothing there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drkit.failover.failback.failback_plan import ScrubTopic
from drkit.failover.failback.live_log import LiveLog
from drkit.kafka.admin.cluster_admin import TopicInfo
from drkit.model.link_state import TopicState
from drkit.model.offsets import Watermark
from drkit.model.topology import TopicPartition


def is_caught_up(
    topics: Sequence[ScrubTopic],
    ends: Mapping[TopicPartition, int],
    watermarks: Mapping[TopicPartition, Watermark],
    states: Mapping[str, TopicState],
    live_topics: Mapping[str, TopicInfo],
    live_logs: Mapping[str, LiveLog],
) -> bool:
    """Whether each of these topics holds on the old primary what was mirrored, no more and no less, and the live
    cluster still has all that came after. What isn't known makes it no.

    Args:
        topics: what would be scrubbed: topics that are the very ones that were mirrored.
        ends: the old primary's log ends (high watermarks).
        watermarks: of the configured link.
        states: its topic states, by the old primary's names.
        live_topics: of the live cluster, by its names.
        live_logs: its logs, by the old primary's names.
    """

    def partition_is(topic: ScrubTopic, number: int) -> bool:
        tp = TopicPartition(topic.topic, number)
        mark, live = watermarks.get(tp), live_topics.get(topic.live_topic)
        start = live_logs.get(topic.topic, LiveLog()).starts.get(number)
        if mark is None or mark.epoch != topic.epoch or live is None or start is None:
            return False
        return (
            ends.get(tp) == mark.source_through
            and mark.source_end <= mark.source_through
            and live.topic_id == states[topic.topic].target_topic_id
            and start <= mark.target_end
        )

    return bool(topics) and all(partition_is(topic, number) for topic in topics for number in range(topic.partitions))
