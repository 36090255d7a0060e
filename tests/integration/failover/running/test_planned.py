"""Planned failover: it loses nothing or does nothing."""

import threading

import pytest

from drkit.failover.context.state_machine import Mode, State
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import resume_run, run_failover, standing_obstacles
from drkit.mirror.control import acknowledge
from drkit.model.errors import Refused
from drkit.model.link_state import Direction
from drkit.model.topology import TopicPartition
from tests.support.collection.sampling import some_of
from tests.support.links.estates import mirror, mirroring, texts, without_primary
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("planned moves", 2)]

PLANNED = PlanRequest("dr", mode=Mode.PLANNED)


def planned(own):
    with own.estate() as estate:
        return run_failover(estate, make_plan(estate, PLANNED), accept_unfenced=True)


def test_a_planned_move_waits_for_the_mirror_and_loses_nothing(own):
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 300))
    group = own.commit("primary", "g", topic, {0: 120, 1: 299})
    with mirroring(own):
        wait_until(lambda: own.store.watermarks(own.link.id), what="the mirror to begin")
        result = planned(own)
    assert result.error is None
    assert result.machine.state is State.CLOSED
    assert (result.evidence.rpo_records, result.evidence.rpo_seconds) == (0, 0.0)
    assert own.values("dr", topic) == own.values("primary", topic)
    assert own.unread("dr", group, topic) == own.unread("primary", group, topic)


def test_a_primary_that_is_still_written_stops_it_before_anything_is_changed(own):
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 20))
    group = own.commit("primary", "g", topic, {0: 10})
    stop, wrote = threading.Event(), threading.Event()

    def write():
        count = 0
        while not stop.is_set():
            own.produce("primary", topic, texts(f"live-{count}", 1))
            count += 1
            wrote.set()

    with mirroring(own):
        wait_until(lambda: own.store.watermarks(own.link.id), what="the mirror to begin")
        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert wrote.wait(30)
            result = planned(own)
        finally:
            stop.set()
            writer.join()
    assert isinstance(result.error, Refused)
    assert "clients still write to primary" in result.error.what
    assert result.machine.state is State.CANCELLED
    control = own.store.link_control(own.link.id)
    assert control is None or control.direction is Direction.ACTIVE
    assert own.committed("dr", group) == {}
    with mirroring(own):
        again = planned(own)  # nothing was left behind that would hinder the next try
    assert again.error is None


def interrupted_in_commit(stage, record, _text):
    """Ctrl-C after a group has been put somewhere."""
    if stage == "commit" and record is not None:
        raise KeyboardInterrupt


def test_a_run_that_goes_back_before_its_fence_leaves_groups_where_they_read_on(own):
    """It can't be taken back any more: it has to come to its end."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 20))
    groups = own.commit("primary", "g", topic, {0: 3}), own.commit("primary", "h", topic, {0: 3})

    with mirroring(own), own.estate() as estate:
        wait_until(lambda: own.store.watermarks(own.link.id), what="the mirror to begin")
        stopped = run_failover(estate, make_plan(estate, PLANNED), accept_unfenced=True, watch=interrupted_in_commit)
        assert stopped.interrupted
        own.commit("dr", "g", topic, {0: 8})  # its consumers began there
        result = resume_run(estate, stopped.run, None)
    assert result.error is None
    assert [own.committed("dr", group) for group in groups] == [{(topic, 0): 8}, {(topic, 0): 3}]


def test_a_place_that_the_run_has_not_committed_is_no_reading_on(own):
    """A group is known to be committed, but not on a partition that it first read on the primary later: a consumer that
    began at dr's end too early left it further on there, and what it had not read was skipped."""
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 20))
    group = own.commit("primary", "g", topic, {0: 3})

    with mirroring(own), own.estate() as estate:
        wait_until(lambda: own.store.watermarks(own.link.id), what="the mirror to begin")
        stopped = run_failover(estate, make_plan(estate, PLANNED), accept_unfenced=True, watch=interrupted_in_commit)
        assert stopped.interrupted
        own.commit("primary", "g", topic, {1: 5})
        own.commit("dr", "g", topic, {0: 8, 1: 15})
        refused = resume_run(estate, stopped.run, None)
        assert "g would be moved back on dr" in str(refused.error)
        assert f"--topic {topic}:1" in str(refused.error), refused.error
        assert own.committed("dr", group)[topic, 1] == 15
        own.commit("dr", "g", topic, {1: 5})
        result = resume_run(estate, stopped.run, None)
    assert result.error is None
    assert own.committed("dr", group) == {(topic, 0): 8, (topic, 1): 5}


def test_what_groups_had_not_read_and_the_target_no_longer_holds_is_stated_in_numbers(own):
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 50))
    own.commit("primary", "behind", topic, {0: 10, 1: 45})
    own.commit("primary", "further", topic, {0: 25})
    mirror(own)
    with own.estate() as estate:
        estate.admin("dr").delete_records({TopicPartition(topic, 0): 30})
    with mirroring(own):
        wait_until(lambda: own.store.problems(own.link.id), what="the mirror to see it")
        acknowledge(own.store, own.link, "target_purged", topic)
        result = planned(own)
    assert result.error is None
    assert (result.evidence.rpo_records, result.evidence.removed_unread) == (0, 20 + 5)
    (said,) = [stage.reason for stage in result.stages if stage.name == "translate"]
    assert "removed 25 offsets there that the groups had not read, most of" in said


def test_a_lag_without_a_mirror_is_refused(own):
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 5))
    mirror(own)
    own.produce("primary", topic, texts("y", 5))
    with own.estate() as estate:
        (obstacle,) = standing_obstacles(make_plan(estate, PLANNED), waived=frozenset({"--accept-unfenced"}))
        assert "10 records are not on dr and no mirror runs" in obstacle.what
        with pytest.raises(Refused, match="no mirror runs"):
            run_failover(estate, make_plan(estate, PLANNED), accept_unfenced=True)


def test_without_the_primary_there_is_no_planned_move(own):
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 5))
    mirror(own)
    with own.estate(without_primary(own)) as estate:
        plan = make_plan(estate, PLANNED)
        with pytest.raises(Refused, match="primary does not answer"):
            run_failover(estate, plan, accept_unfenced=True)
    assert own.store.runs() == []


def test_all_caught_up_it_needs_no_mirror(own):
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 5))
    group = own.commit("primary", "g", topic, {0: 5, 1: 1})
    mirror(own)
    result = planned(own)
    assert result.error is None
    assert own.committed("dr", group) == {(topic, 0): 5, (topic, 1): 1}


def test_a_topic_that_left_the_link_holds_nothing_up(own):
    kept, gone = own.create("primary", "kept"), own.create("primary", "gone")
    for topic in (kept, gone):
        own.produce("primary", topic, texts("x", 5))
    group = own.commit("primary", "g", kept, {0: 5, 1: 1})
    own.commit("primary", "g", gone, {0: 2})
    mirror(own)
    own.produce("primary", gone, texts("not-mirrored-any-more", 5))
    link = own.config.links[0].model_copy(update={"exclude_topics": (gone,)})
    with own.estate(own.config.model_copy(update={"links": (link,)})) as estate:
        plan = make_plan(estate, PLANNED)
        assert f"no group is moved on {gone}: mirrored before" in plan.warnings[0]
        result = run_failover(estate, plan, accept_unfenced=True)
    assert result.error is None
    assert own.committed("dr", group) == {(kept, 0): 5, (kept, 1): 1}
