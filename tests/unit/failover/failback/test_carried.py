"""Carried positions whose topic has gone from the live cluster before it was brought back."""

from dataclasses import replace

import pytest

from drkit.failover.failback.carried_offsets import PartitionMapping, as_committed_there, carried, with_carried
from drkit.failover.plan.failback_plan import ScrubTopic
from drkit.failover.positions.positions import PlannedPosition
from drkit.kafka.groups.group_admin import CommittedOffset
from drkit.model.clock import now
from drkit.model.offsets import Certainty, GroupPosition, OffsetMapping, Watermark
from drkit.model.topology import TopicPartition


def position(topic, source_offset, target_offset=None, group="g"):
    stands = GroupPosition(group, topic, 0, 7, "", now())
    return replace(PlannedPosition.unplaced(stands, topic), source_offset=source_offset, target_offset=target_offset)


def test_a_carried_position_whose_topic_has_gone_since_reads_what_was_brought_back_from_its_start():
    gone = TopicPartition("gone", 0)
    (found,) = with_carried([position("gone", 12)], [position("gone", 12)], {gone: 3})
    assert (found.target_offset, found.translation) == (3, Certainty.CONSERVATIVE)
    assert "has gone from the live cluster" in found.reason
    (alone,) = with_carried([], [position("gone", 12)], {gone: 3})
    assert alone.target_offset == 3


def test_one_that_was_placed_stays_where_it_is_and_one_that_nobody_can_place_stays_out():
    (placed,) = with_carried([position("gone", 12, 12)], [position("gone", 12)], {TopicPartition("gone", 0): 3})
    assert placed.target_offset == 12
    assert with_carried([], [position("there", None)], {}) == ()


def test_a_group_that_has_committed_on_the_live_cluster_goes_by_that():
    """Also one that isn't the link's: its other partitions stay where they were."""
    live = [CommittedOffset("g", "t", 0, 50, "m")]
    read_on, other = as_committed_there(live, [position("t", 7), position("t", 9, group="h")])
    assert (read_on.source_offset, read_on.metadata, read_on.translation) == (50, "m", Certainty.EXACT)
    assert other.source_offset == 9


@pytest.mark.parametrize("why", ["its rows aren't proven", None])
def test_a_carried_offset_is_no_surer_on_the_old_primary_than_it_was_on_the_live_cluster(why):
    """The move back places it by the new mapping, which knows nothing of how it was found: it was exact there."""
    tp, rows = TopicPartition("t", 0), (OffsetMapping("t", 0, 1, 0, 0), OffsetMapping("t", 0, 1, 10, 8))
    mapping = PartitionMapping(Watermark("t", 0, 1, 20, 18, 0, 20, 0, now()), rows, in_doubt=why)
    topic = ScrubTopic("t", "T", "t", 1, 1, 1, created_by_drkit=False)
    (kept,) = carried({tp: mapping}, [CommittedOffset("g", "t", 0, 12, "")], {"t": topic})
    assert kept.source_offset == (10 if why is None else 8), "where the row in force begins: the next may be lost"
    assert kept.translation is (Certainty.EXACT if why is None else Certainty.CONSERVATIVE)
    chosen = replace(kept, target_offset=10, translation=Certainty.EXACT, reread=0, skipped=0, reason=None)
    (placed,) = with_carried([chosen], [kept], {})
    assert placed.target_offset == 10
    assert (placed.translation, placed.skipped, placed.reason) == (
        (Certainty.EXACT, 0, None) if why is None else (Certainty.CONSERVATIVE, 0, kept.reason)
    )
    read_on = replace(chosen, source_offset=14)
    assert with_carried([read_on], [kept], {}) == (read_on,), "it has committed there since"
