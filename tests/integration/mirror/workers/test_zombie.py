"""Workers that are stopped and continue (SIGSTOP, SIGCONT) under load, on clusters of three brokers each.

Replication 3, two in-sync replicas at least: what a worker that wakes up still sends meets a partition
that another one has taken over.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from drkit.lab import Lab
from drkit.model.clock import now
from drkit.store.workers import live_workers
from tests.support.clusters.guard import Guard
from tests.support.links.log_reader import read_log
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.long]

PARTITIONS = 4
ROUNDS = 4


@pytest.fixture
def wide(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard, unique_name: str) -> Iterator[Mirrored]:
    """A link between two clusters of three brokers."""
    folder: Path = tmp_path_factory.mktemp("wide")
    lab_guard.watch(folder / "lab")
    lab = Lab.up(folder / "lab", brokers=3, store="sqlite", timeout_seconds=240)
    world = Mirrored(lab, folder, unique_name)
    yield world
    world.close()
    lab.down()


class Load(threading.Thread):
    """Plain records to one topic, transactions (some aborted) to another, until told to end."""

    def __init__(self, mirrored: Mirrored, plain: str, transactional: str) -> None:
        super().__init__(name="test-load")
        self.ending = threading.Event()
        self._random = random.Random(1)  # noqa: S311 - repeatable, not secret
        self._plain, self._transactional = plain, transactional
        self._producer = mirrored.source.producer(compression_type="lz4", linger_ms=5, acks="all")
        self._transactions = mirrored.source.producer(transactional_id=transactional)
        self._transactions.init_transactions(60)

    def run(self) -> None:
        number = 0
        while not self.ending.wait(0.01):
            for _ in range(50):
                self._producer.produce(self._plain, key=b"k", value=b"%09d" % number, partition=number % PARTITIONS)
                number += 1
            self._producer.poll(0)
            self._transactions.begin_transaction()
            for step in range(self._random.randint(1, 20)):
                value = b"t%09d-%d" % (number, step)
                self._transactions.produce(self._transactional, key=b"k", value=value, partition=step % PARTITIONS)
            self._transactions.flush(60)
            if self._random.random() < 0.3:
                self._transactions.abort_transaction(60)
            else:
                self._transactions.commit_transaction(60)
        assert self._producer.flush(60) == 0


def create(mirrored: Mirrored, topic: str) -> None:
    settings = {"retention.ms": "-1", "min.insync.replicas": "2"}
    new = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=3, config=settings)
    mirrored.source.admin.create_topics([new])[topic].result(60)
    wait_until(lambda: mirrored.source.partitions(topic) == PARTITIONS, 60, f"topic {topic}")


def shares(mirrored: Mirrored) -> dict[int, int]:
    """How many partitions each live worker mirrors, by process id."""
    found = live_workers(mirrored.store, mirrored.link.id, now())
    return {int(worker.owner.split(":")[1]): worker.partitions for worker in found}


def wait_recorded(mirrored: Mirrored, topics: tuple[str, ...]) -> None:
    for topic in topics:
        for partition in range(PARTITIONS):
            goal = mirrored.source.end(topic, partition)
            wait_until(
                lambda t=topic, p=partition, g=goal: mirrored.through(t, p) >= g, 120, f"{topic}:{partition} at {goal}"
            )


def test_workers_that_were_stopped_do_no_harm_when_they_go_on(wide: Mirrored) -> None:
    topics = plain, transactional = wide.name("plain"), wide.name("tx")
    for topic in topics:
        create(wide, topic)
    load = Load(wide, plain, transactional)
    load.start()
    processes = [wide.process(), wide.process()]
    pids = {process.pid for process in processes}
    half = PARTITIONS * len(topics) // 2
    try:
        wait_until(lambda: shares(wide) == dict.fromkeys(pids, half), 120, "equal shares")
        for number in range(ROUNDS):
            zombie, other = processes[number % 2], processes[1 - number % 2]
            zombie.send_signal(signal.SIGSTOP)
            try:
                wait_until(lambda o=other: shares(wide).get(o.pid) == 2 * half, 120, "everything with the other")
                wait_recorded(wide, topics)
            finally:
                zombie.send_signal(signal.SIGCONT)
            wait_until(lambda: shares(wide) == dict.fromkeys(pids, half), 120, "equal shares again")
    finally:
        load.ending.set()
        load.join(120)
    wait_recorded(wide, topics)
    for process in processes:
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, (output, errors)
    for topic in topics:
        ours = read_log(wide.source.bootstrap, topic, committed=True)
        theirs = read_log(wide.target.bootstrap, topic, committed=False)
        assert [(r.partition, r.timestamp, r.key, r.value) for r in theirs] == [
            (r.partition, r.timestamp, r.key, r.value) for r in ours
        ]
        for partition in range(PARTITIONS):
            commits = [record.offset for record in ours if record.partition == partition]
            wide.assert_translates(topic, partition, commits[:: max(1, len(commits) // 100)])
    assert not wide.problems(), wide.problems()
