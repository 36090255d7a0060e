"""What of an old primary's topic is on the live cluster, by what the store holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from drkit.failover.context.live_log import STARTS_LATER, only_here
from drkit.failover.failback.carried_offsets import MappedTopic, mappings_of
from drkit.model.link_state import FOREIGN_WRITER, Problem, TopicState
from drkit.model.offsets import Certainty, OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store

LINK = LinkId("primary", "dr")
AT = datetime(2026, 11, 27, tzinfo=UTC)
OTHER = Problem(FOREIGN_WRITER, "t", 0, "other records", "look", halted=True, since=AT, unsure_from=100)


@pytest.mark.parametrize(
    ("problem", "only"),
    [(None, 0), (OTHER, 20), (replace(OTHER, partition=1), 0), (replace(OTHER, unsure_from=0), 120)],
    ids=["nothing on record", "other records", "of another partition", "from an unknown offset on"],
)
def test_what_both_sides_are_known_to_hold_differently_is_on_the_old_primary_only(
    problem: Problem | None, only: int
) -> None:
    store = open_store("sqlite:///:memory:")
    store.put_topic_states(LINK, [TopicState("t", "t", "id-1", "id-2", 1, 1, created_by_drkit=True)])
    store.append_mappings(LINK, [OffsetMapping("t", 0, 1, 0, 0)])
    store.put_watermarks(LINK, [Watermark("t", 0, 1, 130, 130, 0, 130, 0, AT)])
    if problem is not None:
        store.put_problem(LINK, problem)
    mark, rows, *_ = mappings_of(store, LINK, [MappedTopic("t", "t", 1, way_back=False)])[TopicPartition("t", 0)]
    assert only_here((0, 120), mark, rows, (0, 130)).offsets == only
    store.close()


def test_an_offset_of_which_the_live_cluster_has_what_follows_from_a_former_epoch_has_no_place() -> None:
    """Accepted as a new topic twice, mirrored anew to 20: the failover had no place for the group, either."""
    store = open_store("sqlite:///:memory:")
    store.put_topic_states(LINK, [TopicState("t", "t", "id-1", "id-2", 3, 1, created_by_drkit=True)])
    store.append_mappings(LINK, [OffsetMapping("t", 0, 1, 0, 0), OffsetMapping("t", 0, 3, 0, 100)])
    store.put_watermarks(LINK, [Watermark("t", 0, 3, 20, 120, 0, 100, 0, AT)])
    tp = TopicPartition("t", 0)
    for live_start, certainty, there in ((0, Certainty.UNAVAILABLE, None), (100, Certainty.CONSERVATIVE, 120)):
        asked = MappedTopic("t", "t", 1, way_back=False, live_starts={0: live_start})
        place = mappings_of(store, LINK, [asked])[tp].translate(tp, 95)
        assert (place.certainty, place.target_offset) == (certainty, there)
    store.close()


@pytest.mark.parametrize(
    ("live_start", "offsets", "gap"), [(0, 30, None), (5, 35, STARTS_LATER)], ids=["whole", "cut at its start"]
)
def test_a_hole_at_the_beginning_of_the_old_log_was_never_on_the_live_one(
    live_start: int, offsets: int, gap: str | None
) -> None:
    """The compacted log's first batch began at 30 when it was mirrored, and its log still starts at 0."""
    mark, rows = Watermark("t", 0, 1, 130, 100, 0, 130, 0, AT), [OffsetMapping("t", 0, 1, 30, 0)]
    found = only_here((0, 130), mark, rows, (live_start, 100))
    assert (found.offsets, found.gap) == (offsets, gap)


def test_an_offset_above_where_both_sides_differ_goes_back_to_that_place() -> None:
    """The group may have read either side's records above it: at the live log's end it skipped those that are there."""
    store = open_store("sqlite:///:memory:")
    store.put_topic_states(LINK, [TopicState("t", "t", "id-1", "id-2", 1, 1, created_by_drkit=True)])
    store.append_mappings(LINK, [OffsetMapping("t", 0, 1, 0, 5)])
    store.put_watermarks(LINK, [Watermark("t", 0, 1, 130, 135, 0, 130, 5, AT)])
    store.put_problem(LINK, OTHER)
    tp = TopicPartition("t", 0)
    mapping = mappings_of(store, LINK, [MappedTopic("t", "t", 1, way_back=False)])[tp]
    assert [mapping.translate(tp, offset).target_offset for offset in (99, 100, 115)] == [104, 105, 105]
    assert mapping.translate(tp, 115).certainty is Certainty.CONSERVATIVE
    store.close()
