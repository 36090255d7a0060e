"""What is missing on the target once a problem tells that the logs aren't those any more that were mirrored."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from drkit.lag.partition_lag import Doubts, gaps_of, partition_lag
from drkit.model.link_state import Problem
from drkit.model.offsets import OffsetMapping, Watermark
from drkit.model.topology import TopicPartition

AT = datetime(2026, 11, 20, 4, 3, tzinfo=UTC)
TP = TopicPartition("t", 0)
MARK = Watermark("t", 0, 1, 1_000, 1_000, 0, 1_000, 0, AT)
TRUNCATED = Problem("source_truncated", "t", 0, "", "", halted=True, since=AT, unsure_from=940)
RECREATED = Problem("topic_recreated", "t", None, "another topic", "", halted=True, since=AT)
PURGED = replace(TRUNCATED, kind="target_purged", halted=False, unsure_from=100, unsure_until=300)
RECOVERED = replace(TRUNCATED, kind="store_recovered", halted=False)
DENIED = replace(RECREATED, kind="source_topic_denied", reason="not shown")


@pytest.mark.parametrize(
    ("problems", "through", "records", "since"),
    [
        ([], 1_000, 50, None),
        ([TRUNCATED], 940, 110, AT),
        ([TRUNCATED, replace(TRUNCATED, kind="foreign_writer", unsure_from=900)], 900, 150, AT),
        ([replace(TRUNCATED, partition=1)], 1_000, 50, None),
        ([replace(TRUNCATED, topic="other")], 1_000, 50, None),
        ([replace(TRUNCATED, unsure_from=2_000)], 1_000, 50, AT),
        ([replace(TRUNCATED, kind="foreign_writer")], 940, 110, AT),
        ([replace(TRUNCATED, kind="records_misplaced", halted=False)], 1_000, 50, None),
        ([RECREATED], None, 1_040, AT),
        ([replace(RECREATED, kind="target_recreated")], None, 1_040, AT),
        ([PURGED], 1_000, 250, AT),
        ([TRUNCATED, replace(PURGED, unsure_until=990)], 940, 950, AT),
    ],
)
def test_what_is_missing(problems, through, records, since):
    found = partition_lag(TP, MARK, problems, start=10, end=1_050)
    assert (found.through, found.records, found.since, found.at_least) == (through, records, since, False)


def test_what_was_removed_ends_what_is_mirrored():
    assert partition_lag(TP, MARK, [PURGED], start=10, end=1_000).mirrored_through == 100
    assert partition_lag(TP, MARK, [], start=10, end=1_000).mirrored_through == 1_000
    assert partition_lag(TP, None, [PURGED], start=10, end=1_000).mirrored_through is None


@pytest.mark.parametrize(
    ("problems", "doubts", "end", "reason"),
    [
        ([replace(TRUNCATED, reason="parted")], Doubts(unseen=True), 1_000, "parted"),
        ([RECOVERED], Doubts(), 1_000, "the store was lost"),
        ([DENIED], Doubts(), None, "not shown"),
        ([RECREATED], Doubts(), None, "another topic"),
    ],
)
def test_what_cannot_be_known_has_its_reason(problems, doubts, end, reason):
    found = partition_lag(TP, MARK, problems, start=None, end=end, doubts=doubts)
    assert found.records is None
    assert found.reason is not None
    assert found.reason.startswith(reason)


def test_without_a_record_all_of_it_is_missing_or_nothing_is_known():
    assert partition_lag(TP, None, [], start=10, end=30).records == 20
    assert partition_lag(TP, None, [], start=None, end=None).reason == "nothing was recorded about it"


def test_a_source_that_is_gone_is_judged_by_the_last_look_at_it():
    behind = replace(MARK, source_end=1_030, observed_at=AT + timedelta(seconds=1))
    assert partition_lag(TP, behind, [TRUNCATED], start=None, end=None).records == 90
    assert partition_lag(TP, behind, [], start=None, end=None, doubts=Doubts(gone=True)).records == 1_030


@pytest.mark.parametrize("parted", [[TRUNCATED], [replace(TRUNCATED, kind="foreign_writer"), TRUNCATED]])
def test_an_end_that_was_seen_before_the_source_lost_its_tail_says_nothing_of_what_it_holds_since(parted):
    found = partition_lag(TP, MARK, parted, start=None, end=None)
    assert (found.records, found.through, found.since) == (None, 940, AT)
    assert "what it holds from source offset 940 on was not seen since" in found.reason
    assert partition_lag(TP, MARK, parted, start=0, end=950).records == 10, "it answers"
    later = replace(MARK, source_end=945, observed_at=AT + timedelta(seconds=1))
    assert partition_lag(TP, later, parted, start=None, end=None).records == 5, "a mirror has looked at it since"


@pytest.mark.parametrize(
    ("problems", "end", "lost"),
    [
        ([], 1_000, (0, 0, 10)),
        ([TRUNCATED], 940, (0, 0, 0)),
        ([TRUNCATED], 945, (0, 5, 5)),
        ([TRUNCATED], 2_000, (0, 60, 70)),
    ],
)
def test_a_group_lost_what_the_source_holds_below_its_commit_and_not_what_the_source_lost(problems, end, lost):
    found = partition_lag(TP, MARK, problems, start=0, end=end)
    assert tuple(found.lost_below(commit) for commit in (940, 1_000, 1_010)) == lost


def test_a_group_that_read_what_a_source_held_before_it_was_set_back_lost_only_what_it_holds_now():
    back = replace(TRUNCATED, kind="foreign_writer", unsure_from=500)
    found = partition_lag(TP, MARK, [back], start=0, end=600)
    assert (found.records, found.at_most) == (100, False)
    assert tuple(found.lost_below(commit) for commit in (500, 550, 1_000)) == (0, 50, 100)


def test_of_a_store_that_was_recovered_nothing_counts_as_mirrored_where_both_sides_differ():
    recovered = replace(TRUNCATED, kind="store_recovered", halted=False, unsure_from=980)
    back = replace(TRUNCATED, kind="foreign_writer", unsure_from=900)
    found = partition_lag(TP, MARK, [recovered, back], start=0, end=1_000)
    assert (found.records, found.through, found.lost_below(900), found.lost_below(950)) == (None, 900, 0, None)


def test_what_a_group_lost_is_unknown_where_the_loss_is():
    unseen = partition_lag(TP, MARK, [TRUNCATED], start=None, end=None)
    assert (unseen.lost_below(940), unseen.lost_below(941)) == (0, None)
    assert partition_lag(TP, None, [], start=0, end=9).lost_below(5) is None


def test_what_could_not_be_judged_makes_it_a_lower_bound():
    found = partition_lag(TP, MARK, [], start=10, end=1_050, doubts=Doubts(unjudged="who removed it isn't known"))
    assert (found.records, found.at_least, found.reason) == (50, True, "who removed it isn't known")


def test_a_log_that_lost_its_end_may_have_got_its_beginning_back():
    """Below the first row nothing was mirrored."""
    first = OffsetMapping("t", 0, 1, 200, 200)
    assert partition_lag(TP, MARK, [TRUNCATED], start=50, end=1_000, first=first).records == 60 + 150
    assert partition_lag(TP, MARK, [], start=50, end=1_000, first=first).records == 0
    lost = Doubts(lost_since=AT - timedelta(seconds=9))
    found = partition_lag(TP, replace(MARK, source_through=0), [], start=50, end=100, first=first, doubts=lost)
    assert (found.records, found.since) == (50, AT - timedelta(seconds=9))


@pytest.mark.parametrize("purged", [(100, 300), (0, 300), (200, 300), (100, 150)])
def test_a_beginning_that_is_back_and_a_purge_of_the_target_count_both_and_what_both_name_once(purged):
    """The purge wasn't counted (the adversary, seed 71424)."""
    first = OffsetMapping("t", 0, 1, 200, 200)
    gone = replace(PURGED, unsure_from=purged[0], unsure_until=purged[1])
    found = partition_lag(TP, MARK, [TRUNCATED, gone], start=50, end=1_000, first=first)
    behind = max(0, purged[1] - 200)
    assert (found.records, found.mirrored_through, found.through) == (60 + 150 + behind, 50, 940)
    assert sum(gap.until - gap.begin for gap in found.gaps) == 150 + behind


def test_where_all_may_differ_all_counts_and_it_is_said():
    found = partition_lag(TP, MARK, [replace(TRUNCATED, unsure_from=0, reason="parted")], start=0, end=700)
    assert (found.records, found.reason) == (700, "all that the source holds counts: parted")
    assert found.at_most


RETURNED = replace(PURGED, kind="records_returned", unsure_from=250, unsure_until=400)


@pytest.mark.parametrize(
    ("source_start", "through", "gaps"),
    [
        (0, 1_000, [(100, 300), (300, 400)]),
        (150, 1_000, [(150, 300), (300, 400)]),
        (300, 1_000, [(300, 400)]),
        (0, 350, [(100, 300), (300, 350)]),
        (0, 100, []),
        (400, 1_000, []),
    ],
)
def test_what_is_missing_below_what_the_target_has_counts_once_and_as_far_as_the_source_holds_it(
    source_start, through, gaps
):
    found = gaps_of([TRUNCATED, RETURNED, PURGED], source_start, through)
    assert [(gap.begin, gap.until) for gap in found] == gaps


def test_what_a_source_has_again_counts_beside_what_it_holds_differently():
    found = partition_lag(TP, MARK, [replace(TRUNCATED, kind="foreign_writer"), RETURNED], start=0, end=1_050)
    assert (found.records, found.mirrored_through) == (110 + 150, 250)
    of_another = replace(RETURNED, partition=1)
    assert partition_lag(TP, MARK, [of_another], start=0, end=1_000).records == 0
