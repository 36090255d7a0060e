"""What one broker can't show: leaders that die under load, brokers that stand still, with three replicas on
either side and two of them in sync at least.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from chaos.soak.clusters import Side
from chaos.soak.faults import lead
from chaos.soak.world import BROKER_CONFIG
from drkit.lab import Lab
from tests.support.clusters.guard import Guard
from tests.support.collection.sampling import among
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

DRAWN = among("leaders under load", ["killed", "moved"], 1)

PARTITIONS = 6
NOW, OLD = 0, 1_370_000_000_000
"""Stamps: the producer's clock, or 2013: the brokers of this lab forget such producers within five seconds."""
_SECONDS = 180.0


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard) -> Iterator[Lab]:
    """Three brokers on either side."""
    folder = tmp_path_factory.mktemp("three")
    lab_guard.watch(folder)
    lab = Lab.up(folder, brokers=3, store="sqlite", broker_config=BROKER_CONFIG, timeout_seconds=240)
    yield lab
    lab.down()


@pytest.fixture
def wide(three: Lab, tmp_path: Path, unique_name: str) -> Iterator[Mirrored]:
    """A link of the test's own; every broker runs and is in sync at its begin."""
    dead = [node.name for node in three.status() if node.state == "down"]
    if dead:
        three.restart(*dead)
    for alias in ("primary", "dr"):
        wait_until(side(three, alias).healthy, _SECONDS, f"{alias} in sync")
    world = Mirrored(three, tmp_path, unique_name)
    yield world
    world.close()


def side(lab: Lab, alias: str) -> Side:
    return Side(alias, lab.bootstrap(alias))


def leader(lab: Lab, alias: str, topic: str, partition: int = 0) -> str:
    """The name of the broker that leads a partition."""
    return f"{alias}-{side(lab, alias).leaders([topic])[topic, partition]}"


def create(wide: Mirrored, topic: str) -> None:
    settings = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**63 - 1)}
    new = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=3, config=settings)
    wide.source.admin.create_topics([new])[topic].result(60)
    wait_until(lambda: len(side(wide.lab, "primary").leaders([topic])) == PARTITIONS, what=f"leaders of {topic}")


class Load(threading.Thread):
    """Numbered records to all partitions until told to end; each is acknowledged by two brokers at least."""

    def __init__(self, wide: Mirrored, topic: str, stamp: int) -> None:
        super().__init__(name="test-load")
        self.ending = threading.Event()
        self._topic = topic
        self._stamp = stamp
        self._producer = wide.source.producer(acks="all", enable_idempotence=True, linger_ms=5)
        self._failed: list[str] = []

    def run(self) -> None:
        number = 0
        while not self.ending.wait(0.02):
            for _ in range(10):
                self._producer.produce(
                    self._topic,
                    value=b"%09d" % number,
                    partition=number % PARTITIONS,
                    timestamp=self._stamp and self._stamp + number,
                    on_delivery=lambda error, _: self._failed.append(str(error)) if error else None,
                )
                number += 1
            self._producer.poll(0)

    def end(self) -> None:
        """Stop; everything is acknowledged."""
        self.ending.set()
        self.join(60)
        assert self._producer.flush(_SECONDS) == 0
        assert not self._failed, self._failed[:3]


def end(wide: Mirrored, topic: str, partition: int) -> int | None:
    """The source's end; None while its leader is dead and no other one known."""
    try:
        return wide.source.end(topic, partition)
    except KafkaException:
        return None


def wait_moving(wide: Mirrored, topic: str) -> None:
    """What the source holds now in each partition gets mirrored and recorded."""
    goals = {number: wait_until(partial(end, wide, topic, number), _SECONDS, "ends") for number in range(PARTITIONS)}
    wait_until(
        lambda: all(wide.through(topic, number) >= goal for number, goal in goals.items()),
        _SECONDS,
        f"{topic} mirrored through {goals}",
    )


def assert_exact(wide: Mirrored, topic: str) -> None:
    for number in range(PARTITIONS):
        records = wide.assert_same(topic, number)
        assert len(records) > 20
        commits = [record.offset for record in records]
        wide.assert_translates(topic, number, commits[:: max(1, len(commits) // 50)])
        theirs = [record.offset for record in wide.target.read(topic, number)]
        assert theirs == commits, "offsets are preserved"
    assert not wide.problems(), wide.problems()


@DRAWN("killed")
@pytest.mark.parametrize("stamp", [NOW, pytest.param(OLD, marks=pytest.mark.long)], ids=["now", "2013"])
@pytest.mark.parametrize("alias", ["dr", pytest.param("primary", marks=pytest.mark.long)])
def test_a_leader_killed_under_load(wide: Mirrored, alias: str, stamp: int) -> None:
    """What the target acknowledged stays; the source's unreplicated end is never mirrored."""
    topic = wide.name("killed")
    create(wide, topic)
    load = Load(wide, topic, stamp)
    load.start()
    try:
        with wide.running() as running:
            wait_moving(wide, topic)
            name = leader(wide.lab, alias, topic)
            wide.lab.kill(name)
            wait_moving(wide, topic)  # the two that are left continue
            wide.lab.restart(name)
            load.end()
            wait_moving(wide, topic)
        assert running.error is None
    finally:
        load.ending.set()
    assert_exact(wide, topic)


@pytest.mark.long
def test_a_target_broker_that_stands_still_holds_up_nobody_for_long(wide: Mirrored) -> None:
    """Stopped for longer than a request may take: all partitions continue under other leaders before it wakes."""
    topic = wide.name("stopped")
    create(wide, topic)
    load = Load(wide, topic, NOW)
    load.start()
    try:
        with wide.running() as running:
            wait_moving(wide, topic)
            leaders = side(wide.lab, "dr").leaders([topic])
            name = f"dr-{leaders[topic, 0]}"
            others = [number for number in range(PARTITIONS) if leaders[topic, number] != leaders[topic, 0]]
            assert others, leaders
            wide.lab.pause(name)
            try:
                for _ in range(3):
                    for number in others:
                        wide.wait_through(topic, number)
                wait_moving(wide, topic)
                stopped = {node.name for node in wide.lab.status() if node.state == "paused"}
                assert stopped == {name}
            finally:
                wide.lab.resume(name)
            load.end()
            wait_moving(wide, topic)
        assert running.error is None
    finally:
        load.ending.set()
    assert_exact(wide, topic)


@pytest.mark.long
@pytest.mark.parametrize("stamp", [NOW, OLD], ids=["now", "2013"])
def test_the_mirror_and_the_targets_leader_die_together(wide: Mirrored, stamp: int) -> None:
    """Requests are in flight, the log's end is ahead of what is replicated, and nobody got the answers."""
    topic = wide.name("both")
    create(wide, topic)
    load = Load(wide, topic, stamp)
    load.start()
    try:
        process = wide.process()
        wait_moving(wide, topic)
        for number in range(2):
            name = leader(wide.lab, "dr", topic, number)
            wide.lab.kill(name)
            wide.kill(process)
            process = wide.process()
            wait_moving(wide, topic)
            wide.lab.restart(name)
            wait_until(side(wide.lab, "dr").healthy, _SECONDS, "dr in sync")
        load.end()
        wait_moving(wide, topic)
        process.terminate()
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, (output, errors)
    finally:
        load.ending.set()
    assert_exact(wide, topic)


@DRAWN("moved")
@pytest.mark.parametrize("alias", ["dr", pytest.param("primary", marks=pytest.mark.long)])
def test_leaders_that_move_away_and_back_under_load(wide: Mirrored, alias: str) -> None:
    """Nobody dies: a former leader knows its partitions still, and leads them again a moment later."""
    topic = wide.name("moved")
    create(wide, topic)
    load = Load(wide, topic, NOW)
    load.start()
    try:
        with wide.running() as running:
            wait_moving(wide, topic)
            cluster = side(wide.lab, alias)
            first = cluster.replicas(topic)
            for turned in (1, 0, 2, 0):
                orders = {(topic, number): [*each[turned:], *each[:turned]] for number, each in first.items()}
                lead(cluster, orders)
            wait_moving(wide, topic)
            load.end()
            wait_moving(wide, topic)
        assert running.error is None
    finally:
        load.ending.set()
    assert_exact(wide, topic)
