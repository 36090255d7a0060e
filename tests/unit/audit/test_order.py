"""The fewest records that must be set aside, against every subset tried."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from drkit.audit.classify.ordering import heaviest_increasing


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
