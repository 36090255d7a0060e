"""MirrorMaker 2's topics, where drkit may not see them: whether there are any is unknown, and the right is named."""

from __future__ import annotations

import struct

import pytest
from confluent_kafka import Producer

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.groups.mirrormaker import checkpoints_topic, read_offsets
from drkit.lab import Lab
from drkit.model.errors import Refused
from drkit.model.topology import TopicPartition
from tests.support.commands.rights import Grants, as_exact
from tests.support.links.estates import OwnLink

pytestmark = pytest.mark.lab


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def test_checkpoints_that_may_not_be_described_are_not_called_absent(
    own: OwnLink, secure_lab: Lab, grants: Grants
) -> None:
    exact = as_exact(own, secure_lab)
    sides = [exact.config.clusters[alias] for alias in ("primary", "dr")]
    topic = checkpoints_topic(own.name)
    key, value = _text("g") + _text("t") + struct.pack(">i", 0), struct.pack(">hqq", 0, 7, 5) + _text("")
    with ClusterAdmin("dr", own.config.clusters["dr"]) as admin:
        admin.create_topic(topic, partitions=1, replication_factor=1)
        try:
            producer = Producer({"bootstrap.servers": secure_lab.bootstrap("dr")})
            producer.produce(topic, value, key)
            assert producer.flush(20) == 0
            with pytest.raises(Refused, match=f"does not show topic {topic}: TOPIC_AUTHORIZATION_FAILED") as refused:
                read_offsets(*sides, (own.name, "dr"), timeout_seconds=30, patience_seconds=30)
            assert "DESCRIBE" in refused.value.remedy

            right = {"resource": "topic", "pattern": "literal", "name": topic}
            grants.give({"dr": [{**right, "operation": "read"}]})  # it implies DESCRIBE
            found = read_offsets(*sides, (own.name, "dr"), timeout_seconds=30, patience_seconds=30)
        finally:
            admin.delete_topics([topic])
            exact.store.close()
    ((group, tp, *_),) = found.checkpoints
    assert (group, tp) == ("g", TopicPartition("t", 0))
    (note,) = found.notes
    assert f"cluster dr does not show topic mm2-offset-syncs.{own.name}.internal" in note, "it may be there"
