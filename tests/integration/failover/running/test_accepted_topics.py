"""Groups on topics that were accepted as new ones and are mirrored anew in part: dr has what they haven't read, from
before."""

import pytest
from confluent_kafka.admin import AdminClient

from drkit.failover.failback.planner import make_failback_plan
from drkit.failover.plan.planner import PlanRequest, make_plan
from drkit.failover.run.audited_loss import complete_evidence
from drkit.failover.run.service import run_failover
from drkit.mapping.store_translator import Translator
from drkit.mirror.control import accept_recreated
from drkit.model.offsets import Certainty
from drkit.model.topology import TopicPartition
from tests.support.links.estates import TIMEOUT, mirror, texts, without_primary
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab


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
