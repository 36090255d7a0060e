"""The fewest records that must be set aside, against every subset tried."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drkit.audit.classify import ordering
from drkit.audit.classify.ordering import AdjacentLines, MatchedLine, Neighbours, heaviest_increasing, put_in_order


def heaviest_by_trying(runs: list[tuple[int, int]]) -> int:
    best = 0
    for size in range(len(runs) + 1):
        for chosen in combinations(runs, size):
            ranks = [rank for rank, _ in chosen]
            if ranks == sorted(ranks):
                best = max(best, sum(records for _, records in chosen))
    return best


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.lists(st.integers(1, 5), min_size=0, max_size=9).flatmap(
        lambda weights: st.permutations(range(len(weights))).map(lambda ranks: list(zip(ranks, weights, strict=True)))
    )
)
def test_the_kept_runs_rise_and_none_are_heavier(runs: list[tuple[int, int]]):
    kept = heaviest_increasing(runs)

    assert kept == sorted(set(kept))
    ranks = [runs[position][0] for position in kept]
    assert ranks == sorted(ranks)
    assert sum(runs[position][1] for position in kept) == heaviest_by_trying(runs)


def test_a_record_that_moved_is_the_only_one_set_aside():
    # a b | c | d e | f  read on the target as  a b d e c f
    assert heaviest_increasing([(0, 2), (4, 1), (2, 2), (5, 1)]) == [0, 2, 3]


def test_a_swap_of_neighbours_sets_one_aside():
    assert len(heaviest_increasing([(0, 10), (11, 1), (10, 1), (12, 10)])) == 3


def test_nothing_is_nothing():
    assert heaviest_increasing([]) == []


def line(s_lo: int, t_lo: int, records: int) -> MatchedLine:
    return MatchedLine(s_lo, s_lo + records - 1, t_lo, t_lo + records - 1, t_lo - s_lo, records, moved=records == 1)


@pytest.mark.parametrize(("passed", "aside"), [(20, {10, 20}), (14, {30})])
def test_lines_that_follow_each_other_on_both_sides_are_set_aside_together_or_not_at_all(passed, aside):
    """The lines from 10 and 20 on, 15 records, stand behind the line from 30 on, on the target."""
    lines = [line(30, 10, passed), line(20, 50, 5), line(0, 0, 10), line(10, 40, 10)]
    found = put_in_order(lines)
    assert {each.s_lo for each in found.aside} == aside
    assert [each.s_lo for each in found.kept] == sorted({0, 10, 20, 30} - aside)
    assert found.exact


def test_of_too_many_runs_what_comes_before_an_earlier_one_s_copy_is_set_aside_and_that_is_said(monkeypatch):
    lines = [line(0, 0, 1), line(1, 9, 1), line(2, 4, 3), line(5, 7, 2), line(7, 10, 1)]
    monkeypatch.setattr(ordering, "MOST_RUNS", 4)
    assert [each.s_lo for each in put_in_order(lines).aside] == [1], "one record instead of five"
    assert put_in_order(lines).exact
    monkeypatch.setattr(ordering, "MOST_RUNS", 3)
    found = put_in_order(lines)
    assert ([each.s_lo for each in found.kept], [each.s_lo for each in found.aside]) == ([0, 1, 7], [2, 5])
    assert not found.exact


def test_what_is_in_order_beside_an_offset():
    first, second, moved = line(10, 10, 5), line(20, 17, 5), line(30, 40, 1)
    beside = Neighbours([moved, second, first])
    of_source = {8: (None, first), 10: (first, first), 13: (first, first), 14: (first, second), 17: (first, second)}
    of_source |= {20: (second, second), 26: (second, moved), 30: (moved, moved), 31: (moved, None)}
    of_target = {8: (None, first), 12: (first, first), 14: (first, second), 17: (second, second), 21: (second, moved)}
    of_target |= {40: (moved, moved), 41: (moved, None)}
    for at, lines in of_source.items():
        assert beside.of_source(at) == AdjacentLines(*lines), at
    for at, lines in of_target.items():
        assert beside.of_target(at) == AdjacentLines(*lines), at


def test_how_far_what_is_beside_an_offset_is_displaced():
    beside = Neighbours([line(10, 12, 5), line(20, 17, 5)])
    told = {
        at: (found.displaced_before, found.displaced_after, found.within)
        for at in (8, 12, 17, 30)
        for found in [beside.of_source(at)]
    }
    assert told == {8: (0, 2, False), 12: (2, 2, True), 17: (2, -3, False), 30: (-3, -3, False)}
    nothing = Neighbours().of_target(5)
    assert (nothing.displaced_before, nothing.displaced_after, nothing.within) == (0, 0, False)
