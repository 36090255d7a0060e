"""A cluster that answers in part: one of three brokers is dead, and with it group coordinators, or the only replica of
a partition. What answers is used, what doesn't is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from drkit.failover.context.state_machine import Mode, State
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC, partition_of
from drkit.lab import Lab
from drkit.model.errors import Refused, Unreachable
from drkit.model.offsets import Certainty
from drkit.model.runs import ACCEPT_LOSS
from drkit.model.topology import TopicPartition
from drkit.observe.readiness.check import CheckOutcome
from drkit.observe.readiness.readiness import readiness
from drkit.observe.status import link_statuses
from tests.support.clusters.guard import Guard
from tests.support.clusters.topics import create_topic
from tests.support.links.estates import mirror, own_link, texts
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.long]

DEAD = 3
COORDINATORS = (1, DEAD, 1, DEAD, DEAD)
"""The broker of each partition of the coordinators' log."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard) -> Iterator[Lab]:
    """Three brokers on either side; the primary's groups are coordinated by brokers 1 and 3."""
    folder = tmp_path_factory.mktemp("three") / "lab"
    lab_guard.watch(folder)
    lab = Lab.up(folder, brokers=3, store="sqlite", timeout_seconds=240)
    create_on(lab, OFFSETS_TOPIC, COORDINATORS, {"cleanup.policy": "compact"})
    yield lab
    lab.down()


def create_on(
    lab: Lab, topic: str, brokers: Sequence[int], config: dict[str, str] | None = None, *, cluster: str = "primary"
) -> str:
    """Create a topic whose partitions have one replica each, on these brokers."""
    new = NewTopic(topic, len(brokers), replica_assignment=[[each] for each in brokers], config=config or {})
    create_topic({"bootstrap.servers": lab.bootstrap(cluster)}, new)
    return topic


def group_on(name: str, broker: int) -> str:
    """The suffix of a group that this broker coordinates."""
    return next(
        suffix
        for suffix in map("g{}".format, range(100))
        if COORDINATORS[partition_of(f"{name}.{suffix}", len(COORDINATORS))] == broker
    )


def kill(lab: Lab, topic: str, partition: int, *, cluster: str = "primary") -> None:
    """Kill the broker that coordinates groups and leads this partition, and wait until the cluster has noticed."""
    lab.kill(f"{cluster}-{DEAD}")
    client = {"bootstrap.servers": lab.bootstrap(cluster)}

    def leader() -> bool:
        found = AdminClient(client).list_topics(topic, timeout=10)
        assert found.topics[topic].partitions[partition].leader == -1
        return True

    wait_until(leader, what=f"{topic}:{partition} without a leader")


def test_a_source_without_some_group_coordinators_answers_for_its_logs(
    three: Lab, tmp_path: Path, unique_name: str
) -> None:
    own = own_link(three, tmp_path, unique_name)
    try:
        topic = create_on(three, own.topic("t"), (1, 2))
        own.produce("primary", topic, texts("x", 20))
        on_both = {0: 15, 1: 15}
        here, silent = (own.commit("primary", group_on(own.name, broker), topic, on_both) for broker in (1, DEAD))
        mirror(own)
        own.produce("primary", topic, texts("late", 4))
        own.commit("primary", here.removeprefix(f"{own.name}."), topic, dict.fromkeys(range(2), 18))
        kill(three, OFFSETS_TOPIC, COORDINATORS.index(DEAD))

        with own.estate() as estate:
            without_flag = make_plan(estate, PlanRequest("dr", catch_up=True))
            assert without_flag.source.reachable
            assert [each.what for each in without_flag.obstacles if each.waived_by == ACCEPT_LOSS] == [
                "8 records of primary would be lost although it answers: not on dr yet, and no mirror runs"
            ]
            planned = make_plan(estate, PlanRequest("dr", mode=Mode.PLANNED))
            told = [each for each in planned.obstacles if "groups of primary can't all be read" in each.what]
            assert f"{OFFSETS_TOPIC} has 3 of 5 partitions without a leader" in told[0].what
            assert "--unplanned" in told[0].remedy
            with pytest.raises(Refused):
                run_failover(estate, planned, accept_unfenced=True)
            assert own.store.link_control(own.link.id) is None, "nothing was changed"

            plan = make_plan(estate, PlanRequest("dr"))
            assert {(each.group, each.source_offset) for each in plan.positions} == {(here, 18), (silent, 15)}
            assert any(f"the captured positions of {silent} are used" in warning for warning in plan.warnings)
            assert (plan.loss.records, plan.loss.lower_bound, plan.loss.reason) == (8, False, None)
            result = run_failover(estate, plan, accept_unfenced=True)
        assert result.machine.state is State.CLOSED
        assert (result.evidence.rpo_records, result.evidence.rpo_lower_bound) == (8, False)
        assert own.committed("dr", here) == dict.fromkeys([(topic, 0), (topic, 1)], 18)
        assert own.committed("dr", silent) == dict.fromkeys([(topic, 0), (topic, 1)], 15)
    finally:
        own.store.close()
        three.restart(f"primary-{DEAD}")


def test_a_partition_without_a_leader_is_named_and_no_planned_move_is_made_over_it(
    three: Lab, tmp_path: Path, unique_name: str
) -> None:
    own = own_link(three, tmp_path, unique_name)
    try:
        topic = create_on(three, own.topic("t"), (1, 2, DEAD))
        own.produce("primary", topic, texts("x", 20, range(3)))
        group = own.commit("primary", group_on(own.name, 1), topic, dict.fromkeys(range(3), 15))
        mirror(own)
        own.produce("primary", topic, texts("late", 4, range(3)))
        kill(three, topic, 2)
        why = f"it has no leader: broker {DEAD} is down"

        (status,) = link_statuses(own.config, own.store, [own.link])
        assert status.source_reachable
        assert [each.lag_records for each in status.partitions] == [4, 4, 0]
        point = status.recovery_point
        assert (point.records, point.lower_bound) == (8, True)
        assert f"the source does not answer for 1 partition ({topic}:2: {why})" in (point.reason or "")

        with own.estate() as estate:
            with pytest.raises(Unreachable) as silent:
                estate.admin("primary").end_offsets([TopicPartition(topic, n) for n in range(3)], committed=True)
            assert f"1 partition without an answer ({topic}:2: {why})" in silent.value.meaning

            planned = make_plan(estate, PlanRequest("dr", mode=Mode.PLANNED))
            unreadable = f"1 partition of primary can't be read: {topic}:2 ({why})"
            (told,) = (each for each in planned.obstacles if each.what == unreadable)
            assert told.waived_by is None
            assert "--unplanned" in told.remedy
            with pytest.raises(Refused) as refused:
                run_failover(estate, planned, accept_unfenced=True)
            assert f"{topic}:2 ({why})" in str(refused.value)
            assert own.store.link_control(own.link.id) is None, "nothing was changed"

            without_flag = make_plan(estate, PlanRequest("dr", catch_up=True))
            (waits,) = (each for each in without_flag.obstacles if each.waived_by == ACCEPT_LOSS)
            assert waits.what == (
                f"8 records or more of primary would be lost although it answers: not on dr yet, and {unreadable}"
            )

            plan = make_plan(estate, PlanRequest("dr"))
            assert (plan.loss.records, plan.loss.lower_bound) == (8, True)
            assert f"{topic}:2: {why}" in (plan.loss.reason or "")
            result = run_failover(estate, plan, accept_unfenced=True)
        assert result.machine.state is State.CLOSED
        assert (result.evidence.rpo_records, result.evidence.rpo_lower_bound) == (8, True)
        assert own.committed("dr", group) == {(topic, partition): 15 for partition in range(3)}
    finally:
        own.store.close()
        three.restart(f"primary-{DEAD}")


def test_a_target_with_a_partition_without_a_leader_is_read_but_for_that_one(
    three: Lab, tmp_path: Path, unique_name: str
) -> None:
    own = own_link(three, tmp_path, unique_name)
    try:
        topic = create_on(three, own.topic("t"), (1, 2, 1))
        create_on(three, topic, (1, 2, DEAD), cluster="dr")
        own.produce("primary", topic, texts("x", 20, range(3)))
        group = own.commit("primary", group_on(own.name, 1), topic, dict.fromkeys(range(3), 15))
        mirror(own)
        own.produce("primary", topic, texts("late", 4, range(3)))
        kill(three, topic, 2, cluster="dr")
        why = f"it has no leader: broker {DEAD} is down"

        (status,) = link_statuses(own.config, own.store, [own.link])
        assert (status.target_reachable, status.source_reachable) == (True, True)
        assert f"the target does not answer for 1 partition ({topic}:2: {why})" in (status.reason or "")
        assert [(each.target_end, each.lag_records) for each in status.partitions] == [(20, 4)] * 3
        assert [each.lag_reason for each in status.partitions] == [
            None,
            None,
            f"as last seen: dr does not answer for it: {why}",
        ]
        assert [each.translation for each in status.groups] == [
            Certainty.EXACT,
            Certainty.EXACT,
            Certainty.CONSERVATIVE,
        ]
        assert why in (status.groups[2].reason or "")

        with own.estate() as estate:
            (found,) = (
                each for each in readiness(own.config, own.store, own.link, estate).checks if each.name == "clusters"
            )
            assert (found.outcome, why in found.reason) == (CheckOutcome.WARN, True)
            plan = make_plan(estate, PlanRequest("dr"))
        assert [(each.group, each.target_offset) for each in plan.positions] == [
            (group, 15),
            (group, 15),
            (group, None),
        ]
        assert plan.positions[2].reason == f"dr does not answer for {topic}:2: {why}"
    finally:
        own.store.close()
        three.restart(f"dr-{DEAD}")
