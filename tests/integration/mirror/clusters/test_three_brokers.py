"""Links between a cluster of three brokers and one of a single broker: replicas, and what only several can lose."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition
from kafka.errors import KafkaError
from kafka.protocol.admin import DescribeQuorumRequest, ElectLeadersRequest
from kafka.protocol.metadata import MetadataRequest

from drkit.audit.compare.range_proof import choose
from drkit.audit.compare.scope import observe_scope
from drkit.config import ClusterConfig
from drkit.kafka.admin.admin_connection import AdminConnection, StepConnection
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.cluster_admin import NewTopic as NewTopicThere
from drkit.kafka.admin.logs.leader_epochs import KeptEpochs
from drkit.kafka.admin.logs.producers import ProducerStateAdmin
from drkit.kafka.admin.logs.source_divergence import divergence
from drkit.kafka.admin.topic_requests import alter_request
from drkit.kafka.client.small_topic import read_topic
from drkit.kafka.protocol.record_batch import parse
from drkit.lab import Lab
from drkit.mirror.topics.removing_changes import RemovingChanges
from drkit.mirror.topics.topic_snapshot import TopicSnapshot
from drkit.model.audit.audit_result import AuditRequest
from drkit.model.digests import Uncovered
from drkit.model.errors import Unreachable
from drkit.model.topology import TopicPartition as Place
from tests.support.clusters import raw
from tests.support.clusters.guard import Guard
from tests.support.collection.sampling import some_of
from tests.support.links.mirroring import Mirrored, Pair, Side
from tests.support.links.topic_looks import taken_between_looks
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("mirrors of three brokers", 2)]


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard) -> Iterator[Lab]:
    """One cluster, `trio`, of three brokers."""
    folder = tmp_path_factory.mktemp("trio")
    lab_guard.watch(folder)
    lab = Lab.up(folder, brokers=3, store="sqlite", clusters=("trio",))
    yield lab
    lab.down()


@pytest.fixture
def from_trio(trio: Lab, lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[Mirrored]:
    """A link from the three brokers to a single one."""
    world = Mirrored(Pair(trio.bootstrap("trio"), lab.bootstrap("dr")), tmp_path, unique_name)
    yield world
    world.close()


@pytest.fixture
def to_trio(trio: Lab, lab: Lab, tmp_path: Path, unique_name: str) -> Iterator[Mirrored]:
    """A link from a single broker to the three."""
    world = Mirrored(Pair(lab.bootstrap("primary"), trio.bootstrap("trio")), tmp_path, unique_name)
    yield world
    world.close()


def create(side: Side, topic: str, replicas: int, **config: str) -> None:
    settings = {"retention.ms": "-1", **{name.replace("_", "."): value for name, value in config.items()}}
    side.admin.create_topics([NewTopic(topic, 1, replicas, config=settings)])[topic].result(30)
    wait_until(lambda: side.partitions(topic) == 1, what=f"topic {topic}")


def write(side: Side, topic: str, count: int, text: str) -> None:
    producer = side.producer(acks="all")
    failed: list[object] = []

    def told(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    for number in range(count):
        producer.produce(topic, value=f"{text}{number}".encode(), on_delivery=told)
    assert producer.flush(60) == 0
    assert not failed


def settings(side: Side, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return {name: entry.value for name, entry in side.admin.describe_configs([resource])[resource].result(20).items()}


def replicas(side: Side, topic: str) -> int:
    return len(side.admin.list_topics(topic, timeout=10).topics[topic].partitions[0].replicas)


def test_a_single_broker_holds_what_it_can_and_never_less_than_it_needs(from_trio: Mirrored) -> None:
    topic = from_trio.name("replicated")
    create(from_trio.source, topic, 3, min_insync_replicas="2")
    write(from_trio.source, topic, 5, "r")
    assert from_trio.catch_up().caught_up
    assert replicas(from_trio.target, topic) == 1
    assert settings(from_trio.target, topic)["min.insync.replicas"] == "1", "two would refuse every record"
    assert "1 of 3 replicas" in from_trio.store.topic_states(from_trio.link.id)[topic].reason
    assert from_trio.problems() == []
    from_trio.assert_same(topic)


def test_three_brokers_get_as_many_replicas_as_the_link_says(to_trio: Mirrored) -> None:
    many, few, plain = (to_trio.name(part) for part in ("many", "few", "plain"))
    to_trio.configure(
        f"""
[links.topic_settings]
replication_factor = 5
overrides = {{ "min.insync.replicas" = 4 }}
[[links.topic_settings.topics]]
match = "{few}"
replication_factor = 2
settings = {{ "min.insync.replicas" = 2 }}
"""
    )
    for topic in (many, few, plain):
        create(to_trio.source, topic, 1)
        write(to_trio.source, topic, 5, "r")
    assert to_trio.catch_up().caught_up
    assert [replicas(to_trio.target, topic) for topic in (many, few, plain)] == [3, 2, 3]
    in_sync = [settings(to_trio.target, topic)["min.insync.replicas"] for topic in (many, few)]
    assert in_sync == ["3", "2"], "at most as many as there are replicas"
    assert "3 of 5 replicas" in to_trio.store.topic_states(to_trio.link.id)[many].reason
    to_trio.assert_same(many)


def leader(side: Side, topic: str) -> int:
    return side.admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader


def test_a_broker_that_was_down_when_a_client_connected_is_asked_once_it_leads(trio: Lab, from_trio: Mirrored) -> None:
    topic = from_trio.name("led")
    create(from_trio.source, topic, 3)
    write(from_trio.source, topic, 5, "r")
    down = leader(from_trio.source, topic)
    others = ",".join(each for number, each in enumerate(trio.bootstrap("trio").split(","), 1) if number != down)
    reached = ClusterConfig(bootstrap_servers=others)
    trio.kill(f"trio-{down}")
    try:
        wait_until(lambda: down not in from_trio.source.admin.list_topics(timeout=10).brokers, 60, "the broker gone")
        with ClusterAdmin("primary", reached) as admin, ProducerStateAdmin("primary", reached) as producers:
            assert admin.end_offsets([Place(topic, 0)], committed=True) == {Place(topic, 0): 5}
            assert producers.last_sequences([Place(topic, 0)], 1) == {Place(topic, 0): None}
            trio.restart(f"trio-{down}")
            wait_until(lambda: elected(others, topic) and leader(from_trio.source, topic) == down, 60, "it leads again")
            assert admin.end_offsets([Place(topic, 0)], committed=True) == {Place(topic, 0): 5}
            assert producers.last_sequences([Place(topic, 0)], 1) == {Place(topic, 0): None}
    finally:
        trio.restart(f"trio-{down}")


def not_controller(cluster: ClusterConfig) -> int:
    """A broker that isn't the active controller."""
    log = DescribeQuorumRequest.TopicData
    request = DescribeQuorumRequest(
        topics=[log(topic_name="__cluster_metadata", partitions=[log.PartitionData(partition_index=0)])]
    )
    with AdminConnection("trio", cluster) as connection:
        answer = connection.call("find the active controller", lambda each: each.send(request))
    return min({1, 2, 3} - {answer.topics[0].partitions[0].leader_id})


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_broker_that_fails_takes_no_other_ones_connection_with_it(trio: Lab, fault: str) -> None:
    """That one has held shows that its broker's process is the same."""
    cluster = ClusterConfig(bootstrap_servers=trio.bootstrap("trio"))
    fails = not_controller(cluster)
    others = {1, 2, 3} - {fails}
    with ClusterAdmin("trio", cluster) as admin:
        wait_until(lambda: len(admin.sessions()) == 3, 60, "connections to all")
        before = admin.sessions()
        (trio.kill if fault == "killed" else trio.pause)(f"trio-{fails}")
        try:
            with suppress(Unreachable):
                admin.absent_everywhere({"none"})  # asks each broker, and meets the one that fails
            during = admin.sessions()
        finally:
            (trio.restart if fault == "killed" else trio.resume)(f"trio-{fails}")
        assert during == {node: before[node] for node in others}
        wait_until(lambda: fails in admin.sessions(), 60, "a connection to it")
        after = admin.sessions()
        assert {node: after[node] for node in others} == during
        assert after[fails] != before[fails]
        assert admin.absent_everywhere({"none"}) == {"none"}


def test_a_call_that_has_failed_changes_nothing_more_once_its_broker_wakes(trio: Lab, unique_name: str) -> None:
    """The change that the broker had not answered is made, and none after it."""
    cluster = ClusterConfig(bootstrap_servers=trio.bootstrap("trio"))
    freezes = not_controller(cluster)
    topics = [f"{unique_name}-{number}" for number in range(4)]
    changed = {"max.message.bytes": "78"}

    def shown(admin: ClusterAdmin) -> list[str]:
        found = admin.topic_configs(topics, keys=list(changed))
        return sorted(topic for topic, each in found.items() if each == changed)

    with ClusterAdmin("trio", cluster) as admin, AdminConnection("trio", cluster) as connection:
        assert admin.create_topics([NewTopicThere(topic, 1, 3) for topic in topics]) == {}

        async def step(each: StepConnection) -> None:
            for number, topic in enumerate(topics):
                if number == 1:
                    trio.pause(f"trio-{freezes}")
                await each.send(alter_request([(topic, changed)]), freezes)

        connection.call("connect", lambda each: each.send(MetadataRequest(topics=[]), freezes))
        try:
            with pytest.raises(Unreachable):
                connection.call("change many topics", step, timeout_seconds=0.9)
        finally:
            trio.resume(f"trio-{freezes}")
        wait_until(lambda: shown(admin) == topics[:2], 60, "the change in flight")
        connection.call("ask it again", lambda each: each.send(MetadataRequest(topics=[]), freezes))
        assert shown(admin) == topics[:2]


def test_a_topic_that_is_deleted_while_a_broker_crashes_is_deleted(
    trio: Lab, from_trio: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers that ran on had it, and say that it is gone."""
    from_trio.configure('deletions = "mirror"')
    goes, stays = from_trio.name("goes"), from_trio.name("stays")
    for topic in (goes, stays):
        create(from_trio.source, topic, 3)
        write(from_trio.source, topic, 5, "r")
    crashes = f"trio-{not_controller(ClusterConfig(bootstrap_servers=from_trio.source.bootstrap))}"
    with from_trio.running():
        for topic in (goes, stays):
            from_trio.wait_through(topic)
        taken_between_looks(from_trio, monkeypatch)(stays)
        trio.kill(crashes)
        try:
            from_trio.source.delete(goes)
        finally:
            trio.restart(crashes)
        wait_until(
            lambda: from_trio.target.partitions(goes) == 0 or from_trio.problems("deletion_held"), 120, "a decision"
        )
        assert from_trio.problems("deletion_held") == []
        wait_until(lambda: goes not in from_trio.store.topic_states(from_trio.link.id), what="it forgotten")


def test_a_shorter_retention_that_is_set_while_a_broker_crashes_follows(
    trio: Lab, from_trio: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that ran on has told both, the former and the new one."""
    told: set[int] = set()
    saw = RemovingChanges.saw

    def noted(changes: RemovingChanges, look: TopicSnapshot) -> None:
        saw(changes, look)
        told.update(teller.node for teller in look.source_tellers if look.ready)

    monkeypatch.setattr(RemovingChanges, "saw", noted)
    topic = from_trio.name("orders")
    create(from_trio.source, topic, 3)
    write(from_trio.source, topic, 5, "r")
    cluster = ClusterConfig(bootstrap_servers=from_trio.source.bootstrap)
    crashes = f"trio-{not_controller(cluster)}"
    with from_trio.running(), ClusterAdmin("primary", cluster) as admin:
        from_trio.wait_through(topic)
        wait_until(lambda: told == {1, 2, 3}, 60, "the former, told by each broker")
        trio.kill(crashes)
        try:
            admin.set_topic_configs(topic, {"retention.ms": "777000"})
            wait_until(
                lambda: (
                    settings(from_trio.target, topic)["retention.ms"] == "777000" or from_trio.problems("settings_held")
                ),
                120,
                "a decision",
            )
        finally:
            trio.restart(crashes)
        assert from_trio.problems("settings_held") == []


def elected(bootstrap: str, topic: str) -> bool:
    """Have the preferred leader elected: the first replica, which led at first."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    try:
        admin.elect_leaders(0, {topic: [0]}, raise_errors=False)
    except KafkaError:
        return False
    finally:
        admin.close()
    return True


@pytest.mark.long
def test_a_small_topic_is_read_to_what_was_acknowledged_though_its_new_leader_knows_less(
    trio: Lab, from_trio: Mirrored
) -> None:
    """The new leader's high watermark is below an acknowledged record until the frozen replica, which the cluster still
    counts as in sync, is dropped. A leader that has learned the mark in time shows nothing: then it is tried again."""
    cluster = ClusterConfig(bootstrap_servers=from_trio.source.bootstrap)
    for attempt in range(8):
        if behind_after_election(trio, from_trio, from_trio.name(f"small{attempt}"), cluster):
            return
    pytest.skip("each new leader had learned the mark in time, so that what was read says nothing")


def behind_after_election(trio: Lab, world: Mirrored, topic: str, cluster: ClusterConfig) -> bool:
    """Whether the new leader's high watermark was too low at first; the topic is read whole either way."""
    create(world.source, topic, 3)
    first = leader(world.source, topic)
    controller = world.source.admin.describe_cluster().result(20).controller.id
    frozen, second = sorted({1, 2, 3} - {first}, key=lambda node: node == controller)
    admin, connection = (
        KafkaAdminClient(bootstrap_servers=world.source.bootstrap.split(",")),
        AdminConnection("trio", cluster),
    )
    elect = ElectLeadersRequest(
        election_type=0,
        topic_partitions=[ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0])],
        timeout_ms=10_000,
    )
    producer = world.source.producer(acks="all", linger_ms=0)
    try:
        connection.call(
            "connect to the next leader", lambda connected: connected.send(MetadataRequest(topics=[]), second)
        )
        admin.alter_partition_reassignments({KafkaPartition(topic, 0): [second, first, frozen]})
        producer.produce(topic, key=b"k0", value=b"v0")
        assert producer.flush(30) == 0
        producer.produce(topic, key=b"k1", value=b"v1")
        assert producer.flush(30) == 0
        trio.pause(f"trio-{frozen}")
        try:
            connection.call("elect it", lambda connected: connected.send(elect, second))
        except Unreachable:  # the election waits for the frozen one, too, where the controller has not dropped it yet
            return False
        answering = ",".join(
            each for number, each in enumerate(trio.bootstrap("trio").split(","), 1) if number != frozen
        )
        short = len(list(parse(memoryview(raw.fetch(answering, topic, 0))))) < 2
        read: list[bytes] = []
        assert read_topic("trio", cluster, topic, 90, lambda record: read.append(record.key))
        assert read == [b"k0", b"k1"]
    finally:
        trio.resume(f"trio-{frozen}")
        admin.close()
        connection.close()
    wait_until(lambda: len(in_sync(world.source, topic)) == 3, 90, "all in sync")
    return short


def in_sync(side: Side, topic: str) -> list[int]:
    return side.admin.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs


def assert_not_proven(world: Mirrored, cut: str, whole: str) -> None:
    """An audit by digest doesn't take what the mirror kept of a source that lost it since for that source."""
    request = AuditRequest(link=world.link, out="", from_digests=True)
    scopes = {each.topic: each for each in observe_scope(request, world.store, world.config).partitions}
    assert scopes[cut].source_held <= 50
    assert scopes[cut].source_end > 80, "its end tells nothing"
    claims, left = choose(scopes[cut])
    assert claims == []
    assert {why for _, why in left} == {Uncovered.SOURCE_DIVERGED}
    assert choose(scopes[whole])[1] == []


def test_a_source_that_lost_what_was_mirrored_and_grew_again_is_found_out(trio: Lab, from_trio: Mirrored) -> None:
    """An unclean election: 30 mirrored records are gone, 60 others stand in their place and beyond."""
    topic, other = from_trio.name("unclean"), from_trio.name("whole")
    create(from_trio.source, topic, 2, min_insync_replicas="1", unclean_leader_election_enable="true")
    create(from_trio.source, other, 3)
    write(from_trio.source, topic, 50, "both")
    before = from_trio.source.admin.list_topics(topic, timeout=10).topics[topic].partitions[0]
    (behind,) = set(before.replicas) - {before.leader}
    trio.kill(f"trio-{behind}")
    try:
        write(from_trio.source, topic, 30, "lost")
        write(from_trio.source, other, 10, "r")
        assert from_trio.catch_up().caught_up
        marks = from_trio.store.watermarks(from_trio.link.id)
        mark, beside = marks[Place(topic, 0)], marks[Place(other, 0)]  # its epoch: the killed one may have led it
        assert (mark.source_through, mark.leader_epoch is not None) == (80, True)
        trio.kill(f"trio-{before.leader}")
        trio.restart(f"trio-{behind}")

        def taken_over() -> bool:
            try:
                return leader(from_trio.source, topic) == behind
            except KafkaException:
                return False  # no quorum yet

        wait_until(taken_over, 120, "the unclean election")
        write(from_trio.source, topic, 60, "other")
    finally:
        trio.restart(f"trio-{before.leader}")
    wait_until(lambda: from_trio.source.end(topic) == 110, what="the end beyond what was mirrored")
    with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=from_trio.source.bootstrap)) as admin:
        ends = admin.epoch_ends(
            {each.tp: each.leader_epoch for each in (mark, beside) if each.leader_epoch is not None}
        )
        found = divergence(mark, ends[mark.tp], 110)
        assert found is not None
        assert (found.tp, found.kept, found.through) == (Place(topic, 0), KeptEpochs(50, exact=True), 80)
        assert divergence(beside, ends[beside.tp], 10) is None
    assert_not_proven(from_trio, topic, other)
    write(from_trio.source, other, 5, "later")
    with from_trio.running() as running:
        from_trio.wait_through(other)
        wait_until(lambda: from_trio.problems("source_truncated"), what="the problem")
        assert from_trio.target.end(topic) == 80, "nothing was papered over"
        told = from_trio.drkit("link", "resume", str(from_trio.link.id), "--topic", topic, "--accept-recreated")
        assert told.returncode == 0, told.stderr
        from_trio.wait_through(topic, offset=110)
    assert running.error is None
    values = [record.value for record in from_trio.target.read(topic, committed=False)]
    assert values[50:80] == [b"lost%d" % number for number in range(30)]
    assert values[80:] == [record.value for record in from_trio.source.read(topic)]
    from_trio.assert_same(other)


_MIB = 1 << 20
_BUFFER = 16 * _MIB


def test_what_a_frozen_target_broker_keeps_in_memory_is_bounded(trio: Lab, to_trio: Mirrored) -> None:
    """192 MiB come meanwhile, for partitions of all three brokers: of each answer a part waits for the frozen one."""
    to_trio.configure(f"buffer_bytes = {_BUFFER}\n[links.topic_settings]\nreplication_factor = 1")
    topic = to_trio.name("frozen")
    to_trio.source.create(topic, 6)
    write_blocks(to_trio, topic, 1)
    process = psutil.Process(to_trio.process().pid)
    for number in range(6):
        to_trio.wait_through(topic, number)
    before = process.memory_info().rss
    leaders = {
        n: p.leader for n, p in to_trio.target.admin.list_topics(topic, timeout=10).topics[topic].partitions.items()
    }
    frozen = leaders[0]
    others = [number for number, node in leaders.items() if node != frozen]
    assert others
    most = before
    trio.pause(f"trio-{frozen}")
    try:
        write_blocks(to_trio, topic, 320)
        goals = {number: to_trio.source.end(topic, number) for number in others}

        def moved() -> bool:
            nonlocal most
            most = max(most, process.memory_info().rss)
            return all(to_trio.through(topic, number) >= goal for number, goal in goals.items())

        wait_until(moved, 60, "the partitions of the other brokers")
    finally:
        trio.resume(f"trio-{frozen}")
    for number in range(6):
        to_trio.wait_through(topic, number)
        to_trio.assert_same(topic, number)
    # what is read and not acknowledged, what waits for the frozen broker counted apart, what connections have copied
    assert most - before < 6 * _BUFFER, f"{(most - before) / _MIB:.0f} MiB more than at rest"


def test_a_deletion_that_one_broker_has_not_told_yet_says_so_and_follows_once_it_does(
    trio: Lab, from_trio: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is frozen may still have the topic: only the mirror's log said why nothing happened."""
    from_trio.configure('deletions = "mirror"')
    goes, stays = from_trio.name("goes"), from_trio.name("stays")
    for topic in (goes, stays):
        create(from_trio.source, topic, 3)
        write(from_trio.source, topic, 5, "r")
    taken_meanwhile = taken_between_looks(from_trio, monkeypatch)
    with from_trio.running():
        for topic in (goes, stays):
            from_trio.wait_through(topic)
        taken_meanwhile(stays)
        places = from_trio.source.admin.list_topics(stays, timeout=10).topics[stays].partitions.values()
        frozen = next(f"trio-{node}" for node in (3, 2, 1) if node not in {each.leader for each in places})
        from_trio.source.admin.delete_topics([goes])[goes].result(30)
        trio.pause(frozen)
        try:
            (waits,) = wait_until(lambda: from_trio.problems("source_topic_deleted"), 60, "the problem")
            assert waits.topic == goes
            assert "is silent" in waits.reason or "lists 2 brokers and listed 3" in waits.reason
            assert "roker" in waits.remedy
            assert from_trio.target.partitions(goes) == 1
        finally:
            trio.resume(frozen)
        wait_until(lambda: from_trio.target.partitions(goes) == 0, 90, "its end on the target")
        wait_until(lambda: not from_trio.problems(), what="no problem")


def write_blocks(world: Mirrored, topic: str, count: int) -> None:
    """So many records of 100 kB to each of six partitions."""
    producer = world.source.producer(batch_size=900_000, linger_ms=50)
    blocks = [os.urandom(100_000) for _ in range(7)]
    for number in range(count * 6):
        producer.produce(topic, value=blocks[number % 7], partition=number % 6)
        producer.poll(0)
    assert producer.flush(60) == 0
