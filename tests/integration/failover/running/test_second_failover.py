"""Groups that were left out of a failover are moved by a second one, after clients have written to the target."""

from dataclasses import replace

import pytest

from drkit.drill.environment.log_surgery import stopped
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.run.service import run_failover
from drkit.failover.snapshot.selection import Selection
from drkit.failover.stages.audited_loss import complete_evidence
from drkit.model.clock import now
from drkit.model.offsets import Certainty, GroupPosition
from drkit.model.topology import TopicPartition
from tests.support.links.estates import mirror, texts, without_primary

pytestmark = pytest.mark.lab


def away(own, group, config=None):
    """Plan a move of one group, and carry it out."""
    with own.estate(config) as estate:
        plan = make_plan(estate, PlanRequest("dr", selection=Selection(groups=(group,))))
        result = run_failover(estate, plan, accept_unfenced=True)
    assert result.error is None
    return plan, result


@pytest.fixture
def behind(own):
    """A partition with 110 records, of which 100 are mirrored, and groups that have read 104; the store knows all that,
    as a mirror that copies slowly leaves it."""
    topic = own.create("primary", "t", partitions=1)
    own.produce("primary", topic, texts("mirrored", 100, [0]))
    mirror(own)
    own.produce("primary", topic, texts("late", 10, [0]))
    tp, link = TopicPartition(topic, 0), own.link.id
    own.store.put_watermarks(link, [replace(own.store.watermarks(link)[tp], source_end=110, behind_since=now())])
    groups = [own.commit("primary", name, topic, {0: 104}) for name in ("first", "second")]
    own.store.put_group_positions(link, [GroupPosition(group, topic, 0, 104, "", now()) for group in groups])
    return topic, groups


@pytest.mark.parametrize("written", [5, 10])
@pytest.mark.parametrize("primary", ["gone", "there"])
def test_what_clients_have_written_to_the_target_is_not_what_the_mirror_wrote(own, behind, primary, written):
    """As many as are missing, or fewer: they stand where the mirror would have put the missing ones."""
    topic, (first, second) = behind
    config = without_primary(own) if primary == "gone" else None
    away(own, first, config)
    mark = own.store.watermarks(own.link.id)[TopicPartition(topic, 0)]
    own.produce("dr", topic, texts("written on dr", written, [0]))
    with own.estate() as estate:
        estate.admin("dr").delete_records({TopicPartition(topic, 0): 20})  # dr is theirs now
    plan, result = away(own, second, config)
    for position in (*plan.positions, *result.positions):
        assert (position.target_offset, position.translation, position.lost) == (100, Certainty.CONSERVATIVE, 4)
    assert own.committed("dr", second) == {(topic, 0): 100}
    for loss in (plan.loss, result.machine.facts.loss):
        assert (loss.records, loss.lower_bound, loss.upper_bound) == (10, primary == "gone", False)
    assert own.store.problems(own.link.id) == []
    kept = own.store.watermarks(own.link.id)[TopicPartition(topic, 0)]
    assert (kept.source_through, kept.target_end) == (mark.source_through, mark.target_end) == (100, 100)
    if primary == "gone":
        with own.estate() as estate:
            loss = complete_evidence(estate, own.link)
        assert (loss.records, loss.lower_bound, loss.upper_bound) == (10, False, False)


def test_a_primary_that_was_set_back_since_the_first_one_has_lost_more(own, lab, tmp_path, behind):
    """All of it, its controllers too: no leader epoch tells, and its log ends where it did."""
    topic, (first, second) = behind
    other, copy = own.create("primary", "other", partitions=1), tmp_path / "copy"
    own.produce("primary", other, texts("first", 60, [0]))
    with stopped(lab, "primary-1") as disk:
        disk.copy_to(copy)
    own.produce("primary", other, texts("second", 40, [0]))
    mirror(own)
    away(own, first)
    own.produce("dr", other, texts("written on dr", 7, [0]))
    with stopped(lab, "primary-1") as disk:
        disk.set_back(copy)
    own.produce("primary", other, texts("third", 40, [0]))
    plan, result = away(own, second)
    for loss in (plan.loss, result.machine.facts.loss):
        assert {each.topic: each.records for each in loss.by_topic} == {topic: 0, other: 40}
        assert (loss.records, loss.lower_bound) == (40, False)
