"""What a failback asks again before it deletes: what it can't ask stops it there, and a scrub that was begun and has
deleted nothing is asked for once more."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from drkit.failover.context.state_machine import State
from drkit.failover.journal.run_record import load_run
from drkit.failover.plan.failover_plan import Obstacle
from drkit.failover.planning import failback_planner
from drkit.failover.run.service import resume_run
from drkit.failover.site.site_failback_run import SiteFailbackRunner
from drkit.failover.stages.scrub_stage import Scrub
from drkit.model.errors import AuthenticationError, DrkitError, ExitCode, NotShown, PartlyDone, Unreachable
from tests.unit.failover.run import test_left_since
from tests.unit.failover.run.test_left_since import LINK, interrupted_before

estate = test_left_since.estate

HELD = Obstacle("a mirror runs", "It must not write", "Stop it")


def fails(error):
    def call(*_, **__):
        raise error

    return call


@pytest.fixture
def old(estate, monkeypatch):
    """The old primary's topics by name, with their ids; a scrub says that it was begun."""
    topics = {"orders": "T"}

    def admin(alias, **_):
        there = {name: SimpleNamespace(topic_id=topic_id) for name, topic_id in topics.items()}
        return SimpleNamespace(cluster_id=lambda: f"id-{alias}", topics=lambda _names: there)

    monkeypatch.setattr(estate, "admin", admin)
    monkeypatch.setattr(Scrub, "execute", fails(PartlyDone("deleting")))
    return topics


def begin_scrub(estate, run, *, deleting):
    """A scrub that was killed before, or after, it was about to delete topics."""
    record = load_run(estate.store, run)
    record.journal.intent("scrub")
    if deleting:
        record.journal.established("scrub", replace(record.machine.facts, deleting=True))
    return load_run(estate.store, run)


def resumed(estate, *, deleting=None):
    run = interrupted_before(estate, "scrub")
    if deleting is not None:
        begin_scrub(estate, run, deleting=deleting)
    return run, resume_run(estate, run, None).error


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize(
    "error",
    [
        Unreachable("dr does not answer"),
        NotShown("dr hides its topics", remedy="Grant DESCRIBE"),
        AuthenticationError("dr refuses the password", remedy="Correct it"),
        DrkitError("something else"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_can_t_be_asked_stops_the_run_before_its_scrub(estate, monkeypatch, error):
    monkeypatch.setattr(failback_planner, "make_failback_plan", fails(error))
    run, told = resumed(estate)
    assert (type(told), told.exit_code, told.what) == (PartlyDone, ExitCode.PARTLY_DONE, error.what)
    assert f"; then drkit resume {run}. Or drkit abandon {run}" in told.remedy
    assert not load_run(estate.store, run).journal.attempted("scrub")


def test_a_cluster_that_is_silent_as_it_is_asked_stops_the_run_before_its_scrub(estate):
    run, told = resumed(estate)
    assert isinstance(told, PartlyDone)
    assert f"drkit resume {run}" in told.remedy
    assert not load_run(estate.store, run).journal.attempted("scrub")


@pytest.mark.parametrize(
    ("now_there", "deleting", "asked"),
    [
        ({"orders": "T"}, True, True),
        ({}, True, False),
        ({"orders": "another"}, True, False),
        ({}, False, True),  # somebody else deleted it, or a broker doesn't list it yet
        ({"orders": "another"}, False, True),
    ],
)
def test_a_scrub_that_was_begun_is_asked_for_again_until_it_has_deleted_something(
    estate,
    old,
    monkeypatch,
    now_there,
    deleting,
    asked,
):
    monkeypatch.setattr(failback_planner, "make_failback_plan", lambda *_, **__: SimpleNamespace(obstacles=(HELD,)))
    old.clear()
    old.update(now_there)
    _, told = resumed(estate, deleting=deleting)
    assert told.what == ("a mirror runs" if asked else "deleting")


@pytest.mark.parametrize(
    ("deleting", "state", "now_there", "deleted"),
    [
        (None, State.SALVAGED, {"orders": "T"}, False),
        (True, State.SALVAGED, {"orders": "T"}, False),
        (True, State.SALVAGED, {}, True),
        (False, State.SALVAGED, {}, False),
        (True, State.SCRUBBED, {"orders": "T"}, True),
    ],
)
def test_a_site_run_asks_again_for_links_that_have_deleted_nothing(estate, old, deleting, state, now_there, deleted):
    old.clear()
    old.update(now_there)
    record = load_run(estate.store, interrupted_before(estate, "scrub" if state is State.SALVAGED else "reverse"))
    if deleting is not None:
        record = begin_scrub(estate, record.run, deleting=deleting)
    assert record.machine.state is state
    ended = []
    site = SimpleNamespace(
        record=SimpleNamespace(children={LINK: record}),
        site=SimpleNamespace(of=lambda _link: estate),
        _as_it_is=lambda _link, error: error,
        _end=ended.append,
    )
    assert SiteFailbackRunner._has_deleted(site, LINK) is deleted
    assert ended == []


def test_a_site_run_ends_a_link_of_which_it_can_t_be_seen(estate, monkeypatch):
    record = begin_scrub(estate, interrupted_before(estate, "scrub"), deleting=True)
    monkeypatch.setattr(estate, "admin", fails(Unreachable("primary does not answer")))
    ended = []
    site = SimpleNamespace(
        record=SimpleNamespace(children={LINK: record}),
        site=SimpleNamespace(of=lambda _link: estate),
        _as_it_is=lambda _link, error: error,
        _end=ended.append,
    )
    assert SiteFailbackRunner._has_deleted(site, LINK)
    ((told),) = ended
    assert isinstance(told, PartlyDone)
