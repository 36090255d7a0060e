"""What a move reads again and what it doesn't; committing on a cluster that is slow."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from drkit.failover.context.state_machine import Facts, Loss, Mode
from drkit.failover.plan.loss_budget import LossBudget, OverBudget
from drkit.failover.plan.waves import at_once
from drkit.failover.positions.positions import PlannedPosition, Strategy
from drkit.failover.snapshot.selection import Selection
from drkit.failover.stages import failover_stages
from drkit.failover.stages.failover_stages import (
    Commit,
    Translate,
    _as_read_on,
    _just_captured,
    commit_groups,
    written_since,
)
from drkit.mapping.translate import RowDoubts
from drkit.model.clock import now
from drkit.model.errors import Refused, Unreachable
from drkit.model.offsets import Certainty
from drkit.model.topology import TopicPartition
from drkit.state_topic.store_age import OlderStore, StoreAge
from tests.unit.failover.plan.worlds import LINK, Log, world

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("mode", "seconds_ago", "taken"),
    [
        (Mode.UNPLANNED, 0.2, True),
        (Mode.UNPLANNED, 60, False),  # resumed later: consumers may have committed since
        (Mode.UNPLANNED, -60, False),  # the clock was put back
        (Mode.PLANNED, 0.2, False),
        (Mode.UNPLANNED, None, False),  # the source did not answer while it drained
    ],
)
def test_positions_kept_a_moment_ago_are_taken_in_an_unplanned_move_only(mode, seconds_ago, taken):
    at = None if seconds_ago is None else now() - timedelta(seconds=seconds_ago)
    assert _just_captured(Facts(mode=mode, captured_at=at)) is taken


class Coordinator:
    """Commits so many groups in each call, and has no time for the others; some it refuses."""

    def __init__(self, a_call: int, refuses: str = "", stands=()) -> None:
        self.a_call = a_call
        self.stands = dict(stands)
        self.refuses = refuses
        self.took: list[str] = []

    def members(self, groups):
        return dict.fromkeys(groups, 0)

    def committed(self, groups):
        return [SimpleNamespace(group=group, tp=T0, offset=self.stands[group]) for group in groups]

    def commit_many(self, wanted):
        failures = {}
        for number, group in enumerate(wanted):
            if group == self.refuses:
                failures[group] = Refused(f"{group} is active", remedy="")
            elif number >= self.a_call:
                failures[group] = Unreachable("no time", remedy="")
            else:
                self.took.append(group)
        return failures


TP = TopicPartition("t", 0)


def positions(count):
    placed = PlannedPosition(
        "", "t", 0, "t", 5, 5, Strategy.PRESERVED, Certainty.EXACT, reread=0, skipped=0, lost=0, reason=None, why=""
    )
    return {f"g{number}": [placed] for number in range(count)}


def test_a_cluster_that_is_slow_has_the_time_that_it_needs(monkeypatch):
    monkeypatch.setattr(failover_stages, "_GROUPS_AT_ONCE", 4)
    coordinator, checks = Coordinator(3, refuses="g1"), []
    noted = []
    failures = commit_groups(coordinator, positions(10), lambda: checks.append(1), noted.extend)
    assert sorted(noted) == sorted(coordinator.took)
    assert sorted(coordinator.took) == [f"g{number}" for number in range(10) if number != 1]
    assert list(failures) == ["g1"]  # what is refused isn't tried again
    assert len(checks) > 3  # the right to act is asked for before each lot


def test_a_cluster_that_commits_nothing_is_not_asked_for_ever(monkeypatch):
    monkeypatch.setattr(failover_stages, "_GROUPS_AT_ONCE", 4)
    noted = []
    failures = commit_groups(Coordinator(0), positions(10), lambda: None, noted.extend)
    assert len(failures) == 10
    assert noted == []


@pytest.mark.parametrize(("known", "committed"), [({}, ["g0", "g1"]), ({"g0": 5}, ["g1"]), ({"g1": 5}, ["g0", "g1"])])
def test_a_group_that_stands_further_is_done_only_where_this_run_had_committed_it(known, committed):
    coordinator = Coordinator(9, stands={"g0": 60, "g1": 3, "g2": 5})  # all are to be at 5
    estate = SimpleNamespace(groups=lambda _alias: coordinator)
    noted = []
    placed = tuple(p for group, each in positions(3).items() for p in [replace(each[0], group=group)])
    context = SimpleNamespace(
        estate=estate,
        positions=placed,
        again=True,
        committed={(group, TP): offset for group, offset in known.items()},
        note_committed=noted.extend,
        in_order=at_once,
        lease=SimpleNamespace(check=lambda: None),
        facts=Facts(mode=Mode.UNPLANNED),
    )
    said = Commit("dr", 3, 3).execute(context).reason
    assert coordinator.took == noted == committed
    assert ("set back: g0" in said) == ("g0" not in known)


@pytest.mark.parametrize(
    ("ends", "held", "since"),
    [
        ({"t:0": 100}, 0, []),
        ({"t:0": 95}, 0, ["t:0 (95 → 100)"]),
        ({"t:0": 100}, 2, ["t:0 (100 → 102)"]),  # behind an open transaction
        ({"other:0": 7}, 0, ["t:0 (0 → 100)"]),  # created since
        ({}, 0, []),  # nobody has looked
    ],
)
def test_what_was_written_since_the_ends_stood_still_is_seen(ends, held, since):
    view = replace(Log("r" * 100).view(), source_end=100, source_high=100 + held)
    seen = world([view], [], source_reachable=True)
    assert written_since(Facts(mode=Mode.PLANNED, ends=ends), seen) == since


def translate(**more):
    return Translate("primary", "dr", None, Selection(), False, 1, **more)


def moved(*, target, existing, group="g0"):
    return replace(positions(1)["g0"][0], group=group, target_offset=target, existing=existing)


@pytest.mark.parametrize(
    ("existing", "known", "placed"),
    [
        (9, {("g0", TP): 7}, 9),  # its consumers read on from 7, where this run had put it
        (7, {("g0", TP): 7}, 5),  # nobody has: it follows the primary's
        (9, {}, 5),
        (9, {("g0", TopicPartition("t", 1)): 7}, 5),  # there its consumers were put, but not here
        (None, {("g0", TP): 7}, 5),
    ],
)
def test_groups_that_a_run_had_committed_before_it_went_back_stay_where_they_read_on(existing, known, placed):
    context = SimpleNamespace(
        positions=(moved(target=7, existing=None),), committed=known, commit_begun=True, run="RUN"
    )
    (position,) = _as_read_on(context, [moved(target=5, existing=existing)])
    assert position.target_offset == placed
    if existing is None or ("g0", TP) in known:
        translate()._refuse_rewinds(context, [position])
        return
    with pytest.raises(Refused, match="g0 would be moved back on dr") as refused:
        translate()._refuse_rewinds(SimpleNamespace(**vars(context), estate=Servers()), [position])
    assert "--cancel" not in refused.value.remedy, "which would be refused, too"


class Servers:
    def endpoint(self, _alias):
        return "dr:9092"


@pytest.mark.parametrize("begun", [False, True])
def test_a_store_that_lost_rows_since_the_plan_stops_a_run_that_has_moved_nothing(monkeypatch, begun):
    """Else the run goes on, by the rows of both."""
    age = StoreAge(OlderStore([], None, ("mapping rows of t:0 from source offset 5 on",)))
    seen = {}

    def observe(_estate, _link, **asked):
        seen.update(asked, age=asked["age"]())
        return world([Log("rr").view()], [])

    monkeypatch.setattr(failover_stages, "store_age", lambda *_: age)
    monkeypatch.setattr(failover_stages, "observe", observe)
    monkeypatch.setattr(failover_stages, "sealed_before", lambda _: False)
    context = SimpleNamespace(estate=None, link=LINK, run="RUN", facts=Facts(mode=Mode.UNPLANNED), commit_begun=begun)
    stage = translate(rows_in_doubt=RowDoubts(single={"t:0": "not proven"}))
    if begun:
        stage._look(context, (), by_rows=True)
        assert seen["age"] == age
        assert seen["rows_in_doubt"].of(TP) == "not proven", "what the copy tells now may be this store's own"
        return
    with pytest.raises(Refused, match="mapping rows of t:0") as refused:
        stage._look(context, (), by_rows=True)
    cancel, recover = refused.value.remedy.index("drkit resume RUN --cancel"), refused.value.remedy.index("recover")
    assert cancel < recover


def test_a_loss_beyond_the_budget_stops_a_run_that_has_moved_nothing():
    stage = translate(budgets=(LossBudget((".*",), 0, None),))
    loss = Loss(records=3, seconds=1.0, observed_at=now())
    before, begun = (SimpleNamespace(facts=Facts(mode=Mode.UNPLANNED), commit_begun=each) for each in (False, True))
    with pytest.raises(OverBudget):
        stage._within_budget(before, loss)
    assert "so the run goes on" in stage._within_budget(begun, loss)
