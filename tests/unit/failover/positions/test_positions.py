from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from drkit.failover.positions.mirrormaker_positions import positions_by_mirrormaker
from drkit.failover.positions.positions import Strategy, choose_positions, never_committed
from drkit.failover.snapshot.selection import Edge, GroupTarget, Selection, TopicSelector, parse_topic_selector
from drkit.kafka.groups.mirrormaker import MirrorMakerOffsets
from drkit.model.errors import ConfigError
from drkit.model.groups import UnmovableGroup
from drkit.model.link_state import Problem
from drkit.model.offsets import Certainty
from drkit.model.topology import Link, LinkId, TopicPartition, TopicPolicy
from tests.unit.failover.plan.worlds import AT, Log, moment, position, world

ALL = Selection()


def placed(log, offset, at=None, **options):
    (found,) = choose_positions(world([log.view(at=at, **options)], [position(offset)]), ALL, at)
    return found


# -- by mapping ------------------------------------------------------------------------------------


def test_equal_offsets_are_preserved():
    found = placed(Log("rrrrr"), 3)
    assert (found.target_offset, found.strategy, found.translation) == (3, Strategy.PRESERVED, Certainty.EXACT)
    assert (found.reread, found.skipped, found.lost, found.reason) == (0, 0, 0, None)
    assert found.why


def test_a_constant_delta_is_mapping_not_preserved():
    found = placed(Log("rrrrr", target_base=5), 3)
    assert (found.target_offset, found.strategy, found.translation) == (8, Strategy.MAPPING, Certainty.EXACT)
    assert found.reason is None


def test_one_hole_anywhere_ends_preservation_of_the_whole_partition():
    found = placed(Log("rrrrhrr"), 2)
    assert (found.target_offset, found.strategy, found.translation) == (2, Strategy.MAPPING, Certainty.EXACT)


@pytest.mark.parametrize("rule", [None, moment(2)])
def test_where_the_store_may_lack_rows_no_position_is_exact_and_none_skips_anything(rule):
    """As for status and translate; by the rows that are left, those behind the lost one skipped the record at 3."""
    log = Log("rrrhrrr", stamps=range(6))
    view = log.view(at=rule)
    doubted = replace(view, rows=view.rows[:1], rows_in_doubt="its rows aren't proven")
    before, found = (choose_positions(world([each], [position(4)]), ALL, rule)[0] for each in (view, doubted))
    assert (before.translation, before.skipped) == (Certainty.EXACT, 0)
    assert found.translation is Certainty.CONSERVATIVE
    assert found.target_offset == view.rows[0].target_offset <= before.target_offset
    assert (found.reread, found.skipped) == (None, 0)
    assert found.reread_at_most == view.target_end - found.target_offset
    assert "its rows aren't proven" in (found.reason or "")


def test_a_commit_ahead_of_the_mirror_clamps_and_counts_as_lost():
    found = placed(Log("rrrrrrrrrr", through=6), 9)
    assert (found.target_offset, found.translation, found.lost) == (6, Certainty.CONSERVATIVE, 3)
    assert "ahead" in found.reason


def test_of_a_source_that_lost_its_tail_a_group_lost_what_came_there_since_and_reads_no_more_than_the_rest_again():
    """Whether it committed above the place before or after the loss can't be told; the target has what was lost."""
    lost = Problem("source_truncated", "t", 0, "parted", "", halted=True, since=AT, unsure_from=6)
    view = replace(Log("r" * 10).view(), problems=(lost,), source_start=0, source_end=8)
    groups = [position(offset, group=f"at-{offset}") for offset in (4, 7, 10)]
    snapshot = replace(world([view], groups), problems=(lost,))
    found = {each.group: each for each in choose_positions(snapshot, ALL, None)}
    assert {group: (each.target_offset, each.lost) for group, each in found.items()} == {
        "at-10": (6, 2),
        "at-4": (4, 0),
        "at-7": (6, 1),
    }
    assert [(each.reread, each.reread_bound) for each in found.values()] == [(None, 4), (0, 0), (None, 4)]


def test_of_a_source_that_was_set_back_a_group_reads_again_what_it_had_read_before():
    """Its commit there is older than the one that was captured: 0 was planned, and 4 were read again."""
    log = Log("r" * 10)
    snapshot = replace(world([log.view()], [position(3)]), behind_captured={("billing", TopicPartition("t", 0)): 7})
    for final in (False, True):
        (found,) = choose_positions(snapshot, ALL, None, final=final)
        assert (found.target_offset, found.translation, found.reread, found.reread_bound) == (
            *(3, Certainty.CONSERVATIVE),
            *(None, 4),
        )
        assert "had committed 7 before, and primary may have been set back" in found.reason
    (at_end,) = choose_positions(snapshot, replace(ALL, edge=Edge.LATEST), None)
    assert (at_end.target_offset, at_end.reread) == (10, 0)
    (late,) = choose_positions(replace(snapshot, positions_live=False), ALL, None)
    assert (late.target_offset, late.reread_bound) == (3, 7), "it may have read on, too"


def test_what_a_live_group_reads_again_is_only_bounded():
    """0 was planned and 360 were seen: the group had continued since its position was captured."""
    log = Log("r" * 10)
    for seen in ({"positions_live": False}, {"source_members": {"billing": 1}}):
        (found,) = choose_positions(world([log.view()], [position(3)], **seen), Selection(), None)
        assert (found.target_offset, found.translation, found.skipped) == (3, Certainty.EXACT, 0)
        assert (found.reread, found.reread_at_most) == (None, 7)
        assert "read" in found.reason
        (final,) = choose_positions(world([log.view()], [position(3)], **seen), Selection(), None, final=True)
        assert (final.reread, final.reason) == (0, None)
    (at_end,) = choose_positions(world([log.view()], [position(10)], positions_live=False), Selection(), None)
    assert (at_end.reread, at_end.reason) == (0, None)


def test_metadata_and_capture_time_stay():
    found = placed(Log("rr"), 1)
    assert (found.metadata, found.captured_at) == ("kept", AT)


def test_below_the_targets_log_start_it_starts_there_and_says_so():
    found = placed(Log("rrrrrrrr"), 2, target_start=5)
    assert (found.target_offset, found.translation) == (5, Certainty.CONSERVATIVE)
    assert "retention" in found.reason


def test_retention_that_the_watermark_has_not_seen_counts_too():
    log = Log("rrrrrrrr")
    view = replace(log.view(), target_start=5)
    (found,) = choose_positions(world([view], [position(2)]), ALL, None)
    assert (found.target_offset, found.translation) == (5, Certainty.CONSERVATIVE)
    assert "no longer holds 3 offsets" in found.reason


def test_a_target_that_lost_its_tail_is_clamped_to_its_end():
    log = Log("rrrrrrrr")
    view = replace(log.view(), target_end=4)
    (found,) = choose_positions(world([view], [position(7)]), ALL, None)
    assert (found.target_offset, found.translation) == (4, Certainty.CONSERVATIVE)
    assert "lost 3" in found.reason


def test_an_empty_partition_that_is_watched_is_exact():
    log = Log("")
    view = replace(log.view(), rows=())
    (found,) = choose_positions(world([view], [position(0)]), ALL, None)
    assert (found.target_offset, found.translation, found.lost) == (0, Certainty.EXACT, 0)


def test_an_accepted_topic_of_which_nothing_is_produced_yet_hides_nothing_of_before():
    """Its source was empty when a mirror began it; a group below that has unread records in the former copy."""
    view = replace(Log("").view(), rows=(), target_start=0, target_end=6, former=((0, 6),))
    mark = replace(view.watermark, source_start=6, source_through=6, source_end=6, target_end=6)
    (behind, done) = choose_positions(
        world([replace(view, watermark=mark)], [position(3), position(6, group="done")]), ALL, None
    )
    assert [(each.group, each.target_offset) for each in (behind, done)] == [("billing", None), ("done", 6)]
    assert "nothing of the topic is mirrored yet" in behind.reason


def test_a_store_that_lost_its_mapping_rows_places_no_group_at_the_end():
    view = replace(Log("rrrr").view(), rows=())
    (found,) = choose_positions(world([view], [position(2)]), ALL, None)
    assert (found.target_offset, found.translation) == (None, Certainty.UNAVAILABLE)
    assert "the store has lost rows" in found.reason


def test_a_topic_missing_on_the_target_is_unavailable_with_the_reason():
    view = replace(Log("rr").view(), target_end=None, target_start=None)
    (found,) = choose_positions(world([view], [position(1)]), ALL, None)
    assert (found.target_offset, found.strategy, found.translation) == (None, None, Certainty.UNAVAILABLE)
    assert found.reason == "t:0 is not on dr"


def test_a_partition_that_nothing_is_known_of_is_unavailable():
    (found,) = choose_positions(world([], [position(1)]), ALL, None)
    assert (found.target_offset, found.translation, found.reread) == (None, Certainty.UNAVAILABLE, None)


def test_a_recreated_source_topic_is_not_translated_by_the_old_ones_rows():
    view = replace(Log("rrrr").view(), recreated=True)
    (found,) = choose_positions(world([view], [position(2)]), ALL, None)
    assert found.target_offset is None
    assert "recreated" in found.reason


def test_prefixed_topics_keep_the_sources_name_and_name_the_targets():
    link = Link(LinkId("primary", "dr"), topics=("t",), policy=TopicPolicy.PREFIX)
    view = replace(Log("rrr").view(), target_topic="primary.t")
    (found,) = choose_positions(world([view], [position(1)], link=link), ALL, None)
    assert (found.topic, found.target_topic, found.target_tp) == ("t", "primary.t", TopicPartition("primary.t", 0))


# -- by time ---------------------------------------------------------------------------------------


def test_by_time_goes_back_to_that_time_and_counts_what_is_read_again():
    log = Log("rrrrrr", stamps=[10, 20, 30, 40, 50, 60])
    found = placed(log, 5, moment(30))
    assert (found.target_offset, found.strategy, found.reread) == (2, Strategy.TIMESTAMP, 3)
    assert "3 before where the group had got to (5)" in found.reason


def test_by_time_never_passes_what_a_lagging_group_had_not_read():
    log = Log("rrrrrr", stamps=[10, 20, 30, 40, 50, 60])
    found = placed(log, 1, moment(50))
    assert (found.target_offset, found.strategy, found.reread, found.skipped) == (1, Strategy.PRESERVED, 0, 0)
    assert "by time it would be 4" in found.reason


def test_a_record_stamped_late_by_a_slow_clock_is_not_skipped():
    # the record at 4 says 15; offsetsForTimes(30) answers 2, and what lies after it is read again
    log = Log("rrrrrr", stamps=[10, 20, 30, 40, 15, 60])
    found = placed(log, 4, moment(50))
    assert found.target_offset == 4
    assert placed(log, 6, moment(30)).target_offset == 2


def test_no_record_that_late_means_the_log_end_but_unread_records_hold_it_back():
    log = Log("rrrrrr", stamps=[10, 20, 30, 40, 50, 60])
    caught_up = placed(log, 6, moment(99))
    assert (caught_up.target_offset, caught_up.reread) == (6, 0)
    lagging = placed(log, 2, moment(99))
    assert (lagging.target_offset, lagging.strategy) == (2, Strategy.PRESERVED)


def test_both_answers_agreeing_is_time_without_remark():
    log = Log("rrrr", stamps=[10, 20, 30, 40])
    found = placed(log, 2, moment(30))
    assert (found.target_offset, found.strategy, found.reread, found.reason) == (2, Strategy.TIMESTAMP, 0, None)


def test_where_only_the_time_is_known_it_says_so_and_claims_nothing():
    log = Log("rrrr", stamps=[10, 20, 30, 40])
    view = replace(log.view(at=moment(30)), watermark=None, rows=())
    (found,) = choose_positions(world([view], [position(3)]), ALL, moment(30))
    assert (found.target_offset, found.strategy, found.translation) == (2, Strategy.TIMESTAMP, Certainty.UNAVAILABLE)
    assert (found.reread, found.skipped, found.lost) == (None, None, None)
    assert "by time alone" in found.reason


def test_a_clamped_commit_by_time_still_counts_its_loss():
    log = Log("rrrrrrrr", through=5, stamps=[10, 20, 30, 40, 50, 60, 70, 80])
    found = placed(log, 8, moment(40))
    assert (found.target_offset, found.lost, found.reread) == (3, 3, 2)
    assert found.translation is Certainty.CONSERVATIVE
    assert "ahead" in found.reason


# -- properties ------------------------------------------------------------------------------------

EVENTS = st.text(alphabet="rrrrhmb", max_size=40)


@st.composite
def logs(draw):
    events = draw(EVENTS)
    source_base = draw(st.integers(0, 50))
    size = sum(event in "rhb" for event in events)
    through = draw(st.none() | st.integers(source_base, source_base + size))
    stamps = draw(st.lists(st.integers(0, 100), min_size=len(events), max_size=len(events)))  # in no order
    return Log(events, through, source_base, draw(st.integers(0, 50)), stamps)


def unread(log, offset):
    """Target offsets of mirrored records that a group at `offset` has not read."""
    return {there for here, there in log.places.items() if here >= offset}


@given(log=logs(), data=st.data())
def test_never_skips_a_record_that_was_not_read(log, data):
    offset = data.draw(st.integers(log.source_base, log.source_end))
    at = data.draw(st.none() | st.integers(0, 110).map(moment))
    found = placed(log, offset, at)
    assert found.target_offset is not None
    assert found.skipped == 0
    assert all(there >= found.target_offset for there in unread(log, offset))


@given(log=logs(), data=st.data())
def test_by_time_everything_stamped_since_then_is_read_again(log, data):
    offset = data.draw(st.integers(log.source_base, log.source_end))
    at = data.draw(st.integers(0, 110).map(moment))
    found = placed(log, offset, at)
    assert all(there >= found.target_offset for there, stamp in log.stamped.items() if stamp >= at.millis)


@given(log=logs(), data=st.data())
def test_the_re_read_count_is_exact_in_offsets(log, data):
    offset = data.draw(st.integers(log.source_base, log.source_end))
    at = data.draw(st.integers(0, 110).map(moment))
    by_mapping, by_time = placed(log, offset), placed(log, offset, at)
    assert by_time.reread == by_mapping.target_offset - by_time.target_offset + by_mapping.reread
    read_again = {there for here, there in log.places.items() if here < offset and there >= by_time.target_offset}
    assert len(read_again) <= by_time.reread


@given(log=logs(), data=st.data())
def test_by_mapping_an_exact_answer_reads_nothing_again(log, data):
    offset = data.draw(st.integers(log.source_base, log.source_end))
    found = placed(log, offset)
    assume(found.translation is Certainty.EXACT)
    assert not {there for here, there in log.places.items() if here < offset and there >= found.target_offset}
    assert found.lost == 0


@given(log=logs(), data=st.data())
def test_the_loss_is_what_was_read_and_never_mirrored(log, data):
    offset = data.draw(st.integers(log.source_base, log.source_end))
    assert placed(log, offset).lost == max(0, offset - log.mirrored)


@given(log=logs(), data=st.data())
def test_a_later_commit_never_gets_an_earlier_place(log, data):
    at = data.draw(st.none() | st.integers(0, 110).map(moment))
    offsets = range(log.source_base, log.source_end + 1)
    answers = [placed(log, offset, at).target_offset for offset in offsets]
    assert answers == sorted(answers)


# -- selection -------------------------------------------------------------------------------------


def several():
    views = [replace(Log("rrrr").view(), topic=t, target_topic=t, partition=p) for t in ("a", "b") for p in (0, 1)]
    views = [replace(v, rows=(), watermark=None) for v in views]
    groups = [position(1, group=g, topic=t, partition=p) for g in ("g1", "g2") for t in ("a", "b") for p in (0, 1)]
    return world(views, groups, committed={("elsewhere", TopicPartition("a", 0)): 3})


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(), 8),
        (Selection(groups=("g1",)), 4),
        (Selection(groups=("g1", "g2"), topics=(TopicSelector("a"),)), 4),
        (Selection(topics=(TopicSelector("a", (1,)),)), 2),
        (Selection(topics=(TopicSelector("a", (1,)), TopicSelector("b"))), 6),
    ],
)
def test_the_selection_says_which_positions_are_meant(selection, expected):
    assert len(choose_positions(several(), selection, None)) == expected


def test_an_unknown_group_is_refused_and_the_known_ones_named():
    with pytest.raises(ConfigError, match="no group biling is known") as caught:
        choose_positions(several(), Selection(groups=("biling",)), None)
    assert "g1, g2" in caught.value.remedy


def test_a_group_that_exists_on_the_target_only_has_nothing_to_move():
    with pytest.raises(ConfigError, match="has no position on primary"):
        choose_positions(several(), Selection(groups=("elsewhere",)), None)


def test_an_unknown_topic_or_partition_is_refused():
    with pytest.raises(ConfigError, match="carries no topic nope"):
        choose_positions(several(), Selection(topics=(TopicSelector("nope"),)), None)
    with pytest.raises(ConfigError, match="no partition 7"):
        choose_positions(several(), Selection(topics=(TopicSelector("a", (0, 7)),)), None)


def test_partitions_never_committed_are_named_not_guessed():
    left = world(several().partitions.values(), [position(1, group="g1", topic="a", partition=0)])
    assert never_committed(left, ALL) == {"g1": [TopicPartition("a", 1)]}
    assert len(choose_positions(left, ALL, None)) == 1


def test_existing_positions_of_the_target_are_noted():
    log = Log("rrrr")
    there = world([log.view()], [position(2)], committed={("billing", TopicPartition("t", 0)): 3})
    (found,) = choose_positions(there, ALL, None)
    assert (found.existing, found.rewinds) == (3, True)


@pytest.mark.parametrize(
    ("text", "topic", "partitions"), [("t", "t", ()), ("t:0", "t", (0,)), ("a.b:2,0,2", "a.b", (0, 2))]
)
def test_a_topic_is_selected_as_kafkas_tools_write_it(text, topic, partitions):
    assert parse_topic_selector(text) == TopicSelector(topic, partitions)


@pytest.mark.parametrize("text", ["", ":0", "t:", "t:x", "t:-1", "t:0,,1"])
def test_a_malformed_topic_is_refused(text):
    with pytest.raises(ConfigError, match="is not a topic"):
        parse_topic_selector(text)


# -- groups with a place of their own -----------------------------------------------------------------


def two_groups(**chosen):
    log = Log("r" * 10, stamps=range(0, 10_000, 1000), target_base=5, through=8)
    seen = world([log.view(at=moment(6000))], [position(3, group="a"), position(7, group="b"), position(9, group="c")])
    seen = replace(seen, stamped={2000: {TopicPartition("t", 0): log.at_offset(2000)}})
    return {p.group: p for p in choose_positions(seen, Selection(**chosen), chosen_at(chosen))}


def chosen_at(chosen):
    return None if chosen.get("edge") else moment(6000)


def test_the_edges_of_the_log_count_what_they_skip_and_what_they_read_again():
    first = two_groups(edge=Edge.EARLIEST)
    assert [(p.target_offset, p.reread, p.skipped) for p in first.values()] == [(5, 3, 0), (5, 7, 0), (5, 8, 0)]
    last = two_groups(edge=Edge.LATEST)
    assert [(p.target_offset, p.reread, p.skipped) for p in last.values()] == [(13, 0, 5), (13, 0, 1), (13, 0, 0)]
    assert "5 offsets that the group had not read are skipped" in last["a"].reason
    assert last["c"].lost == 1
    assert {p.strategy for p in last.values()} == {Strategy.TIMESTAMP}


def test_a_group_with_a_place_of_its_own_leaves_the_others_where_they_go():
    placed = two_groups(places=(GroupTarget("b", moment(2000)), GroupTarget("c", Edge.EARLIEST)))
    assert [(group, p.target_offset) for group, p in placed.items()] == [("a", 8), ("b", 7), ("c", 5)]
    assert placed["b"].reread == 5


def test_what_an_edge_skips_is_not_known_where_the_place_is_not():
    view = replace(Log("r" * 10).view(), rows=(), watermark=None)
    (placed,) = choose_positions(world([view], [position(3)]), Selection(edge=Edge.LATEST), None)
    assert (placed.target_offset, placed.skipped, placed.reread) == (10, None, None)
    assert "what is skipped or read again is not known" in placed.reason


def test_groups_at_one_place_keep_what_is_their_own():
    seen = world([Log("r" * 10).view()], [position(3, group="a"), position(3, group="b")._replace(metadata="other")])
    seen = replace(seen, committed={("b", TopicPartition("t", 0)): 9})
    first, second = choose_positions(seen, Selection(), None)
    assert (first.group, first.metadata, first.existing) == ("a", "kept", None)
    assert (second.group, second.metadata, second.existing, second.target_offset) == ("b", "other", 9, 3)
    assert second.rewinds


@pytest.mark.parametrize("where", ["source", "target"])
def test_a_group_whose_id_became_another_type_of_group_on_one_side_gets_no_position(where):
    """Its captured position was committed as a consumer group's: no share consumer could join on the target; or the
    target refused the commit behind the fence."""
    seen = world([Log("rrrr").view()], [position(2), position(3, group="other")])
    if where == "source":
        seen = replace(seen, unmovable=(UnmovableGroup("billing", "share", {TopicPartition("t", 0): 2}, AT),))
    else:
        seen = replace(seen, unmovable_there={"billing": "share"})
    by_drkit = choose_positions(seen, ALL, None)
    by_mirrormaker = positions_by_mirrormaker(seen, MirrorMakerOffsets((), {TopicPartition("t", 0): ()}), ALL)
    for billing, _ in (by_drkit, by_mirrormaker):
        assert (billing.group, billing.target_offset, billing.translation) == ("billing", None, Certainty.UNAVAILABLE)
        assert "share group" in billing.reason
        assert "kafka-share-groups.sh" in billing.reason
    assert by_drkit[1].target_offset == 3
