"""A partition that doesn't move though it is tried is a problem, until it moves."""

from __future__ import annotations

import pytest

from drkit.mirror.engine.interface import NOT_MOVING, RECORD_REJECTED
from drkit.mirror.health.problems import Problems
from drkit.mirror.health.stalls import CALM_SECONDS, SECONDS, SILENT_SECONDS, TRIES, Stalls
from drkit.mirror.health.watchdog import PartitionObservation
from drkit.model.link_state import DELETION_HELD, SOURCE_TOPIC_DELETED, Problem
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store

LINK = LinkId("a", "b")
TP = TopicPartition("t", 0)


class World:
    def __init__(self, tmp_path) -> None:
        self.at = 1_000.0
        self.store = open_store(f"sqlite:///{tmp_path / 'drkit.db'}")
        self.told: list[Problem] = []
        self.problems = Problems(self.store, LINK, self.told.append)
        self.stalls = Stalls(self.problems, lambda _: "a broker", lambda: self.at)

    def check(self, through: int = 10, end: int = 20, *, healthy: bool = True, held: bool = False) -> list[Problem]:
        observation = PartitionObservation(TP, through, end, fresh=True, held=held)
        self.stalls.check([observation], {TP: (through, through)}, healthy=healthy)
        return self.store.problems(LINK)

    def stand(self, seconds: float) -> list[Problem]:
        """Checked once a second, it doesn't move."""
        found: list[Problem] = []
        for _ in range(int(seconds)):
            self.at += 1
            found = self.check()
        return found

    def fail(self, times: int = TRIES, seconds: float = SECONDS) -> None:
        for _ in range(times):
            self.stalls.failed(TP, "the target answered NO", "Ask it")
            self.at += seconds / times


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.store.close()


def test_a_few_failures_or_many_at_once_are_no_problem(world: World) -> None:
    world.check()
    world.fail(TRIES - 1)
    assert world.check() == []
    world.check(through=11)
    world.fail(TRIES, seconds=SECONDS / 10)
    assert world.check(through=11) == []


def test_failures_that_repeat_are_one_until_the_partition_moves(world: World) -> None:
    world.check()
    world.fail()
    (problem,) = world.check()
    assert (problem.kind, problem.topic, problem.partition, problem.halted) == (NOT_MOVING, "t", 0, True)
    assert "5 attempts or more failed, the last one: the target answered NO" in problem.reason
    assert problem.remedy == "Ask it"
    assert not world.problems.halts(TP), "it is tried again"
    assert world.problems.stalls(TP, 0.0)
    assert world.check() == [problem]
    assert world.check(through=12) == []
    assert len(world.told) == 1


def test_it_is_told_again_when_the_tries_have_doubled_and_the_first_time_stays(world: World) -> None:
    world.check()
    world.fail()
    (first,) = world.check()
    world.fail(11)
    (second,) = world.check()
    assert "16 attempts" in second.reason
    assert second.since == first.since


def test_failures_before_the_last_movement_do_not_count(world: World) -> None:
    for through in range(10, 20):
        world.check(through=through)
        world.fail(2)
    assert world.check(through=20) == []


def test_with_nothing_left_to_move_it_is_over_once_no_try_fails(world: World) -> None:
    world.check()
    world.fail()
    assert world.check(end=10)
    world.at += CALM_SECONDS
    assert world.check(end=20), "behind still"
    assert world.check(end=10) == []


def test_a_partition_that_is_behind_and_silent_is_a_problem(world: World) -> None:
    for _ in range(3):
        world.at += SILENT_SECONDS
        assert world.check(healthy=False) == [], "an outage is told elsewhere"
    assert world.stand(SILENT_SECONDS - 5) == []
    (problem,) = world.stand(10)
    assert "waits for a broker" in problem.reason
    assert world.check(through=11) == []


def test_attempts_that_fail_too_seldom_to_count_do_not_hide_that_it_stands(world: World) -> None:
    """Between two a check saw a failure elsewhere."""
    for _ in range(4):
        world.fail(1, seconds=0)
        problems = world.stand(10)
        world.check(healthy=False)
    (problem,) = problems
    assert problem.kind == NOT_MOVING
    assert "4 attempts or more failed, the last one: the target answered NO" in problem.reason
    assert world.check(through=11) == []


def test_what_is_refused_at_each_turn_of_a_slow_backlog_is_told_though_other_calls_fail_now_and_then(
    world: World,
) -> None:
    """Between its turns it waits for the others, and a failed call isn't an outage."""
    world.check()
    for _ in range(TRIES):
        assert world.store.problems(LINK) == []
        world.fail(1, seconds=0)
        for second in range(60):
            world.at += 1
            world.check(held=True, healthy=second != 30)
    (problem,) = world.check()
    assert f"{TRIES} attempts or more failed" in problem.reason


def test_attempts_that_fail_in_an_outage_do_not_count_after_it(world: World) -> None:
    world.fail()
    for _ in range(2):
        world.at += 1
        assert world.check(healthy=False) == []
    assert world.check() == []


def test_what_an_earlier_run_left_is_over_when_it_moves(world: World) -> None:
    world.problems.put(NOT_MOVING, "t", 0, "before", "", halted=True)
    assert world.check()
    assert world.check(through=11) == []


def test_a_problem_that_an_operator_cleared_comes_again_where_it_holds(world: World) -> None:
    world.check()
    world.fail()
    (problem,) = world.check()
    world.store.clear_problem(LINK, problem)
    world.problems.follow()
    assert world.check()


def test_a_refusal_is_told_at_once_and_stays_until_the_partition_moves(world: World) -> None:
    world.stalls.refused(TP, RECORD_REJECTED, "the target refuses it", "Grant it", (10, 10))
    (problem,) = world.store.problems(LINK)
    assert (problem.kind, problem.halted, problem.reason) == (RECORD_REJECTED, True, "the target refuses it")
    assert world.problems.halts(TP)
    assert not world.problems.awaits_operator(TP), "it is tried again"
    world.at += 10 * CALM_SECONDS
    world.stalls.refused(TP, RECORD_REJECTED, "the target refuses it", "Grant it", (10, 10))
    for clock in (1_795_391, 1_795_401):
        world.stalls.refused(TP, RECORD_REJECTED, f"the target refuses it, at {clock}", "Grant it", (10, 10))
    (problem,) = world.store.problems(LINK)
    assert problem.reason == "the target refuses it, at 1795391", "not told again for another number"
    assert world.check(through=9) == [problem], "a look from before it was there"
    assert world.check(through=10) == [problem]
    world.check(through=10, healthy=False)
    assert world.check(through=10) == [problem], "an outage in between changes nothing"
    assert world.check(through=11) == []
    assert len(world.told) == 2


def test_what_an_earlier_run_left_is_settled_by_one_that_has_caught_up(world: World) -> None:
    world.stalls.refused(TP, RECORD_REJECTED, "the target refuses it", "Grant it", (10, 10))
    later = Problems(world.store, LINK, world.told.append)
    later.follow()
    stalls = Stalls(later, lambda _: "a broker", lambda: world.at)
    world.stalls.settle([TP])
    assert len(world.store.problems(LINK)) == 1, "whoever found it knows that it holds"
    stalls.settle([TopicPartition("other", 0)])
    assert len(world.store.problems(LINK)) == 1
    stalls.settle([TP])
    assert world.store.problems(LINK) == []


@pytest.mark.parametrize("partition", [0, None], ids=["its own", "its topic's"])
def test_where_something_else_awaits_the_operator_nothing_is_said_beside_it(
    world: World, partition: int | None
) -> None:
    world.check()
    world.fail()
    assert [each.kind for each in world.check()] == [NOT_MOVING]
    world.problems.put("topic_recreated", "t", partition, "another topic", "Accept it", halted=True)
    assert [each.kind for each in world.check()] == ["topic_recreated"]
    world.fail()
    assert [each.kind for each in world.check()] == ["topic_recreated"]


@pytest.mark.parametrize("kind", [SOURCE_TOPIC_DELETED, DELETION_HELD])
def test_of_a_topic_that_the_source_has_deleted_no_broker_is_missed(world: World, kind: str) -> None:
    """It said beside the deletion that a broker which leads the partition doesn't answer."""
    world.check()
    world.fail()
    world.check()
    world.problems.put(kind, "t", None, "gone", "see to it", halted=False)
    world.fail()
    assert [problem.kind for problem in world.check()] == [kind]
    world.problems.settle("t", kinds=frozenset({kind}))
    assert world.check() == []
    world.fail()
    assert [problem.kind for problem in world.check()] == [NOT_MOVING], "it is back"
