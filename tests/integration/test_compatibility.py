"""Kafka 3.9 and 4.x as source and as target: mirrored, failed over, audited. What ran: docs/compatibility.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.clusters import observing
from drkit.lab import Lab
from drkit.lab.toolchain import ensure
from drkit.lab.toolchain.lockfile import read_lock
from drkit.model.errors import DrkitError
from drkit.model.topology import LinkId
from drkit.model.topology import TopicPartition as KafkaPartition
from drkit.observe.readiness.target_checks import versions_check
from tests.support.clusters.guard import Guard
from tests.support.commands.running import Commands
from tests.support.links.estates import TIMEOUT, OwnLink, own_link, texts
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.spark]

RELEASES = {"3.9": "kafka-3.9", "4.x": "kafka"}
"""Releases of Kafka, and the set of jars that has each."""
PROTOCOLS = {"3.9": ("classic",), "4.x": ("classic", "consumer")}
"""The protocols by which clients may form groups there (KIP-848 is on by default from 4.0)."""
TOGETHER = [(source, target) for source in RELEASES for target in RELEASES]


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path: Path, lab_guard: Guard) -> Iterator[tuple[Lab, str, str]]:
    """Clusters `primary` and `dr` of the two releases; skipped where their jars can't be had."""
    source, target = request.param
    sets = {"primary": RELEASES[source], "dr": RELEASES[target]}
    try:
        ensure(*sets.values())
    except DrkitError as error:
        pytest.skip(f"jars can't be had: {error}")
    lab_guard.watch(tmp_path / "lab")
    lab = Lab.up(tmp_path / "lab", brokers=1, store="sqlite", releases=sets)
    try:
        for node in lab.status():
            assert node.pid is not None
            kafka = next(jar for jar in read_lock(sets[node.cluster]).jars if jar.module.name == "kafka_2.13")
            assert any(kafka.file_name in word for word in psutil.Process(node.pid).cmdline()), "its release"
        yield lab, source, target
    finally:
        lab.down()


@pytest.mark.parametrize("pair", [("3.9", "4.x")], ids="-to-".join, indirect=True)
def test_doctor_tells_what_clients_meet_on_another_release(
    pair: tuple[Lab, str, str], tmp_path: Path, unique_name: str
) -> None:
    own = own_link(pair[0], tmp_path, unique_name)
    with observing(own.config.clusters, None) as clusters:
        newer = versions_check(LinkId("primary", "dr"), clusters)
        older = versions_check(LinkId("dr", "primary"), clusters)
    assert "dr is newer and refuses old clients that primary takes: Fetch before version 4" in newer.reason
    assert "group.version is 0 on primary, 1 on dr: consumers with group.protocol=consumer" in older.reason
    assert "transaction.version is 0 on primary, 2 on dr" in older.reason


@pytest.mark.parametrize("pair", [("3.9", "4.x")], ids="-to-".join, indirect=True)
@pytest.mark.parametrize("alias", ["primary", "dr"])
def test_what_blocks_writes_lets_markers_through(
    pair: tuple[Lab, str, str], tmp_path: Path, unique_name: str, alias: str
) -> None:
    """By the order of a leader's checks, which is no part of any protocol (`drkit.kafka.admin.write_block`)."""
    own = own_link(pair[0], tmp_path, unique_name)
    topic = own.create(alias, "t")
    client = {**own.client(alias), "transactional.id": topic, "message.timeout.ms": "10000"}
    committed, aborted = (Producer({**client, "transactional.id": f"{topic}.{end}"}) for end in ("c", "a"))
    for writer in (committed, aborted):
        writer.init_transactions(TIMEOUT)
        writer.begin_transaction()
        writer.produce(topic, "in a transaction", partition=0)
        assert writer.flush(TIMEOUT) == 0
    with ClusterAdmin(alias, own.config.clusters[alias]) as admin:
        admin.block_writes({topic: 2})
        before = admin.end_offsets([KafkaPartition(topic, 0)], committed=False)
        for value in (None, b"", b"v", b"0123456789", b"larger than a marker" * 9):
            for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
                told: list[str] = []
                writer = Producer({**own.client(alias), "compression.type": codec})
                writer.produce(topic, value, partition=0, on_delivery=lambda error, _, to=told: to.append(str(error)))
                assert writer.flush(TIMEOUT) == 0
                assert "MSG_SIZE_TOO_LARGE" in told[0], (value, codec, told)
        committed.commit_transaction(TIMEOUT)
        aborted.abort_transaction(TIMEOUT)
        place = KafkaPartition(topic, 0)
        wait_until(lambda: admin.end_offsets([place], committed=True)[place] == before[place] + 2, what="both markers")
    for end in ("c", "a"):
        Producer({**client, "transactional.id": f"{topic}.{end}"}).init_transactions(TIMEOUT)
    own.store.close()


@pytest.mark.parametrize("pair", TOGETHER, ids="-to-".join, indirect=True)
def test_it_mirrors_fails_over_and_audits(pair: tuple[Lab, str, str], tmp_path: Path, unique_name: str) -> None:
    """Groups of each protocol, transactions with aborted ones among them, a compacted topic; the primary is killed."""
    lab, source, target = pair
    own = own_link(lab, tmp_path, unique_name)
    drkit = Commands(own.config_path)
    try:
        plain = own.create("primary", "plain", partitions=3)
        own.produce("primary", plain, texts("p", 200, range(3)))
        compacted = own.create("primary", "compacted", cleanup_policy="compact")
        own.produce("primary", compacted, texts("c", 100))
        transacted = own.create("primary", "transacted")
        write_transactions(own, transacted)
        groups = {protocol: own.topic(f"by-{protocol}") for protocol in PROTOCOLS[source]}
        for protocol, group in groups.items():
            assert len(read(own, "primary", group, plain, protocol, 150)) >= 150

        done = drkit.drkit("mirror", "--until-caught-up")
        assert done.returncode == 0, done.stderr
        unread = {group: own.unread("primary", group, plain) for group in groups.values()}
        assert all(sum(map(len, values.values())) for values in unread.values())
        whole = {topic: own.values("primary", topic) for topic in (plain, transacted)}

        lab.kill("primary")
        done = drkit.drkit("failover", "--to", "dr", "--unplanned", "--accept-unfenced", "--yes", "--output", "json")
        assert done.returncode == 0, (done.stdout, done.stderr)
        run = json.loads(done.stdout)
        assert run["state"] == "closed"
        assert {each["group"] for each in run["groups"]} == set(groups.values())
        assert {each["translation"] for each in run["groups"]} == {"exact"}
        for topic, values in whole.items():
            assert own.values("dr", topic) == values
        for group in groups.values():
            assert own.unread("dr", group, plain) == unread[group]

        lab.restart("primary")
        done = drkit.drkit("audit", "--output", "json")
        assert done.returncode == 0, (done.stdout, done.stderr)
        audit = json.loads(done.stdout)
        assert audit["verdict"] == "clean"
        assert audit["totals"]["matched"] == audit["totals"]["source_records"] > 0

        for protocol, group in zip(PROTOCOLS[target] * 2, groups.values(), strict=False):
            left = sorted(value for values in unread[group].values() for value in values)
            assert sorted(read(own, "dr", group, plain, protocol, len(left))) == left
    finally:
        drkit.close()
        own.store.close()


def write_transactions(own: OwnLink, topic: str) -> None:
    """Ten transactions, each third of them aborted."""
    producer = Producer({**own.client("primary"), "transactional.id": own.topic("writer")})
    producer.init_transactions(TIMEOUT)
    for number in range(10):
        producer.begin_transaction()
        for each in range(20):
            producer.produce(topic, f"t-{number}-{each}".encode(), partition=each % 2)
        if number % 3 == 2:
            producer.abort_transaction(TIMEOUT)
        else:
            producer.commit_transaction(TIMEOUT)


def read(own: OwnLink, alias: str, group: str, topic: str, protocol: str, count: int) -> list[str]:
    """At least so many records, as a member of the group that commits what it has read."""
    settings = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    consumer = Consumer({**own.client(alias), **settings, "enable.auto.commit": False})
    found: list[str] = []

    def enough() -> bool:
        for message in consumer.consume(50, 1.0):
            assert message.error() is None, message.error()
            found.append((message.value() or b"").decode())
        return len(found) >= count

    try:
        consumer.subscribe([topic])
        wait_until(enough, 120, f"{count} records for {group}")
        stands = consumer.position(consumer.assignment())
        consumer.commit(
            offsets=[TopicPartition(p.topic, p.partition, max(p.offset, 0)) for p in stands], asynchronous=False
        )
    finally:
        consumer.close()
    return found
