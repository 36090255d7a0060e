"""The timeline never says that a group had committed what it had not, keeps its bound, and finds an answer."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from drkit.failover.snapshot.past_positions import committed_at
from drkit.mirror.groups.history_thinning import HEARTBEAT_SECONDS, Series, Timeline
from drkit.model.groups import GroupState, StatesAround
from drkit.model.offsets import Certainty, GroupPosition
from drkit.model.topology import TimelinePolicy, TopicPartition

BEGIN = datetime(2026, 11, 20, 4, 0, tzinfo=UTC)
SERIES: Series = ("billing", "flights", "id")
DAY = TimelinePolicy(recent_seconds=600, keep_seconds=86_400, max_rows=1_000_000)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


class Rows:
    """A store of states that forgets them when they expire, as both homes do."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Series, datetime], GroupState] = {}

    def keep(self, states: Sequence[GroupState]) -> None:
        for state in states:
            self.rows[(state.group, state.topic, state.topic_id), state.at] = state

    def alive(self, moment: datetime, series: Series = SERIES) -> list[GroupState]:
        found = [row for (of, _), row in self.rows.items() if of == series and row.expires_at > moment]
        return sorted(found, key=lambda row: row.at)

    def around(self, moment: datetime, today: datetime) -> StatesAround:
        rows = self.alive(today)
        place = bisect_right([row.at for row in rows], moment)
        then = rows[place - 1] if place else None
        return StatesAround(*SERIES[:2], then, rows[place] if place < len(rows) else None)


class Group:
    """One group that commits at random; looks take 0.2 s and see what was committed by some moment of theirs."""

    def __init__(self, seed: int, policy: TimelinePolicy, *, series: int = 1) -> None:
        self.random = random.Random(seed)  # noqa: S311 - a test's dice
        self.timeline = Timeline(policy)
        self.rows = Rows()
        self.commits: list[tuple[float, int]] = [(-1.0, 0)]
        self.shown: dict[int, tuple[int, str]] = {}
        self.others = {(f"other-{number}", "flights", "id"): {0: (1, "")} for number in range(series - 1)}
        self.captured_at = BEGIN

    def run(self, begin: float, end: float, pause: float) -> None:
        moment = begin
        while moment < end:
            if self.random.random() < 1 / max(pause, 1):
                self.commits.append((moment + self.random.random() * 0.9, self.commits[-1][1] + 1))
            self.observe(moment)
            moment += 1.0

    def observe(self, moment: float) -> None:
        sees = moment + self.random.random() * 0.2
        shown = {0: (self.true(sees), "")}
        changed = {SERIES} if shown != self.shown else set()
        self.shown = shown
        self.captured_at = at(moment)
        self.rows.keep(self.timeline.observe(at(moment), at(moment + 0.2), {SERIES: shown, **self.others}, changed))

    def true(self, moment: float) -> int:
        return self.commits[bisect_right([when for when, _ in self.commits], moment) - 1][1]

    def answer(self, moment: float, today: float):
        captured = [GroupPosition(*SERIES[:2], 0, self.shown[0][0], "", self.captured_at)]
        past = committed_at(at(moment), [self.rows.around(at(moment), at(today))], captured)
        return past[SERIES[0], TopicPartition(SERIES[1], 0)]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("pause", [1.0, 7.0, 90.0, 2000.0])
def test_an_answer_is_never_ahead_and_an_exact_one_is_right(seed: int, pause: float) -> None:
    group = Group(seed, TimelinePolicy(recent_seconds=120, keep_seconds=4000, max_rows=1_000_000))
    group.run(0, 3000, pause)
    exact = 0
    for _ in range(400):
        moment = 1.0 + group.random.random() * 2998
        answer = group.answer(moment, today=3000)
        assert answer.offset is not None
        assert answer.offset <= group.true(moment)
        if answer.certainty is Certainty.EXACT:
            assert answer.offset == group.true(moment)
            exact += 1
        elif moment < 2850 or pause >= 90:
            # at most a coarse step behind, whatever was thinned
            assert answer.offset >= group.true(max(0.0, moment - 60 - 2))
    assert exact > 0 or pause == 1.0  # between two looks that differ nothing is exact


def test_recent_moments_are_exact_but_for_the_gap_between_looks() -> None:
    group = Group(3, DAY)
    group.run(0, 900, 5.0)
    lately = [group.answer(400 + number * 0.37, today=900) for number in range(1300)]
    share = sum(answer.certainty is Certainty.EXACT for answer in lately) / len(lately)
    assert share > 0.6  # one second in five holds a commit, and only its gap isn't exact
    assert all("committed between the looks" in str(a.reason) for a in lately if a.certainty is not Certainty.EXACT)


def test_a_group_at_rest_has_an_answer_as_long_as_the_timeline_goes_back() -> None:
    group = Group(1, TimelinePolicy(recent_seconds=60, keep_seconds=7200, max_rows=1_000_000))
    group.commits.append((0.5, 42))
    for moment in range(0, 20_000, 1):
        if moment < 5 or moment % 20 == 0:
            group.observe(float(moment))
    for moment in (12_900.0, 15_000.0, 19_000.0):
        answer = group.answer(moment, today=20_000)
        assert (answer.offset, answer.certainty) == (42, Certainty.EXACT)
    assert len(group.rows.alive(at(20_000))) <= 1 + (7200 + HEARTBEAT_SECONDS) / HEARTBEAT_SECONDS


@pytest.mark.parametrize("series", [1, 50, 400])
def test_the_rows_are_bounded_however_many_groups_commit_at_every_look(series: int) -> None:
    policy = TimelinePolicy(recent_seconds=30, keep_seconds=600, max_rows=1000)
    timeline, rows = Timeline(policy), Rows()
    names = [(f"g{number}", "t", "id") for number in range(series)]
    for moment in range(1200):
        states = {name: {0: (moment, "")} for name in names}
        rows.keep(timeline.observe(at(moment), at(moment + 0.1), states, names))
    alive = sum(len(rows.alive(at(1200), name)) for name in names)
    assert alive <= policy.max_rows + 3 * series  # the newest, and those about to go, of each
    assert all(rows.alive(at(1200), name) for name in names)


def test_with_many_groups_a_change_passed_over_is_made_up_for() -> None:
    timeline, rows = Timeline(TimelinePolicy(recent_seconds=60, keep_seconds=600, max_rows=1000)), Rows()
    names = [(f"g{number}", "t", "id") for number in range(100)]
    for moment in range(400):
        states = {name: {0: (min(moment, 5), "")} for name in names}
        changed = names if 0 < moment <= 5 else []
        rows.keep(timeline.observe(at(moment), at(moment + 0.1), states, changed))
    assert timeline.fine_seconds > 5
    for name in names:
        assert rows.alive(at(400), name)[-1].positions[0].offset == 5


def test_a_group_that_is_gone_stood_nowhere_from_then_on() -> None:
    timeline, rows = Timeline(DAY), Rows()
    rows.keep(timeline.observe(at(0), at(0.1), {SERIES: {0: (7, "note")}}, []))
    rows.keep(timeline.observe(at(1), at(1.1), {SERIES: {0: (7, "note")}}, []))
    rows.keep(timeline.gone(at(2.1), [SERIES]))
    before = committed_at(at(0.9), [rows.around(at(0.9), at(9))], [])
    assert before[SERIES[0], TopicPartition(SERIES[1], 0)].offset == 7
    assert before[SERIES[0], TopicPartition(SERIES[1], 0)].metadata == "note"
    assert committed_at(at(3), [rows.around(at(3), at(9))], []) == {}


def test_after_a_pause_of_the_mirror_nothing_is_said_to_be_exact() -> None:
    rows = Rows()
    first = Timeline(DAY)
    rows.keep(first.observe(at(0), at(0.1), {SERIES: {0: (7, "")}}, [SERIES]))
    again = Timeline(DAY)
    rows.keep(again.observe(at(100), at(100.1), {SERIES: {0: (9, "")}}, [SERIES]))
    found = committed_at(at(50), [rows.around(at(50), at(101))], [])[SERIES[0], TopicPartition(SERIES[1], 0)]
    assert (found.offset, found.certainty) == (7, Certainty.CONSERVATIVE)
    assert "the mirror was not looking" in str(found.reason)


def test_before_the_timeline_begins_nothing_is_known() -> None:
    timeline, rows = Timeline(DAY), Rows()
    rows.keep(timeline.observe(at(10), at(10.1), {SERIES: {0: (7, "")}}, [SERIES]))
    found = committed_at(at(5), [rows.around(at(5), at(11))], [])[SERIES[0], TopicPartition(SERIES[1], 0)]
    assert (found.offset, found.certainty) == (None, Certainty.UNAVAILABLE)
    assert "begins at 2026-11-20T04:00:10.100Z" in str(found.reason)


def test_a_position_that_the_timeline_never_saw_is_named() -> None:
    captured = [GroupPosition("late", "flights", 3, 9, "", at(20))]
    found = committed_at(at(5), [], captured)["late", TopicPartition("flights", 3)]
    assert (found.offset, found.certainty) == (None, Certainty.UNAVAILABLE)
    assert "has no position of late on flights:3" in str(found.reason)


def test_no_timeline_where_none_is_wanted() -> None:
    timeline = Timeline(TimelinePolicy(keep_seconds=0))
    assert timeline.observe(at(0), at(0.1), {SERIES: {0: (7, "")}}, [SERIES]) == []
    assert timeline.gone(at(1), [SERIES]) == []


@pytest.mark.parametrize("moved", [False, True])
def test_what_a_group_did_while_no_look_saw_it_is_not_exact(moved) -> None:
    """Every hour its last state was said to hold still, also while its coordinator was down."""
    timeline, rows, key = Timeline(DAY), Rows(), (SERIES[0], TopicPartition(SERIES[1], 0))
    here, names = {SERIES: {0: (7, "")}}, {SERIES[0]}
    rows.keep(timeline.observe(at(0), at(0.1), here, [SERIES], {}, names))
    last = 3 * HEARTBEAT_SECONDS
    for seconds in range(60, int(last), 60):
        rows.keep(timeline.observe(at(seconds), at(seconds + 0.1), here, [], {SERIES[0]: at(0)}, set()))
    here = {SERIES: {0: (8 if moved else 7, "")}}
    rows.keep(timeline.observe(at(last), at(last + 0.1), here, [SERIES], {SERIES[0]: at(0)}, names))
    captured = [GroupPosition(*SERIES[:2], 0, here[SERIES][0][0], "", at(last + 60))]
    for seconds in (1800, 5400, 9000, last):
        found = committed_at(at(seconds), [rows.around(at(seconds), at(last))], captured)[key]
        assert (found.offset, found.certainty) == (7, Certainty.CONSERVATIVE)
        assert "could not be seen" in str(found.reason)
    after = committed_at(at(last + 30), [rows.around(at(last + 30), at(last + 60))], captured)[key]
    assert after.certainty is Certainty.EXACT


def test_a_group_that_was_not_seen_when_it_was_deleted_had_not_stood_there_until_then() -> None:
    timeline, rows = Timeline(DAY), Rows()
    for seconds in (0, 1):
        rows.keep(timeline.observe(at(seconds), at(seconds + 0.1), {SERIES: {0: (7, "")}}, [], {}, {SERIES[0]}))
    rows.keep(timeline.observe(at(30), at(30.1), {SERIES: {0: (7, "")}}, [], {SERIES[0]: at(1)}, set()))
    rows.keep(timeline.gone(at(31), [SERIES], {SERIES[0]: at(1)}))
    found = committed_at(at(20), [rows.around(at(20), at(32))], [])[SERIES[0], TopicPartition(SERIES[1], 0)]
    assert (found.offset, found.certainty) == (7, Certainty.CONSERVATIVE)
