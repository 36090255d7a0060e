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
from drkit.failover.stages.fence_stages import unread_since
from drkit.failover.stages.target_loss import TargetLoss
from drkit.mapping.translate import RowDoubts
from drkit.model.clock import now
from drkit.model.errors import DrkitError, NotShown, PartlyDone, Refused, Unreachable
from drkit.model.link_state import Direction, LinkControl
from drkit.model.offsets import Certainty
from drkit.model.topology import TopicPartition
from drkit.state_topic.store_age import OlderStore, StoreAge
from tests.unit.failover.plan.worlds import LINK, Log, world

T0 = TopicPartition("t", 0)
SEALED = LinkControl(LINK.id, Direction.SEALED, 1, now(), run="RUN")


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

    def __init__(self, a_call: int, refuses: str = "", stands=(), unread=()) -> None:
        self.a_call = a_call
        self.stands = dict(stands)
        self.unread = dict(unread)
        self.refuses = refuses
        self.took: list[str] = []
        self.wanted = {}

    def members(self, groups):
        return dict.fromkeys(groups, 0)

    def fetch(self, groups):
        known = (group for group in groups if group in self.stands)
        stands = [SimpleNamespace(group=group, tp=T0, offset=self.stands[group]) for group in known]
        return SimpleNamespace(offsets={each.group: [each] for each in stands}, failures=self.unread)

    def commit_many(self, wanted):
        failures = {}
        for number, group in enumerate(wanted):
            if group == self.refuses:
                failures[group] = Refused(f"{group} is active", remedy="")
            elif number >= self.a_call:
                failures[group] = Unreachable("no time", remedy="")
            else:
                self.took.append(group)
                self.wanted[group] = wanted[group]
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


def portions(wanted):
    """One group after the other, as waves move them."""
    for group, positions in wanted.items():
        yield {group: positions}


def commit(coordinator, placed, *, again=False, known=(), in_order=at_once, **more):
    """What the stage reports (or the refusal), and the groups that it noted as committed."""
    noted = []
    context = SimpleNamespace(
        estate=SimpleNamespace(
            groups=lambda _alias: coordinator,
            endpoint=lambda _alias: "dr:9092",
            store=SimpleNamespace(link_control=lambda _link: SEALED),
        ),
        link=LINK,
        run="RUN",
        positions=tuple(placed),
        again=again,
        committed=dict(known),
        note_committed=noted.extend,
        in_order=in_order,
        lease=SimpleNamespace(check=lambda: None),
        facts=Facts(mode=Mode.UNPLANNED),
    )
    try:
        said = Commit("dr", len(placed), len(placed), **more).execute(context).reason
    except PartlyDone as error:
        said = error
    return said, noted


def at_five(count, **more):
    """Groups that are all to be at 5."""
    placed = (replace(each, group=group, **more) for group, (each,) in positions(count).items())
    return list(placed)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("in_order", [at_once, portions])
def test_a_group_that_committed_further_since_its_place_was_chosen_is_not_moved_back_without_being_told_to(
    again, in_order
):
    """Its consumers came early, or the wave's turn came late: what they have read since would be read again."""
    coordinator = Coordinator(9, stands={"g0": 4, "g1": 60})
    error, noted = commit(coordinator, at_five(2), again=again, in_order=in_order)
    assert isinstance(error, PartlyDone)
    assert "1 of 2 groups is not committed, g1: g1 would be moved back on dr: g1 on t:0 from 60 to 5" in error.what
    assert "--group g1 --topic t:0 --delete-offsets" in error.remedy
    assert error.remedy.endswith("then drkit resume RUN")
    assert coordinator.took == noted == ["g0"], "the others are"


def test_with_allow_rewind_it_is_moved_back_and_named():
    coordinator = Coordinator(9, stands={"g0": 60})
    said, noted = commit(coordinator, at_five(1), allow_rewind=True)
    assert said.endswith("; committed further since their places were chosen, and set back: g0")
    assert coordinator.took == noted == ["g0"]


def test_a_group_is_looked_at_when_its_wave_begins():
    coordinator = Coordinator(9)

    def waves(wanted):
        first, second = portions(wanted)
        yield first
        coordinator.stands["g1"] = 60
        yield second

    error, noted = commit(coordinator, at_five(2), in_order=waves)
    assert "g1 would be moved back" in error.what
    assert noted == ["g0"]


@pytest.mark.parametrize("again", [False, True])
def test_a_group_that_stands_where_it_stood_when_its_place_was_chosen_is_committed(again):
    """Translate has let it be moved back, or stopped the run."""
    coordinator = Coordinator(9, stands={"g0": 60})
    _, noted = commit(coordinator, at_five(1, existing=60), again=again)
    assert noted == ["g0"]


def test_where_this_run_had_committed_a_group_it_stays_where_it_read_on():
    coordinator = Coordinator(9, stands={"g0": 60, "g1": 5, "g2": 3})
    said, noted = commit(coordinator, at_five(3), again=True, known={("g0", TP): 5})
    assert said == "3 positions of 3 groups; 2 groups committed before"
    assert noted == ["g2"]


def test_partitions_on_which_it_has_read_on_stay_while_the_others_are_committed():
    other = TopicPartition("t", 1)
    (placed,) = at_five(1)
    both = [placed, replace(placed, partition=1, target_topic="t")]
    coordinator = Coordinator(9, stands={"g0": 60})
    said, noted = commit(coordinator, both, again=True, known={("g0", TP): 5, ("g0", other): 5})
    assert noted == ["g0"]
    assert coordinator.wanted["g0"].keys() == {other}
    assert "set back" not in said


def test_a_group_that_can_t_be_read_is_not_committed():
    coordinator = Coordinator(9, unread={"g0": "no coordinator"})
    error, noted = commit(coordinator, at_five(2))
    assert "what g0 has committed on dr can't be read: no coordinator" in error.what
    assert noted == ["g1"]


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


@pytest.mark.parametrize(
    ("back", "begun", "stops"), [(False, False, True), (False, True, False), (True, False, True), (True, True, True)]
)
def test_a_planned_move_stops_where_a_partition_of_the_source_can_t_be_read_any_more(back, begun, stops):
    seen = world([Log("r" * 100).view()], [], source_reachable=True)  # the source no longer lists it
    facts = Facts(mode=Mode.PLANNED, ends={"t:0": 100})
    context = SimpleNamespace(facts=facts, commit_begun=begun)
    if not stops:  # groups were moved: the close makes it a lower bound
        assert translate(back=back)._since_drained(context, seen) == []
        return
    with pytest.raises(Refused, match="what primary holds of t:0 can't be read any more"):
        translate(back=back)._since_drained(context, seen)


@pytest.mark.parametrize(
    ("found", "error", "said"),
    [
        (TargetLoss(unknown=["nobody knows"]), PartlyDone, "nobody knows"),
        (
            TargetLoss({"t:0": 3}, ["t:0 (gone)"], at_most=True, unsure=3),
            PartlyDone,
            "dr may have lost up to 3 offsets since it was drained to: t:0 (gone)",
        ),
        (
            TargetLoss({"t:0": 3, "t:1": 2}, ["t:0 (gone)", "t:1 (gone)"], at_most=True, unsure=3),
            Refused,
            "dr has lost up to 5 offsets since it was drained to: t:0 (gone), t:1 (gone)",
        ),
        (
            TargetLoss({"t:0": 250}, ["t:0 (its end)", "t:0 (its begin)"], at_most=True, unsure=50),
            Refused,
            "dr has lost up to 250 offsets since it was drained to: t:0 (its end), t:0 (its begin)",
        ),
    ],
    ids=["unknown", "retention, perhaps", "some surely", "both of one partition"],
)
def test_a_planned_move_stops_where_its_target_lost_something_or_may_have(monkeypatch, found, error, said):
    monkeypatch.setattr(failover_stages, "target_loss", lambda *_: found)
    seen = world([], [], source_reachable=True)
    context = SimpleNamespace(facts=Facts(mode=Mode.PLANNED), commit_begun=False, run="RUN")
    with pytest.raises(error) as raised:
        translate()._since_drained(context, seen)
    assert raised.value.what == said


@pytest.mark.parametrize(
    ("found", "mode", "stops"),
    [
        ({"t:0": 100, "u:0": 7}, Mode.PLANNED, None),
        ({"t:0": 100}, Mode.PLANNED, "what primary holds of u:0 can't be read any more"),
        ({"t:0": 101, "u:0": 7}, Mode.PLANNED, "clients still write to primary: t:0 .100 → 101."),
        ({"t:0": 100, "u:0": 7, "new:0": 1}, Mode.PLANNED, "clients still write to primary: new:0"),
        ({"t:0": 101}, Mode.UNPLANNED, None),  # the close counts it
        (Unreachable("no answer"), Mode.PLANNED, None),  # it was drained to its end
        (NotShown("it lets drkit see nothing"), Mode.PLANNED, "it lets drkit see nothing"),
    ],
    ids=["as drained", "hidden", "written", "created", "unplanned", "gone", "shows nothing"],
)
def test_before_the_commit_a_planned_move_looks_at_the_cluster_that_groups_leave_once_more(
    monkeypatch, found, mode, stops
):
    def ends_of(*_, **__):
        if isinstance(found, Unreachable):
            raise found
        return found

    monkeypatch.setattr(failover_stages, "ends_of", ends_of)
    context = SimpleNamespace(link=LINK, facts=Facts(mode=mode, ends={"t:0": 100, "u:0": 7}))
    if stops is None:
        Commit("dr", 1, 1).look_first(context)
        return
    with pytest.raises((Refused, NotShown), match=stops):
        Commit("dr", 1, 1).look_first(context)


def test_a_canary_that_is_gone_stops_no_move():
    assert unread_since({"t:0": 1, "drkit.canary.x:0": 1}, {"t:0": 1}) == []
    assert unread_since({"t:0": 1, "u:1": 1}, {"t:0": 1}) == ["u:1"]


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
        positions=(moved(target=7, existing=None),),
        committed=known,
        commit_begun=True,
        run="RUN",
        facts=Facts(Mode.PLANNED),
    )
    (position,) = _as_read_on(context, [moved(target=5, existing=existing)])
    assert position.target_offset == placed
    if existing is None or ("g0", TP) in known:
        translate()._refuse_rewinds(context, [position])
        return
    with pytest.raises(Refused, match="g0 would be moved back on dr") as refused:
        translate()._refuse_rewinds(SimpleNamespace(**vars(context), estate=Servers()), [position])
    assert "--cancel" not in refused.value.remedy, "which would be refused, too"


@pytest.mark.parametrize(("mode", "by_hand"), [(Mode.PLANNED, False), (Mode.UNPLANNED, True)])
def test_a_planned_move_that_is_taken_back_by_itself_names_no_command_for_that(mode, by_hand):
    context = SimpleNamespace(committed={}, commit_begun=False, run="RUN", facts=Facts(mode=mode))
    with pytest.raises(Refused) as refused:
        translate()._refuse_rewinds(context, [moved(target=5, existing=9)])
    assert ("--cancel" in refused.value.remedy) is by_hand
    assert "drkit failover moves them back with --allow-rewind" in refused.value.remedy


@pytest.mark.parametrize(("begun", "then"), [(False, "; then fail over again"), (True, "; then drkit resume RUN")])
def test_groups_that_a_primary_lost_stop_a_planned_move_with_what_leads_on(begun, then):
    gone = moved(target=5, existing=None)
    seen = replace(
        world([Log("r" * 100).view()], [], source_reachable=True),
        lacking=frozenset({("g0", T0)}),
    )
    context = SimpleNamespace(commit_begun=begun, run="RUN")
    with pytest.raises(DrkitError, match="no committed offset any more of g0") as stopped:
        translate()._refuse_captured(context, seen, [gone])
    assert stopped.value.remedy.endswith(then)


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
