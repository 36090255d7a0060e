"""Where the source has holes, the mapping says exactly where each position is on the target."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from drkit.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.lab import Lab
from drkit.model.topology import TopicPartition
from tests.support.collection.sampling import sampled, some_of
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("exact mappings", 3)]


def transactions(producer: Producer, topic: str, pattern: str) -> None:
    """One transaction per letter: `c` commits five records, `a` aborts five, `e` commits none on this topic."""
    for letter in pattern:
        producer.begin_transaction()
        for number in range(0 if letter == "e" else 5):
            producer.produce(topic, value=letter.encode() + b"%d" % number, partition=0)
        producer.flush(20)
        if letter == "a":
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)


PATTERNS = ("ccc", "caacac", "aaa", "cccccccccca", "ac")


@pytest.mark.parametrize(
    ("pattern", "offsets"),
    sampled("transactions with aborts", [pytest.param(p, o) for p in PATTERNS for o in ("preserve", "translate")], 3),
)
def test_transactions_with_aborts_and_markers(mirrored: Mirrored, pattern: str, offsets: str) -> None:
    mirrored.configure(f'offsets = "{offsets}"')
    topic = mirrored.name("tx")
    mirrored.source.create(topic)
    producer = mirrored.source.producer(transactional_id=topic)
    producer.init_transactions(30)
    transactions(producer, topic, pattern)
    assert mirrored.catch_up().caught_up
    assert len(mirrored.assert_same(topic)) == 5 * pattern.count("c")
    mirrored.assert_translates(topic)
    assert mirrored.through(topic) == mirrored.source.end(topic), (
        "the trailing marker is a hole that is mirrored through"
    )
    ours, theirs = mirrored.source.read(topic), mirrored.target.read(topic)
    if offsets == "preserve":
        assert [record.offset for record in theirs] == [record.offset for record in ours]
        assert mirrored.target.end(topic) == mirrored.source.end(topic)
    else:
        assert [record.offset for record in theirs] == list(range(len(ours)))


def test_an_open_transaction_holds_the_mirror_at_the_last_stable_offset(mirrored: Mirrored) -> None:
    topic = mirrored.name("open")
    mirrored.source.create(topic)
    producer = mirrored.source.producer(transactional_id=topic)
    producer.init_transactions(30)
    transactions(producer, topic, "c")
    pending: list[int] = []  # its offset: a marker may be written after its commit was acknowledged
    producer.begin_transaction()
    producer.produce(topic, value=b"pending", on_delivery=lambda _, message: pending.append(message.offset()))
    producer.flush(20)
    (stable,) = pending
    plain = mirrored.source.producer()
    plain.produce(topic, value=b"behind it")
    plain.flush(20)
    with mirrored.running():
        mirrored.wait_through(topic, offset=stable)
        assert mirrored.through(topic) == stable
        producer.commit_transaction(20)
        mirrored.wait_through(topic)
    assert [record.value for record in mirrored.assert_same(topic)][-2:] == [b"pending", b"behind it"]
    mirrored.assert_translates(topic)


def test_markers_that_come_while_the_mirror_runs(mirrored: Mirrored) -> None:
    topic = mirrored.name("live")
    mirrored.source.create(topic)
    producer = mirrored.source.producer(transactional_id=topic)
    producer.init_transactions(30)
    with mirrored.running():
        for pattern in ("c", "aa", "cac", "a"):
            transactions(producer, topic, pattern)
            mirrored.wait_through(topic)
    mirrored.assert_same(topic)
    mirrored.assert_translates(topic)


def test_holes_of_compaction(mirrored: Mirrored) -> None:
    topic = mirrored.name("compacted")
    mirrored.source.create(
        topic,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="100",
        delete_retention_ms="0",
        min_compaction_lag_ms="0",
        max_compaction_lag_ms="500",
    )
    producer = mirrored.source.producer()
    for number in range(300):
        producer.produce(topic, key=b"%d" % (number % 13 if number % 3 else number), value=b"%d" % number)
        if number % 50 == 0:
            producer.flush(20)
    producer.flush(20)

    def cleaned() -> bool:
        producer.produce(topic, key=b"roll", value=b"x")  # a record rolls the segment, so that it may be cleaned
        producer.flush(20)
        return len(mirrored.source.read(topic)) < 250

    wait_until(cleaned, 90, "compaction of the source")
    assert mirrored.catch_up().caught_up
    ours, theirs = mirrored.source.read(topic), mirrored.target.read(topic)
    present = {record.offset: record for record in ours}
    assert theirs[-1].content == ours[-1].content
    assert {record.content for record in ours} <= {record.content for record in theirs}, (
        "nothing that is left is missing"
    )
    assert present


def test_a_source_that_begins_above_zero(mirrored: Mirrored) -> None:
    topic = mirrored.name("later")
    mirrored.source.create(topic)
    producer = mirrored.source.producer()
    for number in range(100):
        producer.produce(topic, value=b"%d" % number)
    producer.flush(20)
    with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as admin:
        admin.delete_records({TopicPartition(topic, 0): 40})
    assert mirrored.catch_up().caught_up
    assert mirrored.assert_same(topic)[0].offset == 40
    mirrored.assert_translates(topic)
    assert not mirrored.problems()


def test_a_target_topic_that_had_records_of_its_own(mirrored: Mirrored) -> None:
    topic = mirrored.name("before")
    mirrored.source.create(topic)
    mirrored.target.create(topic)
    theirs, ours = mirrored.target.producer(), mirrored.source.producer()
    for number in range(7):
        theirs.produce(topic, value=b"own %d" % number)
    for number in range(20):
        ours.produce(topic, value=b"%d" % number)
    assert theirs.flush(20) == 0
    assert ours.flush(20) == 0
    assert mirrored.catch_up().caught_up
    values = [record.value for record in mirrored.target.read(topic)]
    assert values == [b"own %d" % n for n in range(7)] + [b"%d" % n for n in range(20)]
    state = mirrored.store.topic_states(mirrored.link.id)[topic]
    assert not state.created_by_drkit
    assert "before drkit" in state.reason


@pytest.mark.cassandra
def test_the_same_on_cassandra(lab: Lab, cassandra_url: str, tmp_path: Path, unique_name: str) -> None:
    mirrored = Mirrored(lab, tmp_path, unique_name, store_url=cassandra_url)
    try:
        topic, group = mirrored.name("tx"), mirrored.name("g")
        mirrored.source.create(topic)
        producer = mirrored.source.producer(transactional_id=topic)
        producer.init_transactions(30)
        transactions(producer, topic, "caca")
        with GroupAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as groups:
            assert groups.commit_many({group: {TopicPartition(topic, 0): (8, "")}}) == {}
        with mirrored.running() as running:
            mirrored.wait_through(topic)
            transactions(producer, topic, "acc")
            mirrored.wait_through(topic)
        assert running.error is None
        transactions(producer, topic, "ac")
        assert mirrored.catch_up().caught_up
        mirrored.assert_same(topic)
        mirrored.assert_translates(topic)
        assert [(p.group, p.offset) for p in mirrored.store.group_positions(mirrored.link.id)] == [(group, 8)]
        assert not mirrored.problems()
    finally:
        mirrored.close()
