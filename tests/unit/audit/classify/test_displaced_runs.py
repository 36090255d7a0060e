"""Long runs of displaced records are paired as they are read; all else is kept, and nothing is in both."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drkit.audit.classify import displaced_runs
from drkit.audit.classify.displaced_runs import DisplacedRuns
from drkit.audit.classify.ordering import MatchedLine
from drkit.audit.compare.merge_join import SourceLeft, TargetLeft

SHIFT = 4


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(displaced_runs, "SHORTEST_RUN", 4)
    monkeypatch.setattr(displaced_runs, "_AHEAD", 10)


def source(content: int, s: int, *, e: int | None = None) -> SourceLeft:
    return SourceLeft(0, s, s if e is None else e, True, content, 0, 0, None, False)


def target(content: int, t: int) -> TargetLeft:
    return TargetLeft(0, t, content, 0, 0, None, False, b"")


class Taken:
    """The outcome of residuals that are handed over in portions."""

    def __init__(self, sources, targets, *, taken=(), portion=10**6):
        runs = DisplacedRuns(set(taken), SHIFT)
        pairs = []
        self.most = 0
        for at in range(0, max(len(sources), len(targets)), portion):
            pairs += runs.add(sources[at : at + portion], targets[at : at + portion])
            self.most = max(self.most, len(runs._source) + len(runs._target))
        pairs += runs.end()
        self.pairs = [(one.s, other.t) for one, other in pairs]
        self.runs = runs.runs
        self.left = [row.s for row in runs.source_left], [row.t for row in runs.target_left]


def both(contents_of_source, contents_of_target, **more) -> Taken:
    return Taken(
        [source(content, s) for s, content in enumerate(contents_of_source)],
        [target(content, t) for t, content in enumerate(contents_of_target)],
        **more,
    )


def test_a_run_is_paired_and_only_its_ends_are_kept():
    found = both(range(20), range(2, 20))
    assert found.pairs == [(n, n - 2) for n in range(2, 20)]
    assert found.runs == [MatchedLine(2, 19, 0, 17, -2, 18, moved=False)]
    assert found.left == ([0, 1], [])


@pytest.mark.parametrize(("length", "paired"), [(3, False), (4, True), (5, True)])
def test_a_short_run_is_kept_as_residuals(length, paired):
    rows = range(100, 100 + length)
    found = both([1, *rows, 2], [*rows, 3])
    assert found.pairs == ([(n + 1, n) for n in range(length)] if paired else [])
    assert [run.records for run in found.runs] == ([length] if paired else [])
    kept = ([0, length + 1], [length]) if paired else (list(range(length + 2)), list(range(length + 1)))
    assert (sorted(found.left[0]), sorted(found.left[1])) == kept


def test_what_is_in_between_ends_a_run_and_belongs_to_none():
    found = both([*range(8), 50, *range(8, 16)], [99, *range(8), *range(8, 16)])
    assert [(run.s_lo, run.s_hi, run.t_lo, run.t_hi, run.displaced) for run in found.runs] == [
        (0, 7, 1, 8, 1),
        (9, 16, 9, 16, 0),
    ]
    assert found.left == ([8], [0])


def test_where_the_chunks_between_two_equal_records_are_free_a_run_continues_over_them():
    """Chunks on either side of the run are taken; those within aren't, however far the two sides are apart."""
    rows = [source(n, n) for n in (*range(100, 104), *range(140, 144))]
    there = [target(n, n + 400) for n in (*range(100, 104), *range(140, 144))]
    beside = {(100 - 16) >> 4, (144 + 16) >> 4, (500 - 16) >> 4, (544 + 16) >> 4}
    assert len(Taken(rows, there, taken=beside).runs) == 1
    for within in (120 >> 4, 520 >> 4):
        assert len(Taken(rows, there, taken={within}).runs) == 2


def test_a_run_that_is_further_displaced_from_somewhere_on_is_two():
    rows = [source(n, n) for n in range(6)] + [source(n, n + 10) for n in range(6, 12)]
    there = [target(n, n + 3) for n in range(12)]
    found = Taken(rows, there)
    assert found.runs == [MatchedLine(0, 5, 3, 8, 3, 6, moved=False), MatchedLine(16, 21, 9, 14, -7, 6, moved=False)]
    assert len(found.pairs) == 12


def test_no_run_reaches_over_records_that_matched_at_their_place():
    """The chunk of offsets 16 to 31 is taken: neither a place nor a target offset of a run lies there or across it."""
    rows = [source(n, n) for n in (*range(10), *range(40, 50))]
    there = [target(n, n + 2) for n in (*range(10), *range(40, 50))]
    found = Taken(rows, there, taken={1})
    assert [(run.s_lo, run.s_hi) for run in found.runs] == [(0, 9), (40, 49)]
    assert Taken(rows, there).runs == [MatchedLine(0, 49, 2, 51, 2, 20, moved=False)]
    into = Taken([source(n, n) for n in range(8, 14)], [target(n, n + 6) for n in range(8, 14)], taken={1})
    assert (into.pairs, into.runs) == ([], []), "14 and 15 are before that chunk, two records"
    assert into.left == (list(range(8, 14)), list(range(14, 20)))
    out_of = Taken([source(n, n) for n in range(18, 24)], [target(n, n - 12) for n in range(18, 24)], taken={1})
    assert (out_of.pairs, out_of.left) == ([], (list(range(18, 24)), list(range(6, 12))))


def test_the_shorter_way_to_the_next_equal_is_taken():
    """Six records and two changed places: the two are passed over, whichever side has them first."""
    six, two = range(20, 26), (1, 2)
    ours = both([*two, *six], [*six, *two])
    assert (ours.pairs, ours.left) == ([(n + 2, n) for n in range(6)], ([0, 1], [6, 7]))
    theirs = both([*six, *two], [*two, *six])
    assert (theirs.pairs, theirs.left) == ([(n, n + 2) for n in range(6)], ([6, 7], [0, 1]))


def test_what_is_held_is_bounded_on_both_sides_and_on_one_alone():
    long = Taken([source(n, n) for n in range(500)], [target(n + 1000, n) for n in range(500)], portion=5)
    assert long.most <= 2 * (10 + 5)
    assert (long.pairs, long.left) == ([], (list(range(500)), list(range(500))))
    one = Taken([source(n, n) for n in range(500)], [], portion=5)
    assert one.most <= 30 + 5
    assert one.left == (list(range(500)), [])
    other = Taken([], [target(n, n) for n in range(500)], portion=5)
    assert other.most <= 30 + 5
    assert other.left == ([], list(range(500)))


@pytest.mark.parametrize("side", ["source", "target"])
def test_one_side_that_runs_far_ahead_ends_a_run(side):
    """Ten of twenty equal records are paired as they come; then only one side continues, and there is no room."""
    long, short = [*range(20), *range(500, 600)], range(20)
    found = both(*((long, short) if side == "source" else (short, long)), portion=20)
    assert found.pairs == [(n, n) for n in range(10)]
    assert found.runs == [MatchedLine(0, 9, 0, 9, 0, 10, moved=False)]
    kept = list(range(10, 20)), list(range(10, 120))
    assert found.left == (kept if side == "target" else kept[::-1])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 6), max_size=60), st.lists(st.integers(0, 6), max_size=60), st.integers(1, 9))
def test_every_residual_is_paired_once_or_kept_and_pairs_are_equal_and_in_order(ours, theirs, portion):
    found = both(ours, theirs, portion=portion)
    assert all(ours[s] == theirs[t] for s, t in found.pairs)
    assert found.pairs == sorted(found.pairs)
    assert [t for _, t in found.pairs] == sorted(t for _, t in found.pairs)
    assert sorted([*(s for s, _ in found.pairs), *found.left[0]]) == list(range(len(ours)))
    assert sorted([*(t for _, t in found.pairs), *found.left[1]]) == list(range(len(theirs)))
    assert sum(run.records for run in found.runs) == len(found.pairs)
    assert all(run.records == run.s_hi - run.s_lo + 1 == run.t_hi - run.t_lo + 1 >= 4 for run in found.runs)
