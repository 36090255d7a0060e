"""Verification reads the record at each place: on real clusters, with logs that were tampered with in between."""

import time
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient

from drkit.failover.context.state_machine import PlacesSeen, State
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import plan_again, resume_run, run_failover
from drkit.kafka.client.record_probe import LogPosition
from drkit.model.errors import PartlyDone, Refused, StalePlan
from drkit.model.topology import TopicPartition
from tests.support.links.estates import TIMEOUT, mirror, texts, without_primary
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


def test_another_record_at_a_place_fails_the_verification_until_the_group_was_moved_on(own):
    topic = own.create("primary", "t")
    stamp = int(time.time() * 1000) - 600_000
    own.produce("primary", topic, texts("x", 6), stamp=stamp)
    group = own.commit("primary", "g", topic, {0: 3, 1: 6})
    beside = own.commit("primary", "beside", topic, {0: 3, 1: 1})
    mirror(own)
    # a primary that answers is compared with dr, and the plan would find the other records by that already
    with own.estate(without_primary(own)) as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        assert [(p.partition, p.offset, p.record, p.timestamp) for p in plan.places] == [
            (0, 3, 3, stamp + 3000),
            (1, 1, 1, stamp + 1000),
            (1, 6, None, None),
        ]
        admin = AdminClient(own.client("dr"))
        admin.delete_topics([topic])[topic].result(TIMEOUT)
        wait_until(lambda: topic not in own.topic_names("dr"), what="the topic to be gone")
        own.create("dr", "t")
        own.produce("dr", topic, {0: texts("y", 6)[0], 1: texts("x", 6)[1]}, stamp=stamp)
        with pytest.raises(StalePlan, match=f"{group} on {topic}:0 would now go to None"):  # a topic recreated
            plan_again(estate, plan)
        # the store takes it for the old topic: what else there is, the records themselves must show
        (state,) = own.store.topic_states(own.link.id).values()
        anew = estate.admin("dr").topics([topic])[topic].topic_id
        own.store.put_topic_states(own.link.id, [replace(state, target_topic_id=anew)])
        with pytest.raises(StalePlan, match=f"{topic}:0 at 3: the record 3 .*, before: the record 3 .*"):
            plan_again(estate, plan)
        result = run_failover(estate, plan, accept_unfenced=True)
        assert isinstance(result.error, PartlyDone)
        assert result.machine.state is State.SWITCHED
        assert f"1 places on dr don't hold what was planned: {topic}:0 at 3" in result.error.what
        own.commit("dr", "g", topic, {0: 4})
        own.commit("dr", "beside", topic, {0: 4})
        done = resume_run(estate, result.run, None)
        assert done.error is None
        assert done.machine.facts.places == PlacesSeen(same=1, end=1)
    assert own.committed("dr", group) == {(topic, 0): 4, (topic, 1): 6}
    assert own.committed("dr", beside) == {(topic, 0): 4, (topic, 1): 1}


def test_a_peek_steps_over_markers_and_says_what_is_outside_the_log(own):
    topic = own.create("primary", "t", partitions=2, retention_ms="-1")  # the records are old
    own.produce("primary", topic, texts("x", 5), stamp=5000)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with own.estate() as estate:
        admin = estate.admin("primary")
        admin.delete_records({first: 2})
        places = [LogPosition(first, at) for at in (1, 2, 4, 5, 6)]
        places += [LogPosition(second, 0), LogPosition(TopicPartition("nowhere", 0), 0)]
        found = admin.probe_records(places, seconds=10.0)
    assert set(found) == set(places)
    assert [found[LogPosition(first, at)].offset for at in (2, 4, 5)] == [2, 4, None]
    assert found[LogPosition(first, 4)].timestamp == 9000
    assert found[LogPosition(second, 0)].crc != found[LogPosition(first, 2)].crc
    assert found[LogPosition(first, 5)].reason is None
    outside = [found[place] for place in (places[0], places[4], places[6])]
    assert all(peeked.outside for peeked in outside)
    assert "ends at 5" in outside[1].reason


def test_nothing_is_committed_on_another_cluster_than_the_plan_was_made_on(own):
    topic = own.create("primary", "t")
    own.produce("primary", topic, texts("x", 6))
    group = own.commit("primary", "g", topic, {0: 3})
    mirror(own)
    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
    clusters = own.config.clusters
    mistaken = own.config.model_copy(update={"clusters": {**clusters, "dr": clusters["primary"]}})
    with own.estate(mistaken) as estate:
        result = run_failover(estate, plan, accept_unfenced=True)
    assert isinstance(result.error, PartlyDone)
    assert f"dr is another cluster now: its id is {plan.source.cluster_id}" in result.error.what
    assert result.machine.state is State.TRANSLATED
    with own.estate(mistaken) as estate, pytest.raises(Refused, match="dr is another cluster now") as refused:
        resume_run(estate, result.run, None)
    assert f"then drkit resume {result.run}. If the cluster was replaced" in refused.value.remedy
    assert f"drkit abandon {result.run} gives the run up" in refused.value.remedy
    assert own.committed("primary", group) == {(topic, 0): 3}
    assert own.committed("dr", group) == {}
