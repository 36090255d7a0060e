"""Several workers of one link: they share its partitions, replace each other, and no late one does harm."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from drkit.model.clock import now
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topology import TopicPartition
from drkit.store.workers import WorkerNote, lease_name, live_workers
from tests.support.collection.sampling import among
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

DRAWN = among("workers of a link", ["share", "killed", "processes"], 1)

PARTITIONS = 8


class Load(threading.Thread):
    """Writes numbered records to all partitions of a topic until told to end."""

    def __init__(self, mirrored: Mirrored, topic: str) -> None:
        super().__init__(name="test-load")
        self.ending = threading.Event()
        self.written = 0
        self._topic = topic
        self._producer = mirrored.source.producer(compression_type="lz4", linger_ms=5)

    def run(self) -> None:
        while not self.ending.wait(0.01):
            for _ in range(20 if len(self._producer) < 1000 else 0):
                self._producer.produce(self._topic, value=b"%09d" % self.written, partition=self.written % PARTITIONS)
                self.written += 1
            self._producer.poll(0)
        assert self._producer.flush(30) == 0


@contextmanager
def load(mirrored: Mirrored, topic: str) -> Iterator[Load]:
    """Load while the body runs."""
    thread = Load(mirrored, topic)
    thread.start()
    try:
        yield thread
    finally:
        thread.ending.set()
        thread.join(60)


def workers(mirrored: Mirrored) -> list[WorkerNote]:
    """The live workers, the leader first."""
    return sorted(live_workers(mirrored.store, mirrored.link.id, now()), key=lambda worker: not worker.leads)


def shares(mirrored: Mirrored) -> list[int]:
    """How many partitions each worker mirrors, ascending."""
    return sorted(worker.partitions for worker in workers(mirrored))


def generations(mirrored: Mirrored) -> dict[int, int]:
    """The generation that holds each partition now."""
    with sqlite3.connect(mirrored.folder / "drkit.db") as store:
        return dict(store.execute("SELECT partition, generation FROM mapping_claim"))


@contextmanager
def telling(*processes: subprocess.Popen[str]) -> Iterator[None]:
    """A failure in the body shows what these workers said."""
    try:
        yield
    except BaseException as error:
        for process in processes:
            process.kill()
            error.add_note(process.communicate(timeout=30)[1])
        raise


def wait_shares(mirrored: Mirrored, *expected: int) -> None:
    wait_until(lambda: shares(mirrored) == sorted(expected), 120, f"shares {expected}")
    assert not any(worker.everything for worker in workers(mirrored)) or len(expected) == 1


def wait_moving(mirrored: Mirrored, topic: str) -> None:
    """Every partition continues: what its source holds now gets recorded."""
    for partition in range(PARTITIONS):
        mirrored.wait_through(topic, partition)


def assert_exact(mirrored: Mirrored, topic: str) -> None:
    """Nothing missing, nothing twice, every mapping right."""
    wait_moving(mirrored, topic)
    for partition in range(PARTITIONS):
        records = mirrored.assert_same(topic, partition)
        assert records
        commits = [record.offset for record in records]
        mirrored.assert_translates(topic, partition, commits[:: max(1, len(commits) // 50)])
    assert not mirrored.problems(), mirrored.problems()


def owner_of(process: subprocess.Popen[str], mirrored: Mirrored) -> WorkerNote | None:
    """The note of a worker that runs as this process."""
    if process.poll() is not None:
        pytest.fail(f"the worker ended: {process.communicate()}")
    return next((note for note in workers(mirrored) if note.owner.split(":")[1] == str(process.pid)), None)


@DRAWN("share")
def test_workers_share_a_link_and_a_third_stops_nothing_that_stays(mirrored: Mirrored) -> None:
    topic = mirrored.name("shared")
    mirrored.source.create(topic, PARTITIONS)
    with load(mirrored, topic):
        with mirrored.running() as first:
            wait_moving(mirrored, topic)
            assert [worker.everything for worker in workers(mirrored)] == [True], "alone it waits for nobody"
            with mirrored.running() as second:
                wait_shares(mirrored, 4, 4)
                wait_moving(mirrored, topic)
                before = generations(mirrored)
                with mirrored.running() as third:
                    wait_shares(mirrored, 2, 3, 3)
                    wait_moving(mirrored, topic)
                    after = generations(mirrored)
                    moved = {partition for partition in before if before[partition] != after[partition]}
                    assert len(moved) == 2, "only what went to the third was taken up again"
                wait_shares(mirrored, 4, 4)
                wait_moving(mirrored, topic)
            wait_until(lambda: shares(mirrored) == [PARTITIONS], 120, "everything with the first again")
            wait_moving(mirrored, topic)
        for running in (first, second, third):
            assert running.error is None
    assert mirrored.catch_up().caught_up
    assert_exact(mirrored, topic)


@DRAWN("killed")
def test_a_killed_worker_is_replaced(mirrored: Mirrored) -> None:
    topic = mirrored.name("killed")
    mirrored.source.create(topic, PARTITIONS)
    with load(mirrored, topic):
        leader = mirrored.process()
        wait_until(lambda: owner_of(leader, mirrored), 120, "the first worker")
        other = mirrored.process()
        wait_shares(mirrored, 4, 4)
        wait_moving(mirrored, topic)
        mirrored.kill(leader)
        wait_until(lambda: shares(mirrored) == [PARTITIONS], 120, "everything with the other")
        wait_moving(mirrored, topic)
        held = mirrored.store.lease(lease_name(mirrored.link.id))
        assert held is not None
        assert held.owner == owner_of(other, mirrored).owner, "it leads, too"
    other.send_signal(signal.SIGTERM)
    output, errors = other.communicate(timeout=60)
    assert other.returncode == 0, (output, errors)
    assert workers(mirrored) == []
    assert mirrored.catch_up().caught_up
    assert_exact(mirrored, topic)


@pytest.mark.long
@pytest.mark.parametrize("asleep", ["leader", "other"])
def test_a_worker_that_was_stopped_does_no_harm_when_it_goes_on(mirrored: Mirrored, asleep: str) -> None:
    topic = mirrored.name("slept")
    mirrored.source.create(topic, PARTITIONS)
    with load(mirrored, topic):
        first = mirrored.process()
        wait_until(lambda: owner_of(first, mirrored), 120, "the first worker")
        second = mirrored.process()
        wait_shares(mirrored, 4, 4)
        wait_moving(mirrored, topic)
        zombie = first if asleep == "leader" else second
        before = generations(mirrored)
        zombie.send_signal(signal.SIGSTOP)
        try:
            wait_until(
                lambda: sum(generations(mirrored)[p] != before[p] for p in before) == 4, 120, "its partitions taken"
            )
            wait_moving(mirrored, topic)
        finally:
            zombie.send_signal(signal.SIGCONT)
        wait_shares(mirrored, 4, 4)
        wait_moving(mirrored, topic)
    for process in (first, second):
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, (output, errors)
    assert mirrored.catch_up().caught_up
    assert_exact(mirrored, topic)


@pytest.mark.long
def test_a_lone_worker_that_was_stopped_goes_on_beside_the_one_that_took_over(mirrored: Mirrored) -> None:
    topic = mirrored.name("lone")
    mirrored.source.create(topic, PARTITIONS)
    with load(mirrored, topic):
        zombie = mirrored.process()
        wait_moving(mirrored, topic)
        zombie.send_signal(signal.SIGSTOP)
        try:
            with telling(zombie), mirrored.running() as other:
                wait_until(lambda: shares(mirrored) == [PARTITIONS], 120, "everything with the other")
                wait_moving(mirrored, topic)
                zombie.send_signal(signal.SIGCONT)
                wait_shares(mirrored, 4, 4)
                wait_moving(mirrored, topic)
            assert other.error is None
        finally:
            zombie.send_signal(signal.SIGCONT)
        wait_moving(mirrored, topic)
    zombie.send_signal(signal.SIGTERM)
    output, errors = zombie.communicate(timeout=60)
    assert zombie.returncode == 0, (output, errors)
    assert_exact(mirrored, topic)


@pytest.mark.long
def test_one_that_catches_up_beside_others_waits_for_their_share(mirrored: Mirrored) -> None:
    topic = mirrored.name("beside")
    mirrored.source.create(topic, PARTITIONS)
    with load(mirrored, topic):
        with mirrored.running() as running:
            wait_moving(mirrored, topic)
            report = mirrored.catch_up()
            assert report.caught_up
            assert not report.halted
        assert running.error is None
    assert mirrored.catch_up().caught_up
    assert_exact(mirrored, topic)


@pytest.mark.long
def test_a_partition_claimed_from_under_a_worker_is_taken_up_anew(mirrored: Mirrored) -> None:
    """As a worker that wakes up finds it; here the other one doesn't continue, so this one takes it again."""
    topic = mirrored.name("claimed")
    mirrored.source.create(topic, PARTITIONS)
    with load(mirrored, topic), mirrored.running() as running:
        wait_moving(mirrored, topic)
        before = generations(mirrored)
        foreign = mirrored.store.next_generation(mirrored.link.id)
        epoch = mirrored.store.topic_states(mirrored.link.id)[topic].epoch
        mirrored.store.claim(mirrored.link.id, [(TopicPartition(topic, number), epoch) for number in (1, 2)], foreign)
        wait_until(lambda: min(generations(mirrored)[number] for number in (1, 2)) > foreign, 60, "claimed again")
        wait_moving(mirrored, topic)
        after = generations(mirrored)
        assert {number for number in before if before[number] != after[number]} == {1, 2}, "the others continued"
    assert running.error is None
    assert mirrored.catch_up().caught_up
    assert_exact(mirrored, topic)


def children(process: subprocess.Popen[str]) -> set[int]:
    return {child.pid for child in psutil.Process(process.pid).children()}


@DRAWN("processes")
def test_processes_of_one_command_share_the_link_and_are_kept(mirrored: Mirrored) -> None:
    topic = mirrored.name("processes")
    mirrored.source.create(topic, PARTITIONS)
    with load(mirrored, topic):
        parent = mirrored.process("--processes", "2", "--output", "json")
        wait_shares(mirrored, 4, 4)
        wait_moving(mirrored, topic)
        shown = mirrored.drkit("status", "--output", "json")
        assert shown.returncode == 0, shown.stderr
        status = json.loads(shown.stdout)["links"][0]
        assert [(worker["leads"], worker["partitions"]) for worker in status["workers"]] == [(True, 4), (False, 4)]
        assert status["worker"] == status["workers"][0]["worker"]
        before = children(parent)
        assert len(before) == 2
        killed = min(before)
        psutil.Process(killed).kill()
        wait_until(lambda: len(children(parent)) == 2 and killed not in children(parent), 60, "another child")
        wait_shares(mirrored, 4, 4)
        wait_moving(mirrored, topic)
    parent.send_signal(signal.SIGTERM)
    output, errors = parent.communicate(timeout=60)
    assert parent.returncode == 0, errors
    assert f"({killed}) was ended by SIGKILL" in errors
    lines = [json.loads(line) for line in output.splitlines()]
    assert {line["process"] for line in lines} == {1, 2}
    assert workers(mirrored) == []
    done = mirrored.drkit("mirror", "--processes", "2", "--until-caught-up", "--output", "json")
    assert done.returncode == 0, done.stderr
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["caught_up"] for line in ends if line["type"] == "done"] == [True, True]
    assert_exact(mirrored, topic)


def test_children_end_with_their_parent(mirrored: Mirrored) -> None:
    topic = mirrored.name("orphans")
    mirrored.source.create(topic, PARTITIONS)
    parent = mirrored.process("--processes", "2")
    wait_until(lambda: len(workers(mirrored)) == 2, 60, "two workers")
    left = [psutil.Process(pid) for pid in children(parent)]
    mirrored.kill(parent)
    wait_until(lambda: not any(child.is_running() for child in left), 60, "the children's end")
    assert workers(mirrored) == []


def test_children_that_are_refused_end_the_whole(mirrored: Mirrored) -> None:
    control = LinkControl(mirrored.link.id, Direction.SEALED, 1, now(), "a test")
    assert mirrored.store.set_link_control(control, expected_version=None)
    done = mirrored.drkit("mirror", "--processes", "2")
    assert done.returncode == 3, done.stderr
    assert "is sealed" in done.stderr
