"""Unplanned failover on real clusters; what it did is read back by plain clients."""

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from drkit.config import Objectives
from drkit.drill.environment.log_surgery import stopped
from drkit.failover.context.evidence import missed_objectives, unproven_objectives
from drkit.failover.context.state_machine import Mode, StageOutcome, State
from drkit.failover.journal.run_record import load_run
from drkit.failover.plan.failover_plan import same_decision
from drkit.failover.planning import failover_planner
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.positions.positions import Strategy
from drkit.failover.run.run_document import run_document
from drkit.failover.run.service import plan_again, resume_run, run_failover, standing_obstacles
from drkit.failover.snapshot.point_in_time import TimeBasis, parse_moment
from drkit.failover.snapshot.selection import Selection
from drkit.failover.snapshot.take_snapshot import observe
from drkit.failover.stages import fence_stages
from drkit.failover.stages.audited_loss import complete_evidence
from drkit.failover.stages.fence_stages import Fence
from drkit.mirror.control import accept_recreated
from drkit.model.clock import iso, now
from drkit.model.errors import ConfigError, PartlyDone, Refused, StalePlan
from drkit.model.link_state import Direction
from drkit.model.offsets import Certainty
from drkit.model.topology import TopicPartition
from drkit.observe.status import link_statuses
from drkit.store.workers import mirror_at_work
from tests.support.clusters.topics import delete_records
from tests.support.collection.sampling import some_of
from tests.support.commands.kafka_tools import consumer_groups
from tests.support.links.estates import TIMEOUT, mirror, mirroring, own_link, texts, without_primary
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("unplanned failovers", 4)]


def away(own, config=None, **asked):
    """Plan and carry out, as an operator who accepts that the primary can't be fenced."""
    with own.estate(config) as estate:
        plan = make_plan(estate, PlanRequest("dr", **asked))
        return plan, run_failover(estate, plan, accept_unfenced=True)


def reached(own, offset):
    """Whether the store says that every partition is mirrored up to this offset."""
    marks = own.store.watermarks(own.link.id).values()
    return bool(marks) and all(mark.source_through >= offset for mark in marks)


@pytest.fixture
def flights(own):
    """100 records on each of 3 partitions mirrored, 10 more not; groups that stand everywhere."""
    topic = own.create("primary", "flights", partitions=3)
    own.produce("primary", topic, texts("early", 100, range(3)))
    groups = {
        "uptodate": {0: 100, 1: 100, 2: 100},
        "lagging": {0: 7, 1: 50, 2: 0},
        "partial": {1: 30},
    }
    names = {group: own.commit("primary", group, topic, offsets) for group, offsets in groups.items()}
    mirror(own)
    own.produce("primary", topic, texts("late", 10, range(3)))
    names["ahead"] = own.commit("primary", "ahead", topic, {0: 110, 1: 104, 2: 100})
    return topic, names


def test_by_mapping_every_group_finds_exactly_what_it_had_not_read(own, flights):
    topic, names = flights
    unread = {group: own.unread("primary", names[group], topic) for group in names}
    plan, result = away(own)
    assert result.error is None
    assert result.machine.state is State.CLOSED
    assert same_decision(result.positions, plan.positions)
    mirrored = {partition: set(values) for partition, values in own.values("dr", topic).items()}
    for group, name in names.items():
        assert own.unread("dr", name, topic) == {
            partition: [value for value in values if value in mirrored[partition]]
            for partition, values in unread[group].items()
        }, group
    by_place = {(p.group, p.partition): p for p in result.positions}
    assert [by_place[names["ahead"], p].lost for p in range(3)] == [10, 4, 0]
    assert by_place[names["ahead"], 0].translation is Certainty.CONSERVATIVE
    assert all(p.translation is Certainty.EXACT for p in result.positions if p.group != names["ahead"])
    assert all(p.reread == 0 and p.skipped == 0 for p in result.positions)
    assert {p.strategy for p in result.positions if p.group == names["lagging"]} == {Strategy.PRESERVED}
    assert (names["partial"], 0) not in by_place
    assert any(f"{names['partial']} never committed on {topic}:0, {topic}:2" in text for text in plan.warnings)
    assert result.evidence.rpo_records == 30
    assert result.evidence.fenced is False
    assert own.store.link_control(own.link.id).direction is Direction.SEALED
    assert own.store.link_control(own.link.id).run == result.run


def test_with_the_primary_gone_what_was_last_seen_decides(own, flights):
    topic, names = flights
    with mirroring(own):  # the mirror sees the 30 late records and the group ahead, and brings them over
        wait_until(lambda: reached(own, 110), what="the mirror to bring the late records over")
        wait_until(
            lambda: any(p.group == names["ahead"] for p in own.store.group_positions(own.link.id)), what="the capture"
        )
    plan, result = away(own, without_primary(own))
    assert result.error is None
    assert not plan.source.reachable
    assert result.evidence.rpo_records == 0
    assert result.evidence.rpo_lower_bound, "nobody has looked since"
    assert result.evidence.rpo_seconds > 0
    assert own.committed("dr", names["ahead"]) == {(topic, 0): 110, (topic, 1): 104, (topic, 2): 100}
    assert "did not answer" in result.machine.facts.fence_reason


def test_what_is_written_while_nobody_looks_is_not_claimed_to_be_nothing(own, flights):
    """The mirror is dead, records are acknowledged, the primary goes: how many were lost is known once it is back."""
    topic, _names = flights
    objectives = Objectives(rpo_records=1_000_000, rpo_seconds=3600.0)
    looked = min(mark.observed_at for mark in own.store.watermarks(own.link.id).values())
    with own.estate(without_primary(own)) as estate:
        assert make_plan(estate, PlanRequest("dr")).loss.lower_bound
    _plan, result = away(own, without_primary(own))
    evidence = result.evidence
    fenced_at = result.machine.facts.fenced_at
    assert (evidence.rpo_records, evidence.rpo_lower_bound, evidence.rpo_basis) == (0, True, "observed")
    assert evidence.rpo_seconds >= (fenced_at - looked).total_seconds()
    assert "does not answer" in evidence.rpo_reason
    (unproven,) = unproven_objectives(evidence, objectives)
    assert "0 or more" in unproven
    assert missed_objectives(evidence, objectives) == []

    own.produce("primary", topic, {0: ["written by one that was not fenced"]})
    with own.estate() as estate:
        loss = complete_evidence(estate, own.link)
        assert (loss.records, loss.lower_bound, loss.basis) == (31, False, "audited")
        assert complete_evidence(estate, own.link) is None, "it is known now"
    audited = load_run(own.store, result.run).machine.facts.loss
    assert (audited.records, audited.basis) == (31, "audited")
    assert "not fenced" in audited.reason


def test_of_a_topic_accepted_as_a_new_one_nothing_counts_as_mirrored_until_it_is(own, flights):
    """What was mirrored of the former topic of its name says nothing, wherever it is asked."""
    topic, _names = flights
    with own.estate() as estate:
        source, target = (estate.admin(alias) for alias in ("primary", "dr"))
        accept_recreated(own.store, own.link, topic, source=source, target=target)
    status = link_statuses(own.config, own.store, [own.link])[0]
    assert {(each.mirrored_through, each.lag_records) for each in status.partitions} == {(None, 110)}
    assert status.recovery_point.records == 330
    assert {each.translation for each in status.groups} == {Certainty.UNAVAILABLE}
    gone = link_statuses(without_primary(own), own.store, [own.link])[0]
    assert {(each.mirrored_through, each.lag_records) for each in gone.partitions} == {(None, None)}
    assert gone.recovery_point.records is None
    assert "nothing was recorded" in gone.recovery_point.reason
    plan, result = away(own, without_primary(own))
    assert plan.loss.records is result.evidence.rpo_records is None
    with own.estate() as estate:
        loss = complete_evidence(estate, own.link)
    assert (loss.records, loss.basis, loss.upper_bound, loss.lower_bound) == (330, "audited", True, False)
    assert f"{topic} was accepted as a new topic and is not all mirrored since" in loss.reason


@pytest.mark.usefixtures("flights")
def test_where_the_clock_was_set_back_since_the_last_look_no_age_is_claimed(own):
    """As after a step of NTP, or where the mirror's host has another time: the newest looks lie ahead of now."""
    marks = own.store.watermarks(own.link.id).values()
    ahead = [replace(mark, observed_at=mark.observed_at + timedelta(hours=1)) for mark in marks]
    own.store.put_watermarks(own.link.id, ahead)
    gone = without_primary(own)
    (status,) = link_statuses(gone, own.store, [own.link])
    assert (status.recovery_point.records, status.recovery_point.seconds) == (0, None)
    assert "one was set back" in status.recovery_point.reason
    _plan, result = away(own, gone)
    evidence = result.evidence
    assert (evidence.rpo_records, evidence.rpo_seconds, evidence.rpo_lower_bound) == (0, None, True)
    assert "by a clock that is ahead" in evidence.rpo_reason
    (unproven,) = unproven_objectives(evidence, Objectives(rpo_seconds=3600.0))
    assert "RPO in seconds is not known" in unproven


def test_what_the_target_no_longer_has_counts_as_lost(own, lab):
    """Purged there, deleted there, or never mirrored since the source lost its end: no mirror runs that would tell."""
    purged, deleted, cut = (own.create("primary", name, partitions=1) for name in ("purged", "deleted", "cut"))
    for topic in (purged, deleted, cut):
        for batch in range(6):
            own.produce("primary", topic, texts(f"{batch}", 10, [0]))
    own.commit("primary", "reader", cut, {0: 20})
    mirror(own)
    target = AdminClient(own.client("dr"))
    delete_records(target, purged, 25)
    with own.estate(without_primary(own)) as estate:
        loss = make_plan(estate, PlanRequest("dr")).loss
    assert (loss.records, loss.lower_bound) == (0, True)
    assert f"{purged}:0 on dr lacks source offsets 0 to 24" in loss.reason, "nobody can be asked whether it is a loss"
    target.delete_topics([deleted])[deleted].result(TIMEOUT)
    with stopped(lab, "primary-1") as disk:
        kept = disk.cut(cut, 0, 40)
    assert 0 < kept <= 40
    own.produce("primary", cut, texts("later", 60, [0]))
    lost = {purged: 25, deleted: 60, cut: 60}
    plan, result = away(own)
    for loss in (plan.loss, result.machine.facts.loss):
        assert {each.topic: each.records for each in loss.by_topic} == lost
        assert (loss.records, loss.lower_bound, loss.reason) == (145, False, None)
    assert result.evidence.rpo_records == 145
    (status,) = link_statuses(own.config, own.store, [own.link])
    assert {each.topic: each.lag_records for each in status.partitions} == lost, "and it stays so"


def test_what_the_source_had_lost_before_it_was_lost_itself_is_no_loss(own, lab):
    """Nor for a group that had read it: the target has it. Counted again once the primary is back."""
    topic = own.create("primary", "cut", partitions=1)
    for batch in range(10):
        own.produce("primary", topic, texts(f"{batch}", 10, [0]))
    ahead, below = own.commit("primary", "ahead", topic, {0: 100}), own.commit("primary", "below", topic, {0: 20})
    tp = TopicPartition(topic, 0)
    with mirroring(own):
        wait_until(lambda: (mark := own.store.watermarks(own.link.id).get(tp)) and mark.source_through == 100)
        wait_until(lambda: len(own.store.group_positions(own.link.id)) == 2, what="the groups")
        with stopped(lab, "primary-1") as disk:
            kept = disk.cut(topic, 0, 60)
        wait_until(lambda: own.store.watermarks(own.link.id)[tp].source_end == kept, what="the end that is left")
        own.produce("primary", topic, texts("later", 5, [0]))
        wait_until(lambda: own.store.watermarks(own.link.id)[tp].source_end == kept + 5, what="what came since")
    plan, result = away(own, without_primary(own))
    for loss in (plan.loss, result.machine.facts.loss):
        assert (loss.records, loss.lower_bound, loss.upper_bound) == (5, True, True)
    for positions in (plan.positions, result.positions):
        lost = {each.group: (each.target_offset, each.lost, each.reread_bound) for each in positions}
        assert lost == {ahead: (kept, 5, 100 - kept), below: (20, 0, 80)}
    with own.estate() as estate:
        loss = complete_evidence(estate, own.link)
    assert (loss.records, loss.lower_bound, loss.upper_bound, loss.basis) == (5, False, False, "audited")


def test_unless_told_otherwise_the_backlog_of_a_primary_that_answers_is_brought_over(lab, tmp_path, unique_name):
    slow = own_link(lab, tmp_path, unique_name, extra="max_bytes_per_second = 10000")
    try:
        topic = slow.create("primary", "t")
        with mirroring(slow):
            wait_until(lambda: slow.store.watermarks(slow.link.id), what="the mirror to begin")
            for batch in range(10):
                slow.produce("primary", topic, texts(f"{batch}" * 100, 40))
            plan, result = away(slow, catch_up=True)
        assert plan.catch_up
        assert plan.loss.records > 0, "the mirror is behind when the failover is planned"
        assert result.error is None
        assert (result.evidence.rpo_records, result.evidence.rpo_lower_bound) == (0, False)
        assert slow.values("dr", topic) == slow.values("primary", topic)
        assert "the mirror has copied everything that primary held" in result.stages[0].reason
    finally:
        slow.store.close()


def test_a_primary_that_freezes_for_a_moment_is_waited_for_all_the_same(lab, tmp_path, unique_name, monkeypatch):
    slow = own_link(lab, tmp_path, unique_name, extra="max_bytes_per_second = 10000")
    looks = []

    def look(*given, **more):
        snapshot = observe(*given, **more)
        looks.append(snapshot.source.reachable)
        if len(looks) == 1:
            lab.pause("primary")
        elif looks.count(False) == 1 and not looks[-1]:
            lab.resume("primary")
        return snapshot

    try:
        topic = slow.create("primary", "t")
        with mirroring(slow):
            wait_until(lambda: slow.store.watermarks(slow.link.id), what="the mirror to begin")
            for batch in range(10):
                slow.produce("primary", topic, texts(f"{batch}" * 100, 40))
            monkeypatch.setattr(fence_stages, "observe", look)
            _plan, result = away(slow, catch_up=True)
        assert False in looks
        assert result.error is None
        assert "the mirror has copied everything that primary held" in result.stages[0].reason
        assert slow.values("dr", topic) == slow.values("primary", topic)
    finally:
        lab.resume("primary")
        slow.store.close()


@contextmanager
def open_transaction(own, topic):
    """A transaction that has written one record and isn't ended while the block lasts: nobody reads what follows it."""
    producer = Producer({**own.client("primary"), "transactional.id": f"{own.name}.open", "linger.ms": 0})
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=0)
    producer.flush(TIMEOUT)
    try:
        yield
    finally:
        producer.abort_transaction(TIMEOUT)


def test_what_an_open_transaction_holds_back_is_no_zero_loss(own, monkeypatch):
    """Acknowledged records stand behind it, and the last stable offset says that nothing is missing."""
    topic = own.create("primary", "held", 1)
    own.produce("primary", topic, texts("early", 10, [0]))
    group = own.commit("primary", "g", topic, {0: 10})
    with open_transaction(own, topic):
        own.produce("primary", topic, texts("behind", 20, [0]))
        mirror(own)
        with own.estate() as estate:
            assert {
                each.what.split(" of ")[0] for each in make_plan(estate, PlanRequest("dr", catch_up=True)).obstacles
            } >= {"21 records"}
        monkeypatch.setattr(failover_planner, "Fence", partial(Fence, seconds=2.0))
        with mirroring(own):
            with own.estate() as estate:
                wait_until(lambda: mirror_at_work(estate.store, own.link.id), what="the mirror")
            _plan, kept = away(own, catch_up=True)
            assert isinstance(kept.error, Refused)
            assert "21 records of primary would be lost although it answers" in kept.error.what
            assert f"open transactions hold back {topic}:0" in kept.error.what
            assert "find-hanging" in kept.error.remedy
            assert kept.machine.state is State.CANCELLED
        plan, result = away(own)
        assert any("21 records at most" in warning and "open transactions" in warning for warning in plan.warnings)
    evidence = result.evidence
    assert (evidence.rpo_records, evidence.rpo_lower_bound) == (21, False)
    assert "21 offsets of them stand behind open transactions" in evidence.rpo_reason
    assert missed_objectives(evidence, Objectives(rpo_records=0))
    assert own.values("dr", topic) == texts("early", 10, [0])
    assert own.committed("dr", group) == {(topic, 0): 10}


def test_a_primary_that_hangs_costs_no_more_than_the_patience(own, lab):
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 5))
    name = own.commit("primary", "g", topic, {0: 3})
    mirror(own)
    lab.pause("primary")
    try:
        _plan, result = away(own)
    finally:
        lab.resume("primary")
    assert result.error is None
    assert own.committed("dr", name) == {(topic, 0): 3}


def test_by_time_nothing_unread_is_skipped_and_late_stamps_are_not_lost(own):
    topic = own.create("primary", "t", partitions=1)
    start = int(time.time() * 1000) - 600_000
    own.produce("primary", topic, {0: [f"on-time-{n}" for n in range(20)]}, stamp=start)
    own.produce("primary", topic, {0: ["slow-clock"]}, stamp=start - 3_600_000)  # at 20, stamped an hour before
    own.produce("primary", topic, {0: [f"after-{n}" for n in range(20)]}, stamp=start + 20_000)
    caught_up = own.commit("primary", "caught-up", topic, {0: 41})
    reads = own.commit("primary", "at-the-slow-clock", topic, {0: 20})
    lagging = own.commit("primary", "lagging", topic, {0: 4})
    mirror(own)
    at = parse_moment(
        f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime((start + 30_000) / 1000 + 1))}Z", now=now(), timezone="UTC"
    )
    _plan, result = away(own, at=at)
    by_group = {p.group: p for p in result.positions}
    first_since = next(
        offset for offset, value in own.records("dr", topic)[0].items() if value.startswith(("on-time-3", "after-1"))
    )
    assert by_group[caught_up].strategy is Strategy.TIMESTAMP
    assert by_group[caught_up].target_offset >= first_since
    assert by_group[caught_up].reread == 41 - by_group[caught_up].target_offset
    assert by_group[reads].target_offset == 20
    plain = Consumer({**own.client("dr"), "group.id": own.name})  # what Kafka's own tools go by
    (found,) = plain.offsets_for_times([ClientPartition(topic, 0, at.millis)], timeout=TIMEOUT)
    plain.close()
    assert found.offset > 20, "by time alone the slow clock's record would have been skipped"
    assert own.unread("dr", reads, topic)[0][0] == "slow-clock"
    assert by_group[lagging].target_offset == 4
    assert own.committed("dr", lagging) == {(topic, 0): 4}


@pytest.mark.parametrize(("ago", "expected"), [("-30m", 0), ("-1s", 5)])
def test_a_time_before_the_log_or_after_its_end(own, ago, expected):
    topic = own.create("primary", "t", partitions=1)
    own.produce("primary", topic, {0: ["a", "b", "c", "d", "e"]}, stamp=int(time.time() * 1000) - 600_000)
    group = own.commit("primary", "g", topic, {0: 5})
    mirror(own)
    _plan, result = away(own, at=parse_moment(ago, now=now()))
    assert own.committed("dr", group) == {(topic, 0): expected}
    assert result.positions[0].reread == 5 - expected


def test_positions_by_mapping_hold_across_the_holes_of_transactions(own):
    topic = own.create("primary", "t", partitions=1)
    producer = Producer({**own.client("primary"), "transactional.id": own.name})
    producer.init_transactions(TIMEOUT)
    for number in range(6):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, f"{number}.{part}".encode(), partition=0)
        if number % 3 == 1:
            producer.flush(TIMEOUT)
            producer.abort_transaction(TIMEOUT)
        else:
            producer.commit_transaction(TIMEOUT)
    on_primary = own.records("primary", topic)[0]
    groups = {offset: own.commit("primary", f"at-{offset}", topic, {0: offset}) for offset in range(25)}
    mirror(own)
    _plan, result = away(own)
    assert result.error is None
    for offset, group in groups.items():
        expected = [value for place, value in on_primary.items() if place >= offset]
        assert own.unread("dr", group, topic)[0] == expected, offset
    assert all(p.source_offset == p.target_offset for p in result.positions), "the holes are matched by markers"
    assert all(p.reread == 0 and p.skipped == 0 for p in result.positions)


def test_a_running_mirror_is_sealed_off_before_anything_is_committed(own):
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 200))
    group = own.commit("primary", "g", topic, {0: 150, 1: 10})
    stop = threading.Event()

    def write():
        count = 0
        while not stop.is_set():
            own.produce("primary", topic, texts(f"live-{count}", 20))
            count += 1

    with mirroring(own):
        wait_until(lambda: reached(own, 200), what="the mirror to catch up")
        writer = threading.Thread(target=write)
        writer.start()
        try:
            _plan, result = away(own)
        finally:
            stop.set()
            writer.join()
    assert result.error is None
    ends = {partition: len(values) for partition, values in own.values("dr", topic).items()}
    assert {tp.partition: mark.target_end for tp, mark in own.store.watermarks(own.link.id).items()} == ends
    assert own.committed("dr", group) == {(topic, 0): 150, (topic, 1): 10}
    drained = next(stage for stage in result.stages if stage.name == "drain")
    assert drained.outcome is StageOutcome.OK


# -- refusals --------------------------------------------------------------------------------------


def refusals(own, **asked):
    with own.estate() as estate:
        return standing_obstacles(
            make_plan(estate, PlanRequest("dr", **asked)), waived=frozenset({"--accept-unfenced"})
        )


def test_a_group_that_is_active_on_the_target_is_refused_and_nothing_is_changed(own, flights):
    topic, names = flights
    consumer = Consumer({**own.client("dr"), "group.id": names["lagging"], "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), what="the consumer's assignment")
        with own.estate() as estate:
            plan = make_plan(estate, PlanRequest("dr"))
            with pytest.raises(Refused, match=f"{names['lagging']} is active on dr"):
                run_failover(estate, plan, accept_unfenced=True)
    finally:
        consumer.close()
    assert own.store.link_control(own.link.id) is None
    assert own.store.runs() == []
    assert own.committed("dr", names["uptodate"]) == {}
    assert refusals(own) == []


def test_a_group_that_turns_active_after_the_plan_leaves_a_run_that_can_be_resumed(own, flights):
    topic, names = flights
    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        consumer = Consumer({**own.client("dr"), "group.id": names["lagging"], "enable.auto.commit": False})
        try:
            consumer.subscribe([topic])
            wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), what="the consumer's assignment")
            result = run_failover(estate, plan, accept_unfenced=True)
        finally:
            consumer.close()
        assert isinstance(result.error, PartlyDone)
        assert names["lagging"] in result.error.what
        assert f"drkit resume {result.run}" in result.error.remedy
        assert result.machine.state is State.TRANSLATED
        resumed = resume_run(estate, result.run, None)
    assert resumed.error is None
    assert resumed.machine.state is State.CLOSED
    assert own.committed("dr", names["lagging"]) == {(topic, 0): 7, (topic, 1): 50, (topic, 2): 0}


def test_existing_positions_are_not_rewound_without_being_told_to(own, flights):
    topic, names = flights
    own.commit("dr", "lagging", topic, {0: 60, 1: 20})
    (obstacle,) = refusals(own)
    assert obstacle.waived_by == "--allow-rewind"
    assert f"{names['lagging']} on {topic}:0 from 60 to 7" in obstacle.what
    with own.estate() as estate, pytest.raises(Refused, match="would be moved back"):
        run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
    assert refusals(own, selection=Selection(groups=(names["uptodate"],))) == []
    _plan, result = away(own, allow_rewind=True)
    assert result.error is None
    assert own.committed("dr", names["lagging"])[topic, 0] == 7


@pytest.mark.usefixtures("flights")
def test_an_unfenced_primary_needs_the_flag(own):
    with own.estate() as estate, pytest.raises(Refused, match="can't be fenced") as caught:
        run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=False)
    assert "--accept-unfenced" in caught.value.remedy
    assert own.store.link_control(own.link.id) is None


@pytest.mark.usefixtures("flights")
def test_a_second_failover_is_refused_by_the_name_of_the_first(own):
    _plan, first = away(own)
    (obstacle,) = refusals(own)
    assert first.run in obstacle.what


def test_the_groups_left_out_can_be_moved_later(own, flights):
    topic, names = flights
    _plan, first = away(own, selection=Selection(groups=(names["uptodate"],)))
    assert {p.group for p in first.positions} == {names["uptodate"]}
    assert own.committed("dr", names["lagging"]) == {}
    own.produce("dr", topic, texts("written on dr", 25, range(3)))  # clients moved: dr's end is theirs now
    _plan, second = away(own, selection=Selection(groups=(names["lagging"], names["ahead"])))
    assert second.error is None
    assert own.committed("dr", names["lagging"]) == {(topic, 0): 7, (topic, 1): 50, (topic, 2): 0}
    assert own.committed("dr", names["ahead"]) == {(topic, 0): 100, (topic, 1): 100, (topic, 2): 100}


def test_a_link_that_nobody_mirrored_is_refused(own):
    with own.estate() as estate, pytest.raises(Refused, match="holds nothing about"):
        make_plan(estate, PlanRequest("dr"))


@pytest.mark.usefixtures("flights")
def test_unknown_names_are_usage_errors(own):
    with own.estate() as estate:
        with pytest.raises(ConfigError, match="no cluster 'mars'"):
            make_plan(estate, PlanRequest("mars"))
        with pytest.raises(ConfigError, match="no group nobody is known"):
            make_plan(estate, PlanRequest("dr", selection=Selection(groups=("nobody",))))
        with pytest.raises(Refused, match="no link leads to primary") as caught:
            make_plan(estate, PlanRequest("primary"))
        assert "drkit failback" in caught.value.remedy


def test_a_topic_that_vanished_from_the_target_is_unavailable_with_the_reason(own, flights):
    topic, names = flights
    with own.estate() as estate:
        estate.admin("dr").delete_topics([topic])
        plan = make_plan(estate, PlanRequest("dr"))
    assert plan.positions
    assert all(p.target_offset is None and "is not on dr" in p.reason for p in plan.positions)
    assert any("have no place on dr" in warning for warning in plan.warnings)
    assert names


def test_a_plan_is_applied_only_while_the_world_matches(own, flights):
    topic, names = flights
    with own.estate() as estate:
        planned = make_plan(estate, PlanRequest("dr"))
        assert plan_again(estate, planned).digest == planned.digest
        own.commit("primary", "lagging", topic, {0: 9})
        with pytest.raises(StalePlan) as caught:
            plan_again(estate, planned)
    assert f"{names['lagging']} on {topic}:0 would now go to 9, not 7" in caught.value.what


@pytest.mark.cassandra
@pytest.mark.usefixtures("flights")
def test_cassandra_and_sqlite_give_the_same_positions(own, lab, cassandra_url, tmp_path):
    folder = tmp_path / "cassandra"
    folder.mkdir()
    other = own_link(lab, folder, own.name, cassandra_url)
    source, target, link = own.store, other.store, own.link.id
    try:
        target.put_topic_states(link, list(source.topic_states(link).values()))
        for tp, mark in source.watermarks(link).items():
            target.append_mappings(link, source.mappings(link, tp, mark.epoch))
        target.put_watermarks(link, list(source.watermarks(link).values()))
        target.put_group_positions(link, source.group_positions(link))
        at = parse_moment("-1s", now=now())
        for asked in ({}, {"at": at}):
            with own.estate() as here, other.estate() as there:
                one, two = make_plan(here, PlanRequest("dr", **asked)), make_plan(there, PlanRequest("dr", **asked))
            assert [replace(p, captured_at=None) for p in one.positions] == [
                replace(p, captured_at=None) for p in two.positions
            ]
            assert one.digest == two.digest
        _plan, result = away(other)
        assert result.error is None
        assert [replace(p, captured_at=None) for p in result.positions] == [
            replace(p, captured_at=None) for p in make_positions(own)
        ]
        assert other.store.link_control(link).direction is Direction.SEALED
        assert other.store.entries(result.run)
    finally:
        other.store.close()


def make_positions(own):
    """What the SQLite side plans, by mapping."""
    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr", mode=Mode.UNPLANNED))
    return [replace(p, existing=None) for p in plan.positions]


def test_groups_go_back_to_where_they_had_committed_at_a_time(own):
    """What the group had read since is read again, whatever its records are stamped; a later group isn't guessed at."""
    topic = own.create("primary", "t", partitions=2, retention_ms="-1")  # the records are old
    own.produce("primary", topic, texts("old", 50, range(2)), stamp=1_000_000)
    name = own.commit("primary", "g", topic, {0: 10, 1: 20})
    with mirroring(own):
        wait_until(lambda: reached(own, 50), what="the records on the target")
        wait_until(lambda: captured_at(own, name) is not None, what="the first capture")
        committed = captured_at(own, name)
        wait_until(lambda: captured_at(own, name) > committed, what="a later look that saw the same")
        then = captured_at(own, name)
        own.commit("primary", "g", topic, {0: 45, 1: 50})
        late = own.commit("primary", "late", topic, {0: 5})
        wait_until(lambda: {45, 50} <= offsets_of(own, name), what="the new positions")
        wait_until(lambda: offsets_of(own, late) == {5}, what="the late group")
        wait_until(lambda: stands_since(own, name, then), what="the timeline")
    when = replace(parse_moment(iso(then), now=now(), option="--committed-at"), basis=TimeBasis.COMMITS)
    plan, result = away(own, without_primary(own), at=when)
    assert result.error is None
    assert own.committed("dr", name) == {(topic, 0): 10, (topic, 1): 20}
    assert own.committed("dr", late) == {}
    moved = {p.partition: p for p in result.positions if p.group == name}
    assert {p.strategy for p in moved.values()} == {Strategy.MAPPING}
    # partition 0's reader may have got further than its last capture says, partition 1's had read all
    assert [(moved[p].reread, moved[p].reread_at_most) for p in (0, 1)] == [(None, 40), (30, None)]
    assert all(f"had committed at {when.local}" in moved[p].reason for p in (0, 1))
    assert all(p.translation is Certainty.EXACT for p in moved.values())
    (unplaced,) = [p for p in result.positions if p.group == late]
    assert unplaced.target_offset is None
    assert "begins at" in unplaced.reason
    assert any(late in warning for warning in plan.warnings)
    (left,) = run_document(result, plan)["without_place"]
    assert (left["group"], [each["partition"] for each in left["partitions"]]) == (late, [0])
    consumer_groups(left["command"])
    assert own.committed("dr", late) == {(topic, 0): 0}


def offsets_of(own, group):
    return {p.offset for p in own.store.group_positions(own.link.id) if p.group == group}


def captured_at(own, group):
    """The moment at which all of the group's positions were surely as they are kept; None: not captured yet."""
    return min((p.captured_at for p in own.store.group_positions(own.link.id) if p.group == group), default=None)


def stands_since(own, group, then):
    """Whether the timeline knows a state of the group after this moment."""
    return any(
        around.group == group and around.then is not None and around.following is not None
        for around in own.store.group_states_around(own.link.id, then)
    )
