"""Offsets preserved on stock Kafka: a source that begins high, compacted topics, markers, what can't be kept equal."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from drkit.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.model.topics.standby import ALIGNING
from drkit.model.topology import TopicPartition
from tests.support.collection.sampling import some_of
from tests.support.links.mirroring import Mirrored, Side
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("preserved offsets", 3)]


def _offsets_are_equal(mirrored: Mirrored, topic: str, partition: int = 0) -> None:
    ours = mirrored.source.read(topic, partition)
    theirs = mirrored.target.read(topic, partition, committed=False)
    assert ours
    assert theirs == ours, "the same records at the same offsets, and nothing else visible"


def _write(side: Side, topic: str, count: int, partition: int = 0, **config: object) -> None:
    producer = side.producer(**config)
    for number in range(count):
        producer.produce(topic, key=b"%d" % number, value=b"%d" % number, partition=partition)
    assert producer.flush(30) == 0


def _begin_at(mirrored: Mirrored, topic: str, offset: int, partition: int = 0) -> None:
    """Have the source's log start at an offset: written with drkit's own filler, then removed."""
    from tests.support.clusters.raw import advance  # noqa: PLC0415 - asyncio only where it is needed

    advance(mirrored.source.bootstrap, topic, partition, offset)
    with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as admin:
        admin.delete_records({TopicPartition(topic, partition): offset})


def _policy(side: Side, topic: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return side.admin.describe_configs([resource])[resource].result(20)["cleanup.policy"].value


def test_a_source_that_begins_high_has_the_same_offsets_on_the_target(mirrored: Mirrored) -> None:
    topic = mirrored.name("high")
    mirrored.source.create(topic, 2)
    _begin_at(mirrored, topic, 1_234_567)
    for partition in (0, 1):
        _write(mirrored.source, topic, 50, partition)
    assert mirrored.catch_up().caught_up
    for partition in (0, 1):
        _offsets_are_equal(mirrored, topic, partition)
    assert mirrored.source.read(topic)[0].offset == 1_234_567
    mirrored.assert_translates(topic, commits=[1_234_567, 1_234_600, 1_234_617])
    rows = mirrored.store.mappings(mirrored.link.id, TopicPartition(topic, 0), 1)
    assert [(row.source_offset, row.target_offset) for row in rows] == [(1_234_567, 1_234_567)]
    assert "offsets are preserved" in mirrored.store.topic_states(mirrored.link.id)[topic].reason
    assert not mirrored.problems()


def test_a_compacted_source_that_begins_high_is_compacted_once_it_is_aligned(mirrored: Mirrored) -> None:
    topic = mirrored.name("compacted")
    mirrored.source.create(topic)
    _begin_at(mirrored, topic, 5_000)
    with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as admin:
        admin.set_topic_configs(topic, {"cleanup.policy": "compact"})
    _write(mirrored.source, topic, 20)
    with mirrored.running() as running:
        mirrored.wait_through(topic)
        wait_until(lambda: _policy(mirrored.target, topic) == "compact", 60, "the target to be compacted too")
    assert running.error is None
    _offsets_are_equal(mirrored, topic)
    assert mirrored.source.read(topic)[0].offset == 5_000
    assert mirrored.store.notes(mirrored.link.id, ALIGNING) == {}


def test_holes_that_can_be_matched_keep_the_delta_and_others_change_it(mirrored: Mirrored) -> None:
    topic = mirrored.name("holes")
    mirrored.source.create(topic)
    producer = mirrored.source.producer(transactional_id=topic, linger_ms=5_000)  # a batch ends only when it is flushed
    producer.init_transactions(30)

    def transaction(records: int, *, commit: bool) -> None:
        producer.begin_transaction()
        for number in range(records):
            producer.produce(topic, value=b"%d" % number, partition=0)
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)

    transaction(3, commit=True)
    transaction(400, commit=False)
    transaction(3, commit=True)
    assert mirrored.catch_up().caught_up
    _offsets_are_equal(mirrored, topic)
    transaction(2_500, commit=False)  # more than is matched
    transaction(3, commit=True)
    assert mirrored.catch_up().caught_up
    mirrored.assert_same(topic)
    mirrored.assert_translates(topic, commits=[*range(3, 420, 50), 1_000, 2_911, 2_914])
    rows = mirrored.store.mappings(mirrored.link.id, TopicPartition(topic, 0), 1)
    assert [row.delta for row in rows] == [0, -2_501]
    (told,) = mirrored.problems("offsets_differ")
    assert "offsets 409 to 2908" in told.reason
    assert not told.halted


def test_translate_leaves_the_target_without_markers(mirrored: Mirrored) -> None:
    mirrored.configure('offsets = "translate"')
    topic = mirrored.name("plain")
    mirrored.source.create(topic)
    _begin_at(mirrored, topic, 2_000)
    _write(mirrored.source, topic, 10)
    assert mirrored.catch_up().caught_up
    assert [record.offset for record in mirrored.target.read(topic)] == list(range(10))
    assert mirrored.target.end(topic) == 10
    mirrored.assert_translates(topic)


def test_an_interrupted_alignment_goes_on_where_it_was(mirrored: Mirrored) -> None:
    """SIGKILL while the filler is written: whatever is there already is used, and nothing of it is seen at the end."""
    topic = mirrored.name("cut")
    mirrored.source.create(topic)
    _begin_at(mirrored, topic, 6_000_000)
    _write(mirrored.source, topic, 10)
    process = mirrored.process()
    wait_until(lambda: mirrored.target.partitions(topic) and mirrored.target.end(topic) > 0, 60, "the first filler")
    mirrored.kill(process)
    assert mirrored.target.end(topic) <= 6_000_000
    assert mirrored.catch_up().caught_up
    _offsets_are_equal(mirrored, topic)
    assert mirrored.source.read(topic)[0].offset == 6_000_000
    mirrored.assert_translates(topic, commits=[6_000_000, 6_000_007, 6_000_010])
    assert not mirrored.problems()


def test_records_of_somebody_else_are_not_removed_to_align(mirrored: Mirrored) -> None:
    topic = mirrored.name("strangers")
    mirrored.source.create(topic)
    _begin_at(mirrored, topic, 5_000)
    _write(mirrored.source, topic, 20)
    mirrored.target.create(topic)
    _write(mirrored.target, topic, 3)
    before = mirrored.target.read(topic)
    mirrored.created_by_drkit(topic)
    assert mirrored.catch_up().caught_up
    after = mirrored.target.read(topic)
    assert after[:3] == before
    assert len(after) == 23
    (problem,) = mirrored.problems()
    assert "are not filler of this mirror" in problem.reason
