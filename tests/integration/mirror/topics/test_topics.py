"""The target's topics follow the source's, and what must not be followed is reported."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from drkit.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin, NewTopic
from drkit.mapping import Translator
from drkit.mirror.health.problems import Problems
from drkit.mirror.topics import topic_sync
from drkit.mirror.topics.topic_snapshot import ReadyTopic, TopicSnapshot
from drkit.mirror.topics.topic_sync import TopicSync
from drkit.mirror.topics.topic_writer import TopicWriter
from drkit.model.errors import Unreachable
from drkit.model.link_state import Problem
from drkit.model.topology import TopicPartition
from drkit.observe.status import link_statuses
from tests.support.collection.sampling import some_of
from tests.support.links.mirroring import Mirrored, Side
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("topics that a mirror keeps alike", 3)]


def settings(side: Side, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = side.admin.describe_configs([resource])[resource].result(20)
    return {name: entry.value for name, entry in found.items()}


def change(admin: AdminClient, topic: str, **config: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(20)


def write(side: Side, topic: str, count: int, *, partition: int = 0, text: str = "r") -> None:
    producer = side.producer()
    for number in range(count):
        producer.produce(topic, value=f"{text}{number}".encode(), partition=partition)
    assert producer.flush(20) == 0


def test_partitions_and_settings_are_the_sources(mirrored: Mirrored) -> None:
    topic = mirrored.name("settings")
    mirrored.source.create(
        topic,
        3,
        cleanup_policy="compact,delete",
        retention_ms="777000",
        max_message_bytes="2000000",
        segment_bytes="2000000",
    )
    write(mirrored.source, topic, 5, partition=2)
    assert mirrored.catch_up().caught_up
    assert mirrored.target.partitions(topic) == 3
    theirs = settings(mirrored.target, topic)
    assert theirs["cleanup.policy"] == "compact,delete"
    assert theirs["retention.ms"] == "777000"
    assert theirs["max.message.bytes"] == "2000000"
    assert theirs["segment.bytes"] == "2000000"
    assert theirs["message.timestamp.type"] == "CreateTime"
    assert theirs["message.timestamp.after.max.ms"] == str(2**63 - 1)
    assert mirrored.store.topic_states(mirrored.link.id)[topic].created_by_drkit


def test_partitions_settings_and_topics_that_come_later_follow(mirrored: Mirrored) -> None:
    topic, later = mirrored.name("grows"), mirrored.name("later")
    mirrored.source.create(topic)
    write(mirrored.source, topic, 5)
    with mirrored.running():
        mirrored.wait_through(topic)
        mirrored.source.grow(topic, 3)
        write(mirrored.source, topic, 7, partition=2)
        change(mirrored.source.admin, topic, retention_ms="123456789")
        mirrored.source.create(later, 2)
        write(mirrored.source, later, 9, partition=1)
        mirrored.wait_through(topic, 2)
        mirrored.wait_through(later, 1)
        wait_until(lambda: settings(mirrored.target, topic)["retention.ms"] == "123456789", what="the new retention")
    mirrored.assert_same(topic, 2)
    mirrored.assert_same(later, 1)
    assert mirrored.target.partitions(topic) == 3


def test_many_new_topics_are_created_in_portions_and_a_refused_one_holds_up_no_other(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_sync, "FIRST_PARTITIONS", 2)
    monkeypatch.setattr(topic_sync, "MOST_PARTITIONS", 2)
    refused = [mirrored.name(f"{number}_refused") for number in range(3)]
    topics = [mirrored.name(f"portion-{number}") for number in range(5)]
    for topic in refused:
        mirrored.target.create(topic.replace("_", "."), 1)  # Kafka takes no two names that differ in "." and "_" only
    for topic in (*refused, *topics):
        mirrored.source.create(topic, 2)
        write(mirrored.source, topic, 5, partition=1)
    mirrored.catch_up()
    for topic in topics:
        mirrored.assert_same(topic, 1)
        assert mirrored.store.topic_states(mirrored.link.id)[topic].created_by_drkit
    assert {problem.topic for problem in mirrored.problems("target_topic_refused")} == set(refused)
    mirrored.target.delete(refused[0].replace("_", "."))
    mirrored.catch_up()
    mirrored.assert_same(refused[0], 1)


def test_the_first_of_many_new_topics_are_mirrored_while_the_others_are_made(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look at the topics is enough for all of them, and none waits for the last."""
    monkeypatch.setattr(topic_sync, "FIRST_PARTITIONS", 2)
    monkeypatch.setattr(topic_sync, "MOST_PARTITIONS", 2)
    topics = [mirrored.name(f"portion-{number}") for number in range(4)]
    for topic in topics:
        mirrored.source.create(topic, 2)
    offered: list[set[str]] = []
    kept: list[set[str]] = []

    def offer(ready: dict[str, ReadyTopic]) -> None:
        offered.append(set(ready))
        kept.append(set(mirrored.store.topic_states(mirrored.link.id)))

    problems = Problems(mirrored.store, mirrored.link.id, lambda _: None)
    clusters = mirrored.config.clusters
    with ClusterAdmin("primary", clusters["primary"]) as source, ClusterAdmin("dr", clusters["dr"]) as target:
        sync = TopicSync(mirrored.link, source, target, mirrored.store, problems)
        ready = sync.sync(offer)
    assert [len(each) for each in offered] == [1, 2, 3]
    assert kept == offered  # what is not on record is not mirrored
    assert set(ready) == set(topics)
    assert sync.in_step


def test_topics_that_were_not_there_in_time_are_the_mirrors_own_and_fewer_are_asked_for(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a busy broker needs longer for them than the call may take."""
    portions: list[int] = []
    create = TopicWriter.create

    def slow(writer: TopicWriter, look: TopicSnapshot, names: Iterable[str]) -> tuple[list[str], set[str]]:
        made = create(writer, look, names)
        portions.append(len(made[0]))
        if len(portions) == 1:
            raise Unreachable("waiting for new topics took too long")
        return made

    monkeypatch.setattr(TopicWriter, "create", slow)
    monkeypatch.setattr(topic_sync, "FIRST_PARTITIONS", 8)
    monkeypatch.setattr(topic_sync, "LEAST_PARTITIONS", 2)
    topics = [mirrored.name(f"late-{number}") for number in range(6)]
    for topic in topics:
        mirrored.source.create(topic, 2)
        write(mirrored.source, topic, 5, partition=1)
    mirrored.catch_up()
    for topic in topics:
        mirrored.assert_same(topic, 1)
        assert mirrored.store.topic_states(mirrored.link.id)[topic].created_by_drkit
    assert portions[:2] == [4, 1]


def test_what_a_killed_mirror_created_is_the_next_ones_own_unless_somebody_wrote_there(
    mirrored: Mirrored, tmp_path: Path
) -> None:
    """It was killed between the creation and its note, which left a topic with offsets of its own for good."""
    empty, written, told = mirrored.name("empty"), mirrored.name("written"), tmp_path / "kill"
    for topic in (empty, written):
        mirrored.source.create(topic, 2)
        write(mirrored.source, topic, 5)
        mirrored.source.purge(topic, 3)
    told.touch()
    command = [sys.executable, "-m", "tests.support.killing.stopping_worker", str(mirrored.config_path)]
    command += ["put_topic_states", str(told), str(int(signal.SIGKILL))]
    killed = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not mirrored.store.topic_states(mirrored.link.id)
    assert mirrored.target.partitions(empty) == 2
    write(mirrored.target, written, 1)
    mirrored.catch_up()
    states = mirrored.store.topic_states(mirrored.link.id)
    assert states[empty].created_by_drkit
    assert [record.offset for record in mirrored.target.read(empty)] == [3, 4]
    assert not states[written].created_by_drkit
    assert not mirrored.store.notes(mirrored.link.id, "creating")


def test_topics_outside_the_link_stay_where_they_are(mirrored: Mirrored, unique_name: str) -> None:
    outside = f"x{unique_name}"
    mirrored.source.create(outside)
    write(mirrored.source, outside, 3)
    mirrored.source.create(mirrored.name("in"))
    assert mirrored.catch_up().caught_up
    assert mirrored.target.partitions(outside) == 0
    assert all(not topic.startswith("__") for topic in mirrored.store.topic_states(mirrored.link.id))


def test_nothing_matches_yet(mirrored: Mirrored) -> None:
    assert mirrored.catch_up().caught_up
    topic = mirrored.name("first")
    with mirrored.running() as running:
        mirrored.source.create(topic)
        write(mirrored.source, topic, 3)
        mirrored.wait_through(topic)
    assert running.error is None


def test_a_topic_deleted_on_the_source_stays_on_the_target(mirrored: Mirrored) -> None:
    topic = mirrored.name("deleted")
    mirrored.source.create(topic)
    write(mirrored.source, topic, 10)
    with mirrored.running():
        mirrored.wait_through(topic)
        mirrored.source.delete(topic)
        wait_until(lambda: mirrored.problems("source_topic_deleted"), what="the problem")
    assert not mirrored.problems("source_topic_deleted")[0].halted
    assert len(mirrored.target.read(topic)) == 10


def test_a_topic_deleted_on_the_source_while_no_mirror_runs_is_told(mirrored: Mirrored) -> None:
    topic, other = mirrored.name("deleted"), mirrored.name("other")
    for name in (topic, other):
        mirrored.source.create(name)
        write(mirrored.source, name, 10)
    assert mirrored.catch_up().caught_up
    write(mirrored.source, topic, 50)
    mirrored.source.delete(topic)
    (link,) = link_statuses(mirrored.config, mirrored.store, [mirrored.link])
    assert [(each.kind, each.topic, each.halted) for each in link.problems] == [("source_topic_deleted", topic, False)]
    assert not mirrored.problems(), "it is seen, not recorded"
    point, loss = link.recovery_point, mirrored.planned_loss()
    assert (point.records, point.lower_bound) == (loss.records, loss.lower_bound) == (0, True), "50 came since"
    assert point.reason == f"the source doesn't list {topic}:0: what came since the last look isn't counted"
    assert {each.topic: each.lag_reason for each in link.partitions} == {
        topic: f"as last seen: primary doesn't list {topic}:0",
        other: None,
    }


def recreate(side: Side, topic: str, count: int) -> None:
    side.delete(topic)
    side.create(topic)
    write(side, topic, count, text="anew")


def test_a_recreated_source_topic_stands_still_until_accepted(mirrored: Mirrored) -> None:
    topic = mirrored.name("recreated")
    mirrored.source.create(topic)
    write(mirrored.source, topic, 50, text="old")
    assert mirrored.catch_up().caught_up
    recreate(mirrored.source, topic, 20)
    report = mirrored.catch_up()
    assert [problem.kind for problem in report.halted] == ["topic_recreated"]
    assert "Kafka 3.1" not in report.halted[0].reason, "these brokers are newer, and read by topic ids"
    assert len(mirrored.target.read(topic)) == 50, "nothing of the new topic is mixed into the old one"
    told = mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic)
    assert told.returncode == 0, told.stderr
    assert [problem.kind for problem in mirrored.catch_up().halted] == ["topic_recreated"], "it takes more than that"
    told = mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic, "--accept-recreated", "-o", "json")
    assert told.returncode == 0, told.stderr
    accepted = json.loads(told.stdout)["accepted"]
    assert (accepted["epoch"], accepted["offsets_that_stay"]) == (2, 50)
    report = mirrored.catch_up()
    assert report.caught_up
    assert not report.halted
    values = [record.value for record in mirrored.target.read(topic)]
    assert values == [b"old%d" % n for n in range(50)] + [b"anew%d" % n for n in range(20)]
    translator = Translator(mirrored.store, mirrored.link.id)
    assert translator.translate(TopicPartition(topic, 0), 7).target_offset == 57
    assert not mirrored.problems()


def test_an_accepted_topic_that_is_empty_yet_is_no_foreign_writer_to_the_next_mirror(mirrored: Mirrored) -> None:
    """What is below its first row was there before it: nothing of it is compared with the new topic."""
    topic = mirrored.name("emptied")
    mirrored.source.create(topic)
    write(mirrored.source, topic, 50, text="old")
    assert mirrored.catch_up().caught_up
    recreate(mirrored.source, topic, 0)
    assert mirrored.catch_up().halted
    told = mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic, "--accept-recreated")
    assert told.returncode == 0, told.stderr
    for _ in range(2):
        assert not mirrored.catch_up().halted
    write(mirrored.source, topic, 20, text="anew")
    assert not mirrored.catch_up().halted
    values = [record.value for record in mirrored.target.read(topic)]
    assert values == [b"old%d" % n for n in range(50)] + [b"anew%d" % n for n in range(20)]
    assert not mirrored.problems()


def test_a_source_topic_recreated_under_a_running_mirror(mirrored: Mirrored) -> None:
    topic = mirrored.name("live")
    other = mirrored.name("other")
    mirrored.source.create(topic)
    mirrored.source.create(other)
    write(mirrored.source, topic, 50)
    with mirrored.running() as running:
        mirrored.wait_through(topic)
        recreate(mirrored.source, topic, 5)
        halted: list[Problem] = wait_until(lambda: mirrored.problems("topic_recreated"), what="the problem")
        assert halted[0].halted
        write(mirrored.source, other, 30)
        mirrored.wait_through(other)
        mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic, "--accept-recreated")
        wait_until(
            lambda: mirrored.store.topic_states(mirrored.link.id)[topic].epoch == 2 and mirrored.through(topic) == 5,
            what="the new topic mirrored",
        )
    assert running.error is None
    assert [r.value for r in mirrored.target.read(topic)][-5:] == [b"anew%d" % n for n in range(5)]


def test_of_a_source_topic_recreated_under_a_live_connection_nothing_is_taken_for_the_old_one(
    mirrored: Mirrored,
) -> None:
    """The new one holds more than was mirrored before anybody looks at the topics: its offsets tell nothing."""
    topic = mirrored.name("grown")
    mirrored.source.create(topic)
    write(mirrored.source, topic, 50, text="old")
    with mirrored.running(looks=60.0) as running:
        mirrored.wait_through(topic)
        recreate(mirrored.source, topic, 80)
        wait_until(lambda: mirrored.problems("topic_recreated"), what="the problem")
    assert running.error is None
    values = [record.value for record in mirrored.target.read(topic, committed=False)]
    assert values == [b"old%d" % number for number in range(50)]
    told = mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic, "--accept-recreated")
    assert told.returncode == 0, told.stderr
    assert mirrored.catch_up().caught_up
    values = [record.value for record in mirrored.target.read(topic, committed=False)]
    assert values[50:] == [b"anew%d" % number for number in range(80)], "each once, in order"
    mirrored.assert_translates(topic, newest_only=True)


def test_a_target_topic_recreated_under_a_live_connection_gets_nothing(mirrored: Mirrored) -> None:
    topic = mirrored.name("replaced")
    mirrored.source.create(topic)
    write(mirrored.source, topic, 50)
    with mirrored.running(looks=60.0) as running:
        mirrored.wait_through(topic)
        mirrored.target.delete(topic)
        mirrored.target.create(topic)
        write(mirrored.source, topic, 10, text="later")
        wait_until(lambda: mirrored.problems("target_recreated"), what="the problem")
        assert mirrored.through(topic) == 50
    assert running.error is None
    assert mirrored.target.read(topic, committed=False) == []
    told = mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic, "--accept-recreated")
    assert told.returncode == 0, told.stderr
    assert mirrored.catch_up().caught_up
    mirrored.assert_same(topic)
    mirrored.assert_translates(topic)


def test_a_target_topic_deleted_under_the_mirror_stands_still(mirrored: Mirrored) -> None:
    topic, other = mirrored.name("target"), mirrored.name("other")
    for name in (topic, other):
        mirrored.source.create(name)
        write(mirrored.source, name, 10)
    with mirrored.running() as running:
        mirrored.wait_through(topic)
        mirrored.wait_through(other)
        mirrored.target.delete(topic)
        wait_until(lambda: mirrored.problems("target_recreated"), what="the problem")
        write(mirrored.source, topic, 10)
        write(mirrored.source, other, 10)
        mirrored.wait_through(other)
        assert mirrored.target.partitions(topic) == 0, "it is not created again by itself"
        mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic, "--accept-recreated")
        wait_until(lambda: mirrored.target.partitions(topic) == 1, what="the topic again")
        wait_until(lambda: mirrored.store.topic_states(mirrored.link.id)[topic].epoch == 2, what="a new epoch")
        mirrored.wait_through(topic)
    assert running.error is None
    mirrored.assert_same(topic)
    mirrored.assert_translates(topic)


def test_a_target_that_can_not_hold_the_topic(mirrored: Mirrored) -> None:
    """More partitions on the target than on the source: mirrored, and reported."""
    topic = mirrored.name("wider")
    mirrored.source.create(topic, 1)
    mirrored.target.create(topic, 3)
    write(mirrored.source, topic, 4)
    assert mirrored.catch_up().caught_up
    assert [problem.kind for problem in mirrored.problems()] == ["partitions_differ"]
    mirrored.assert_same(topic)


def test_a_thousand_topics(mirrored: Mirrored) -> None:
    """Batched requests, not one per topic: creating and catching up stay a matter of seconds."""
    names = [mirrored.name(f"{number:04d}") for number in range(1000)]
    with ClusterAdmin(
        "primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap), timeout_seconds=60
    ) as admin:
        assert not admin.create_topics([NewTopic(name, 1, 1, {"retention.ms": "-1"}) for name in names])
    producer = mirrored.source.producer()
    for name in names:
        producer.produce(name, value=name.encode())
    assert producer.flush(60) == 0
    try:
        report = mirrored.catch_up()
        assert report.caught_up
        assert report.records == 1000
        watermarks = mirrored.store.watermarks(mirrored.link.id)
        assert {tp.topic for tp, mark in watermarks.items() if mark.source_through == 1} == set(names)
        for name in names[::250]:
            mirrored.assert_same(name)
    finally:
        for side in ("primary", "dr"):
            cluster = ClusterConfig(bootstrap_servers=mirrored.lab.bootstrap(side))
            with ClusterAdmin(side, cluster, timeout_seconds=60) as admin:
                admin.delete_topics(names)
