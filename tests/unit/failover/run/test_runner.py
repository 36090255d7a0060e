"""A run carried out over a real store, with stages that say what they found: order, journal, failures, ways back.

No cluster is touched: what is at their addresses refuses connections.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from drkit.config import Config
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import (
    PATHS,
    Facts,
    InvariantBroken,
    Kind,
    Mode,
    Run,
    StageOutcome,
    State,
)
from drkit.failover.journal.journal import INTENT, OUTCOME, Journal
from drkit.failover.journal.run_record import begin, load_run
from drkit.failover.plan.failback_plan import failback_plan_json
from drkit.failover.plan.failover_plan import plan_json
from drkit.failover.plan.loss_budget import OverBudget
from drkit.failover.positions.position_checks import PositionCheck
from drkit.failover.recovery.component_conditions import Advice
from drkit.failover.recovery.rollback import CANCEL
from drkit.failover.recovery.way_out import Component, WayOut
from drkit.failover.run.runner import Runner, RunResult, give_up, take_over
from drkit.failover.stages.hooks import Hooks
from drkit.failover.stages.stage import StageContext, StageReport
from drkit.model.clock import now
from drkit.model.errors import OutcomeUnknown, PartlyDone, Refused, Unreachable
from drkit.model.link_state import Direction, LinkControl
from drkit.model.process import worked_on
from drkit.model.runs import Approval, RunSummary
from drkit.model.topology import LinkId
from drkit.store import open_store
from tests.unit.failover.plan.test_plan import a_plan, a_world
from tests.unit.failover.site.test_site_failback_plan import a_link_plan

LINK = LinkId("primary", "dr")
RUN = "01JTHERUN"
FOUND = {
    "fence": {"fenced": False, "sealed": True},
    "drain": {"mirror_stopped": True, "lag": 0},
    "translate": {"placed": 1},
    "commit": {"committed": 1},
    "switch": {"endpoint": "dr:1"},
    "verify": {"verified": 1, "verified_at": now()},
    "close": {},
    "salvage": {"salvaged": 0, "cluster_confirmed": "id"},
    "scrub": {"scrubbed": {}},
    "reverse": {"reversed": True},
    "reseed": {},
    "audit": {"audit": "clean"},
}
"""What each stage establishes that goes well."""

SETTLED = {"fenced": False, "sealed": True, "mirror_stopped": True, "lag": 0, "placed": 1}
Act = Callable[[StageContext], StageReport]


@dataclass
class Acts:
    """A stage that does what a test wants, else goes well. `seen`: what it was given."""

    name: str
    act: Act | None = None
    seen: list[StageContext] = field(default_factory=list)

    def explain(self) -> str:
        return f"do {self.name}"

    def execute(self, context: StageContext) -> StageReport:
        self.seen.append(context)
        return self.well(context) if self.act is None else self.act(context)

    def well(self, context: StageContext, **more) -> StageReport:
        facts = replace(context.facts, **FOUND[self.name])
        return StageReport(StageOutcome.OK, f"{self.name} is done", facts, **more)


def fails(error: BaseException) -> Act:
    def act(_context):
        raise error

    return act


@pytest.fixture
def estate():
    config = Config.model_validate(
        {
            "clusters": {
                "primary": {"bootstrap_servers": "127.0.0.1:9"},
                "dr": {"bootstrap_servers": "127.0.0.1:10"},
            },
            "store": {"url": "sqlite:///:memory:"},
            "links": [{"source": "primary", "target": "dr", "topics": [".*"]}],
        }
    )
    store = open_store("sqlite:///:memory:")
    with ClusterContext(config, store, patience_seconds=0.05) as context:
        context.anchors._gone |= {"primary", "dr"}  # nothing is anchored there
        yield context
    store.close()


class Trial:
    """A run under its lease, and what was told of it."""

    def __init__(
        self, estate, lease, *, kind=Kind.FAILOVER, mode=Mode.UNPLANNED, state=State.PLANNED, acts=None, **more
    ):
        self.estate, self.told, self.lease = estate, [], lease
        acts = acts or {}
        self.stages = [Acts(step.stage, acts.get(step.stage)) for step in PATHS[kind]]
        self.plan = a_plan(a_world(source_reachable=True), mode=mode) if kind is Kind.FAILOVER else a_link_plan(LINK)
        facts = replace(Facts(mode=mode, unfenced_accepted=True), **more.pop("facts", {}))
        self.journal = Journal(estate.store, RUN)
        text = plan_json(self.plan) if kind is Kind.FAILOVER else failback_plan_json(self.plan)
        machine = begin(self.journal, self.plan, facts, self.plan.made_at, text, {})
        self.runner = Runner(
            estate=estate,
            link=estate.link(LINK),
            configured=estate.link(LINK),
            journal=self.journal,
            machine=replace(machine, kind=kind, state=state),
            stages=self.stages,
            plan=self.plan,
            lease=lease,
            label=f"{LINK} to dr",
            started_at=self.plan.made_at,
            watch=lambda *said: self.told.append(said),
            **more,
        )

    def run(self) -> RunResult:
        return self.runner.run()

    @property
    def entries(self) -> list[tuple[str, str]]:
        return [(entry.stage, entry.event) for entry in self.journal.entries[1:]]

    @property
    def listed(self) -> RunSummary:
        (summary,) = self.estate.store.runs()
        return summary

    def seen(self, name: str) -> list[StageContext]:
        return next(stage.seen for stage in self.stages if stage.name == name)


@pytest.fixture
def trial(estate):
    with RunLease(estate.store, LINK, RUN) as lease:
        yield lambda **more: Trial(estate, lease, **more)


def seal(estate, *, run=RUN, direction=Direction.SEALED):
    control = LinkControl(LINK, direction, 1, now(), "as the test wants it", run, frozenset())
    assert estate.store.set_link_control(control, expected_version=None)


# -- stages and the journal ------------------------------------------------------------------------


def test_stages_are_carried_out_in_order_each_between_its_intent_and_its_outcome(trial):
    going = trial()
    result = going.run()
    names = [step.stage for step in PATHS[Kind.FAILOVER]]
    assert (result.error, result.machine.state, result.interrupted) == (None, State.CLOSED, False)
    assert going.entries == [entry for name in names for entry in ((name, INTENT), (name, OUTCOME))]
    assert [(record.name, record.outcome, record.reason) for record in result.stages] == [
        (name, StageOutcome.OK, f"{name} is done") for name in names
    ]
    assert all(0 <= record.seconds < 60 for record in result.stages)
    assert (going.listed.state, going.listed.kind, going.listed.detail) == ("closed", "failover", "primary->dr to dr")
    assert (going.listed.run, going.listed.started_at) == (RUN, going.plan.made_at)
    assert (result.run, result.started_at) == (RUN, going.plan.made_at)
    begun = [(name, text) for name, record, text in going.told if record is None]
    assert begun == [(name, f"do {name}") for name in names]
    ended = [(record.name, text) for _, record, text in going.told if record is not None]
    assert ended == [(name, f"{name} is done") for name in names]
    assert result.evidence.rto_seconds is not None
    assert load_run(going.estate.store, RUN).machine == result.machine


def test_what_a_stage_logs_or_tells_names_the_run_and_the_link(trial):
    def drain(context):
        inside.append(worked_on())
        return going.stages[1].well(context)

    inside: list[dict] = []
    going = trial(acts={"drain": drain})
    going.runner.watch = lambda *_: inside.append(worked_on())
    assert going.run().error is None
    assert {(each["link"], each["run"]) for each in inside} == {("primary->dr", RUN)}
    assert worked_on() == {"link": None, "run": None}


def test_a_run_that_is_over_does_nothing_more(trial):
    going = trial(state=State.CANCELLED)
    assert going.run().error is None
    assert going.entries == []
    assert going.listed.state == "cancelled", "it is listed as soon as it continues"


def test_a_stage_is_told_what_was_found_before_it_and_whether_it_was_begun(trial):
    places, positions = ("a place",), a_plan().positions
    found = PositionCheck("t", 0, 3, 3, 1_000, 0xABC, None)

    def translate(context):
        return going.stages[2].well(context, positions=positions, places=(found,))

    going = trial(
        acts={"translate": translate}, state=State.FENCED, places=places, facts={"fenced": True, "sealed": True}
    )
    going.journal.intent("drain")
    result = going.run()
    assert result.error is None
    (drain,), (commit,) = going.seen("drain"), going.seen("commit")
    assert (drain.again, commit.again) == (True, False)
    assert (drain.places, commit.places, drain.positions, commit.positions) == (places, (found,), (), positions)
    assert (drain.facts.lag, commit.facts.lag) == (None, 0)
    assert (drain.run, drain.link, drain.lease) == (RUN, going.runner.link, going.lease)
    assert result.positions == positions
    assert load_run(going.estate.store, RUN).positions == positions
    assert load_run(going.estate.store, RUN).places == (found,)
    drain.say("half done")
    assert going.told[-1] == ("drain", None, "half done")


def test_what_a_stage_establishes_is_kept_although_it_fails(trial):
    carried = a_plan().positions

    def scrub(context):
        context.establish(replace(context.facts, salvage_path="/there"), carried)
        context.establish(replace(context.facts, salvage_path="/here"), carried)
        raise PartlyDone("power cut")

    going = trial(kind=Kind.FAILBACK, acts={"scrub": scrub}, state=State.SALVAGED)
    result = going.run()
    assert result.machine.facts.salvage_path == "/here"
    assert [event for _, event in going.entries] == [INTENT, "carried", "facts", "facts", OUTCOME]
    record = load_run(going.estate.store, RUN)
    assert (record.carried, record.machine.facts.salvage_path) == (carried, "/here")
    assert going.runner.carried == carried


def test_facts_that_a_state_does_not_allow_stop_the_run(trial):
    def commit(context):
        return StageReport(StageOutcome.OK, "all but one", replace(context.facts, committed=0))

    going = trial(acts={"commit": commit}, state=State.TRANSLATED, facts=SETTLED)
    seal(going.estate)
    result = going.run()
    assert result.machine.state is State.TRANSLATED
    assert "I5" in result.error.what
    assert going.listed.state == "translated"


def test_without_the_right_to_run_nothing_is_done(trial):
    going = trial()
    going.lease.stop_acting("the terminal was closed")
    result = going.run()
    assert "the terminal was closed while it acted on primary->dr" in result.error.what
    assert going.entries == []
    assert going.seen("fence") == []


def test_a_right_that_was_lost_while_a_stage_acted_ends_the_run_before_its_outcome_counts(trial):
    def fence(context):
        going.lease.stop_acting("another operator came")
        return going.stages[0].well(context)

    going = trial(acts={"fence": fence})
    result = going.run()
    assert isinstance(result.error, PartlyDone)
    assert result.machine.state is State.PLANNED
    assert result.stages[-1].outcome is StageOutcome.FAILED


def test_who_slept_while_another_finished_the_run_says_so_and_not_what_it_tripped_over_on_waking(trial, estate):
    def salvage(_context):
        going.lease._valid_until = 0.0  # it was stopped for so long
        estate.store.break_lease(f"run:{LINK}", going.lease.owner)
        raise Refused("/var/salvage/01J is there already and is not empty")

    going = trial(kind=Kind.FAILBACK, acts={"salvage": salvage})
    result = going.run()
    assert isinstance(result.error, PartlyDone)
    assert result.error.what == "the right to run on primary->dr was lost: another process had it meanwhile"
    assert f"`drkit runs {RUN}` shows how far it came" in result.error.remedy
    assert going.entries == [("salvage", INTENT)], "the journal is the other's"


@pytest.mark.parametrize("silent", [True, False])
def test_a_lease_that_only_expired_hides_no_failure(trial, estate, monkeypatch, silent):
    def no_answer(_name):
        raise Unreachable("the store is gone")

    def fence(_context):
        going.lease._valid_until = 0.0
        if silent:
            monkeypatch.setattr(estate.store, "lease", no_answer)
        raise Refused("dr said no")

    going = trial(acts={"fence": fence})
    assert "dr said no" in going.run().error.what


# -- gates and hooks -------------------------------------------------------------------------------


def test_a_gate_is_asked_before_each_stage_and_may_stop_the_run(trial):
    asked = []

    def gate(stage, machine, positions):
        asked.append((stage, machine.state, positions))
        if stage == "translate":
            raise PartlyDone("another link failed")

    going = trial(gate=gate)
    result = going.run()
    assert asked == [("fence", "planned", ()), ("drain", "fenced", ()), ("translate", "drained", ())]
    assert (result.error.what, result.machine.state) == ("another link failed", State.DRAINED)
    assert ("translate", INTENT) not in going.entries


def test_hooks_are_called_before_the_first_stage_and_before_the_last(trial):
    going = trial(hooks=Hooks(pre=(("true",),), post=(("true",),)))
    assert going.run().machine.state is State.CLOSED
    begun = [name for name, event in going.entries if event == INTENT]
    assert begun == ["pre_hooks", "fence", "drain", "translate", "commit", "switch", "verify", "post_hooks", "close"]
    assert ("pre_hooks", None, "calling hooks") in going.told
    again = going.runner
    again.machine = replace(again.machine, state=State.PLANNED)
    count = len(going.journal.entries)
    again.run()
    assert [entry.stage for entry in going.journal.entries[count:] if "hooks" in entry.stage] == []


def test_a_hook_that_fails_stops_the_run_before_anything_is_changed_and_is_called_again(trial):
    going = trial(hooks=Hooks(pre=(("false",),)))
    result = going.run()
    assert result.machine.state is State.CANCELLED
    assert "pre-hook false" in result.error.what
    assert going.seen("fence") == []
    assert [(record.name, record.outcome) for record in result.stages] == [("pre_hooks", StageOutcome.FAILED)]
    going.runner.machine = replace(going.runner.machine, state=State.PLANNED)
    going.runner.hooks = Hooks(pre=(("true",),))
    assert going.run().machine.state is State.CLOSED


def test_a_hook_that_fails_at_the_end_is_reported_and_not_called_again(trial):
    going = trial(hooks=Hooks(post=(("false",),)))
    result = going.run()
    assert (result.error, result.machine.state) == (None, State.CLOSED)
    (record,) = [record for record in result.stages if record.name == "post_hooks"]
    assert record.outcome is StageOutcome.FAILED
    assert record.reason.endswith("What was done remains in effect")
    count = len(going.journal.entries)
    going.runner.machine = replace(going.runner.machine, state=State.VERIFIED)
    going.run()
    assert [entry.stage for entry in going.journal.entries[count:]] == ["close", "close"]


def test_without_hooks_none_is_journaled(trial):
    going = trial()
    going.run()
    assert [name for name, _ in going.entries if "hooks" in name] == []


# -- failures --------------------------------------------------------------------------------------


def test_a_run_that_has_not_parted_the_link_is_given_up_where_a_stage_fails(trial):
    error = Refused("no authorizer", remedy="Configure one")
    going = trial(acts={"fence": fails(error)})
    result = going.run()
    assert (result.error, result.machine.state, going.listed.state) == (error, State.CANCELLED, "cancelled")
    assert going.entries == [("fence", INTENT), ("fence", OUTCOME), (CANCEL, INTENT), (CANCEL, "cancelled")]
    (record,) = result.stages
    assert (record.outcome, record.reason) == (StageOutcome.FAILED, str(error))
    assert going.told[-1][0] == CANCEL
    assert (going.told[-1][1].outcome, going.told[-1][2]) == (StageOutcome.OK, "nothing was changed")
    assert load_run(going.estate.store, RUN).machine.state is State.CANCELLED


@pytest.mark.parametrize("whose", [RUN, "ANOTHER"])
def test_a_run_that_has_parted_the_link_stays_and_is_resumed(trial, whose):
    error = Refused("a coordinator is down", remedy="Look at dr.")
    going = trial(acts={"translate": fails(error)})
    seal(going.estate, run=whose)
    result = going.run()
    if whose != RUN:
        assert result.machine.state is State.CANCELLED
        return
    assert isinstance(result.error, PartlyDone)
    assert result.error.what == "translate failed: a coordinator is down"
    assert result.error.remedy.startswith(f"Look at dr; then drkit resume {RUN}")
    assert result.error.meaning == "The run stays drained; what was done remains in effect"
    assert (result.machine.state, going.listed.state) == (State.DRAINED, "drained")


def test_where_clusters_are_gone_it_is_said_how_to_recover(trial):
    error = Refused("a coordinator is down", meaning="As the stage says", remedy=f"drkit resume {RUN}")
    going = trial(acts={"translate": fails(error)})
    seal(going.estate)
    told = going.run().error
    assert told.meaning == "As the stage says"
    assert told.remedy.startswith(
        f"drkit resume {RUN}. Or, as it is now: primary does not answer; dr does not answer: "
    )


@pytest.mark.parametrize(
    ("mode", "error", "back"),
    [
        (Mode.PLANNED, Refused("no"), True),
        (Mode.UNPLANNED, Refused("no"), False),
        (Mode.UNPLANNED, OverBudget("too much"), True),
    ],
)
def test_a_move_that_may_lose_nothing_is_taken_back_although_the_link_was_parted(trial, mode, error, back):
    going = trial(
        acts={"translate": fails(error)}, mode=mode, state=State.DRAINED, facts={"mirror_stopped": True, "lag": 0}
    )
    seal(going.estate)
    result = going.run()
    control = going.estate.store.link_control(LINK)
    assert result.machine.state is (State.CANCELLED if back else State.DRAINED)
    assert control.direction is (Direction.ACTIVE if back else Direction.SEALED)
    assert (result.error is error) is back


def test_what_a_stage_finds_before_it_is_begun_takes_a_planned_move_back(trial):
    """Once the commit is begun nothing is: its last look comes before."""
    going = trial(mode=Mode.PLANNED, state=State.TRANSLATED, facts=SETTLED)
    seal(going.estate)
    looked = []

    def look_first(context):
        looked.append(context.facts.placed)
        if len(looked) == 1:
            raise Refused("a topic can't be read any more")

    commit = next(stage for stage in going.stages if stage.name == "commit")
    commit.look_first = look_first
    result = going.run()
    assert result.error is not None
    assert result.machine.state is State.CANCELLED
    assert ("commit", INTENT) not in going.entries
    assert (looked, commit.seen) == ([1], [])


def test_a_stage_that_was_begun_before_is_repeated_without_that_look(trial):
    going = trial(mode=Mode.PLANNED, state=State.TRANSLATED, facts=SETTLED)
    going.journal.intent("commit")
    next(stage for stage in going.stages if stage.name == "commit").look_first = fails(Refused("groups have moved"))
    assert going.run().error is None


def test_what_can_t_be_taken_back_now_is_said_with_both_reasons(trial, monkeypatch):
    error = Refused("the fence does not hold", remedy="Look at it.")
    going = trial(acts={"fence": fails(error)}, mode=Mode.PLANNED)
    seal(going.estate)
    undo = Refused("the store is busy", remedy="Wait.")
    monkeypatch.setattr(going.estate.store, "set_link_control", lambda *_, **__: fails(undo)(None))
    result = going.run()
    assert isinstance(result.error, PartlyDone)
    assert (
        result.error.what == "fence failed: the fence does not hold; and it can't be rolled back now: the store is busy"
    )
    assert result.error.remedy == f"Wait; then drkit resume {RUN} continues the rollback"
    assert result.machine.state is State.PLANNED


def test_beyond_the_point_of_no_return_nothing_is_taken_back(trial):
    going = trial(acts={"commit": fails(Refused("no"))}, mode=Mode.PLANNED)
    seal(going.estate)
    result = going.run()
    assert result.error.what == "commit failed: no"
    assert result.machine.state is State.TRANSLATED
    assert (CANCEL, INTENT) not in going.entries


@pytest.mark.parametrize(
    ("error", "outcome"), [(OutcomeUnknown("no answer"), "unknown"), (PartlyDone("half of it"), "failed")]
)
def test_what_says_itself_how_a_run_stands_is_passed_on(trial, error, outcome):
    going = trial(acts={"fence": fails(error)})
    result = going.run()
    assert (result.error, result.machine.state) == (error, State.PLANNED)
    assert [record.outcome for record in result.stages] == [outcome]


def test_a_store_that_is_gone_hides_no_failure(trial, monkeypatch):
    error = PartlyDone("half of it")

    def fence(_context):
        monkeypatch.setattr(going.estate.store, "put_run", lambda *_: fails(Refused("the store is gone"))(None))
        raise error

    going = trial(acts={"fence": fence})
    assert going.run().error is error


def test_who_interrupts_is_told_how_to_continue(trial):
    going = trial(acts={"drain": fails(KeyboardInterrupt())})
    result = going.run()
    assert result.interrupted
    assert (result.error.what, result.error.remedy) == ("interrupted in stage drain", f"drkit resume {RUN}")
    assert (result.machine.state, going.entries[-1]) == (State.FENCED, ("drain", INTENT))


# -- a failback's live cluster ---------------------------------------------------------------------

AUDITED = {"salvaged": 0, "cluster_confirmed": "id", "scrubbed": {}, "reversed": True, "audit": "clean"}


def failing_back(trial, stage, error, **more):
    going = trial(
        kind=Kind.FAILBACK, mode=Mode.PLANNED, state=State.AUDITED, acts={stage: fails(error)}, facts=AUDITED, **more
    )
    seal(going.estate, direction=Direction.REVERSED)
    return going


@pytest.mark.parametrize("stage", ["fence", "drain", "translate", "commit"])
def test_a_failback_that_stops_before_its_switch_goes_back_before_its_fence(trial, stage):
    going = failing_back(trial, stage, Refused("not now", remedy="Wait."))
    result = going.run()
    assert result.machine.state is State.AUDITED
    assert isinstance(result.error, PartlyDone)
    assert result.error.what == f"{stage} failed: not now"
    assert (result.machine.facts.fenced, result.machine.facts.placed) == (None, None)
    assert "rewound" in [event for _, event in going.entries]
    assert going.listed.state == "audited"


@pytest.mark.parametrize(
    ("error", "told"), [(OutcomeUnknown("no answer", remedy="Look."), OutcomeUnknown), (Refused("no"), PartlyDone)]
)
def test_a_failback_whose_outcome_is_unknown_stays_unknown(trial, monkeypatch, error, told):
    """How clusters are isn't known, either."""
    going = failing_back(trial, "commit", error)
    monkeypatch.setattr("drkit.failover.run.runner.advise", lambda *_: fails(Unreachable("no answer"))(None))
    result = going.run()
    assert (type(result.error), result.machine.state) == (told, State.AUDITED)
    assert result.error.what == f"commit failed: {error.what}"
    look = "Look; then " if error.remedy else ""
    assert result.error.remedy == f"{look}drkit resume {RUN}"
    assert result.error.meaning.startswith("Clients still use dr (")


def test_a_failback_whose_live_cluster_gave_no_answer_is_tried_again_first(trial, monkeypatch):
    """A slow cluster looks like one that is gone, and going on without it leaves its records behind."""
    going = failing_back(trial, "fence", Refused("dr is not fenced"))
    without = WayOut((f"drkit resume {RUN} --unplanned",), Component.SOURCE, "records")
    advice = Advice(RUN, without, ("dr does not answer",), silent=("dr",))
    monkeypatch.setattr("drkit.failover.run.runner.advise", lambda *_: advice)
    assert going.run().error.remedy == (
        f"drkit resume {RUN} tries again, as a slow cluster looks like one that is gone. Where it stays so: "
        f"dr does not answer: drkit resume {RUN} --unplanned (costs: records)"
    )


@pytest.mark.parametrize("stage", ["switch", "verify"])
def test_a_failback_that_stops_behind_its_switch_stays_where_it_is(trial, stage):
    going = failing_back(trial, stage, Refused("not now"))
    result = going.run()
    assert result.machine.state is {"switch": State.COMMITTED, "verify": State.SWITCHED}[stage]
    assert "rewound" not in [event for _, event in going.entries]


def test_a_failback_that_is_interrupted_opens_its_live_cluster(trial):
    going = failing_back(trial, "drain", KeyboardInterrupt())
    result = going.run()
    assert (result.interrupted, result.machine.state) == (True, State.AUDITED)
    assert result.error.what == "drain failed: interrupted in stage drain"


def test_a_live_cluster_that_can_t_be_opened_is_said(trial, monkeypatch):
    going = failing_back(trial, "drain", Refused("not now"))
    stuck = Refused("the store is busy")
    monkeypatch.setattr("drkit.failover.recovery.rollback.fence_record", lambda *_: fails(stuck)(None))
    result = going.run()
    assert result.error.what == (
        "drain failed: not now; and dr could not be opened to its clients again: the store is busy"
    )
    assert "as long as its fence is in place" in result.error.meaning


def test_before_a_failback_closes_the_live_cluster_it_is_asked_whether_it_may(trial):
    asked = []

    def wait():
        asked.append("fence")
        raise PartlyDone("not before tonight")

    going = trial(kind=Kind.FAILBACK, mode=Mode.PLANNED, state=State.RESEEDED, facts=AUDITED, before_fence=wait)
    result = going.run()
    assert (asked, result.error.what, result.machine.state) == (["fence"], "not before tonight", State.AUDITED)
    assert ("fence", INTENT) not in going.entries


def test_a_run_goes_back_before_its_fence(trial):
    going = trial(kind=Kind.FAILBACK, mode=Mode.PLANNED, state=State.DRAINED, facts={**AUDITED, "fenced": True})
    going.runner.back_before_fence("dr may have been written")
    assert going.runner.machine.state is State.AUDITED
    assert going.listed.state == "audited"
    assert going.told[-1][2].startswith("dr may have been written: ")


@pytest.mark.parametrize("direction", [Direction.REVERSED, Direction.ACTIVE])
def test_a_way_back_flows_again_only_while_its_link_is_reversed(trial, direction):
    """Else somebody has opened the old primary, and its link's mirror writes the other way."""
    going = trial(kind=Kind.FAILBACK, mode=Mode.PLANNED, state=State.DRAINED, facts={**AUDITED, "fenced": True})
    store, back = going.estate.store, LINK.reversed()
    seal(going.estate, direction=direction)
    store.set_link_control(LinkControl(back, Direction.SEALED, 1, now(), run=RUN), expected_version=None)
    going.runner.back_before_fence("dr may have been written")
    flows = Direction.ACTIVE if direction is Direction.REVERSED else Direction.SEALED
    assert store.link_control(back).direction is flows


def test_a_failback_continues_without_its_live_cluster_and_with_it_again(trial):
    going = trial(kind=Kind.FAILBACK, mode=Mode.PLANNED, state=State.DRAINED, facts={**AUDITED, "fenced": True})
    going.runner.without_live("dr is gone")
    facts = going.runner.machine.facts
    assert (going.runner.machine.state, facts.mode, facts.unfenced_accepted) == (State.AUDITED, Mode.UNPLANNED, True)
    assert load_run(going.estate.store, RUN).machine == going.runner.machine
    assert going.listed.state == "audited"
    going.runner.as_planned("dr may be back")
    facts = going.runner.machine.facts
    assert (going.runner.machine.state, facts.mode, facts.unfenced_accepted) == (State.AUDITED, Mode.PLANNED, False)


def test_the_time_of_a_failback_runs_from_its_fence(trial):
    going = trial()
    moment = now()
    facts = Facts(mode=Mode.PLANNED, fenced_at=moment, verified_at=moment)
    back = RunResult(RUN, Run(Kind.FAILBACK, State.CLOSED, facts), going.plan.made_at, (), ())
    assert back.evidence.rto_seconds == 0.0
    there = RunResult(RUN, Run(Kind.FAILOVER, State.CLOSED, facts), moment, (), ())
    assert there.evidence.rto_seconds == 0.0
    assert replace(back, machine=Run(Kind.FAILOVER, State.CLOSED, facts)).evidence.rto_seconds != 0.0


# -- giving up -------------------------------------------------------------------------------------


def test_a_run_is_cancelled(trial):
    going = trial()
    seal(going.estate)
    result = going.runner.cancel("cancelled by ana")
    assert (result.error, result.machine.state, going.listed.state) == (None, State.CANCELLED, "cancelled")
    assert going.estate.store.link_control(LINK).direction is Direction.ACTIVE
    assert "primary->dr is active again" in going.told[-1][2]


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, False), (None, None)])
def test_a_run_that_was_taken_back_has_no_fence_any_more_by_its_journal_either(trial, before, after):
    """It said that it was fenced, with the reason of that time."""
    facts = {"fenced": before, "fence_reason": "denied to all"}
    going = trial(facts=facts, state=State.PLANNED if before is None else State.FENCED)
    result = going.runner.cancel("cancelled by ana")
    loaded = load_run(going.estate.store, RUN)
    assert (loaded.machine.state, result.machine.state) == (State.CANCELLED, State.CANCELLED)
    for facts in (result.machine.facts, loaded.machine.facts):
        assert (facts.fenced, facts.fence_reason, facts.fenced_at) == (after, "nothing was changed", None)
    assert RunResult.of(loaded).evidence.fenced is after


@pytest.mark.parametrize(
    ("serves", "opened", "fenced"),
    [("primary", True, False), ("primary", False, True), ("dr", True, True)],
    ids=["opened", "not yet", "the other one serves"],
)
def test_an_abandoned_run_is_fenced_as_far_as_it_was_left_so(trial, serves, opened, fenced):
    going = trial(facts={"fenced": True, "fence_reason": "denied to all"}, state=State.FENCED)
    going.journal.write(
        "abandon", "abandoned", {"serves": serves, "open": opened, "did": ["primary is open"], "stands": []}
    )
    facts = load_run(going.estate.store, RUN).machine.facts
    assert (facts.fenced, facts.fence_reason) == (fenced, "denied to all" if fenced else "primary is open")


@pytest.mark.parametrize("facts", [{}, {"deleting": True}, {"scrubbed": {"t": "id"}}], ids=str)
def test_a_failback_whose_scrub_has_deleted_nothing_is_cancelled_on_request_and_not_by_itself(trial, facts):
    """It was refused as soon as the scrub had been begun, though the scrub had refused to delete anything."""
    error = Refused("the salvage can't be read back", remedy="Mount it.")
    facts = {"salvage_path": "/salvages/RUN", **facts}
    going = trial(
        kind=Kind.FAILBACK, state=State.SALVAGED, mode=Mode.PLANNED, acts={"scrub": fails(error)}, facts=facts
    )
    assert going.plan.deletes
    assert going.run().machine.state is State.SALVAGED
    assert (CANCEL, INTENT) not in going.entries, "a salvage may have taken hours"
    result = going.runner.cancel("cancelled by ana")
    if len(facts) > 1:
        assert "scrub has begun to delete topics of primary" in result.error.what
        assert result.machine.state is State.SALVAGED
        return
    assert (result.error, result.machine.state) == (None, State.CANCELLED)
    assert "nothing was deleted on primary" in going.told[-1][2]
    assert "/salvages/RUN" in going.told[-1][2]


def test_a_run_that_can_t_be_cancelled_says_why(trial):
    going = trial(facts={"committed": 1})
    result = going.runner.cancel("cancelled by ana")
    assert isinstance(result.error, PartlyDone)
    assert result.error.remedy == f"Resume it instead; then drkit resume {RUN} continues the rollback"
    assert result.machine.state is State.PLANNED


def test_another_run_takes_the_place_of_one_that_changed_nothing(trial):
    going = trial()
    summary = RunSummary(RUN, "failover", "planned", going.plan.made_at, going.plan.made_at, "primary->dr")
    give_up(going.estate, going.journal, going.runner.machine, summary, "another run took its place")
    assert load_run(going.estate.store, RUN).machine.state is State.CANCELLED
    assert (going.listed.state, going.listed.updated_at > summary.updated_at) == ("cancelled", True)
    changed = replace(going.runner.machine, facts=replace(going.runner.machine.facts, sealed=True))
    count = len(going.journal.entries)
    with pytest.raises(InvariantBroken, match="I9"):
        give_up(going.estate, going.journal, changed, summary, "another run took its place")
    assert len(going.journal.entries) == count


def test_who_takes_a_run_over_is_journaled(trial):
    going = trial()
    take_over(going.journal, "ana@host")
    take_over(going.journal, "ben@host", Approval(emergency="the site burns"))
    assert [entry.payload for entry in going.journal.entries[-2:]] == [
        '{"by":"ana@host"}',
        '{"by":"ben@host","approval":{"emergency":"the site burns"}}',
    ]
    assert going.entries[-1] == ("resume", "taken")
