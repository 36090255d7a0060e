"""What `--until-caught-up` may call caught up: beside another worker, and where the clusters changed places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from drkit.drill.environment.log_surgery import stopped
from drkit.mirror.runtime.catch_up import CatchUp
from drkit.mirror.runtime.session import Session
from drkit.model.clock import now
from drkit.store.workers import WorkerNote, live_workers, put_worker
from tests.support.collection.sampling import some_of
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("catching up", 2)]

ALL, KEPT = 100, 60


def write(mirrored: Mirrored, topic: str, first: int, end: int) -> None:
    producer = mirrored.source.producer()
    for number in range(first, end):
        producer.produce(topic, value=b"%06d" % number, partition=0)
    assert producer.flush(30) == 0


def mirrored_topic(mirrored: Mirrored, name: str) -> str:
    """Mirrored in two steps: the mirror makes one batch of what it finds, and a log is cut between two."""
    topic = mirrored.name(name)
    mirrored.source.create(topic)
    for first, end in ((0, KEPT), (KEPT, ALL)):
        write(mirrored, topic, first, end)
        assert mirrored.catch_up().caught_up
    return topic


def another_has_just_died(mirrored: Mirrored) -> None:
    """A worker on another machine that lost its power a moment ago: its note holds for some seconds more."""
    at = now()
    note = WorkerNote("elsewhere:1:0:gone", False, False, 1, at, at + timedelta(seconds=60))
    put_worker(mirrored.store, mirrored.link.id, note)


def mirrors(mirrored: Mirrored) -> list[int]:
    """How many partitions each worker mirrors."""
    return [worker.partitions for worker in live_workers(mirrored.store, mirrored.link.id, now())]


def test_what_a_dead_worker_recorded_of_a_target_that_was_cut_since_is_copied_again_first(mirrored: Mirrored) -> None:
    topic = mirrored_topic(mirrored, "cut")
    with stopped(mirrored.lab, "dr-1") as disk:
        assert disk.cut(topic, 0, KEPT) == KEPT
    another_has_just_died(mirrored)
    assert mirrored.catch_up().caught_up
    assert mirrored.target.end(topic) == ALL
    mirrored.assert_same(topic)


def test_what_a_dead_worker_recorded_of_the_topic_before_it_was_accepted_as_a_new_one(mirrored: Mirrored) -> None:
    topic = mirrored_topic(mirrored, "accepted")
    told = mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic, "--accept-recreated")
    assert told.returncode == 0, told.stderr
    another_has_just_died(mirrored)
    assert mirrored.catch_up().caught_up
    ours = [record.value for record in mirrored.source.read(topic)]
    assert [record.value for record in mirrored.target.read(topic)] == ours + ours


def test_partitions_that_whoever_leads_has_not_added_yet_are_waited_for(mirrored: Mirrored) -> None:
    topic = mirrored_topic(mirrored, "grows")
    with mirrored.running(looks=30.0) as leader:
        wait_until(lambda: mirrors(mirrored) == [1], 30, "the leader has looked at the topics")
        mirrored.source.grow(topic, 3)
        producer = mirrored.source.producer()
        for number in range(40):
            producer.produce(topic, value=b"%06d" % number, partition=number % 3)
        assert producer.flush(30) == 0
        ends = [mirrored.source.end(topic, partition) for partition in range(3)]
        assert mirrored.catch_up().caught_up
        assert [mirrored.through(topic, partition) for partition in range(3)] == ends
    assert leader.error is None


def test_a_purge_of_what_another_worker_mirrors_just_before_a_run_has_caught_up_is_told(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, partitions = mirrored.name("beside"), 4
    mirrored.source.create(topic, partitions)
    producer = mirrored.source.producer()
    for number in range(60 * partitions):
        producer.produce(topic, value=b"%06d" % number, partition=number % partitions)
    assert producer.flush(30) == 0
    plain, purged = CatchUp.done, set()

    def purged_then(self: CatchUp, record: Callable[[], None]) -> bool:
        if done := plain(self, record):
            for tp in self._elsewhere:  # what counts by another worker's word
                mirrored.target.purge(topic, 20, tp.partition)
                purged.add(tp)
        return done

    monkeypatch.setattr(CatchUp, "done", purged_then)
    with mirrored.running() as leader:
        for partition in range(partitions):
            mirrored.wait_through(topic, partition)
        report = mirrored.runtime(looks=60.0).run(until_caught_up=True)
    assert purged, "nothing was the other worker's"
    assert not (report.caught_up and report.missing == ())
    assert leader.error is None


def test_what_a_resume_sets_back_while_a_run_ends_is_not_caught_up(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the target while the run looks whether it is done, and stores only then that the end is lost."""
    topic = mirrored_topic(mirrored, "set-back")
    finish, store = Session._finish, mirrored.store

    def finishes(self: Session, *, caught_up: bool = False) -> None:
        (mark,) = (each for tp, each in store.watermarks(mirrored.link.id).items() if tp.topic == topic)
        self._progress.leave([mark.tp])
        store.put_watermarks(mirrored.link.id, [replace(mark, source_through=KEPT, target_end=KEPT)])
        finish(self, caught_up=caught_up)

    monkeypatch.setattr(Session, "_finish", finishes)
    assert mirrored.catch_up().caught_up is False


def test_clusters_that_changed_places_are_refused_before_anything_is_written(mirrored: Mirrored) -> None:
    topic, foreign = mirrored_topic(mirrored, "both"), mirrored.name("only-on-dr")
    mirrored.target.create(foreign)
    text = mirrored.config_path.read_text()
    primary, dr = mirrored.source.bootstrap, mirrored.target.bootstrap
    mirrored.config_path.write_text(text.replace(primary, "there").replace(dr, primary).replace("there", dr))
    told = mirrored.drkit("mirror", "--until-caught-up")
    assert told.returncode == 3, told.stderr
    assert "primary and dr changed places" in " ".join(told.stderr.split())
    assert mirrored.source.partitions(foreign) == 0, "nothing of dr's is created on the primary"
    mirrored.config_path.write_text(text)
    write(mirrored, topic, ALL, ALL + 10)
    assert mirrored.catch_up().caught_up
    mirrored.assert_same(topic)


def test_a_source_that_has_none_of_the_mirrored_topics_is_not_caught_up_with(mirrored: Mirrored) -> None:
    """It came back as it was before they were made: there is nothing to copy, and nothing that dr was compared with."""
    topic = mirrored_topic(mirrored, "gone")
    mirrored.source.delete(topic)
    report = mirrored.catch_up()
    assert not report.caught_up
    assert (report.gone, report.empty) == ((topic,), False)
