"""Somebody removes records from the target that the source still holds: by DeleteRecords, as any retention does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable

import pytest

from drkit.drill.environment.log_surgery import stopped
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.mapping import Translator
from drkit.mirror.control import acknowledge, pause, resume_link
from drkit.mirror.health import purge_watch
from drkit.mirror.runtime import partition_starter
from drkit.mirror.runtime.catch_up import CatchUp
from drkit.model.clock import now
from drkit.model.errors import Refused
from drkit.model.link_state import TARGET_PURGED, Problem
from drkit.model.offsets import Certainty
from drkit.model.topology import TopicPartition
from drkit.observe.link_status import LinkStatus
from drkit.observe.status import link_statuses
from drkit.state_topic.records import state_topic
from drkit.store.link_notes import accepted_purges
from drkit.store.workers import live_workers
from tests.support.links.mirroring import Mirrored, Side
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

DAY_MS = 86_400_000


def write(side: Side, topic: str, numbers: Iterable[int], *, days_old: int = 0) -> None:
    producer = side.producer(linger_ms=50)
    stamp = int(time.time() * 1000) - days_old * DAY_MS
    for number in numbers:
        producer.produce(topic, value=b"%06d" % number, key=b"k%d" % number, partition=0, timestamp=stamp)
    assert producer.flush(30) == 0


def status_of(mirrored: Mirrored) -> LinkStatus:
    return link_statuses(mirrored.config, mirrored.store, [mirrored.link])[0]


def told(mirrored: Mirrored, topic: str, stretch: tuple[int, int]) -> Problem:
    """Wait until a problem names this stretch of source offsets."""

    def found() -> Problem | None:
        here = (each for each in mirrored.problems(TARGET_PURGED) if each.topic == topic)
        return next((each for each in here if (each.unsure_from, each.unsure_until) == stretch), None)

    return wait_until(found, 30, f"{topic}: {stretch} told")


def test_a_purge_under_a_running_mirror_is_told_counted_and_accepted(mirrored: Mirrored) -> None:
    topic = mirrored.name("orders")
    mirrored.source.create(topic)
    write(mirrored.source, topic, range(60))
    with mirrored.running() as running:
        mirrored.wait_through(topic, offset=60)
        mirrored.target.purge(topic, 25)
        problem = told(mirrored, topic, (0, 25))
        assert f"{topic}:0 on dr begins at 25: source offsets 0 to 24" in problem.reason
        status = status_of(mirrored)
        (partition,) = status.partitions
        assert status.state == "degraded"
        assert (partition.lag_records, partition.mirrored_through, partition.target_start) == (25, 0, 25)
        assert status.recovery_point.records == 25
        assert status.recovery_point.seconds is not None
        translator = Translator(mirrored.store, mirrored.link.id)
        for offset in (0, 10, 24):
            answer = translator.translate(TopicPartition(topic, 0), offset)
            assert (answer.certainty, answer.target_offset) == (Certainty.CONSERVATIVE, 25)
            assert "removed there" in (answer.reason or "")
        assert translator.translate(TopicPartition(topic, 0), 25).certainty is Certainty.EXACT

        write(mirrored.source, topic, range(60, 70))
        mirrored.wait_through(topic, offset=70)
        pause(mirrored.store, mirrored.link, topic)
        resume_link(mirrored.store, mirrored.link, topic)
        assert status_of(mirrored).recovery_point.records == 25, "who goes on has not given up the records"
        _, (read,) = acknowledge(mirrored.store, mirrored.link, TARGET_PURGED, topic)
        assert "source offsets 0 to 24" in read.reason
        wait_until(lambda: status_of(mirrored).state == "mirroring", 30, "accepted")
        mirrored.target.purge(topic, 40)
        told(mirrored, topic, (25, 40))
        assert status_of(mirrored).recovery_point.records == 15
        mirrored.source.purge(topic, 40)
        wait_until(lambda: not mirrored.problems(), 30, "both sides begin at 40")
        assert status_of(mirrored).recovery_point.records == 0
    assert running.error is None


def test_what_was_given_up_and_came_back_counts_when_it_is_removed_again(mirrored: Mirrored) -> None:
    """A broker that crashes within a minute of a purge undoes it."""
    topic = mirrored.name("undone")
    mirrored.source.create(topic)
    for first in range(0, 60, 20):
        write(mirrored.source, topic, range(first, first + 20))
    with mirrored.running() as running:
        mirrored.wait_through(topic, offset=60)
        mirrored.target.purge(topic, 40)
        told(mirrored, topic, (0, 40))
        acknowledge(mirrored.store, mirrored.link, TARGET_PURGED, topic)
        wait_until(lambda: status_of(mirrored).state == "mirroring", 30, "given up")
        with stopped(mirrored.lab, "dr-1") as disk:
            disk.forget_start(topic, 0)
        assert len(mirrored.target.read(topic)) == 60, "all are there again"
        place = (TopicPartition(topic, 0), 1)
        wait_until(
            lambda: accepted_purges(mirrored.store, mirrored.link.id)[place] == (), 60, "the mirror has seen them"
        )
        mirrored.target.purge(topic, 40)
        told(mirrored, topic, (0, 40))
        assert status_of(mirrored).recovery_point.records == 40
    assert running.error is None


@pytest.mark.long
def test_a_worker_that_takes_a_partition_over_accepts_nothing_that_the_one_before_it_told(mirrored: Mirrored) -> None:
    """The leader takes over what its only follower had told, at once, and later: nobody has read it since."""
    topic, partitions = mirrored.name("passed-on"), 4
    mirrored.source.create(topic, partitions)
    producer = mirrored.source.producer()
    for number in range(60 * partitions):
        producer.produce(topic, value=b"%06d" % number, partition=number % partitions)
    assert producer.flush(30) == 0

    def held() -> dict[str, int]:
        return {each.owner: each.partitions for each in live_workers(mirrored.store, mirrored.link.id, now())}

    def told_of(until: int) -> list[int | None]:
        here = [
            each for each in mirrored.problems(TARGET_PURGED) if (each.unsure_from, each.unsure_until) == (0, until)
        ]
        return sorted(each.partition for each in here) if len(here) == partitions else []

    def purge(before: int) -> None:
        for partition in range(partitions):
            mirrored.target.purge(topic, before, partition)

    with mirrored.running() as leader:
        for partition in range(partitions):
            mirrored.wait_through(topic, partition)
        with mirrored.running() as follower:
            wait_until(lambda: sorted(held().values()) == [2, 2], 120, "two workers")
            purge(10)
            wait_until(lambda: told_of(10), 30, "told by both")
        wait_until(lambda: list(held().values()) == [partitions], 120, "everything with the leader")
        purge(20)
        wait_until(lambda: told_of(20), 30, "told by the leader")
        assert status_of(mirrored).recovery_point.records == 20 * partitions
        acknowledge(mirrored.store, mirrored.link, TARGET_PURGED, topic)
        wait_until(lambda: status_of(mirrored).state == "mirroring", 30, "accepted")
        assert status_of(mirrored).recovery_point.records == 0
    assert (leader.error, follower.error) == (None, None)
    report = mirrored.catch_up()
    assert (report.caught_up, report.missing) == (True, ())


def purged(mirrored: Mirrored, name: str) -> str:
    """A topic of 60 records whose first 40 somebody removes from the target under a mirror, which then stops."""
    topic = mirrored.name(name)
    mirrored.source.create(topic)
    for first in range(0, 60, 20):
        write(mirrored.source, topic, range(first, first + 20))
    with mirrored.running() as running:
        mirrored.wait_through(topic, offset=60)
        mirrored.target.purge(topic, 40)
        told(mirrored, topic, (0, 40))
    assert running.error is None
    return topic


def undo(mirrored: Mirrored, topic: str) -> None:
    """The target's broker crashes, and has them again."""
    with stopped(mirrored.lab, "dr-1") as disk:
        disk.forget_start(topic, 0)
    assert len(mirrored.target.read(topic)) == 60


def test_a_purge_that_a_crash_undoes_while_no_mirror_looks_skips_no_record(mirrored: Mirrored) -> None:
    topic = purged(mirrored, "undone-alone")
    undo(mirrored, topic)
    assert status_of(mirrored).recovery_point.records == 0
    asked = mirrored.drkit("translate", "--topic", f"{topic}:0", "--offset", "10", "--output", "json")
    (position,) = json.loads(asked.stdout)["positions"]
    assert (position["translation"], position["target_offset"]) == ("exact", 10)


def test_what_a_crash_brought_back_is_no_loss_of_a_failover_whose_source_is_gone(mirrored: Mirrored) -> None:
    """Neither by the plan, nor by the count once the source is back."""
    topic = purged(mirrored, "undone-gone")
    assert mirrored.planned_loss(mirrored.without_primary()).records == 40
    undo(mirrored, topic)
    with ClusterContext(mirrored.without_primary(), mirrored.store) as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        assert plan.loss.records == 0
        done = run_failover(estate, plan, accept_unfenced=True)
    assert done.error is None
    told_by = mirrored.drkit("runs", done.run, "--audit", "--output", "json")
    assert told_by.returncode == 0, told_by.stderr
    run = json.loads(told_by.stdout)["result"]
    assert (run["evidence"]["rpo_records"], run["evidence"]["rpo_basis"]) == (0, "audited")


def test_a_purge_counts_what_a_mirror_that_died_had_not_recorded(mirrored: Mirrored) -> None:
    """Killed under load: the watermark is older than what the target holds. Then all of it is removed."""
    topics = [mirrored.name(name) for name in ("died", "died-accepted", "died-emptied")]
    for topic in topics:
        mirrored.source.create(topic)
        write(mirrored.source, topic, range(100))
    mirrored.catch_up()
    kept = [mirrored.store.watermarks(mirrored.link.id)[TopicPartition(topic, 0)] for topic in topics]
    mirrored.target.purge(topics[1], 100)
    mirrored.catch_up()
    acknowledge(mirrored.store, mirrored.link, TARGET_PURGED, topics[1])
    for topic in topics:
        write(mirrored.source, topic, range(100, 150))
    mirrored.catch_up()
    for topic, before in zip(topics, (130, 130, 150), strict=True):
        mirrored.target.purge(topic, before)
    mirrored.store.put_watermarks(mirrored.link.id, kept)
    with ClusterContext(
        mirrored.config, mirrored.store
    ) as estate:  # a mirror that died had not recorded it there either
        estate.admin("dr").delete_topics([state_topic(mirrored.link)])

    def ranges(problems: Iterable[Problem]) -> dict[str, tuple[int | None, int | None]]:
        return {each.topic: (each.unsure_from, each.unsure_until) for each in problems if each.kind == TARGET_PURGED}

    expected = dict(zip(topics, ((0, 130), (100, 130), (0, 150)), strict=True))
    status = status_of(mirrored)
    assert ranges(status.problems) == expected | {topics[2]: (0, 100)}
    lags = {each.topic: each.lag_records for each in status.partitions}
    assert lags == dict(zip(topics, (130, 30, None), strict=True)), "nobody can tell who wrote what isn't there"
    loss = mirrored.planned_loss()
    assert (loss.records, loss.lower_bound, len(loss.unjudged)) == (310, True, 1)
    gone = mirrored.planned_loss(mirrored.without_primary())
    assert gone.lower_bound
    assert len(gone.unjudged) == 3, "whether the primary had removed them as well isn't known"
    assert ranges(mirrored.catch_up().missing) == expected, "as the mirror counts"


def test_a_purge_just_before_a_run_has_caught_up_is_told(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = mirrored.name("late")
    mirrored.source.create(topic)
    write(mirrored.source, topic, range(60))
    plain = CatchUp.done

    def purged_then(self: CatchUp, record: Callable[[], None]) -> bool:
        if done := plain(self, record):
            mirrored.target.purge(topic, 20)
        return done

    monkeypatch.setattr(CatchUp, "done", purged_then)
    (problem,) = mirrored.catch_up().missing
    assert (problem.kind, problem.unsure_from, problem.unsure_until) == (TARGET_PURGED, 0, 20)


def test_a_purge_of_any_of_many_partitions_is_told_by_a_run_that_finds_all_caught_up(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with 5,000 partitions, which are begun in portions, whose rows are read in others."""
    monkeypatch.setattr(purge_watch, "_READ_AT_ONCE", 10)
    monkeypatch.setattr(partition_starter, "_FIRST_AT_ONCE", 40)
    monkeypatch.setattr(partition_starter, "_RESUMED_AT_ONCE", 80)
    topic, partitions, purged = mirrored.name("many"), 200, (35, 115, 199)
    mirrored.source.create(topic, partitions)
    producer = mirrored.source.producer()
    for number in range(2 * partitions):
        producer.produce(topic, value=b"%06d" % number, partition=number % partitions)
    assert producer.flush(30) == 0
    assert mirrored.catch_up().missing == ()
    for partition in purged:
        mirrored.target.purge(topic, 1, partition)
    missing = mirrored.catch_up().missing
    assert sorted((each.partition, each.unsure_until) for each in missing) == [(partition, 1) for partition in purged]


def test_a_purge_while_no_mirror_runs_is_seen_and_what_retention_explains_is_not(mirrored: Mirrored) -> None:
    """All logs begin at 20 on the target: of some topics that is what retention would have done."""
    topics = {
        "plain": ({}, (0, 20)),
        "cleaned": ({"cleanup_policy": "compact,delete"}, (0, 20)),
        "young": ({"retention_ms": str(2 * DAY_MS)}, (0, 20)),
        "aged": ({"retention_ms": str(DAY_MS // 2)}, None),
        "halves": ({"retention_ms": str(DAY_MS // 2)}, (10, 20)),
        "sized": ({"retention_bytes": "1000000000"}, (0, 20)),
        "small": ({"retention_bytes": "100"}, None),
    }
    names = {mirrored.name(name): expected for name, (_, expected) in topics.items()}
    for name, (settings, _) in topics.items():
        topic = mirrored.name(name)
        mirrored.source.create(topic, **settings)
        write(mirrored.source, topic, range(10), days_old=1)
        write(mirrored.source, topic, range(10, 20), days_old=0 if name == "halves" else 1)
        write(mirrored.source, topic, range(20, 50))
    assert mirrored.catch_up().missing == ()
    for topic in names:
        mirrored.target.purge(topic, 20)

    def seen(problems: Iterable[Problem]) -> dict[str, tuple[int | None, int | None]]:
        return {each.topic: (each.unsure_from, each.unsure_until) for each in problems if each.kind == TARGET_PURGED}

    expected = {topic: stretch for topic, stretch in names.items() if stretch is not None}
    assert mirrored.problems() == []
    status = status_of(mirrored)
    assert seen(status.problems) == expected, "no mirror runs: the status looks itself"
    lags = {each.topic: each.lag_records for each in status.partitions}
    assert lags == {topic: 0 if stretch is None else stretch[1] - stretch[0] for topic, stretch in names.items()}
    plain = mirrored.name("plain")
    answers = {}
    for offset in (5, 20):
        said = mirrored.drkit(
            "translate", "--topic", plain, "--partition", "0", "--offset", str(offset), "--output", "json"
        )
        (position,) = json.loads(said.stdout)["positions"]
        answers[offset] = position["translation"], position["target_offset"]
    assert answers == {5: ("conservative", 20), 20: ("exact", 20)}, "the target is asked where it begins"
    report = mirrored.catch_up()
    assert report.caught_up
    assert seen(report.missing) == seen(mirrored.problems()) == expected
    done = mirrored.drkit("mirror", "--until-caught-up")
    assert done.returncode == 1
    assert "source offsets 0 to 19" in done.stderr
    resume_link(mirrored.store, mirrored.link)
    assert seen(mirrored.catch_up().missing) == expected, "who goes on has not given up the records"
    with pytest.raises(Refused, match="for one topic at a time"):
        acknowledge(mirrored.store, mirrored.link, TARGET_PURGED)
    for topic in expected:
        acknowledge(mirrored.store, mirrored.link, TARGET_PURGED, topic)
    assert mirrored.catch_up().missing == (), "accepted"
    assert seen(status_of(mirrored).problems) == {}
