"""Groups on topics that were accepted as new ones: where those are mirrored anew in part, dr has what they haven't
read, from before; and what they had committed on the former topic is no position in the new one."""

from dataclasses import replace
from datetime import timedelta

import pytest
from confluent_kafka.admin import AdminClient

from drkit.failover.planning.failback_planner import make_failback_plan
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.failover.snapshot.point_in_time import TimeBasis, parse_moment
from drkit.failover.stages.audited_loss import complete_evidence
from drkit.mapping.store_translator import Translator
from drkit.mirror.control import accept_recreated
from drkit.model.clock import iso, now
from drkit.model.offsets import Certainty
from drkit.model.topology import TopicPartition
from tests.support.collection.sampling import some_of
from tests.support.links.estates import TIMEOUT, mirror, mirroring, texts, without_primary
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, some_of("accepted topics", 1)]


def accept(own, topic):
    with own.estate() as estate:
        source, target = (estate.admin(alias) for alias in ("primary", "dr"))
        return accept_recreated(own.store, own.link, topic, source=source, target=target)


def delete(own, topic):
    admin = AdminClient(own.client("primary"))
    admin.delete_topics([topic])[topic].result(TIMEOUT)
    wait_until(lambda: topic not in own.topic_names("primary"), what="the deletion")


@pytest.fixture
def anew(own):
    """Two topics that were mirrored whole, 100 records of each. `again`: made anew with the same records, accepted,
    20 of them mirrored, accepted twice in a row, the 20 mirrored again; a group at 95. `short`: its first 50 were
    removed, then it was accepted and mirrored; a group at 30."""
    again, short = (own.create("primary", name, partitions=1) for name in ("again", "short"))
    values = {topic: texts(topic, 100, [0]) for topic in (again, short)}
    for topic, its in values.items():
        own.produce("primary", topic, its)
    mirror(own)

    delete(own, again)
    own.create("primary", "again", partitions=1)
    own.produce("primary", again, {0: values[again][0][:20]})
    with own.estate() as estate:
        estate.admin("primary").delete_records({TopicPartition(short, 0): 50})
    accepted = [accept(own, topic) for topic in (again, again, short)]
    assert [(each.topic.epoch, each.already) for each in accepted] == [(2, False), (2, True), (2, False)]
    mirror(own)
    accepted = [accept(own, again) for _ in range(2)]
    assert [(each.topic.epoch, each.already) for each in accepted] == [(3, False), (3, True)]
    mirror(own)
    assert own.values("dr", again)[0] == values[again][0] + 2 * values[again][0][:20]
    assert own.values("dr", short)[0] == values[short][0] + values[short][0][50:]

    own.produce("primary", again, {0: values[again][0][20:]})
    return own.commit("primary", "ahead", again, {0: 95}), own.commit("primary", "slow", short, {0: 30}), again, short


def test_a_group_isnt_put_behind_what_dr_has_of_any_former_epoch_nor_carried_there_by_the_failback(own, anew):
    ahead, slow, again, short = anew
    translator = Translator(own.store, own.link.id)
    places = [translator.translate(TopicPartition(topic, 0), at) for topic, at in ((again, 95), (short, 30))]
    assert {each.certainty for each in places} == {Certainty.UNAVAILABLE}
    assert "mirrored up to source offset 20 only" in places[0].reason
    assert "mirrored from source offset 50 on only" in places[1].reason

    with own.estate() as estate:
        plan = make_plan(estate, PlanRequest("dr"))
        assert {(p.group, p.target_offset, p.reason) for p in plan.positions} == {
            (ahead, None, places[0].reason),
            (slow, None, places[1].reason),
        }
        result = run_failover(estate, plan, accept_unfenced=True)
    assert result.error is None
    lost = result.evidence
    assert (lost.rpo_records, lost.rpo_upper_bound, lost.rpo_lower_bound) == (80, True, False)
    assert f"{again} was accepted as a new topic and is not all mirrored since" in lost.rpo_reason
    assert own.committed("dr", ahead) == own.committed("dr", slow) == {}

    with own.estate() as estate:
        (obstacle,) = [
            each for each in make_failback_plan(estate, "primary").obstacles if "no known offset" in each.what
        ]
    assert obstacle.what.startswith("2 committed offsets on primary have no known offset on dr")
    assert "may have records that the group hasn't read" in obstacle.what


def test_what_dr_may_have_from_before_makes_the_audited_loss_an_upper_bound(own, anew):
    """Of the 80 records that aren't mirrored anew, dr has all from before: what is counted later is no exact loss."""
    again = anew[2]
    with own.estate(without_primary(own)) as estate:
        result = run_failover(estate, make_plan(estate, PlanRequest("dr")), accept_unfenced=True)
    assert (result.evidence.rpo_lower_bound, result.evidence.rpo_upper_bound) == (True, False)
    with own.estate() as estate:
        loss = complete_evidence(estate, own.link)
    assert (loss.records, loss.basis, loss.upper_bound, loss.lower_bound) == (80, "audited", True, False)
    assert f"{again} was accepted as a new topic and is not all mirrored since" in loss.reason


def captured(own, group):
    """The group's captured offset on partition 0, by topic."""
    return {p.topic: p.offset for p in own.store.group_positions(own.link.id) if p.group == group}


def captured_after(own, group, topic, then):
    return any(
        p.group == group and p.topic == topic and p.captured_at > then for p in own.store.group_positions(own.link.id)
    )


def planned(own, config=None, **options):
    """Where a failover without the primary (or of `config`) would put groups: target offset by group and topic."""
    with own.estate(config or without_primary(own)) as estate:
        plan = make_plan(estate, PlanRequest("dr", **options))
    return {(p.group, p.topic): (p.target_offset, p.translation) for p in plan.positions}


def test_what_a_group_had_committed_on_a_former_topic_is_no_position_in_the_new_one(own):
    flights, orders = (own.create("primary", name, partitions=1) for name in ("flights", "orders"))
    for topic in (flights, orders):
        own.produce("primary", topic, texts("former", 500, [0]))
    group, idle = (own.commit("primary", name, flights, {0: 300}) for name in ("g", "idle"))
    for name in ("g", "idle"):
        own.commit("primary", name, orders, {0: 7})
    with mirroring(own):
        wait_until(lambda: all(captured(own, g) == {flights: 300, orders: 7} for g in (group, idle)), what="captures")
        begun = now()
        wait_until(lambda: captured_after(own, group, orders, begun + timedelta(seconds=1)), what="a later look")
        then = begun + timedelta(seconds=1)

        delete(own, flights)
        wait_until(lambda: own.committed("primary", group) == {(orders, 0): 7}, what="Kafka to drop its offset")
        own.create("primary", "flights", partitions=1)
        own.produce("primary", flights, texts("new", 400, [0]))
        own.commit("primary", "g", flights, {0: 350})
        seen = now()
        wait_until(lambda: captured_after(own, group, orders, seen), what="a look at the new topic's commits")
        # until it is accepted, dr has the former topic, in which 300 is where they are
        assert captured(own, group) == captured(own, idle) == {flights: 300, orders: 7}

        accept(own, flights)
        wait_until(lambda: captured(own, group) == {flights: 350, orders: 7}, what="its position in the new topic")
        mark = TopicPartition(flights, 0)
        wait_until(lambda: reached(own, mark, 400), what="the new topic's records")
        accepted = now()
        wait_until(lambda: captured_after(own, idle, orders, accepted), what="the other group again")
    exact, none = Certainty.EXACT, Certainty.UNAVAILABLE
    assert captured(own, idle) == {orders: 7}
    now_at = {(group, flights): (850, exact), (group, orders): (7, exact), (idle, orders): (7, exact)}
    assert planned(own) == planned(own, own.config) == now_at

    when = replace(parse_moment(iso(then), now=now(), option="--committed-at"), basis=TimeBasis.COMMITS)
    past = planned(own, at=when)
    assert past == {(group, flights): (None, none), (group, orders): (7, exact), (idle, orders): (7, exact)}


def reached(own, tp, through):
    mark = own.store.watermarks(own.link.id).get(tp)
    return mark is not None and mark.source_through >= through
