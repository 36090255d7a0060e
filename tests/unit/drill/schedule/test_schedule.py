"""Times that passed are made up for or left out, as the policy says; in a blackout nothing is played."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobExecutionEvent, JobSubmissionEvent

from drkit.drill.results.archive import Drills, last_began
from drkit.drill.schedule import MissedPolicy
from drkit.drill.schedule.scheduler import JOB, DrillSchedule, passed_since, time_to_make_up
from drkit.drill.schedule.times import Blackouts, read_calendars, trigger, zone
from drkit.model.clock import now
from drkit.model.runs import RunSummary
from tests.support.drills.kept_drills import TITLE, a_history, experiment_text, keep, name
from tests.support.wait import wait_until

ZONE = zone("UTC")
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


class Clock(DrillSchedule):
    """Plays nothing: it keeps when it would have. `during` is done as the first drill runs."""

    def __init__(self, *arguments, during=lambda _: None, **named):
        self.said = []
        super().__init__(*arguments, self.said.append, **named)
        self.played = []
        self.during = during

    def _run_once(self):
        self.played.append(now())
        if len(self.played) == 1:
            self.during(self)


@pytest.fixture
def clock(tmp_path):
    file = tmp_path / "clock.yaml"
    file.write_text(experiment_text())
    return lambda cron="0 4 1 1 *", **named: Clock(file, cron, ZONE, [], **named)


def passes(*times):
    """Times that come while a drill runs: APScheduler tells of them."""
    return lambda clock: clock._not_run(JobSubmissionEvent(EVENT_JOB_MAX_INSTANCES, JOB, "default", list(times)))


@pytest.mark.parametrize(
    ("policy", "minutes", "made_up"),
    [
        ("skip", [1], None),
        ("grace", [1], 1),
        ("grace", [9, 4], 4),
        ("grace", [9], None),
        ("once", [9], 9),
        ("once", [5000, 9], 9),
        ("once", [], None),
    ],
)
def test_what_is_owed(policy, minutes, made_up):
    passed = [NOON - timedelta(minutes=each) for each in minutes]
    found = time_to_make_up(MissedPolicy(policy), passed, NOON)
    assert found == (None if made_up is None else NOON - timedelta(minutes=made_up))


def test_what_passed_since_the_last_drill():
    daily = trigger("0 4 * * *", ZONE)
    assert passed_since(daily, NOON - timedelta(hours=3), NOON) is None
    assert passed_since(daily, NOON - timedelta(days=3), NOON) == NOON - timedelta(days=2, hours=8)


@pytest.mark.parametrize(("policy", "drills"), [("skip", 1), ("grace", 2), ("once", 2)])
def test_a_time_that_passes_while_a_drill_runs(clock, policy, drills):
    at = now()
    playing = clock(missed=MissedPolicy(policy), during=passes(at - timedelta(seconds=9), at))
    playing._run_due()
    assert len(playing.played) == drills, "one makes up for both"
    left_out = [(each.at, each.reason) for each in playing.result().left_out]
    assert len(left_out) == (2 if policy == "skip" else 0)
    assert any("still running" in line for line in playing.said)
    assert playing.result().missed == policy


def test_a_time_that_passed_too_long_ago_is_left_out(clock):
    early = now() - timedelta(minutes=6)
    playing = clock(during=passes(early))
    playing._run_due()
    assert len(playing.played) == 1
    assert [each.at for each in playing.result().left_out] == [early]


def test_a_machine_that_slept_too_long_is_told(clock):
    playing = clock()
    playing._not_run(JobExecutionEvent(EVENT_JOB_MISSED, JOB, "default", NOON))
    (left_out,) = playing.result().left_out
    assert (left_out.at, left_out.reason) == (NOON, "more than 300 s late")


def test_in_a_blackout_nothing_is_played_and_it_is_told(clock, tmp_path):
    calendar = tmp_path / "c.toml"
    calendar.write_text("[[blackout]]\nfrom = 2020-01-01\nuntil = 2120-01-01\nreason = 'a long freeze'\n")
    playing = clock(blackouts=read_calendars([calendar], ZONE))
    playing._run_due()
    assert playing.played == []
    (left_out,) = playing.result().left_out
    assert left_out.reason.endswith("2120-01-02 00:00:00 UTC: a long freeze")
    assert playing.result().next_runs[0].year == 2121
    assert len(clock(blackouts=Blackouts()).result().next_runs) == 5


@pytest.mark.parametrize(
    ("policy", "minutes", "played"),
    [("skip", 2, False), ("grace", 2, True), ("grace", 9, False), ("once", 2, True), ("once", 5000, True)],
)
def test_what_passed_while_no_clock_ran(clock, policy, minutes, played):
    passed = (now() - timedelta(minutes=minutes)).replace(second=0, microsecond=0)
    yearly = f"{passed.minute} {passed.hour} {passed.day} {passed.month} *"
    begun = threading.Event()
    playing = clock(
        yearly,
        missed=MissedPolicy(policy),
        last_began=lambda title: passed - timedelta(days=30) if title == TITLE else None,
        during=lambda _: begun.set(),
    )
    playing.start(at_once=False)
    try:
        if played:
            wait_until(begun.is_set, what="the drill that is owed")
        assert any(line.startswith("made up for, it passed while the") for line in playing.said) is played
        left_out = [(each.at, each.reason) for each in playing.result().left_out]
        told = "it passed while the scheduler was stopped, and perhaps others after it"
        assert left_out == ([] if played else [(passed, told)])
    finally:
        playing.stop()
    assert len(playing.played) == int(played)


def test_an_experiment_that_was_never_played_owes_nothing(clock):
    assert clock(missed=MissedPolicy.ONCE)._passed_while_away() == (None, False)


def test_one_that_was_played_since_owes_nothing(clock):
    assert clock("0 4 * * *", missed=MissedPolicy.ONCE, last_began=lambda _: now())._passed_while_away() == (
        None,
        False,
    )


def test_the_newest_drill_of_an_experiment_is_of_any_machine(tmp_path, monkeypatch):
    """Of the folder, and of the store; those of other experiments, and other runs, say nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "drills").mkdir()
    drills = Drills(tmp_path / "drills")
    keep(drills, name(1), a_history(), number=1)
    keep(drills, name(2), a_history(), number=5, title="Another")
    here = datetime(2026, 11, 21, 4, 3, tzinfo=UTC)

    def run(days, kind="drill", title=TITLE):
        at = here + timedelta(days=days)
        return RunSummary(f"drill-{days}", kind, "failed", at, at, title)

    others = [run(7, kind="failover"), run(8, title="Another")]
    assert last_began(TITLE, drills, others) == here
    assert last_began(TITLE, drills, [run(-1), *others]) == here
    assert last_began(TITLE, drills, [run(3), *others]) == here + timedelta(days=3)
    assert last_began("Never", drills, others) is None


def test_other_calendars_are_observed_from_then_on(clock, tmp_path):
    plan = clock("0 12 * * *")
    assert plan.next_runs()[0].year < 2100
    calendar = tmp_path / "c.toml"
    calendar.write_text("[[blackout]]\nfrom = 2020-01-01\nuntil = 2120-12-31\nreason = 'a long freeze'\n")
    plan.observe(read_calendars([calendar], ZONE))
    assert plan.next_runs()[0].year == 2121
    assert "2121-01-01 12:00:00" in plan.said[-1]
