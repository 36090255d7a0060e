"""What is no fault is no alarm: differing offsets, conservative positions and a dead canary, on real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.clusters import observing
from drkit.lag.batch_comparison import compare_batches
from drkit.lag.problems_now import link_sides
from drkit.lag.unmirrored_tail import UnmirroredTail, unmirrored_tail
from drkit.mirror.health.problems import Problems
from drkit.mirror.runtime.pipeline_factory import PipelineFactory
from drkit.mirror.topics.topic_sync import TopicSync
from drkit.model.offsets import Certainty
from drkit.model.topology import TopicPartition as Partition
from drkit.observe.link_status import LinkStatus
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.observe.readiness.readiness import readiness
from drkit.observe.status import link_statuses
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


def status(mirrored: Mirrored) -> LinkStatus:
    (found,) = link_statuses(mirrored.config, mirrored.store, [mirrored.link])
    return found


def checks(mirrored: Mirrored) -> dict[str, Check]:
    with observing(mirrored.config.clusters, None) as clusters:
        found = readiness(mirrored.config, mirrored.store, mirrored.link, clusters)
    return {check.name: check for check in found.checks}


@contextmanager
def stands_at(mirrored: Mirrored, topic: str, offset: int) -> Iterator[str]:
    """A group that has committed an offset."""
    name = mirrored.name("billing")
    consumer = Consumer({"bootstrap.servers": mirrored.source.bootstrap, "group.id": name, "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        yield name
    finally:
        consumer.close()


def test_offsets_that_differ_and_conservative_positions_are_no_alarm(mirrored: Mirrored) -> None:
    topic = mirrored.name("latest")
    mirrored.source.create(topic, cleanup_policy="compact")
    producer = mirrored.source.producer(transactional_id=topic, linger_ms=5_000)
    producer.init_transactions(30)
    for count, commit in ((3, True), (2_500, False), (3, True)):  # the hole is more than is matched
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic, key=b"%d" % number, value=b"x", partition=0)
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    purged = mirrored.name("purged")  # a group stands below what is left of it
    mirrored.source.create(purged)
    plain = mirrored.source.producer()
    for number in range(5):
        plain.produce(purged, value=b"%d" % number)
    assert plain.flush(20) == 0
    with stands_at(mirrored, purged, 1):
        mirrored.source.purge(purged, 3)
    with mirrored.running():
        wait_until(lambda: mirrored.problems("offsets_differ"), what="the remark")
        wait_until(lambda: mirrored.store.group_positions(mirrored.link.id), what="the group's position")
        mirrored.wait_through(topic)
        mirrored.wait_through(purged)
        seen = wait_until(
            lambda: found if (found := status(mirrored)).state != "stopped" and found.groups else None,
            what="the mirror",
        )
        assert (seen.state, seen.reason) == ("mirroring", None)
        assert [problem.kind for problem in seen.problems] == ["offsets_differ"]
        assert [group.translation for group in seen.groups] == [Certainty.CONSERVATIVE]
        found = checks(mirrored)
        assert found["problem: offsets_differ"].outcome is CheckOutcome.OK
        assert found["group positions translatable"].outcome is CheckOutcome.OK
        assert "1 of 1 are conservative" in found["group positions translatable"].reason


def test_a_source_without_groups_leaves_nothing_unknown_and_one_that_has_some_does(mirrored: Mirrored) -> None:
    topic = mirrored.name("orders")
    mirrored.source.create(topic)
    with mirrored.running():
        wait_until(lambda: mirrored.store.watermarks(mirrored.link.id), what="the partition")
        found = checks(mirrored)
    assert "has no group that the link covers" in found["group positions captured"].reason
    about_groups = {name: check.outcome for name, check in found.items() if "group" in name}
    assert about_groups == {"group positions captured": CheckOutcome.WARN, "groups without members": CheckOutcome.OK}
    with stands_at(mirrored, topic, 0):  # nobody has captured it
        found = checks(mirrored)
    assert found["group positions translatable"].outcome is CheckOutcome.UNKNOWN


def test_a_dead_canary_is_no_reason_against_a_failover(mirrored: Mirrored) -> None:
    mirrored.link = replace(mirrored.link, canary=True)
    canary = mirrored.link.canary_topic
    assert canary is not None
    topic = mirrored.name("orders")
    mirrored.source.create(topic)
    with mirrored.running():
        wait_until(lambda: mirrored.source.partitions(canary), what="the canary's topic")
        wait_until(lambda: canary in mirrored.store.topic_states(mirrored.link.id), what="the canary's way")
        mirrored.source.delete(canary)
        with suppress(KafkaException):  # the canary itself may be the faster one
            mirrored.source.create(canary)
        (problem,) = wait_until(lambda: mirrored.problems("topic_recreated"), what="a canary that is dead")
        assert (problem.topic, problem.halted) == (canary, True)
        assert checks(mirrored)["problem: topic_recreated"].outcome is CheckOutcome.WARN


def test_a_worker_that_was_frozen_while_it_looked_takes_the_others_work_for_no_foreign_writer(
    mirrored: Mirrored,
) -> None:
    """Another worker mirrors on between the looks at the logs of one that is stopped and woken."""
    topic = mirrored.name("orders")
    mirrored.source.create(topic)
    write(mirrored, topic, 10)
    mirrored.catch_up()
    clusters = mirrored.config.clusters
    with ClusterAdmin("primary", clusters["primary"]) as source, ClusterAdmin("dr", clusters["dr"]) as target:
        problems = Problems(mirrored.store, mirrored.link.id, lambda _: None)
        ready = TopicSync(mirrored.link, source, target, mirrored.store, problems).sync()[topic]
        resumer = PipelineFactory(mirrored.config, mirrored.link, source, target, (), mirrored.store).resumer(
            mirrored.store, problems, mirrored.store
        )
        look = target.log_ends

        def woken(*asked: Any, **options: Any) -> Any:
            target.log_ends = look  # type: ignore[method-assign]  # once
            write(mirrored, topic, 7)
            mirrored.catch_up()
            return look(*asked, **options)

        target.log_ends = woken  # type: ignore[method-assign]  # where the process is stopped
        (resumed,) = resumer.resume(dict.fromkeys(ready.tps(), ready), Event())
        assert not problems.halted()
        assert (resumed.start.source_offset, resumed.start.target_offset) == (17, 17)


def write(mirrored: Mirrored, topic: str, count: int) -> None:
    producer = mirrored.source.producer()
    for number in range(count):
        producer.produce(topic, value=b"%d" % number, partition=0)
    assert producer.flush(20) == 0


@pytest.mark.parametrize("all_again", [False, True], ids=["some", "all"])
@pytest.mark.parametrize("target_too", [False, True], ids=["source", "both"])
def test_a_cleaner_that_went_over_the_last_mirrored_batch_halts_nothing(
    mirrored: Mirrored, target_too: bool, all_again: bool
) -> None:
    """It wrote that batch anew, without the records whose keys came again: the source wasn't set back. If all came
    again, it has none of what was mirrored."""
    topic, eager = mirrored.name("cleaned"), {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.0001"}
    mirrored.source.create(topic, cleanup_policy="compact", **(eager if target_too else {}))
    producer = mirrored.source.producer()

    def write(first: int, last: int) -> None:
        for number in range(first, last):
            producer.produce(topic, key=b"%d" % (number % 30), value=b"%d" % number, partition=0)
        assert producer.flush(30) == 0

    write(0, 50)  # two of three keys come twice
    assert mirrored.catch_up().caught_up
    mark = mirrored.store.watermarks(mirrored.link.id)[Partition(topic, 0)]
    end = 110 if all_again else 50
    write(50, end)
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in eager.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    mirrored.source.admin.incremental_alter_configs([resource])[resource].result(20)
    with ClusterAdmin("primary", mirrored.config.clusters["primary"]) as admin:

        def gone_over() -> bool:
            producer.produce(topic, key=b"again", value=b"x", partition=0)  # rolls the segment, so that it is cleaned
            assert producer.flush(30) == 0
            if mark.tp not in compare_batches(admin, [mark]).rewritten:
                return False
            return not all_again or not [each for each in mirrored.source.read(topic) if each.offset < 50]

        wait_until(gone_over, 90, "the cleaner")
    (partition,) = (each for each in status(mirrored).partitions if each.topic == topic)
    assert status(mirrored).problems == ()
    assert partition.lag_records == mirrored.source.end(topic) - 50
    assert mirrored.catch_up().caught_up
    assert status(mirrored).problems == ()


def test_a_tombstone_that_the_targets_cleaner_removed_first_was_mirrored(mirrored: Mirrored) -> None:
    """The source's cleaner leaves its last segment alone, with the tombstone and what it deletes."""
    topic = mirrored.name("deleted")
    eager = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.0001", "delete_retention_ms": "0"}
    mirrored.source.create(topic, cleanup_policy="compact", **eager)
    producer = mirrored.source.producer()
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", None)):
        producer.produce(topic, key=key, value=value, partition=0)
    assert producer.flush(30) == 0
    assert mirrored.catch_up().caught_up
    mark = mirrored.store.watermarks(mirrored.link.id)[Partition(topic, 0)]
    client = mirrored.target.producer()

    def gone_over() -> bool:
        client.produce(topic, key=b"again", value=b"x", partition=0)  # rolls the segment, so that it is cleaned
        assert client.flush(30) == 0
        return not [each for each in mirrored.target.read(topic) if each.offset == mark.target_end - 1]

    wait_until(gone_over, 120, "the cleaner")
    with observing(mirrored.config.clusters, None) as clusters:
        sides = link_sides(clusters, mirrored.link, mirrored.store, left=False)
        assert unmirrored_tail(sides, [mark]) == UnmirroredTail({}, {}, {})
