from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.failover.context.state_machine import (
    FINAL_STATES,
    PATHS,
    Facts,
    InvariantBroken,
    Kind,
    Mode,
    Run,
    StageOutcome,
    State,
    advance,
    cancel,
    check,
    next_step,
)

DONE = Facts(
    mode=Mode.UNPLANNED,
    unfenced_accepted=True,
    cluster_confirmed="id",
    salvaged=0,
    scrubbed={},
    reversed=True,
    audit="clean",
    sealed=True,
    fenced=False,
    mirror_stopped=True,
    lag=0,
    placed=3,
    committed=3,
    verified=3,
)
"""Facts that allow every state."""


def start(kind=Kind.FAILOVER, facts=DONE):
    return Run(kind, State.PLANNED, facts)


@pytest.mark.parametrize("kind", list(Kind))
def test_the_whole_path_ends_closed(kind):
    run, names = start(kind), []
    while (step := next_step(run)[0]) is not None:
        names.append(step.stage)
        run = advance(run, step.stage, StageOutcome.OK, DONE)
    assert run.state is State.CLOSED
    assert names == [step.stage for step in PATHS[kind]]
    assert "nothing is left" in next_step(run)[1]


def test_a_failback_ends_with_the_same_stages_as_a_failover():
    assert PATHS[Kind.FAILBACK][-7:] == PATHS[Kind.FAILOVER]


def test_the_states_have_the_names_the_contract_promises():
    assert [step.reaches.value for step in PATHS[Kind.FAILOVER]] == [
        "fenced",
        "drained",
        "translated",
        "committed",
        "switched",
        "verified",
        "closed",
    ]


@pytest.mark.parametrize("outcome", [StageOutcome.FAILED, StageOutcome.UNKNOWN])
def test_a_stage_that_did_not_end_well_is_carried_out_again(outcome):
    stays = advance(start(), "fence", outcome, DONE)
    assert stays.state is State.PLANNED
    assert next_step(stays)[0].stage == "fence"


def test_a_skipped_stage_moves_on():
    assert advance(start(), "fence", StageOutcome.SKIPPED, DONE).state is State.FENCED


@pytest.mark.parametrize("stage", ["drain", "close", "audit", "no-such-stage"])
def test_no_stage_out_of_its_order(stage):
    with pytest.raises(InvariantBroken, match="I1"):
        advance(start(), stage, StageOutcome.OK, DONE)


def test_nothing_after_the_end():
    with pytest.raises(InvariantBroken, match="I1"):
        advance(replace(start(), state=State.CLOSED), "close", StageOutcome.OK, DONE)


@pytest.mark.parametrize(
    ("invariant", "kind", "since", "broken"),
    [
        ("I2", Kind.FAILOVER, State.FENCED, {"unfenced_accepted": False}),
        ("I2", Kind.FAILOVER, State.FENCED, {"fenced": None}),
        ("I2", Kind.FAILBACK, State.FENCED, {"fenced": None}),
        ("I3", Kind.FAILOVER, State.DRAINED, {"sealed": False}),
        ("I3", Kind.FAILOVER, State.DRAINED, {"mirror_stopped": False}),
        ("I3", Kind.FAILBACK, State.DRAINED, {"reversed": False}),
        ("I3", Kind.FAILBACK, State.DRAINED, {"mirror_stopped": False}),
        ("I4", Kind.FAILOVER, State.DRAINED, {"mode": Mode.PLANNED, "lag": 1}),
        ("I4", Kind.FAILOVER, State.DRAINED, {"mode": Mode.PLANNED, "lag": None}),
        ("I4", Kind.FAILBACK, State.DRAINED, {"mode": Mode.PLANNED, "lag": 7}),
        ("I5", Kind.FAILOVER, State.COMMITTED, {"committed": 2}),
        ("I5", Kind.FAILOVER, State.COMMITTED, {"placed": None, "committed": None}),
        ("I6", Kind.FAILOVER, State.VERIFIED, {"verified": 2}),
        ("I6", Kind.FAILOVER, State.VERIFIED, {"verified": None}),
        ("I7", Kind.FAILBACK, State.SCRUBBED, {"salvaged": None}),
        ("I7", Kind.FAILBACK, State.SCRUBBED, {"cluster_confirmed": None}),
        ("I8", Kind.FAILBACK, State.AUDITED, {"audit": "deviated"}),
        ("I8", Kind.FAILBACK, State.AUDITED, {"audit": None}),
    ],
)
def test_an_invariant_holds_from_its_state_on(invariant, kind, since, broken):
    facts = replace(DONE, **broken)
    reached = [step.reaches for step in PATHS[kind]]
    for state in [State.PLANNED, *reached]:
        run = Run(kind, state, facts)
        if state in reached[reached.index(since) :]:
            with pytest.raises(InvariantBroken, match=invariant):
                check(run)
        else:
            check(run)


def test_what_is_fenced_needs_nobodys_acceptance():
    check(Run(Kind.FAILOVER, State.FENCED, replace(DONE, fenced=True, unfenced_accepted=False)))


@pytest.mark.parametrize(
    ("kind", "states"),
    [
        (Kind.FAILOVER, {State.PLANNED, State.FENCED, State.DRAINED, State.TRANSLATED}),
        (Kind.FAILBACK, {State.PLANNED, State.SALVAGED, State.SCRUBBED}),  # the scrub of a level one deletes nothing
    ],
)
def test_a_run_of_which_nothing_stands_can_be_cancelled_before_its_point_of_no_return(kind, states):
    clean = Facts(mode=Mode.PLANNED)
    for state in [State.PLANNED, *(step.reaches for step in PATHS[kind])]:
        run = Run(kind, state, clean)
        if state in states:
            assert cancel(run).state is State.CANCELLED
        else:
            with pytest.raises(InvariantBroken, match="I9"):
                cancel(run)


@pytest.mark.parametrize("changed", [{"sealed": True}, {"scrubbed": {"t": "id"}}, {"reversed": True}, {"committed": 0}])
def test_a_run_that_changed_something_can_not(changed):
    facts = replace(Facts(mode=Mode.PLANNED), **changed)
    with pytest.raises(InvariantBroken, match="I9"):
        cancel(Run(Kind.FAILOVER, State.PLANNED, facts))


@pytest.mark.parametrize("changed", [{"scrubbed": {"t": "id"}}, {"deleting": True}])
def test_a_failback_that_deleted_something_or_may_have_can_not(changed):
    for state in (State.SALVAGED, State.SCRUBBED):
        with pytest.raises(InvariantBroken, match="I9"):
            cancel(Run(Kind.FAILBACK, state, replace(Facts(mode=Mode.PLANNED), **changed)))


@pytest.mark.parametrize("state", [State.DRAINED, State.COMMITTED, State.CLOSED, State.REVERSED])
def test_no_cancelling_beyond_the_fence(state):
    with pytest.raises(InvariantBroken, match="I9"):
        cancel(Run(Kind.FAILBACK, state, Facts(mode=Mode.PLANNED)))


@given(
    kind=st.sampled_from(list(Kind)),
    outcomes=st.lists(st.sampled_from(list(StageOutcome)), max_size=40),
)
def test_whatever_happens_states_come_in_order_and_none_is_skipped(kind, outcomes):
    reached = [State.PLANNED, *(step.reaches for step in PATHS[kind])]
    run = start(kind)
    for outcome in outcomes:
        step, why = next_step(run)
        assert why
        if step is None:
            assert run.state in FINAL_STATES
            break
        after = advance(run, step.stage, outcome, DONE)
        moved = reached.index(after.state) - reached.index(run.state)
        assert moved == (1 if outcome in {StageOutcome.OK, StageOutcome.SKIPPED} else 0)
        run = after
