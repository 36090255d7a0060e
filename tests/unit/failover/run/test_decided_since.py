"""A failover that was stopped, and whose link was decided otherwise since: it moves nothing by what it had found.

The store is a real one; no cluster answers.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from drkit.failover.context.state_machine import PATHS, Facts, Kind, Mode, StageOutcome, State
from drkit.failover.journal.journal import Journal, StageRecord, new_run_id
from drkit.failover.journal.run_record import begin, label_of, load_run
from drkit.failover.plan.failover_plan import plan_json
from drkit.failover.recovery.abandon import abandon_run
from drkit.failover.recovery.component_conditions import advise, unfinished_runs
from drkit.failover.recovery.rollback import decided_otherwise
from drkit.failover.run.service import clear_the_way, resume_run
from drkit.failover.stages.failover_stages import Commit
from drkit.model.clock import now
from drkit.model.errors import PartlyDone, Refused
from drkit.model.link_state import Direction, LinkControl
from drkit.model.runs import RunSummary
from drkit.store.link_notes import note_clusters
from tests.unit.failover.plan.test_plan import a_plan, a_world
from tests.unit.failover.run import test_runner
from tests.unit.failover.run.test_runner import FOUND, LINK

estate = test_runner.estate
LIFT = "01JLIFT"


def stopped_in(estate, stage, *, control="active", control_run=None):
    """An unfenced failover that sealed the link, and was stopped in a stage; its id."""
    plan = replace(
        a_plan(a_world(source_reachable=False), mode=Mode.UNPLANNED), control=control, control_run=control_run
    )
    facts = Facts(mode=Mode.UNPLANNED, unfenced_accepted=True)
    journal = Journal(estate.store, new_run_id())
    begin(journal, plan, facts, plan.made_at, plan_json(plan), {})
    if control != Direction.SEALED:
        decide(estate, Direction.SEALED, journal.run)
    state = State.PLANNED
    for step in PATHS[Kind.FAILOVER]:
        journal.intent(step.stage)
        if step.stage == stage:
            break
        facts, state = replace(facts, **FOUND[step.stage]), step.reaches
        journal.outcome(StageRecord(step.stage, StageOutcome.OK, "", 0.0), facts)
    summary = RunSummary(journal.run, Kind.FAILOVER, state, plan.made_at, now(), label_of(plan))
    estate.store.put_run(summary)
    return journal.run


def decide(estate, direction, run):
    kept = estate.store.link_control(LINK)
    version = 0 if kept is None else kept.version
    control = LinkControl(LINK, direction, version + 1, now(), run=run)
    assert estate.store.set_link_control(control, expected_version=None if kept is None else version)


@pytest.mark.parametrize("stage", ["commit", "switch", "verify", "close"])
@pytest.mark.parametrize(
    ("direction", "run"), [(Direction.ACTIVE, LIFT), (Direction.SEALED, "01JLATER"), (Direction.REVERSED, "01JBACK")]
)
def test_a_resumed_run_undoes_nothing_that_a_newer_one_decided(estate, stage, direction, run):
    mine = stopped_in(estate, stage)
    decide(estate, direction, run)
    entries = len(estate.store.entries(mine))
    with pytest.raises(Refused, match=f"primary->dr was decided again by run {run} since run {mine} began") as refused:
        resume_run(estate, mine, None)
    assert f"drkit abandon {mine}" in refused.value.remedy
    assert len(estate.store.entries(mine)) == entries
    assert estate.store.link_control(LINK).run == run


def test_a_run_that_nobody_came_between_goes_on_where_it_was(estate):
    mine = stopped_in(estate, "commit")
    error = resume_run(estate, mine, None).error
    assert "decided again" not in error.what
    assert load_run(estate.store, mine).machine.state is State.TRANSLATED


def test_a_later_run_goes_on_while_the_run_that_sealed_the_link_is_the_last_to_have_decided_it(estate):
    decide(estate, Direction.SEALED, "01JEARLIER")
    mine = stopped_in(estate, "commit", control="sealed", control_run="01JEARLIER")
    assert "decided again" not in resume_run(estate, mine, None).error.what
    decide(estate, Direction.ACTIVE, LIFT)
    with pytest.raises(Refused, match="decided again"):
        resume_run(estate, mine, None)


def test_a_run_that_was_killed_while_it_opened_the_link_goes_back_before_its_fence(estate, monkeypatch):
    """The mirror runs again: what was translated before counts no more."""
    monkeypatch.setattr(Commit, "execute", lambda *_: pytest.fail("committed"))
    mine = stopped_in(estate, "commit")
    decide(estate, Direction.ACTIVE, mine)
    assert isinstance(resume_run(estate, mine, None).error, PartlyDone)
    record = load_run(estate.store, mine)
    assert record.machine.facts.placed is None
    assert record.machine.state is not State.TRANSLATED


@pytest.mark.parametrize(
    ("direction", "run", "since"),
    [
        (Direction.SEALED, "RUN", False),
        (Direction.ACTIVE, "RUN", False),  # it did that itself
        (Direction.ACTIVE, "BEFORE", True),  # as a recovered store has it
        (Direction.PAUSED, "BEFORE", True),
        (Direction.ACTIVE, LIFT, True),
        (Direction.SEALED, LIFT, True),
        (None, None, True),
    ],
)
def test_who_decided_a_link_that_a_run_had_sealed(direction, run, since):
    plan = replace(a_plan(), control="active", control_run="BEFORE")
    control = None if direction is None else LinkControl(LINK, direction, 3, now(), run=run)
    facts = Facts(mode=Mode.UNPLANNED, sealed=True)
    assert (decided_otherwise(control, plan, "RUN", facts) is not None) == since


@pytest.mark.parametrize(("run", "since"), [("BEFORE", False), (None, False), (LIFT, True)])
def test_before_it_seals_the_link_only_another_run_s_decision_counts(run, since):
    """Not that it was paused meanwhile, by hand."""
    plan = replace(a_plan(), control="active", control_run="BEFORE")
    control = LinkControl(LINK, Direction.PAUSED, 9, now(), run=run)
    assert (decided_otherwise(control, plan, "RUN", Facts(mode=Mode.UNPLANNED)) is not None) == since


def test_it_is_given_up_although_its_commit_had_begun_and_the_link_stays_as_it_was_decided(estate, monkeypatch):
    mine = stopped_in(estate, "commit")
    monkeypatch.setattr("drkit.failover.recovery.abandon.why_unreached", lambda *_: None)
    monkeypatch.setattr("drkit.failover.recovery.abandon.replaced_clusters", lambda *_: frozenset())
    monkeypatch.setattr("drkit.failover.recovery.abandon._open", lambda *_: True)
    monkeypatch.setattr("drkit.failover.recovery.abandon.let_writes_in", lambda *_: "")
    with pytest.raises(Refused, match="its commit has begun"):
        abandon_run(estate, mine, lambda _: None)
    decide(estate, Direction.ACTIVE, LIFT)
    done = abandon_run(estate, mine, lambda _: None)
    assert (done.serves, done.state_before, done.did) == ("primary", "translated", ())
    assert f"groups stay on dr where run {mine} has put them" in done.stands
    assert load_run(estate.store, mine).machine.state is State.ABANDONED
    assert estate.store.link_control(LINK).run == LIFT


def test_another_run_is_told_to_give_it_up_and_not_to_resume_it(estate):
    mine = stopped_in(estate, "commit")
    with pytest.raises(Refused) as held:
        clear_the_way(estate, LINK)
    assert f"drkit resume {mine}" in held.value.remedy
    decide(estate, Direction.ACTIVE, LIFT)
    with pytest.raises(Refused, match="decided again by run") as refused:
        clear_the_way(estate, LINK)
    assert refused.value.remedy == f"drkit abandon {mine} gives it up"


def test_the_way_out_is_to_give_it_up(estate):
    mine = stopped_in(estate, "commit")
    note_clusters(estate.store, LINK, source="id-primary", target="id-dr")
    decide(estate, Direction.ACTIVE, LIFT)
    (left,) = unfinished_runs(estate, estate.link(LINK))
    advice = advise(estate, estate.link(LINK), replace(left, site="01JSITE"))
    assert advice.way.commands == (f"drkit abandon {mine}",)
    assert "decided again by run 01JLIFT" in advice.broken[0]
