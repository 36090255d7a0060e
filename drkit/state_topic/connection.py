"""A link's state topic on its target: existence, creation, reading, writing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.client.small_topic import SmallTopicRecord, SmallTopicWriter, make_topic, read_topics
from drkit.model.errors import Refused, Unreachable
from drkit.model.topology import TopicPartition
from drkit.state_topic.records import TOPIC_CONFIG

READ_SECONDS = 60.0
SEND_SECONDS = 10.0
_POLICY = "cleanup.policy"


def exists(admin: ClusterAdmin, topic: str) -> bool:
    """Whether the topic exists.

    Raises:
        Unreachable: the cluster doesn't answer.
        Refused: it may not be seen.
    """
    return topic_id(admin, topic) is not None


def topic_id(admin: ClusterAdmin, topic: str) -> str | None:
    """Kafka's id of the topic; None: there is no such topic. Raises as `exists`."""
    found = admin.topics([topic]).get(topic)
    return None if found is None else found.topic_id


def begins(admin: ClusterAdmin, topic: str) -> int:
    """The first offset of the topic, which exists; beyond 0 records were deleted: compaction keeps it.

    Raises:
        Unreachable: the cluster doesn't answer.
    """
    log = TopicPartition(topic, 0)
    return admin.start_offsets([log]).get(log, 0)


def keep_compacted(admin: ClusterAdmin, topic: str) -> None:
    """Correct a topic that a broker auto-created, as at a write after a deletion of the topic.

    Raises:
        Refused: the cluster denies it.
        Unreachable: the cluster doesn't answer.
    """
    try:
        found = admin.topic_configs([topic], keys=[_POLICY]).get(topic, {}).get(_POLICY)
    except Refused:
        return  # its settings may not be read; drkit creates it correctly
    if found != TOPIC_CONFIG[_POLICY]:
        admin.set_topic_configs(topic, TOPIC_CONFIG)


def create(admin: ClusterAdmin, topic: str) -> None:
    """Create it. Raises as `make_topic`."""
    make_topic(admin, topic, TOPIC_CONFIG)


def read_all(
    alias: str, cluster: ClusterConfig, topic: str, *, seconds: float = READ_SECONDS
) -> dict[bytes, SmallTopicRecord]:
    """The newest record of each key, removed ones included, up to the topic's present end; the topic exists.

    Raises:
        Unreachable: it isn't read to its end within these seconds.
        Refused: it may not be read.
    """
    found = read_several(alias, cluster, [topic], seconds=seconds)
    if topic not in found:
        raise Unreachable(
            f"topic {topic} on cluster {alias} can't be read: the brokers no longer show it",
            remedy=f"Check that nobody deletes it, and that drkit's principal may describe it on {alias}",
        )
    return found[topic]


def read_several(
    alias: str, cluster: ClusterConfig, topics: Collection[str], *, seconds: float = READ_SECONDS
) -> dict[str, dict[bytes, SmallTopicRecord]]:
    """As `read_all`, of each of these that exists."""
    found: dict[str, dict[bytes, SmallTopicRecord]] = defaultdict(dict)

    def take(topic: str, record: SmallTopicRecord) -> None:
        found[topic].pop(record.key, None)  # the newest comes last
        found[topic][record.key] = record

    there = read_topics(alias, cluster, topics, seconds, take)
    return {topic: found[topic] for topic in there}


def writer(alias: str, cluster: ClusterConfig, topic: str) -> SmallTopicWriter:
    """A producer for the topic, which exists."""
    return SmallTopicWriter(alias, cluster, topic, SEND_SECONDS)
