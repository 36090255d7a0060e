"""Beginning, holding, ending: orders are obeyed, one worker per link, nothing lost at any stop."""

from __future__ import annotations

import json
import signal
import sqlite3

import pytest

from drkit.mirror.control import link_to_run
from drkit.mirror.runtime.events import ProgressEvent
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.mirror.workers.leader_lease import LeaderLease
from drkit.model.clock import now
from drkit.model.errors import Refused
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topology import TopicPartition
from drkit.store.workers import lease_name
from tests.support.collection.sampling import some_of
from tests.support.links.mirroring import Mirrored, Side
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("lives of a mirror", 3)]


def write(side: Side, topic: str, count: int, *, partition: int = 0, first: int = 0) -> None:
    producer = side.producer()
    for number in range(first, first + count):
        producer.produce(topic, value=b"%d" % number, partition=partition)
    assert producer.flush(30) == 0


def decide(mirrored: Mirrored, direction: Direction, *, reverse: bool = False, run: str | None = None) -> None:
    link = mirrored.link.id.reversed() if reverse else mirrored.link.id
    kept = mirrored.store.link_control(link)
    version = 0 if kept is None else kept.version
    control = LinkControl(link, direction, version + 1, now(), "a test", run)
    assert mirrored.store.set_link_control(control, expected_version=None if kept is None else version)


def test_sigterm_drains_saves_and_releases(mirrored: Mirrored) -> None:
    topic = mirrored.name("term")
    mirrored.source.create(topic)
    write(mirrored.source, topic, 5_000)
    process = mirrored.process("--output", "json")
    wait_until(lambda: mirrored.target.partitions(topic) and mirrored.target.end(topic) > 0, 60, "the first records")
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    lines = [json.loads(line) for line in output.splitlines()]
    assert lines[-1]["type"] == "done"
    assert {line["type"] for line in lines} <= {"progress", "problem", "done"}
    assert mirrored.store.lease(lease_name(mirrored.link.id)) is None
    assert mirrored.through(topic) == mirrored.target.end(topic), "what landed is recorded"
    assert mirrored.catch_up().caught_up
    mirrored.assert_same(topic)


def test_until_caught_up_as_a_command(mirrored: Mirrored) -> None:
    topic = mirrored.name("command")
    mirrored.source.create(topic)
    write(mirrored.source, topic, 100)
    done = mirrored.drkit("mirror", "--until-caught-up", "--output", "json")
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["type"], last["caught_up"], last["records"]) == ("done", True, 100)
    assert mirrored.through(topic) == 100


def test_a_halted_partition_fails_until_caught_up(mirrored: Mirrored) -> None:
    topic = mirrored.name("halted")
    mirrored.source.create(topic)
    write(mirrored.source, topic, 10)
    assert mirrored.catch_up().caught_up
    write(mirrored.target, topic, 1)
    done = mirrored.drkit("mirror", "--until-caught-up")
    assert done.returncode == 1
    assert "foreign" in done.stderr or "did not write" in done.stderr


def test_pause_and_resume_of_the_link_and_of_a_topic(mirrored: Mirrored) -> None:
    first, second = mirrored.name("first"), mirrored.name("second")
    link = str(mirrored.link.id)
    for topic in (first, second):
        mirrored.source.create(topic)
        write(mirrored.source, topic, 10)
    with mirrored.running() as running:
        mirrored.wait_through(first)
        mirrored.wait_through(second)
        paused = mirrored.drkit("link", "pause", link, "--topic", first)
        assert (paused.returncode, "has mirrored no topic" in paused.stderr) == (0, False)
        wait_until(lambda: holds(mirrored, first, second), 60, "only the first topic held")
        assert mirrored.drkit("link", "pause", link).returncode == 0
        wait_until(lambda: states(running)[-1] == "paused", what="the link paused")
        write(mirrored.source, second, 5, first=1000)
        assert mirrored.drkit("link", "resume", link).returncode == 0
        mirrored.wait_through(first)
        mirrored.wait_through(second)
    assert running.error is None
    mirrored.assert_same(first)
    mirrored.assert_same(second)


def holds(mirrored: Mirrored, first: str, second: str) -> bool:
    """Whether records of `second` pass while those of `first` wait."""
    before = mirrored.target.end(first)
    write(mirrored.source, first, 1)
    write(mirrored.source, second, 1)
    mirrored.wait_through(second)
    return mirrored.target.end(first) == before


def states(running: object) -> list[str]:
    events = [event for event in running.events if isinstance(event, ProgressEvent)]  # type: ignore[attr-defined]
    return [event.state for event in events] or ["none"]


def test_pausing_a_topic_that_was_never_mirrored_says_so(mirrored: Mirrored) -> None:
    paused = mirrored.drkit("link", "pause", str(mirrored.link.id), "--topic", mirrored.name("mistyped"))
    assert (paused.returncode, "has mirrored no topic" in paused.stderr) == (0, True)


def test_a_paused_link_does_not_catch_up(mirrored: Mirrored) -> None:
    decide(mirrored, Direction.PAUSED)
    with pytest.raises(Refused, match="paused"):
        mirrored.catch_up()


def test_a_sealed_link_is_refused_and_a_running_mirror_ends(mirrored: Mirrored) -> None:
    topic = mirrored.name("sealed")
    mirrored.source.create(topic)
    write(mirrored.source, topic, 500)
    process = mirrored.process("--output", "json")
    mirrored.wait_through(topic)
    decide(mirrored, Direction.SEALED, run="01J-A-RUN")
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 3, errors
    last = json.loads(output.splitlines()[-1])
    assert last["type"] == "error"
    assert "01J-A-RUN" in last["error"]["what"]
    assert "failback" in last["error"]["remedy"]
    again = mirrored.drkit("mirror")
    assert again.returncode == 3
    assert "01J-A-RUN" in again.stderr
    mirrored.assert_same(topic)
    assert mirrored.through(topic) == 500


def test_a_reversed_link_runs_the_way_back(mirrored: Mirrored) -> None:
    topic = mirrored.name("back")
    mirrored.source.create(topic)
    write(mirrored.source, topic, 10)
    assert mirrored.catch_up().caught_up
    with pytest.raises(Refused, match="is not sealed or reversed"):
        MirrorRuntime(mirrored.config, mirrored.link.reversed(), mirrored.store).run(until_caught_up=True)
    decide(mirrored, Direction.REVERSED)
    with pytest.raises(Refused, match="reversed"):
        mirrored.catch_up()
    back = link_to_run(mirrored.store, mirrored.link)
    assert str(back.id) == "dr->primary"
    later = mirrored.name("later")
    mirrored.target.create(later)
    write(mirrored.target, later, 25)
    done = mirrored.drkit("mirror", "--until-caught-up", "--output", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["link"] == "dr->primary"
    assert [r.value for r in mirrored.source.read(later)] == [b"%d" % n for n in range(25)]
    assert mirrored.store.watermarks(back.id)[TopicPartition(later, 0)].source_through == 25


def test_the_lease_of_a_killed_worker_is_broken_at_once(mirrored: Mirrored) -> None:
    mirrored.source.create(mirrored.name("killed"))
    process = mirrored.process()
    held = wait_until(lambda: mirrored.store.lease(lease_name(mirrored.link.id)), what="the lease")
    mirrored.kill(process)
    lease = LeaderLease(mirrored.store, mirrored.link.id)
    assert lease.take()
    assert now() < held.expires_at, "it didn't have to expire"
    lease.release()


def test_a_locked_store_stalls_the_mirror_and_loses_nothing(mirrored: Mirrored) -> None:
    """A change of the delta needs a row; while the store is locked its records wait on the source."""
    mirrored.configure('offsets = "translate"')
    topic = mirrored.name("locked")
    mirrored.source.create(topic)
    producer = mirrored.source.producer(transactional_id=topic)
    producer.init_transactions(30)

    def transaction() -> None:
        producer.begin_transaction()
        producer.produce(topic, value=b"x")
        producer.commit_transaction(20)

    transaction()
    with mirrored.running() as running:
        mirrored.wait_through(topic)
        before = mirrored.target.end(topic)
        lock = sqlite3.connect(mirrored.folder / "drkit.db", isolation_level=None)
        try:
            lock.execute("BEGIN EXCLUSIVE")
            for _ in range(10):
                transaction()
            wait_until(lambda: states(running)[-1] == "waiting", 60, "the mirror waiting for its store")
            assert mirrored.target.end(topic) == before, "no record is produced before its row is durable"
            lock.execute("ROLLBACK")
        finally:
            lock.close()
        mirrored.wait_through(topic)
    assert running.error is None
    assert len(mirrored.assert_same(topic)) == 11
    mirrored.assert_translates(topic)


def test_an_unknown_topic_can_not_be_paused(mirrored: Mirrored) -> None:
    told = mirrored.drkit("link", "pause", str(mirrored.link.id), "--topic", "elsewhere")
    assert told.returncode == 2
    assert "does not cover" in told.stderr
    told = mirrored.drkit("link", "resume", str(mirrored.link.id), "--accept-recreated")
    assert told.returncode == 2
    told = mirrored.drkit("link", "pause", "no link")
    assert told.returncode == 2
