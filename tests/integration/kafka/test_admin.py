"""Topics, configurations, offsets and groups of a real cluster, and calls that end whatever it does."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from drkit.config import ClusterConfig
from drkit.drill.environment.lab_cluster import LabCluster
from drkit.kafka.admin.admin_connection import StepConnection
from drkit.kafka.admin.cluster_admin import ClusterAdmin, NewTopic
from drkit.kafka.client.small_topic import APPEND_ONLY, make_topic
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.lab import Lab
from drkit.model.errors import Refused, Unreachable
from drkit.model.topology import TopicPartition
from tests.support.clusters.quotas import quota
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


@pytest.fixture
def cluster(lab: Lab) -> ClusterConfig:
    return ClusterConfig(bootstrap_servers=lab.bootstrap("primary"))


@pytest.fixture
def admin(cluster: ClusterConfig) -> Iterator[ClusterAdmin]:
    with ClusterAdmin("primary", cluster) as admin:
        yield admin


@pytest.fixture
def groups(cluster: ClusterConfig) -> Iterator[GroupAdmin]:
    with GroupAdmin("primary", cluster) as groups:
        yield groups


@pytest.fixture
def topic(admin: ClusterAdmin, unique_name: str) -> str:
    """A topic of two partitions; partition 0 holds offsets 0 to 9, stamped 1000 to 1009."""
    admin.create_topic(unique_name, partitions=2, replication_factor=1, config={"retention.ms": "-1"})
    return unique_name


def fill(cluster: ClusterConfig, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(10):
        producer.produce(topic, value=b"x", partition=0, timestamp=1000 + number)
    assert producer.flush(20) == 0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the requests that are sent, by type."""
    counts: Counter[str] = Counter()
    send = StepConnection.send

    async def counting(self: StepConnection, request: Any, *where: Any, **how: Any) -> Any:
        counts[type(request).__name__] += 1
        return await send(self, request, *where, **how)

    monkeypatch.setattr(StepConnection, "send", counting)
    return counts


def test_the_cluster(admin: ClusterAdmin, lab: Lab) -> None:
    assert admin.cluster_id() == lab.cluster_id("primary")
    (broker,) = admin.brokers()
    assert f"{broker.host}:{broker.port}" == lab.bootstrap("primary")


def test_topics(admin: ClusterAdmin, topic: str) -> None:
    found = admin.topics([topic, "there-is-no-such-topic"])
    assert set(found) == {topic}
    info = found[topic]
    assert (info.partitions, info.replication_factor, info.internal, info.leaderless) == (2, 1, False, ())
    assert len(info.topic_id) == 22
    assert admin.topics()[topic] == info
    assert admin.topics([]) == {}
    with pytest.raises(Refused, match="ALREADY_EXISTS"):
        admin.create_topic(topic, partitions=1, replication_factor=1)
    with pytest.raises(Refused, match="INVALID_REPLICATION_FACTOR"):
        admin.create_topic(f"{topic}-2", partitions=1, replication_factor=9)
    admin.delete_topics([topic, "there-is-no-such-topic"])
    assert admin.topics([topic]) == {}
    admin.create_topic(topic, partitions=1, replication_factor=1)
    assert admin.topics([topic])[topic].topic_id != info.topic_id


def test_a_topic_of_drkits_own_that_two_processes_create_at_once_is_there_for_both(
    cluster: ClusterConfig, admin: ClusterAdmin, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_have_looked = threading.Barrier(2)
    unasked = [0, 0]
    look = ClusterAdmin.topics

    def looking(self: ClusterAdmin, *names: Any, **how: Any) -> Any:
        found = look(self, *names, **how)
        if unasked:
            unasked.pop()
            both_have_looked.wait(20)
        return found

    monkeypatch.setattr(ClusterAdmin, "topics", looking)
    with ClusterAdmin("primary", cluster) as other, ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda each: make_topic(each, unique_name, APPEND_ONLY), (admin, other)))
    assert set(look(admin, [unique_name])) == {unique_name}


def test_many_topics_and_the_reasons_of_those_that_fail(admin: ClusterAdmin, topic: str) -> None:
    new = [NewTopic(f"{topic}-{n}", 1, 1) for n in range(300)]
    failures = admin.create_topics([*new, NewTopic(topic, 1, 1), NewTopic("no good/name", 1, 1)])
    assert set(failures) == {topic, "no good/name"}
    assert len(admin.topics(t.name for t in new)) == 300
    admin.delete_topics(t.name for t in new)


def test_partitions_are_added(admin: ClusterAdmin, topic: str) -> None:
    admin.add_partitions(topic, 5)
    assert admin.topics([topic])[topic].partitions == 5
    with pytest.raises(Refused, match="INVALID_PARTITIONS"):
        admin.add_partitions(topic, 3)


def test_configurations(admin: ClusterAdmin, topic: str) -> None:
    admin.set_topic_configs(topic, {"retention.ms": "12345", "max.message.bytes": "2000000"})
    found = admin.topic_configs([topic, "there-is-no-such-topic"])
    assert set(found) == {topic}
    assert (found[topic]["retention.ms"], found[topic]["max.message.bytes"]) == ("12345", "2000000")
    assert "segment.bytes" in found[topic], "defaults of the broker are part of what is in effect"
    assert admin.topic_configs([topic], keys=["retention.ms"]) == {topic: {"retention.ms": "12345"}}
    with pytest.raises(Refused, match="INVALID_CONFIG"):
        admin.set_topic_configs(topic, {"retention.ms": "for ever"})
    failures = admin.set_many_topic_configs(
        {topic: {"retention.ms": "5"}, "there-is-no-such-topic": {"retention.ms": "5"}}
    )
    assert set(failures) == {"there-is-no-such-topic"}


def test_offsets(admin: ClusterAdmin, cluster: ClusterConfig, topic: str) -> None:
    fill(cluster, topic)
    first, empty, absent = TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition(topic, 7)
    nowhere = TopicPartition("there-is-no-such-topic", 0)
    tps = [first, empty, absent, nowhere]
    assert admin.start_offsets(tps) == {first: 0, empty: 0}
    assert admin.end_offsets(tps, committed=True) == admin.end_offsets(tps, committed=False) == {first: 10, empty: 0}
    assert admin.log_ends(tps) == {first: 10, empty: 0}
    assert admin.offsets_for_times({first: 1005, empty: 1}) == {first: 5, empty: None}
    assert admin.offsets_for_times({first: 2000}) == {first: None}
    admin.delete_records({first: 4})
    assert admin.start_offsets([first]) == {first: 4}
    with pytest.raises(Refused, match="OFFSET_OUT_OF_RANGE"):
        admin.delete_records({first: 99})
    with pytest.raises(Refused, match="UNKNOWN_TOPIC_OR_PARTITION"):
        admin.delete_records({nowhere: 1})


def test_the_last_stable_offset_and_the_high_watermark(admin: ClusterAdmin, cluster: ClusterConfig, topic: str) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value=b"open", partition=0)
    producer.flush(20)
    tp = TopicPartition(topic, 0)
    assert admin.end_offsets([tp], committed=True) == {tp: 0}
    assert admin.end_offsets([tp], committed=False) == {tp: 1}
    producer.abort_transaction(20)
    wait_until(lambda: admin.end_offsets([tp], committed=True) == {tp: 2}, what="the end of the transaction")


def commit(groups: GroupAdmin, group: str, offsets: dict[TopicPartition, tuple[int, str]]) -> None:
    for failure in groups.commit_many({group: offsets}).values():
        raise failure


def test_positions_of_a_group(groups: GroupAdmin, topic: str) -> None:
    group = f"{topic}-g"
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert groups.committed([group]) == []
    commit(groups, group, {first: (7, "a note"), second: (0, "")})
    found = [(c.tp, c.offset, c.metadata) for c in groups.committed([group])]
    assert found == [(first, 7, "a note"), (second, 0, "")]
    assert any(c.group == group for c in groups.committed())
    assert (groups.list_groups()[group].state, groups.members([group, "no-group"])) == (
        "Empty",
        {group: 0, "no-group": 0},
    )
    groups.delete_offsets(group, [first])
    assert [c.tp for c in groups.committed([group])] == [second]
    groups.delete_offsets("no-group", [first])
    groups.delete_groups([group, "no-group"])
    assert group not in groups.list_groups()
    with pytest.raises(Refused, match="there-is-no-such-topic:0"):
        commit(groups, group, {TopicPartition("there-is-no-such-topic", 0): (1, "")})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_active_group_is_left_alone(groups: GroupAdmin, cluster: ClusterConfig, topic: str, protocol: str) -> None:
    group = f"{topic}-{protocol}"
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    tp = TopicPartition(topic, 0)
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), 60, "the assignment")
        assert groups.members([group]) == {group: 1}
        assert groups.list_groups()[group].type == protocol
        with pytest.raises(Refused, match=f"group {group} .* is active"):
            commit(groups, group, {tp: (1, "")})
        with pytest.raises(Refused, match="NON_EMPTY_GROUP"):
            groups.delete_groups([group])
    finally:
        consumer.close()
    wait_until(lambda: groups.members([group]) == {group: 0}, 30, "the group empty")
    commit(groups, group, {tp: (1, "")})


def test_many_groups_are_committed_and_those_that_fail_say_why(groups: GroupAdmin, topic: str) -> None:
    """More of them than one connection takes; a group whose topic doesn't exist costs no other one its commit."""
    before = threading.active_count()
    names = [f"{topic}-{number:03}" for number in range(250)]
    wrong = names[100]
    nowhere = TopicPartition("there-is-no-such-topic", 0)
    wanted = {name: {TopicPartition(topic, 0): (number, "")} for number, name in enumerate(names)}
    wanted[wrong] = {nowhere: (1, "")}
    try:
        failures = groups.commit_many(wanted)
        assert set(failures) == {wrong}
        assert "there-is-no-such-topic:0" in str(failures[wrong])
        found = {(each.group, each.tp, each.offset) for each in groups.committed(names)}
        assert found == {
            (name, tp, offset)
            for name, offsets in wanted.items()
            if name != wrong
            for tp, (offset, _) in offsets.items()
        }
        groups.delete_groups(names)
    finally:
        groups.close()
    wait_until(lambda: threading.active_count() <= before, 20, "the threads of all connections ended")


def test_who_looks_again_and_again_asks_the_leaders_that_it_knows(
    admin: ClusterAdmin, cluster: ClusterConfig, topic: str, asked: Counter[str]
) -> None:
    fill(cluster, topic)
    first, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    wait_until(lambda: admin.log_ends([first, other], partial=True) == {first: 10, other: 0}, what="both leaders")
    assert admin.log_ends([first], recent_leaders=True) == {first: 10}
    asked.clear()
    assert admin.log_ends([first, other], recent_leaders=True) == {first: 10, other: 0}
    assert admin.end_offsets([first, other], committed=True, recent_leaders=True) == {first: 10, other: 0}
    assert admin.start_offsets([other], recent_leaders=True) == {other: 0}
    assert asked == {"ListOffsetsRequest": 3}
    assert admin.start_offsets([other]) == {other: 0}
    assert asked == {"ListOffsetsRequest": 4, "MetadataRequest": 1}, "who doesn't say so reads metadata"


def test_a_leader_that_is_another_one_by_now_and_a_topic_that_is_gone_are_looked_up(
    admin: ClusterAdmin, topic: str, asked: Counter[str]
) -> None:
    tp = TopicPartition(topic, 0)
    admin._recent.learn({tp: (4711, 0)})  # a broker that has left the cluster
    assert admin.log_ends([tp], recent_leaders=True) == {tp: 0}
    assert asked["MetadataRequest"] == 1
    admin.delete_topics([topic])

    def seen() -> dict[TopicPartition, int]:
        return admin.log_ends([tp], partial=True, recent_leaders=True)

    wait_until(lambda: seen() == {}, what="the broker's end of the topic")  # the controller answers before
    admin.create_topic(topic, partitions=1, replication_factor=1)
    wait_until(lambda: seen() == {tp: 0}, what="the new topic")


def test_nobody_answers() -> None:
    """Nothing listens there, or something that never answers: every call ends within its timeout."""
    with ClusterAdmin("nowhere", ClusterConfig(bootstrap_servers="127.0.0.1:1"), timeout_seconds=1) as admin:
        for call in (
            admin.topics,
            admin.brokers,
            admin.cluster_id,
            lambda: admin.end_offsets([TopicPartition("t", 0)], committed=True),
        ):
            with pytest.raises(Unreachable, match="nowhere did not answer within 1 s"):
                call()
    with GroupAdmin("nowhere", ClusterConfig(bootstrap_servers="127.0.0.1:1"), timeout_seconds=1) as groups:
        for ask in (groups.list_groups, lambda: groups.committed(["g"])):
            with pytest.raises(Unreachable, match="nowhere"):
                ask()


def test_a_cluster_that_throttles_drkit_is_not_called_silent(admin: ClusterAdmin, lab: Lab, unique_name: str) -> None:
    slow = ClusterConfig(bootstrap_servers=lab.bootstrap("primary"), client={"client.id": unique_name})

    def ask() -> str:
        try:
            with ClusterAdmin("primary", slow, timeout_seconds=1.5) as throttled:
                for _ in range(20):
                    throttled.topics()
        except Unreachable as error:
            return error.what
        return ""

    with quota(admin, unique_name, "request_percentage", 0.001):
        wait_until(lambda: "primary throttles drkit by a quota" in ask(), what="the limit in force")


def test_failed_attempts_leave_no_threads() -> None:
    before = threading.active_count()
    with ClusterAdmin("nowhere", ClusterConfig(bootstrap_servers="127.0.0.1:1"), timeout_seconds=0.5) as admin:
        for _ in range(5):
            with pytest.raises(Unreachable):
                admin.topics()
    wait_until(lambda: threading.active_count() <= before, 20, "the clients' threads ended")


def test_a_stopped_broker_is_unreachable_and_answers_again(lab: Lab, cluster: ClusterConfig, topic: str) -> None:
    with (
        ClusterAdmin("primary", cluster, timeout_seconds=2) as admin,
        GroupAdmin("primary", cluster, timeout_seconds=2) as groups,
    ):
        assert topic in admin.topics()
        groups.list_groups()
        lab.pause("primary")
        try:
            for call in (admin.topics, groups.list_groups):
                with pytest.raises(Unreachable):
                    call()
        finally:
            lab.resume("primary")
        assert wait_until(lambda: answers(admin, topic), 60, "an answer")


def answers(admin: ClusterAdmin, topic: str) -> bool:
    try:
        return topic in admin.topics()
    except Unreachable:
        return False


def test_calls_across_a_killed_and_restarted_broker(lab: Lab, cluster: ClusterConfig, topic: str) -> None:
    """What aborts the process with librdkafka's admin client is an error here, and then works again."""
    group = f"{topic}-g"
    with GroupAdmin("primary", cluster, timeout_seconds=1) as groups:
        commit(groups, group, {TopicPartition(topic, 0): (3, "")})
        stop = threading.Event()
        outcomes: list[str] = []

        def ask() -> None:
            while not stop.is_set():
                try:
                    outcomes.append(f"offset {groups.committed([group])[0].offset}")
                except Unreachable:
                    outcomes.append("unreachable")

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            wait_until(lambda: "offset 3" in outcomes, what="an answer")
            lab.kill("primary")
            try:
                wait_until(lambda: "unreachable" in outcomes, 30, "the outage seen")
            finally:
                lab.restart("primary")
            outcomes.clear()
            wait_until(lambda: "offset 3" in outcomes, 60, "an answer again")
        finally:
            stop.set()
            thread.join(30)
    assert set(outcomes) <= {"offset 3", "unreachable"}


def test_how_long_brokers_remember_a_producer_is_their_setting_of_now(lab: Lab, admin: ClusterAdmin) -> None:
    with closing(LabCluster(lab, "primary")) as broker:
        assert admin.producer_expiration() == timedelta(days=1), "Kafka's default"
        broker.set_broker("producer.id.expiration.ms", "600000")
        try:
            wait_until(lambda: admin.producer_expiration() == timedelta(minutes=10), what="the broker to take it over")
        finally:
            broker.set_broker("producer.id.expiration.ms", None)
        wait_until(lambda: admin.producer_expiration() == timedelta(days=1), what="the default again")
