"""A failover that was stopped, and whose link somebody has decided otherwise before it is resumed, or wakes up."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from drkit.failover.context.interfaces import AuditVerdict
from drkit.failover.context.state_machine import Mode, State
from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.recovery.abandon import abandon_run
from drkit.failover.recovery.fence_command import lift_fence
from drkit.failover.run.service import cancel_run, resume_run, run_failback, run_failover
from drkit.failover.snapshot.selection import Selection
from drkit.lab import Lab
from drkit.model.errors import PartlyDone, Refused
from drkit.model.link_state import Direction
from tests.support.killing.killed_process import frozen_at
from tests.support.links.estates import TIMEOUT, OwnLink, mirror, mirroring, own_link, texts, without_primary
from tests.support.recovery.failback_ports import reading_ports
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


def say(_text: str) -> None:
    """Nobody watches."""


def opened(own: OwnLink, cluster: str) -> str:
    """A cluster is opened by hand; the run that did."""
    with own.estate() as estate:
        run, proof = lift_fence(estate, own.link, cluster, say, meant=True)
    assert not proof.proven
    return run


@pytest.fixture
def stopped(own: OwnLink) -> tuple[str, str, str]:
    """A topic, a group, and a failover from a dead primary that stopped in its commit, as the group had a member."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 20))
    group = own.commit("primary", "g", topic, {0: 7, 1: 20})
    mirror(own)
    with own.estate(without_primary(own)) as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        reader = Consumer({**own.client("dr"), "group.id": group, "enable.auto.commit": False})
        try:
            reader.subscribe([topic])
            wait_until(lambda: reader.poll(0.1) or reader.assignment(), what="the consumer's assignment")
            result = run_failover(estate, plan, accept_unfenced=True)
        finally:
            reader.close()
    assert isinstance(result.error, PartlyDone)
    assert result.machine.state is State.TRANSLATED
    return topic, group, result.run


def test_nothing_is_moved_by_a_run_that_is_resumed_after_the_primary_was_opened_again(
    own: OwnLink, stopped: tuple[str, str, str]
) -> None:
    topic, group, run = stopped
    lift = opened(own, "primary")
    with mirroring(own):
        own.produce("primary", topic, texts("days-later", 30))
        own.commit("primary", "g", topic, {0: 40, 1: 45})
        wait_until(lambda: len(own.values("dr", topic)[0]) == 50, what="the mirror")
        with own.estate() as estate:
            with pytest.raises(Refused, match=f"decided again by run {lift}") as refused:
                resume_run(estate, run, None)
            assert f"drkit abandon {run}" in refused.value.remedy
            with pytest.raises(Refused, match=f"run {run} .*is unfinished") as held:
                run_failover(estate, make_plan(estate, PlanRequest("dr", mode=Mode.UNPLANNED)), accept_unfenced=True)
            assert held.value.remedy == f"drkit abandon {run} gives it up"
        assert own.committed("dr", group) == {}
        assert own.store.link_control(own.link.id).direction is Direction.ACTIVE

        with own.estate() as estate:
            done = abandon_run(estate, run, say)
            assert (done.serves, done.open) == ("primary", True)
            moved = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
    assert moved.error is None
    assert own.committed("dr", group) == {(topic, 0): 40, (topic, 1): 45}
    assert own.values("dr", topic) == own.values("primary", topic)


def test_a_later_run_closes_no_primary_that_was_opened_while_its_plan_was_read(own: OwnLink) -> None:
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 20))
    moved, left = (own.commit("primary", name, topic, {0: 7}) for name in ("g", "h"))
    mirror(own)
    with own.estate() as estate:
        first = run_failover(
            estate, make_plan(estate, PlanRequest("dr", selection=Selection(groups=(moved,)))), accept_unfenced=True
        )
        assert first.error is None
        plan = make_plan(estate, PlanRequest("dr", selection=Selection(groups=(left,))))
        lift = opened(own, "primary")
        error = run_failover(estate, plan, accept_unfenced=True).error
    assert error is not None
    assert f"is active by run {lift} by now; by the plan, run {first.run} had sealed it" in error.what
    assert own.committed("dr", left) == {}
    control = own.store.link_control(own.link.id)
    assert control is not None
    assert (control.direction, control.run) == (Direction.ACTIVE, lift)


def in_transactions(own: OwnLink, topic: str) -> None:
    """Records with markers between them, which the target has no place for: the delta changes at each."""
    producer = Producer({**own.client("primary"), "transactional.id": own.name, "linger.ms": 0})
    producer.init_transactions(TIMEOUT)
    for number in range(4):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, f"after {number}".encode(), partition=partition)
        producer.commit_transaction(TIMEOUT)


@pytest.mark.parametrize("place", ["next_generation", "claim"])
def test_a_run_that_stood_still_in_its_drain_settles_nothing_beneath_the_mirror_that_went_on(
    lab: Lab, tmp_path: Path, unique_name: str, place: str
) -> None:
    """It stood still behind its last check; the rows that the mirror has written since are the only ones of these
    records."""
    own = own_link(lab, tmp_path, unique_name, extra='offsets = "translate"')
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 20))
    own.commit("primary", "g", topic, {0: 7})
    mirror(own)
    with frozen_at(own, "failover", ("drain", place, "before"), tmp_path / "salvage") as sleeper:

        def taken_back() -> bool:
            run = own.store.runs()[0].run
            try:
                with own.estate() as estate:
                    return cancel_run(estate, run).error is None
            except Refused as refused:
                if "is acting on" not in refused.what:
                    raise
                return False  # its lease hasn't expired yet

        wait_until(taken_back, 90, "the run, taken back")
        in_transactions(own, topic)
        mirror(own)
        marks = own.store.watermarks(own.link.id)
        rows = {tp: own.store.mappings(own.link.id, tp, mark.epoch) for tp, mark in marks.items()}
        assert {len(each) for each in rows.values()} == {4}
        sleeper.send_signal(signal.SIGCONT)
        assert sleeper.wait(120) == 1, "it lost the right to run"
    assert own.store.watermarks(own.link.id) == marks
    assert {tp: own.store.mappings(own.link.id, tp, mark.epoch) for tp, mark in marks.items()} == rows
    own.produce("primary", topic, texts("more", 5))
    assert mirror(own) == 10
    assert own.values("dr", topic) == own.values("primary", topic)
    own.store.close()


def test_a_primary_that_is_opened_in_the_middle_of_a_failback_ends_the_way_back(own: OwnLink, tmp_path: Path) -> None:
    """The link is reversed then: it was active again beside its way back, and both clusters open, without a word."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("before", 20))
    own.commit("primary", "g", topic, {0: 7})
    mirror(own)
    with own.estate() as estate:
        assert run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True).error is None
        own.produce("dr", topic, texts("after", 5))
        plan = make_failback_plan(estate, "primary")
        ports = replace(reading_ports(own, tmp_path / "salvage"), auditor=Deviates())
        done = run_failback(estate, plan, ports, cluster_id=plan.target.cluster_id or "", accept_unfenced=True)
        assert done.machine.state is State.RESEEDED
        way_back = own.link.id.reversed()
        decided = [own.store.link_control(each).direction for each in (own.link.id, way_back)]
        assert decided == [Direction.REVERSED, Direction.ACTIVE]
        _, proof = lift_fence(estate, own.link, "primary", say, meant=True)
    assert f"{way_back} is sealed now" in proof.reason
    assert "dr isn't closed to its clients" in proof.reason
    decided = [own.store.link_control(each).direction for each in (own.link.id, way_back)]
    assert decided == [Direction.ACTIVE, Direction.SEALED]


class Deviates:
    """An audit that finds something."""

    def audit(self, *_: object) -> AuditVerdict:
        return AuditVerdict("deviated", "as the test wants it")
