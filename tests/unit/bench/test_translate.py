from bench.translate import Commit, Copied, Cost, cost, judge
from drkit.model.topology import TopicPartition

PLACE = TopicPartition("orders", 0)
# source offset 3 was a marker, 6 was compacted away; the target has neither
LOG = [Copied(0, 0), Copied(1, 1), Copied(2, 2), Copied(3, 4), Copied(4, 5), Copied(5, 7)]


def test_an_exact_position_costs_nothing():
    assert cost(LOG, 4, 3) == Cost(0, 0)
    assert cost(LOG, 0, 0) == Cost(0, 0)
    assert cost(LOG, 8, 6) == Cost(0, 0)


def test_a_commit_in_a_hole_has_the_next_record_as_its_place():
    assert cost(LOG, 3, 3) == Cost(0, 0)
    assert cost(LOG, 6, 5) == Cost(0, 0)


def test_too_low_a_position_reads_again():
    assert cost(LOG, 5, 1) == Cost(reread=3, skipped=0)


def test_too_high_a_position_skips():
    assert cost(LOG, 1, 4) == Cost(reread=0, skipped=3)


def test_a_target_with_a_record_twice_is_counted_as_it_lies():
    doubled = [Copied(0, 0), Copied(1, 1), Copied(2, 0), Copied(3, 1), Copied(4, 2)]
    assert cost(doubled, 2, 2) == Cost(reread=2, skipped=0)


def test_a_position_on_a_marker_of_the_target_is_as_good_as_the_next_record():
    assert cost([Copied(0, 0), Copied(2, 1)], 1, 1) == cost([Copied(0, 0), Copied(2, 1)], 1, 2) == Cost(0, 0)


def test_sums_and_maxima_are_over_what_was_answered():
    commits = [Commit("a", PLACE, 4), Commit("b", PLACE, 5), Commit("c", PLACE, 1), Commit("none", PLACE, 2)]
    run = judge("mirrormaker", "plain", commits, {"a": 3, "b": 1, "c": 4}, {PLACE: LOG})
    assert (run["commits"], run["answered"], run["exact"]) == (4, 3, 1)
    assert (run["reread_sum"], run["reread_max"], run["skipped_sum"], run["skipped_max"]) == (3, 3, 3, 3)
