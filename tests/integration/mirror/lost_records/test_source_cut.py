"""A source that loses its tail and grows again: nothing is papered over, whoever looks when.

Producers flush what they buffered as soon as the leader is back, so that its log has long grown beyond the mirror's
position when somebody looks at its end. Here the broker's disk is cut while it is down (`log_surgery` of the drills).
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from drkit.audit.compare.range_proof import choose
from drkit.audit.compare.scope import observe_scope
from drkit.config import ClusterConfig
from drkit.drill.environment.log_surgery import stopped
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.positions.positions import choose_positions
from drkit.failover.snapshot.selection import Selection
from drkit.failover.snapshot.take_snapshot import observe
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.mirror.control import acknowledge
from drkit.mirror.resume.offset_alignment.fill_decision import Observed
from drkit.mirror.resume.partition_resume import Resumer
from drkit.model.audit.audit_result import AuditRequest
from drkit.model.clock import now
from drkit.model.digests import Uncovered
from drkit.model.topology import TopicPartition
from drkit.observe.status import link_statuses
from drkit.store.workers import live_workers
from tests.support.collection.sampling import sampled, some_of
from tests.support.links.batches import batch_bytes
from tests.support.links.mirroring import Mirrored, Side
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("cut sources", 2)]

KIND = "source_truncated"
KEPT, THROUGH, GROWN = 900, 1_000, 1_050


def write(mirrored: Mirrored, topic: str, values: list[bytes], *, keyed: bool = False) -> None:
    """Fifty records a batch: a log can be cut between them, and they are forwarded as they are."""
    producer = mirrored.source.producer(message_max_bytes=5_000_000)
    for first in range(0, len(values), 50):
        for value in values[first : first + 50]:
            producer.produce(topic, value=value, key=value if keyed else None, partition=0)
        assert producer.flush(30) == 0


def named(what: str, first: int, last: int) -> list[bytes]:
    return [b"%s-%d" % (what.encode(), number) for number in range(first, last)]


def cut_again(mirrored: Mirrored, topic: str, kept: int, grown: int) -> None:
    """A second time, further down; it grows as far as that no end tells."""
    with stopped(mirrored.lab, "primary-1") as disk:
        assert disk.cut(topic, 0, kept) == kept
    write(mirrored, topic, named("third", kept, grown))
    assert mirrored.source.end(topic) == grown


def said(mirrored: Mirrored, topic: str, offset: int) -> tuple[Any, ...]:
    """What status says is mirrored, and is missing, and translate of a position."""
    told = mirrored.drkit("status", "--output", "json")
    (link,) = json.loads(told.stdout)["links"]
    (partition,) = (each for each in link["partitions"] if each["topic"] == topic)
    place = mirrored.drkit("translate", "--topic", f"{topic}:0", "--offset", str(offset), "--output", "json")
    (position,) = json.loads(place.stdout)["positions"]
    return (
        partition["mirrored_through"],
        partition["lag_records"],
        position["translation"],
        position["target_offset"],
    )


def state(mirrored: Mirrored) -> tuple[str, str | None]:
    (status,) = link_statuses(mirrored.config, mirrored.store, [mirrored.link])
    return status.state, status.reason


def cut(mirrored: Mirrored, *topics: str, grow: bool = True) -> None:
    """The source comes back without what it had from `KEPT` on, and grows beyond `THROUGH`."""
    with stopped(mirrored.lab, "primary-1") as disk:
        for topic in topics:
            assert disk.cut(topic, 0, KEPT) == KEPT
    for topic in topics if grow else ():
        write(mirrored, topic, named("other", KEPT, GROWN))
        assert mirrored.source.end(topic) == GROWN


def mirrored_topic(mirrored: Mirrored, name: str) -> str:
    topic = mirrored.name(name)
    mirrored.source.create(topic)
    write(mirrored, topic, named("first", 0, THROUGH))
    return topic


def values(mirrored: Mirrored, topic: str) -> list[bytes | None]:
    return [record.value for record in mirrored.target.read(topic, committed=False)]


def assert_stands_still(mirrored: Mirrored, topic: str) -> None:
    (problem,) = mirrored.problems()
    assert (problem.kind, problem.topic, problem.partition, problem.halted) == (KIND, topic, 0, True)
    assert f"lost offsets {KEPT} to {THROUGH - 1} after they were mirrored" in problem.reason
    assert f"ends at {KEPT} there" in problem.reason
    assert values(mirrored, topic) == named("first", 0, THROUGH)


def assert_not_proven(mirrored: Mirrored, topic: str) -> None:
    """The audit by digest takes what was mirrored of the lost stretch for nothing."""
    request = AuditRequest(link=mirrored.link, out="", from_digests=True)
    (scope,) = (e for e in observe_scope(request, mirrored.store, mirrored.config).partitions if e.topic == topic)
    assert scope.source_held <= KEPT
    claims, left = choose(scope)
    assert all(claim.digest.source_end <= KEPT for claim in claims)
    assert {why for _, why in left} == {Uncovered.SOURCE_DIVERGED}


def unjudged(mirrored: Mirrored) -> list[str]:
    """Offsets of which an audit says that nothing can be compared with them any more."""
    scope = observe_scope(AuditRequest(link=mirrored.link, out=""), mirrored.store, mirrored.config)
    found = [re.search(r"offsets \d+ to \d+", each) for each in scope.incomplete]
    return [each.group() for each in found if each is not None]


def test_a_source_cut_and_grown_again_while_the_mirror_was_down(mirrored: Mirrored) -> None:
    topic = mirrored_topic(mirrored, "down")
    assert mirrored.catch_up().caught_up
    cut(mirrored, topic)
    assert_not_proven(mirrored, topic)
    (halted,) = mirrored.catch_up().halted
    assert halted.kind == KIND
    assert_stands_still(mirrored, topic)
    assert_not_proven(mirrored, topic)
    # retention takes the history away by which it was seen: it isn't forgotten
    assert unjudged(mirrored) == [], "both sides are compared"
    mirrored.source.purge(topic, THROUGH - 30)
    assert unjudged(mirrored) == [f"offsets {KEPT} to {THROUGH - 31}"], "its leader epochs show it"
    mirrored.source.purge(topic, THROUGH + 10)
    assert unjudged(mirrored) == [f"offsets {KEPT} to {THROUGH - 1}"], "the problem on record shows it"
    (halted,) = mirrored.catch_up().halted
    assert halted.kind == KIND
    assert_stands_still(mirrored, topic)


def test_a_source_cut_and_grown_again_under_a_mirror_that_slept(mirrored: Mirrored) -> None:
    """It wakes with a connection that is gone and a log beyond its position; others of the same broker continue."""
    topic, whole = mirrored_topic(mirrored, "slept"), mirrored.name("whole")
    mirrored.source.create(whole)
    write(mirrored, whole, named("first", 0, 20))
    with mirrored.running() as running:
        mirrored.wait_through(topic)
        mirrored.wait_through(whole)
        mirrored.hold(whole)
        told = mirrored.drkit("link", "pause", str(mirrored.link.id), "--topic", topic)
        assert told.returncode == 0, told.stderr
        cut(mirrored, topic)
        for each in (topic, whole):
            assert mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", each).returncode == 0
        wait_until(lambda: mirrored.problems(KIND), what="the problem")
        write(mirrored, whole, named("later", 0, 20))
        mirrored.wait_through(whole)
        assert_stands_still(mirrored, topic)
    assert running.error is None
    mirrored.assert_same(whole)


def test_what_a_halted_mirror_saw_of_the_source_is_what_counts_once_it_is_gone(mirrored: Mirrored) -> None:
    """The source grows again while nothing of it is mirrored, by the mirror that found the loss, and by a later one."""
    topic = mirrored_topic(mirrored, "grows")

    def grown_to(end: int) -> None:
        write(mirrored, topic, named("other", mirrored.source.end(topic), end))
        (lost,) = mirrored.problems(KIND)

        def seen_since() -> bool:
            mark = mirrored.store.watermarks(mirrored.link.id)[TopicPartition(topic, 0)]
            return mark.source_end == end and mark.observed_at > lost.since

        wait_until(seen_since, what="the end of the source")
        (status,) = link_statuses(mirrored.config, mirrored.store, [mirrored.link])
        lives, gone = mirrored.planned_loss(), mirrored.planned_loss(mirrored.without_primary())
        assert status.recovery_point.records == lives.records == gone.records == end - KEPT
        assert (lives.lower_bound, lives.upper_bound, gone.lower_bound) == (False, False, True)
        assert gone.upper_bound == (end > KEPT), "it may have lost more meanwhile"
        assert mirrored.through(topic) == THROUGH

    with mirrored.running() as running:
        mirrored.wait_through(topic)
        cut(mirrored, topic, grow=False)
        wait_until(lambda: mirrored.problems(KIND), what="the problem")
        grown_to(KEPT)
        grown_to(KEPT + 20)
    assert running.error is None
    with mirrored.running() as running:
        wait_until(lambda: state(mirrored)[0] == "degraded", what="the mirror")
        grown_to(KEPT + 60)
        grown_to(GROWN)
    assert running.error is None


def test_what_a_source_held_before_it_lost_its_tail_is_no_measure_of_the_loss(mirrored: Mirrored) -> None:
    """The mirror dies with the source, right after it found the loss: nobody has seen what the source holds since."""
    topic = mirrored_topic(mirrored, "unseen")
    assert mirrored.catch_up().caught_up
    before = mirrored.store.watermarks(mirrored.link.id)[TopicPartition(topic, 0)]
    cut(mirrored, topic, grow=False)
    (halted,) = mirrored.catch_up().halted
    assert halted.kind == KIND
    mirrored.store.put_watermarks(mirrored.link.id, [before])
    gone = mirrored.planned_loss(mirrored.without_primary())
    assert gone.records is None
    assert f"what it holds from source offset {KEPT} on was not seen since" in (gone.reason or "")
    assert mirrored.planned_loss().records == 0


def test_a_cut_that_takes_the_end_of_a_committed_transaction(mirrored: Mirrored) -> None:
    """Its records, long mirrored, are still there, and open again: whether they stay isn't known, so no position among
    them is exact."""
    topic = mirrored.name("reopened")
    mirrored.source.create(topic)
    write(mirrored, topic, named("first", 0, KEPT))
    producer = mirrored.source.producer(transactional_id=topic)
    producer.init_transactions(30)
    producer.begin_transaction()
    for first in (0, 50):
        for value in named("decided", first, first + 50):
            producer.produce(topic, value=value, partition=0)
        assert producer.flush(30) == 0
    producer.commit_transaction(30)
    assert mirrored.catch_up().caught_up
    with stopped(mirrored.lab, "primary-1") as disk:
        assert disk.cut(topic, 0, KEPT + 50) == KEPT + 50
    write(mirrored, topic, named("other", KEPT + 50, GROWN))
    assert said(mirrored, topic, KEPT - 1)[2:] == ("exact", KEPT - 1)
    for offset in (KEPT, KEPT + 10):
        assert said(mirrored, topic, offset)[2:] == ("conservative", KEPT)
    (halted,) = mirrored.catch_up().halted
    assert halted.kind == KIND
    (problem,) = mirrored.problems()
    assert problem.unsure_from == KEPT
    assert f"lost offsets {KEPT + 50} to {THROUGH} after they were mirrored" in problem.reason
    assert f"from offset {KEPT} on is open there again" in problem.reason
    assert said(mirrored, topic, KEPT + 10)[2:] == ("conservative", KEPT)


def test_no_position_is_exact_whose_next_record_is_the_first_that_differs(mirrored: Mirrored) -> None:
    """Between the last record that both sides hold and the cut stand aborted records and a marker, and dr has none."""
    topic = mirrored.name("hole")
    mirrored.source.create(topic)
    write(mirrored, topic, named("first", 0, KEPT - 50))
    abort(mirrored, topic, named("aborted", KEPT - 50, KEPT - 1))
    write(mirrored, topic, named("first", KEPT, THROUGH))
    assert mirrored.catch_up().caught_up
    for offset in (KEPT - 51, KEPT - 50, KEPT - 1, KEPT):
        assert said(mirrored, topic, offset)[2:] == ("exact", offset)
    cut(mirrored, topic)
    for _ in ("status alone", "behind a mirror"):
        assert said(mirrored, topic, KEPT - 51)[2:] == ("exact", KEPT - 51)
        for offset in (KEPT - 50, KEPT - 20, KEPT - 1):
            assert said(mirrored, topic, offset)[1:] == (GROWN - KEPT, "conservative", offset)
        assert [each.kind for each in mirrored.catch_up().halted] == [KIND]


def test_a_source_cut_while_an_operator_holds_the_topic(mirrored: Mirrored) -> None:
    """Nobody fetches it, so no broker compares: whoever looks does, though a mirror is running on the link."""
    topic = mirrored_topic(mirrored, "held")
    with mirrored.running() as running:
        mirrored.wait_through(topic)
        wait_until(lambda: state(mirrored)[0] == "mirroring", what="the mirror")
        mirrored.hold(topic)
        told, why = state(mirrored)
        assert (told, f"{topic} is paused" in (why or "")) == ("degraded", True)
        cut(mirrored, topic)
        assert said(mirrored, topic, 950) == (KEPT, GROWN - KEPT, "conservative", KEPT)
        assert "lost offsets 900 to 999 after they were mirrored" in (state(mirrored)[1] or "")
    assert running.error is None


def last_epoch(mirrored: Mirrored, topic: str, offset: int) -> int:
    """The leader epoch of the source's batch below an offset."""
    with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as admin:
        return admin.epochs_below({TopicPartition(topic, 0): offset})[TopicPartition(topic, 0)]


@pytest.mark.parametrize("mirror_is", ["running", "paused", "down"])
def test_a_source_that_was_set_back_whole_gives_out_its_leader_epochs_a_second_time(
    mirrored: Mirrored, tmp_path: Path, mirror_is: str
) -> None:
    """All of it, the controller's log too, as from a copy of its disks: no epoch tells, the records do."""
    topic, copy = mirrored.name("back"), tmp_path / "copy"
    mirrored.source.create(topic)
    write(mirrored, topic, named("first", 0, KEPT))
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(copy)

    def set_back() -> None:
        epoch = last_epoch(mirrored, topic, THROUGH)
        with stopped(mirrored.lab, "primary-1") as disk:
            disk.set_back(copy)
        write(mirrored, topic, named("other", KEPT, GROWN))
        assert last_epoch(mirrored, topic, THROUGH) == epoch

    if mirror_is == "running":
        with mirrored.running() as mirror:
            write(mirrored, topic, named("second", KEPT, THROUGH))
            mirrored.wait_through(topic)
            # paused, so that it doesn't read before the source has grown again
            assert mirrored.drkit("link", "pause", str(mirrored.link.id), "--topic", topic).returncode == 0
            set_back()
            assert mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic).returncode == 0
            wait_until(lambda: mirrored.problems("foreign_writer"), what="the problem")
        assert mirror.error is None
    elif mirror_is == "paused":  # from its start on: it has never read from the source
        write(mirrored, topic, named("second", KEPT, THROUGH))
        assert mirrored.catch_up().caught_up
        assert mirrored.drkit("link", "pause", str(mirrored.link.id)).returncode == 0
        tp, began = TopicPartition(topic, 0), now()
        with mirrored.running() as mirror:
            wait_until(lambda: mirrored.store.watermarks(mirrored.link.id)[tp].observed_at > began, what="its start")
            set_back()
            assert mirrored.drkit("link", "resume", str(mirrored.link.id)).returncode == 0
            wait_until(lambda: mirrored.problems("foreign_writer"), what="the problem")
        assert mirror.error is None
    else:
        write(mirrored, topic, named("second", KEPT, THROUGH))
        assert mirrored.catch_up().caught_up
        set_back()
        assert_not_proven(mirrored, topic)
        assert said(mirrored, topic, KEPT + 50) == (KEPT, GROWN - KEPT, "conservative", KEPT)
        assert mirrored.catch_up().halted
    (problem,) = (each for each in mirrored.problems() if each.topic == topic)
    assert (problem.kind, problem.partition, problem.halted, problem.unsure_from) == ("foreign_writer", 0, True, KEPT)
    assert_not_proven(mirrored, topic)
    assert f"target offset {KEPT} differs from source offset {KEPT}" in problem.reason
    assert values(mirrored, topic) == named("first", 0, KEPT) + named("second", KEPT, THROUGH)
    assert said(mirrored, topic, KEPT + 50) == (KEPT, GROWN - KEPT, "conservative", KEPT)


def test_what_a_group_had_read_before_its_source_was_set_back_counts_as_read_again(
    mirrored: Mirrored, tmp_path: Path
) -> None:
    """Its coordinator's log is set back, too: the commit that is captured then is older, and no reset."""
    topic, group, copy = mirrored_topic(mirrored, "read"), mirrored.name("g"), tmp_path / "copy"
    place = TopicPartition(topic, 0)

    def at(offset: int) -> bool:
        return [each.offset for each in mirrored.store.group_positions(mirrored.link.id) if each.group == group] == [
            offset
        ]

    def plan() -> tuple[Any, ...]:
        with ClusterContext(mirrored.config, mirrored.store) as estate:
            snapshot = observe(estate, mirrored.link)
        (found,) = (each for each in choose_positions(snapshot, Selection((group,)), None))
        (status,) = link_statuses(mirrored.config, mirrored.store, [mirrored.link])
        (told,) = (each for each in status.groups if each.group == group)
        assert told.translation is found.translation
        return found.target_offset, found.translation.value, found.reread, found.reread_bound

    with GroupAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as groups:
        assert groups.commit_many({group: {place: (600, "")}}) == {}
        assert mirrored.catch_up().caught_up
        assert groups.commit_many({group: {place: (500, "")}}) == {}
        assert mirrored.catch_up().caught_up
        assert plan() == (500, "exact", 0, 0), "an operator reset it"
        with stopped(mirrored.lab, "primary-1") as disk:
            disk.copy_to(copy)
        with mirrored.running() as mirror:
            write(mirrored, topic, named("second", THROUGH, GROWN))
            mirrored.wait_through(topic)
            assert groups.commit_many({group: {place: (800, "")}}) == {}
            wait_until(lambda: at(800), what="the later commit")
            with stopped(mirrored.lab, "primary-1") as disk:
                disk.set_back(copy)
            wait_until(lambda: mirrored.problems(KIND), what="the problem")
            wait_until(lambda: at(500), what="the earlier commit")
            assert plan() == (500, "conservative", None, 300)
        assert mirror.error is None


@pytest.mark.parametrize("grown", [THROUGH - 50, THROUGH - 1, GROWN], ids=["less", "almost", "more"])
@pytest.mark.parametrize("running", [True, False], ids=["running", "down"])
def test_a_source_that_was_set_back_to_before_its_restarts_never_had_the_epoch_that_was_mirrored(
    mirrored: Mirrored, tmp_path: Path, running: bool, grown: int
) -> None:
    """Its leaders' epochs are below the mirrored one, as in metadata that is too old: no leader can be asked for it."""
    topic, copy = mirrored.name("restarted"), tmp_path / "copy"
    mirrored.source.create(topic)
    write(mirrored, topic, named("first", 0, KEPT))
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(copy)
    for _ in range(2):
        with stopped(mirrored.lab, "primary-1"):
            pass
    write(mirrored, topic, named("second", KEPT, THROUGH))
    epoch = last_epoch(mirrored, topic, THROUGH)
    for _ in mirroring(mirrored, [topic], running=running):
        with stopped(mirrored.lab, "primary-1") as disk:
            disk.set_back(copy)
        write(mirrored, topic, named("third", KEPT, grown))
        assert last_epoch(mirrored, topic, grown) < epoch
        if running:
            assert mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic).returncode == 0
            wait_until(lambda: mirrored.problems(KIND), 60, "the problem")
    for _ in ("status alone", "behind a mirror"):
        through, lag, certainty, _ = said(mirrored, topic, KEPT + 20)
        assert lag >= grown - KEPT
        assert through <= KEPT
        assert certainty == "conservative"
        assert mirrored.drkit("failover", "--to", "dr", "--dry-run").returncode == 3
        assert mirrored.drkit("mirror", "--until-caught-up").returncode == 1
    moved = mirrored.drkit(
        *("failover", "--to", "dr", "--unplanned", "--yes", "--accept-unfenced", "--accept-loss", "unknown"),
        *("--output", "json"),
    )
    assert json.loads(moved.stdout)["evidence"]["rpo_records"] >= grown - KEPT


@pytest.mark.parametrize("before", [KEPT + 50, THROUGH, GROWN], ids=["in part", "up to the mirror", "beyond it"])
@pytest.mark.parametrize("resumed", [True, False], ids=["resumed by an operator", "started again"])
def test_what_a_source_that_was_set_back_removes_later_is_not_forgotten(
    mirrored: Mirrored, tmp_path: Path, before: int, resumed: bool
) -> None:
    """Retention takes the records by which it was seen; a mirror that looks again sees nothing wrong."""
    topic, copy = mirrored.name("removed-later"), tmp_path / "copy"
    mirrored.source.create(topic)
    write(mirrored, topic, named("first", 0, KEPT))
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(copy)
    write(mirrored, topic, named("first", KEPT, THROUGH))
    assert mirrored.catch_up().caught_up
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.set_back(copy)
    write(mirrored, topic, named("other", KEPT, GROWN + 50))
    assert mirrored.catch_up().halted
    mirrored.source.purge(topic, before)
    if resumed:
        told = mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic)
        assert told.returncode == 0, told.stderr
    for _ in range(2):
        assert mirrored.catch_up().halted
        through, _, certainty, _ = said(mirrored, topic, KEPT + 20)
        assert (through, certainty) == (KEPT, "conservative")
    (problem,) = mirrored.problems("foreign_writer")
    assert (problem.halted, problem.unsure_from) == (True, KEPT)
    assert values(mirrored, topic) == named("first", 0, THROUGH)
    accepted = mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic, "--accept-recreated")
    assert accepted.returncode == 0, accepted.stderr
    assert mirrored.catch_up().caught_up
    assert not mirrored.problems("foreign_writer")
    assert values(mirrored, topic) == named("first", 0, THROUGH) + named("other", before, GROWN + 50)


@pytest.mark.long
def test_what_another_worker_halted_stands_where_one_that_leads_takes_it_over(mirrored: Mirrored) -> None:
    """Retention has removed what showed it, and the leader had never halted it."""
    topics = [mirrored_topic(mirrored, f"passed-on-{number}") for number in range(4)]

    def shares() -> list[int]:
        return sorted(each.partitions for each in live_workers(mirrored.store, mirrored.link.id, now()))

    def generations() -> dict[str, int]:
        with sqlite3.connect(mirrored.folder / "drkit.db") as store:
            return dict(store.execute("SELECT topic, generation FROM mapping_claim"))

    with mirrored.running() as leader:
        for topic in topics:
            mirrored.wait_through(topic)
        with mirrored.running() as follower:
            wait_until(lambda: shares() == [2, 2], 120, "two workers")
            cut(mirrored, *topics)
            wait_until(lambda: len(mirrored.problems(KIND)) == len(topics), 60, "all are halted")
            for topic in topics:
                mirrored.source.purge(topic, GROWN - 10)
            before = generations()
        wait_until(lambda: sum(generations()[t] != before[t] for t in before) >= 2, 120, "they were taken over")
        later = mirrored_topic(mirrored, "later")
        mirrored.wait_through(later)
        for topic in topics:
            assert values(mirrored, topic) == named("first", 0, THROUGH), "nothing was copied behind it"
        assert {each.topic: each.unsure_from for each in mirrored.problems(KIND)} == dict.fromkeys(topics, KEPT)
    assert (leader.error, follower.error) == (None, None)


@pytest.mark.parametrize("looked", ["a mirror's start", "a running mirror", "status alone"])
def test_a_source_that_lost_its_tail_and_is_set_back_further_later(
    mirrored: Mirrored, tmp_path: Path, looked: str
) -> None:
    """The loss of its tail is on record; then a snapshot is restored, and grows in the very epoch that was mirrored."""
    topic, copy = mirrored.name("cut-and-restored"), tmp_path / "copy"
    mirrored.source.create(topic)
    write(mirrored, topic, named("first", 0, 400))
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(copy)
    write(mirrored, topic, named("first", 400, THROUGH))
    assert mirrored.catch_up().caught_up
    epoch = last_epoch(mirrored, topic, THROUGH)
    cut(mirrored, topic)
    assert mirrored.catch_up().halted
    assert said(mirrored, topic, 450)[:3] == (KEPT, GROWN - KEPT, "exact")
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.set_back(copy)
    write(mirrored, topic, named("third", 400, GROWN))
    assert last_epoch(mirrored, topic, THROUGH) == epoch

    def on_record() -> int | None:
        (problem,) = mirrored.problems(KIND)
        return problem.unsure_from

    if looked == "a running mirror":
        with mirrored.running() as mirror:
            wait_until(lambda: on_record() == 400, what="the lower place")
        assert mirror.error is None
    elif looked == "a mirror's start":
        assert mirrored.catch_up().halted
        assert on_record() == 400
    through, lag, certainty, _ = said(mirrored, topic, 450)
    assert (through, lag, certainty) == (400, GROWN - 400, "conservative")
    moved = mirrored.drkit(
        *("failover", "--to", "dr", "--unplanned", "--yes", "--accept-unfenced", "--accept-loss", "unknown"),
        *("--output", "json"),
    )
    assert json.loads(moved.stdout)["evidence"]["rpo_records"] == GROWN - 400


def heartbeats(what: str, first: int, last: int) -> list[bytes]:
    """Nearly all records are the same, so those that are compared first are."""
    return [b"%s-%d" % (what.encode(), number) if number % 20 == 0 else b"alive" for number in range(first, last)]


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("grown", [THROUGH - 20, THROUGH], ids=["less", "the same"])
def test_records_of_the_same_content_are_not_taken_for_the_same_records(
    mirrored: Mirrored, tmp_path: Path, policy: str, grown: int
) -> None:
    """Heartbeats: what was written again in their places differs in its timestamps alone."""
    topic, copy = mirrored.name("heartbeats"), tmp_path / "copy"
    mirrored.source.create(topic, **{"cleanup.policy": policy})
    write(mirrored, topic, heartbeats("first", 0, KEPT), keyed=True)
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(copy)
    write(mirrored, topic, heartbeats("first", KEPT, THROUGH), keyed=True)
    assert mirrored.catch_up().caught_up
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.set_back(copy)
    write(mirrored, topic, heartbeats("other", KEPT, grown), keyed=True)
    for _ in ("status alone", "behind a mirror"):
        through, lag, certainty, _ = said(mirrored, topic, KEPT + 20)
        assert lag is None or lag >= grown - KEPT
        assert through is None or through <= KEPT
        assert certainty == "conservative"
        assert mirrored.catch_up().halted
    assert said(mirrored, topic, KEPT + 20)[:3] == (KEPT, grown - KEPT, "conservative")


@pytest.mark.parametrize("looked", [True, False], ids=["behind a mirror", "status alone"])
def test_a_source_that_was_set_back_twice_further_down_the_second_time(
    mirrored: Mirrored, tmp_path: Path, looked: bool
) -> None:
    """No epoch tells: the second copy has grown in the very epoch that was mirrored, up to where both sides differ."""
    topic, copies = mirrored.name("set-back-twice"), [tmp_path / "lower", tmp_path / "upper"]
    mirrored.source.create(topic)
    for copy, first, until in zip(copies, (0, 400), (400, KEPT), strict=True):
        write(mirrored, topic, named("first", first, until))
        with stopped(mirrored.lab, "primary-1") as disk:
            disk.copy_to(copy)
    write(mirrored, topic, named("first", KEPT, THROUGH))
    assert mirrored.catch_up().caught_up
    epoch = last_epoch(mirrored, topic, THROUGH)
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.set_back(copies[1])
    write(mirrored, topic, named("second", KEPT, THROUGH))
    assert mirrored.catch_up().halted
    assert said(mirrored, topic, KEPT + 20)[:2] == (KEPT, THROUGH - KEPT)
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.set_back(copies[0])
    while current_epoch(mirrored, topic) < epoch:
        with stopped(mirrored.lab, "primary-1"):
            pass
    write(mirrored, topic, named("third", 400, THROUGH))
    assert last_epoch(mirrored, topic, THROUGH) == epoch
    if looked:
        assert mirrored.catch_up().halted
    through, lag, certainty, _ = said(mirrored, topic, 450)
    assert (through, lag, certainty) == (400, THROUGH - 400, "conservative")
    assert said(mirrored, topic, 300)[2] == "exact"
    moved = mirrored.drkit(
        *("failover", "--to", "dr", "--unplanned", "--yes", "--accept-unfenced", "--accept-loss", "unknown"),
        *("--output", "json"),
    )
    assert json.loads(moved.stdout)["evidence"]["rpo_records"] == THROUGH - 400


def current_epoch(mirrored: Mirrored, topic: str) -> int:
    """The leader epoch of the source's partition now."""
    with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as admin:
        found: list[int] = []
        wait_until(
            lambda: found.extend(admin.leader_epochs([TopicPartition(topic, 0)]).values()) or found, 30, "a leader"
        )
        return found[0]


def test_what_a_source_that_was_set_back_holds_in_place_of_what_was_given_up_counts(
    mirrored: Mirrored, tmp_path: Path
) -> None:
    """Offsets 50 to 79 were removed before they were mirrored, which was acknowledged; other records are there now."""
    topic, copy = mirrored.name("in-place"), tmp_path / "copy"
    mirrored.source.create(topic)
    write(mirrored, topic, named("first", 0, 50))
    assert mirrored.catch_up().caught_up
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(copy)
    write(mirrored, topic, named("second", 50, 100))
    with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as admin:
        admin.delete_records({TopicPartition(topic, 0): 80})
    assert mirrored.catch_up().caught_up
    acknowledge(mirrored.store, mirrored.link, "retention_gap", topic)
    assert said(mirrored, topic, 0) == (100, 0, "exact", 0)
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.set_back(copy)
    write(mirrored, topic, named("other", 50, 100))
    assert mirrored.catch_up().halted
    missing = set(mirrored_values(mirrored.source, topic)) - set(mirrored_values(mirrored.target, topic))
    through, lag, _, _ = said(mirrored, topic, 60)
    assert (through, lag, len(missing)) == (50, 50, 50)


def mirrored_values(side: Side, topic: str) -> list[bytes | None]:
    return [record.value for record in side.read(topic)]


def test_what_a_source_that_is_set_back_holds_counts_while_something_else_halts_its_partition(
    mirrored: Mirrored, tmp_path: Path
) -> None:
    """A running mirror looks at the ends of its log, and fetches none of it: whoever asks compares."""
    topic, copy = mirrored.name("rejected"), tmp_path / "copy"
    mirrored.source.create(topic, max_message_bytes="4000000")
    write(mirrored, topic, named("first", 0, KEPT))
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(copy)
    write(mirrored, topic, [*named("second", KEPT, THROUGH), os.urandom(2_000_000)])
    with ClusterAdmin("primary", ClusterConfig(bootstrap_servers=mirrored.source.bootstrap)) as admin:
        admin.set_topic_configs(topic, {"max.message.bytes": "1000000"})  # so the target's limit is lower, too
    with mirrored.running() as running:
        wait_until(lambda: mirrored.problems("record_rejected"), 60, "the problem")
        with stopped(mirrored.lab, "primary-1") as disk:
            disk.set_back(copy)
        write(mirrored, topic, named("other", KEPT, GROWN))
        tp = TopicPartition(topic, 0)
        wait_until(lambda: mirrored.store.watermarks(mirrored.link.id)[tp].source_end == GROWN, 60, "the mirror's look")
        through, lag, certainty, _ = said(mirrored, topic, KEPT + 50)
        assert lag >= GROWN - KEPT
        assert through <= KEPT
        assert certainty == "conservative"
    assert running.error is None


@pytest.mark.parametrize("callables", ["here", "elsewhere"])
def test_of_a_link_that_alters_records_a_source_that_was_set_back_is_seen_without_a_mirror(
    mirrored: Mirrored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, callables: str
) -> None:
    """Where no batch is known, its last records are compared as the link makes them; where that can't be asked, no
    number is claimed."""
    name = f"louder_{callables}"
    module = tmp_path / f"{name}.py"
    module.write_text("def louder(record):\n    return record.replace(value=record.value.upper())\n")
    monkeypatch.syspath_prepend(tmp_path)
    mirrored.configure(f'transform = "{name}:louder"\nprovenance = true')
    topic, copy = mirrored.name("altered"), tmp_path / "copy"
    mirrored.source.create(topic)
    write(mirrored, topic, named("first", 0, KEPT))
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(copy)
    write(mirrored, topic, named("second", KEPT, GROWN))
    assert mirrored.catch_up().caught_up
    assert said(mirrored, topic, KEPT + 50) == (GROWN, 0, "exact", KEPT + 50)
    mark = mirrored.store.watermarks(mirrored.link.id)[TopicPartition(topic, 0)]
    assert mark.source_batch is not None
    mirrored.store.put_watermarks(mirrored.link.id, [replace(mark, source_batch=None)])
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.set_back(copy)
    write(mirrored, topic, named("other", KEPT, GROWN))
    if callables == "here":
        assert said(mirrored, topic, KEPT + 50) == (KEPT, GROWN - KEPT, "conservative", KEPT)
    else:
        module.unlink()
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, name)
        (status,) = link_statuses(mirrored.config, mirrored.store, [mirrored.link])
        (partition,) = (each for each in status.partitions if each.topic == topic)
        assert partition.lag_records is None
        assert "whether primary still holds what was mirrored is not known" in (partition.lag_reason or "")
        assert name in (partition.lag_reason or "")
        assert status.recovery_point.records is None


@pytest.mark.parametrize(
    "alters", ['filter = "callables_:keep"', 'transform = "callables_:louder"', "provenance = true"]
)
@pytest.mark.parametrize("running", [True, False], ids=["running", "down"])
def test_of_a_link_that_alters_records_a_mirror_continues_no_source_that_was_set_back(
    mirrored: Mirrored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alters: str, running: bool
) -> None:
    topics = altering(mirrored, tmp_path, monkeypatch, alters)
    whole = topics("whole")
    only_left_out = topics("left-out") if "filter" in alters else None
    everything = {whole: (b"kept", b"kept", b"kept"), only_left_out: (b"left-out", b"left-out", b"kept")}
    everything.pop(None, None)
    copy = tmp_path / "copy"
    for topic, (first, _, _) in everything.items():
        write(mirrored, topic, named(f"{first.decode()} first", 0, KEPT))
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(copy)
    for topic, (_, second, _) in everything.items():
        write(mirrored, topic, named(f"{second.decode()} second", KEPT, THROUGH))
    for _ in mirroring(mirrored, everything, running=running):
        with stopped(mirrored.lab, "primary-1") as disk:
            disk.set_back(copy)
        for topic, (_, _, third) in everything.items():
            write(mirrored, topic, named(f"{third.decode()} third", KEPT, THROUGH))
        if running:
            for topic in everything:
                assert mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic).returncode == 0
            halted = wait_until(lambda: len(mirrored.problems("foreign_writer")) == len(everything), what="problems")
            assert halted
    for _ in ("status alone", "behind a mirror"):
        for topic in everything:
            through, lag, certainty, _ = said(mirrored, topic, KEPT + 50)
            assert lag >= THROUGH - KEPT
            assert through <= KEPT
            assert certainty == "conservative"
        ended = mirrored.drkit("mirror", "--until-caught-up")
        assert ended.returncode == 1, ended.stderr
    assert {p.topic for p in mirrored.problems("foreign_writer") if p.halted} == set(everything)


ENDS, LOST = [THROUGH, THROUGH + 30, THROUGH - 30], ["left out", "aborted", "carried"]
WAYS = product(ENDS, ["compact", "delete"], [True, False], LOST)
"""To what end the source grows, what it cleans up, whether a mirror is running, and what was read last."""


@pytest.mark.parametrize(
    ("grown", "policy", "running", "lost"), sampled("sources set back", [pytest.param(*way) for way in WAYS], 2)
)
def test_what_a_source_that_was_set_back_holds_where_it_held_what_was_mirrored_last_counts(
    mirrored: Mirrored,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    grown: int,
    policy: str,
    running: bool,
    lost: str,
) -> None:
    """Where all that was read last was left out or aborted, nothing on the target says what stood there."""
    altering(mirrored, tmp_path, monkeypatch, 'filter = "callables_:keep"' if lost == "left out" else "")
    topic, copy = mirrored.name(f"{policy}-{grown}"), tmp_path / "copy"
    mirrored.source.create(topic, cleanup_policy=policy)
    write(mirrored, topic, named("kept first", 0, 500), keyed=True)
    write(mirrored, topic, named("left-out first", 500, KEPT), keyed=True)
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(copy)
    if lost == "aborted":
        abort(mirrored, topic, named("aborted", KEPT, THROUGH - 1))
    else:
        write(mirrored, topic, named("left-out second", KEPT, THROUGH), keyed=True)
    for _ in mirroring(mirrored, [topic], running=running):
        with stopped(mirrored.lab, "primary-1") as disk:
            disk.set_back(copy)
        write(mirrored, topic, named("kept third", KEPT, grown), keyed=True)
        if running:
            assert mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic).returncode == 0
            wait_until(lambda: any(p.halted for p in mirrored.problems()), 60, "the partition is halted")
    for _ in ("status alone", "behind a mirror"):
        through, lag, certainty, _ = said(mirrored, topic, KEPT + 50)
        assert lag >= grown - KEPT
        assert through <= KEPT
        assert certainty == "conservative"
        assert mirrored.drkit("failover", "--to", "dr", "--dry-run").returncode == 3
        assert mirrored.drkit("mirror", "--until-caught-up").returncode == 1


@pytest.mark.parametrize("running", [True, False], ids=["running", "down"])
@pytest.mark.parametrize("lost", ["left out", "aborted"])
def test_what_a_source_that_was_set_back_holds_below_the_last_records_of_the_target_counts(
    mirrored: Mirrored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: bool, lost: str
) -> None:
    """It holds nothing that the link carries where the last records on the target are from."""
    altering(mirrored, tmp_path, monkeypatch, 'filter = "callables_:keep"' if lost == "left out" else "")
    topic, copy = mirrored.name("below"), tmp_path / "copy"
    mirrored.source.create(topic, cleanup_policy="compact")
    write(mirrored, topic, named("kept first", 0, 500), keyed=True)
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(copy)
    write(mirrored, topic, named("kept second", 500, THROUGH), keyed=True)
    for _ in mirroring(mirrored, [topic], running=running):
        with stopped(mirrored.lab, "primary-1") as disk:
            disk.set_back(copy)
        write(mirrored, topic, named("kept third", 500, 550), keyed=True)
        if lost == "left out":
            write(mirrored, topic, named("left-out third", 550, THROUGH), keyed=True)
        else:
            abort(mirrored, topic, named("aborted", 550, THROUGH - 1))
        if running:
            assert mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic).returncode == 0
            wait_until(lambda: any(p.halted for p in mirrored.problems()), 60, "the partition is halted")
    for _ in ("status alone", "behind a mirror"):
        through, lag, certainty, _ = said(mirrored, topic, 550)
        assert lag >= 50
        assert through <= 500
        assert certainty == "conservative"
        assert mirrored.drkit("failover", "--to", "dr", "--dry-run").returncode == 3
        assert mirrored.drkit("mirror", "--until-caught-up").returncode == 1


def abort(mirrored: Mirrored, topic: str, values: list[bytes]) -> None:
    """Write a transaction that aborts: these records, and a marker."""
    producer = mirrored.source.producer(transactional_id=topic)
    producer.init_transactions(30)
    producer.begin_transaction()
    end = mirrored.source.end(topic) + len(values) + 1
    for value in values:
        producer.produce(topic, value=value, key=value, partition=0)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)
    wait_until(lambda: mirrored.source.end(topic) == end, what="the marker")


def test_what_a_source_that_was_set_back_holds_where_the_targets_cleaner_worked_counts(
    mirrored: Mirrored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target has a later record with the key of what it lacks, but not from where the source's log goes on now."""
    altering(mirrored, tmp_path, monkeypatch, 'filter = "callables_:keep"')
    topic, copy = mirrored.name("cleaned"), tmp_path / "copy"
    mirrored.source.create(topic, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.0001")
    write(mirrored, topic, named("kept first", 0, 500), keyed=True)
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(copy)
    twice = named("kept twice", 0, 50)
    for again in range(3):
        write(mirrored, topic, twice, keyed=True)
        assert mirrored.catch_up().caught_up
        write(mirrored, topic, named("kept second", 50 * again, 50 * again + 50), keyed=True)
        assert mirrored.catch_up().caught_up
    wait_until(lambda: values(mirrored, topic).count(twice[0]) == 1, 120, "the cleaner")
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.set_back(copy)
    write(mirrored, topic, twice, keyed=True)
    write(mirrored, topic, named("left-out third", 550, 800), keyed=True)
    for _ in ("status alone", "behind a mirror"):
        through, lag, certainty, _ = said(mirrored, topic, 550)
        assert lag >= 50
        assert through <= 500
        assert certainty == "conservative"
        assert mirrored.drkit("mirror", "--until-caught-up").returncode == 1


def altering(mirrored: Mirrored, folder: Path, monkeypatch: pytest.MonkeyPatch, alters: str) -> Callable[[str], str]:
    """Configure a link that alters records; returns what creates a topic."""
    name = f"callables_{folder.name.replace('-', '_')}"
    (folder / f"{name}.py").write_text(
        "def keep(record):\n    return record.value.startswith(b'kept')\n\n"
        "def louder(record):\n    return record.replace(value=record.value.upper())\n"
    )
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    mirrored.configure(alters.replace("callables_", name))

    def create(what: str) -> str:
        topic = mirrored.name(what)
        mirrored.source.create(topic)
        return topic

    return create


def mirroring(mirrored: Mirrored, topics: Iterable[str], *, running: bool) -> Iterator[None]:
    """Mirror everything; then, while the mirror is down, or runs and holds these topics."""
    if not running:
        assert mirrored.catch_up().caught_up
        yield
        return
    with mirrored.running() as mirror:
        for topic in topics:
            mirrored.wait_through(topic)
            # paused, so that it doesn't read before the source has grown again
            assert mirrored.drkit("link", "pause", str(mirrored.link.id), "--topic", topic).returncode == 0
        yield
    assert mirror.error is None


@pytest.mark.parametrize("grow", [True, pytest.param(False, marks=pytest.mark.long)], ids=["grown", "shorter"])
def test_a_running_mirror_reads_nothing_of_a_log_that_was_cut(mirrored: Mirrored, grow: bool) -> None:
    topic = mirrored_topic(mirrored, "running")
    with mirrored.running() as running:
        mirrored.wait_through(topic)
        cut(mirrored, topic, grow=grow)
        wait_until(lambda: mirrored.problems(KIND), what="the problem")
    assert running.error is None
    assert_stands_still(mirrored, topic)


def test_a_second_cut_further_down_under_a_standing_problem(mirrored: Mirrored) -> None:
    """A running mirror looks again at what stands still; while none runs, status and translate look themselves."""
    topic = mirrored_topic(mirrored, "twice")
    with mirrored.running() as running:
        mirrored.wait_through(topic)
        cut(mirrored, topic)
        wait_until(lambda: mirrored.problems(KIND), what="the problem")
        cut_again(mirrored, topic, 700, GROWN)
        wait_until(lambda: mirrored.problems(KIND)[0].unsure_from == 700, what="the lower place")
        assert said(mirrored, topic, 800) == (700, GROWN - 700, "conservative", 700)
    assert running.error is None
    assert "lost offsets 700 to 999" in mirrored.problems(KIND)[0].reason
    cut_again(mirrored, topic, 400, 450)
    assert said(mirrored, topic, 500) == (400, 50, "conservative", 400)
    with ClusterContext(mirrored.config, mirrored.store) as estate:
        (problem,) = observe(estate, mirrored.link).problems
    assert problem.unsure_from == 400
    assert mirrored.problems(KIND)[0].unsure_from == 700, "a look writes nothing"
    assert values(mirrored, topic) == named("first", 0, THROUGH)


def test_a_former_leader_that_comes_back_with_a_longer_log(mirrored: Mirrored) -> None:
    """Its tail was nobody else's, and it never had the epoch of what was mirrored last: no epoch ends too low."""
    topic = mirrored_topic(mirrored, "former")
    with stopped(mirrored.lab, "primary-1") as disk:
        former = disk.batches(topic, 0)[-1].leader_epoch
    write(mirrored, topic, named("newer", THROUGH, GROWN))
    assert mirrored.catch_up().caught_up
    with stopped(mirrored.lab, "primary-1") as disk:
        assert disk.cut(topic, 0, THROUGH) == THROUGH
        rows = [(1_700_000_000_000, None, value, []) for value in named("former", THROUGH, GROWN + 10)]
        assert disk.append(topic, 0, batch_bytes(rows), former) == GROWN + 10
    assert mirrored.source.end(topic) == GROWN + 10
    (halted,) = mirrored.catch_up().halted
    assert halted.kind == KIND
    assert "doesn't know leader epoch" in halted.reason
    assert values(mirrored, topic) == named("first", 0, THROUGH) + named("newer", THROUGH, GROWN)


def _accept(mirrored: Mirrored, topic: str) -> None:
    told = mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic, "--accept-recreated")
    assert told.returncode == 0, told.stderr


def _accept_without_the_old(mirrored: Mirrored, topic: str) -> None:
    mirrored.target.delete(topic)
    _accept(mirrored, topic)


@pytest.mark.parametrize(
    ("accept", "stays"), [(_accept_without_the_old, 0), (_accept, THROUGH)], ids=["deleted", "kept"]
)
def test_what_the_operator_is_told_leads_on(
    mirrored: Mirrored, accept: Callable[[Mirrored, str], None], stays: int
) -> None:
    topic = mirrored_topic(mirrored, "accepted")
    assert mirrored.catch_up().caught_up
    cut(mirrored, topic)
    (halted,) = mirrored.catch_up().halted
    assert f"{THROUGH} offsets of partition 0, which stay" in halted.remedy
    assert mirrored.drkit("link", "resume", str(mirrored.link.id), "--topic", topic).returncode == 0
    assert [each.kind for each in mirrored.catch_up().halted] == [KIND], "trying again doesn't accept it"
    accept(mirrored, topic)
    report = mirrored.catch_up()
    assert report.caught_up
    assert not report.halted
    assert not mirrored.problems()
    ours = [record.value for record in mirrored.source.read(topic)]
    assert ours == named("first", 0, KEPT) + named("other", KEPT, GROWN)
    assert values(mirrored, topic) == named("first", 0, stays) + ours


def test_a_topic_that_is_accepted_while_both_sides_are_compared_continues(
    mirrored: Mirrored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they showed is about the former topic: it doesn't halt what the operator has accepted since."""
    topic, copy = mirrored.name("accepted-meanwhile"), tmp_path / "copy"
    mirrored.source.create(topic)
    write(mirrored, topic, named("first", 0, KEPT))
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.copy_to(copy)
    write(mirrored, topic, named("second", KEPT, THROUGH))
    assert mirrored.catch_up().caught_up
    with stopped(mirrored.lab, "primary-1") as disk:
        disk.set_back(copy)
    write(mirrored, topic, named("third", KEPT, THROUGH))
    compared, compare = [], Resumer._first_difference

    def accepting(resumer: Resumer, seen: Observed) -> tuple[str, int] | None:
        found = compare(resumer, seen)
        if not compared:
            _accept(mirrored, topic)
        compared.append(found)
        return found

    monkeypatch.setattr(Resumer, "_first_difference", accepting)
    with mirrored.running() as running:
        wait_until(lambda: compared, what="the acceptance")
        wait_until(lambda: mirrored.through(topic) == THROUGH and not mirrored.problems(), what="the accepted topic")
    assert running.error is None
    assert [found is not None for found in compared] == [True]
    third = named("first", 0, KEPT) + named("third", KEPT, THROUGH)
    assert values(mirrored, topic) == named("first", 0, KEPT) + named("second", KEPT, THROUGH) + third
