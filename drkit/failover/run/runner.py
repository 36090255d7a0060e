"""Executes a plan: intent, action, outcome, one stage after the other, under the run's lease.

The state machine says what comes next and whether a stage's facts allow the next state; the journal says what happened
before. A killed run continues from its journal: a stage without a written outcome is executed again, which every stage
allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from drkit.config import Objectives
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.evidence import Evidence, Judgement, evidence_of, judge
from drkit.failover.context.interfaces import Ports
from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import (
    Facts,
    Kind,
    Mode,
    Run,
    StageOutcome,
    State,
    advance,
    back_before_fence,
    cancel,
    next_step,
)
from drkit.failover.journal.journal import CANCELLED, TAKEN, Journal, StageRecord
from drkit.failover.journal.run_record import Plan, RunRecord, live_cluster
from drkit.failover.plan.loss_budget import OverBudget
from drkit.failover.plan.waves import WantedGroups, at_once
from drkit.failover.positions.position_checks import PositionCheck
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.recovery.component_conditions import Unfinished, advise
from drkit.failover.recovery.rollback import CANCEL, Rollback, point_of_no_return
from drkit.failover.stages.hooks import Hooks, When
from drkit.failover.stages.stage import LooksFirst, Stage, StageContext
from drkit.model.clock import now
from drkit.model.errors import DrkitError, OutcomeUnknown, PartlyDone
from drkit.model.link_state import Direction
from drkit.model.process import working_on
from drkit.model.runs import Approval, RunSummary
from drkit.model.topology import Link

Watch = Callable[[str, StageRecord | None, str], None]
"""Called with progress: (stage, its record once it ended, a message)."""
Gate = Callable[[str, Run, tuple[PlannedPosition, ...]], None]
"""Called before each stage with its name, the run and its final positions (none before they are translated); raises
`PartlyDone` to stop the run there, resumable.
"""


def nobody_watches(_stage: str, _record: StageRecord | None, _text: str) -> None:
    """A watcher that ignores progress."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run's state, from which the contract's document is made. `error`: why it stopped, or None; `interrupted`: by
    the operator.
    """

    run: str
    machine: Run
    started_at: datetime
    stages: tuple[StageRecord, ...]
    positions: tuple[PlannedPosition, ...]
    error: DrkitError | None = None
    interrupted: bool = False

    @classmethod
    def of(cls, record: RunRecord) -> RunResult:
        """A run as its journal tells it."""
        return cls(record.run, record.machine, record.started_at, record.stages, record.positions)

    @property
    def evidence(self) -> Evidence:
        """The numbers, as far as they are known."""
        facts = self.machine.facts
        return evidence_of(facts, facts.fenced_at if self.machine.kind is Kind.FAILBACK else self.started_at)

    def judged(self, objectives: Objectives) -> Judgement:
        """What the numbers say of the objectives of the configuration; nothing of a run that stopped."""
        return judge(self.evidence, objectives, self.machine.kind, None if self.error else self.machine.state)


@dataclass(slots=True)
class Runner:
    """Executes one run.

    `link` is the direction of the data while groups move; `configured` the link of the configuration,
    on which one run at a time may act. `stages` are those of the run's path, in order. `before_fence` is called
    before a failback closes the live cluster to its clients; it raises `PartlyDone` to make the run wait.
    `gate`: of a site run, called before each stage; it may block. `in_order`: see `StageContext`.
    """

    estate: ClusterContext
    link: Link
    configured: Link
    journal: Journal
    machine: Run
    stages: Sequence[Stage]
    plan: Plan
    lease: RunLease
    label: str
    started_at: datetime
    positions: tuple[PlannedPosition, ...] = ()
    places: tuple[PositionCheck, ...] = ()
    carried: tuple[PlannedPosition, ...] = ()
    ports: Ports | None = None
    watch: Watch = nobody_watches
    hooks: Hooks = field(default_factory=Hooks)
    before_fence: Callable[[], None] | None = None
    gate: Gate | None = None
    in_order: Callable[[WantedGroups], Iterator[WantedGroups]] = at_once

    def __post_init__(self) -> None:
        self.journal.anchor = self.estate.anchors.on(self.plan.target.alias)

    def run(self) -> RunResult:
        """Execute every remaining stage.

        The result's `error` says why it stopped, if it did: the cause itself if nothing was changed (the run is then
        cancelled), else `PartlyDone` or `OutcomeUnknown`, and it can be resumed.
        """
        with self._logged():
            return self._run()

    def _logged(self) -> AbstractContextManager[None]:
        """In the block, the log's events name this run and its link."""
        return working_on(self.plan.link, run=self.journal.run)

    def _run(self) -> RunResult:
        self._list()
        while True:
            step, _why = next_step(self.machine)
            if step is None:
                return self._result(None)
            stage = next(stage for stage in self.stages if stage.name == step.stage)
            try:
                if self.gate is not None:
                    self.gate(stage.name, self.machine, self.positions)
                if self.machine.state is State.PLANNED:
                    self._call(When.PRE)
                if stage.name == "close":
                    self._call(When.POST)
                if stage.name == "fence" and self.machine.kind is Kind.FAILBACK and self.before_fence is not None:
                    self.before_fence()
                self._carry_out(stage)
            except DrkitError as error:
                return self._result(error)
            except KeyboardInterrupt:
                stopped = PartlyDone(
                    f"interrupted in stage {stage.name}",
                    meaning="Completed work is journaled; this stage will be repeated",
                    remedy=f"drkit resume {self.journal.run}",
                )
                return replace(self._result(self._live_opened(stage.name, stopped) or stopped), interrupted=True)

    def _call(self, when: When) -> None:
        """Call the hooks of a moment, unless the journal has their outcome. A killed run calls them again."""
        if not self.hooks.commands(when) or self._called(when):
            return
        self.lease.check()
        self.journal.intent(when)
        self.watch(when, None, "calling hooks")
        began = time.monotonic()
        try:
            reason = self.hooks.call(when, self.machine.state)
        except DrkitError as error:
            if when is When.PRE:
                raise self._failed(when, error, time.monotonic() - began) from error
            reason = f"{error} What was done remains in effect"
            self._record(StageRecord(when, StageOutcome.FAILED, reason, time.monotonic() - began))
            return
        self._record(StageRecord(when, StageOutcome.OK, reason, time.monotonic() - began))

    def _called(self, when: When) -> bool:
        ended = {record.name: record.outcome for record in self.journal.stages()}
        return when in ended and (when is When.POST or ended[when] is StageOutcome.OK)

    def _carry_out(self, stage: Stage) -> None:
        self.lease.check()
        again, commit_begun = self.journal.attempted(stage.name), self.journal.attempted("commit")
        began = time.monotonic()
        context = StageContext(
            estate=self.estate,
            link=self.link,
            run=self.journal.run,
            facts=self.machine.facts,
            positions=self.positions,
            places=self.places,
            again=again,
            lease=self.lease,
            ports=self.ports,
            say=lambda text: self.watch(stage.name, None, text),
            carried=self.carried,
            establish=partial(self._establish, stage.name),
            in_order=self.in_order,
            committed=self.journal.offsets_committed() if again else {},
            note_committed=partial(self.journal.committed, stage.name),
            commit_begun=commit_begun,
        )
        try:
            if isinstance(stage, LooksFirst) and not again:
                stage.look_first(context)
            self.journal.intent(stage.name)
            self.watch(stage.name, None, stage.explain())
            report = stage.execute(context)
            self.lease.check()
            if report.positions is not None:
                self.journal.places(stage.name, report.places)
                self.journal.positions(stage.name, report.positions)
            moved = advance(self.machine, stage.name, report.outcome, replace(report.facts, asked=()))
        except DrkitError as error:
            self.lease.check_not_taken()
            raise self._failed(stage.name, error, time.monotonic() - began) from error
        if report.positions is not None:
            self.positions, self.places = report.positions, report.places
        self.machine = moved
        self._record(StageRecord(stage.name, report.outcome, report.reason, time.monotonic() - began))

    def _establish(self, stage: str, facts: Facts, carried: tuple[PlannedPosition, ...]) -> None:
        """Journal, before a stage destroys anything, the facts that a repetition of the stage needs."""
        self.lease.check()
        if carried != self.carried:
            self.journal.carried(stage, carried)
        self.journal.established(stage, facts)
        self.machine, self.carried = replace(self.machine, facts=facts), carried

    def _failed(self, stage: str, error: DrkitError, seconds: float) -> DrkitError:
        """Journal the failure, if the store accepts it; returns the error for the operator."""
        outcome = StageOutcome.UNKNOWN if isinstance(error, OutcomeUnknown) else StageOutcome.FAILED
        with suppress(DrkitError):  # an unreachable store must not hide the failure; the stage is repeated anyway
            self._record(StageRecord(stage, outcome, str(error), seconds))
        opened = self._live_opened(stage, error)
        if opened is not None:
            return opened
        if isinstance(error, PartlyDone | OutcomeUnknown):
            return error
        resume = f"drkit resume {self.journal.run}"
        try:
            if self._taken_back(error):
                return error
        except DrkitError as undoing:
            if self.journal.attempted(CANCEL):
                return PartlyDone(
                    f"{stage} failed: {error.what}; and it can't be rolled back now: {undoing.what}",
                    meaning="Part of what the run did is still in effect",
                    remedy=_and_then(undoing.remedy, f"{resume} continues the rollback"),
                )
        remedy = error.remedy if resume in error.remedy else _and_then(error.remedy, resume)
        if (way := self._way_out()) is not None:
            remedy = f"{remedy.rstrip('. ')}. Or, as it is now: {way}"
        return PartlyDone(
            f"{stage} failed: {error.what}",
            meaning=error.meaning or f"The run stays {self.machine.state}; what was done remains in effect",
            remedy=remedy,
        )

    def cancel(self, why: str) -> RunResult:
        """Roll the run back to its start. The result's `error` says what prevents that, or None."""
        try:
            with self._logged():
                self._take_back(why)
        except DrkitError as error:
            remedy = _and_then(error.remedy, f"drkit resume {self.journal.run} continues the rollback")
            return self._result(PartlyDone(error.what, meaning=error.meaning, remedy=remedy))
        return self._result(None)

    def _live_opened(self, stage: str, error: DrkitError) -> DrkitError | None:
        """Open the live cluster again if a failback stops after closing it; returns the error for the operator.

        None: the run doesn't stop between its fence and its switch.
        """
        if self.machine.kind is not Kind.FAILBACK or stage not in {"fence", "drain", "translate", "commit"}:
            return None
        live = live_cluster(self.plan)
        resume = f"drkit resume {self.journal.run}"
        try:
            self.machine, did = self._undo().open_live(self.machine, f"{stage} failed: {error.what}")
        except DrkitError as failed:
            return PartlyDone(
                f"{stage} failed: {error.what}; and {live} could not be opened to its clients again: {failed.what}",
                meaning=f"Clients can't write to {live} as long as its fence is in place",
                remedy=self._way_out(alone=True)
                or f"{resume}; or drkit abandon {self.journal.run}, which gives the run up",
            )
        with suppress(DrkitError):
            self._list()
        meaning = f"Clients still use {live} ({did}); nothing has moved"
        if (way := self._way_out(alone=True)) is not None:
            return PartlyDone(f"{stage} failed: {error.what}", meaning=f"Nothing has moved ({did})", remedy=way)
        remedy = error.remedy if resume in error.remedy else _and_then(error.remedy, resume)
        told = OutcomeUnknown if isinstance(error, OutcomeUnknown) else PartlyDone
        return told(f"{stage} failed: {error.what}", meaning=meaning, remedy=remedy)

    def _way_out(self, *, alone: bool = False) -> str | None:
        """How to recover if a cluster is gone or replaced; None: both are there, or that is unknown.

        `alone`: nothing is said before it, so trying again comes first where a cluster may only be slow.
        """
        try:
            left = Unfinished.of(self.journal, self.machine, self.plan)
            advice = advise(self.estate, self.configured, left)
        except DrkitError:
            return None
        if not advice.broken:
            return None
        said = f"{'; '.join(advice.broken)}: {advice.said(str(advice.way))}"
        resume = f"drkit resume {self.journal.run}"
        if not alone or not advice.silent or resume in advice.way.commands:
            return said
        return f"{resume} tries again, as a slow cluster looks like one that is gone. Where it stays so: {said}"

    def back_before_fence(self, why: str) -> None:
        """Go back to before the fence, which is gone.

        Raises:
            DrkitError: that isn't possible now.
        """
        with self._logged():
            self.machine, did = self._undo().open_live(self.machine, why)
            self._list()
            self.watch("fence", None, f"{why}: {did}")

    def without_live(self, why: str) -> None:
        """Go on as an unplanned move from before the fence: the live cluster is gone."""
        run = back_before_fence(self.machine, why)
        self.machine = replace(run, facts=replace(run.facts, mode=Mode.UNPLANNED, unfenced_accepted=True))
        self.journal.rewound(self.machine.facts, why)
        self._list()

    def as_planned(self, why: str) -> None:
        """Go back to before the fence, and include the live cluster again.

        Raises:
            DrkitError: that isn't possible now.
        """
        facts = replace(self.machine.facts, mode=Mode.PLANNED, unfenced_accepted=False)
        self.machine = replace(self.machine, facts=facts)
        self.back_before_fence(why)

    def _taken_back(self, error: DrkitError) -> bool:
        """Give up a planned move (it loses nothing or does nothing), one that would lose too much, and any run that has
        not sealed the link.

        Raises:
            DrkitError: it is too late for that, or something can't be undone now.
        """
        if self.journal.attempted(point_of_no_return(self.plan)):
            return False
        control = self.estate.store.link_control(self.configured.id)
        parted = control is not None and control.run == self.journal.run and control.direction is not Direction.ACTIVE
        nothing_moved = self.machine.facts.mode is Mode.PLANNED or isinstance(error, OverBudget)
        if parted and (self.machine.kind is not Kind.FAILOVER or not nothing_moved):
            return False
        self._take_back(error.what)
        return True

    def _take_back(self, why: str) -> None:
        """See `Rollback.take_back`."""
        self.machine, did = self._undo().take_back(self.machine, why)
        with suppress(DrkitError):  # the journal has it; the summary is a convenience
            self._list()
        self.watch(CANCEL, StageRecord(CANCEL, StageOutcome.OK, did, 0.0), did)

    def _undo(self) -> Rollback:
        return Rollback(
            estate=self.estate,
            link=self.configured,
            lease=self.lease,
            journal=self.journal,
            plan=self.plan,
            say=lambda text: self.watch(CANCEL, None, text),
        )

    def _record(self, record: StageRecord) -> None:
        self.journal.outcome(record, self.machine.facts)
        self._list()
        self.watch(record.name, record, record.reason)

    def _list(self) -> None:
        self.estate.store.put_run(
            RunSummary(
                run=self.journal.run,
                kind=self.machine.kind,
                state=self.machine.state,
                started_at=self.started_at,
                updated_at=now(),
                detail=self.label,
            )
        )

    def _result(self, error: DrkitError | None) -> RunResult:
        return RunResult(
            run=self.journal.run,
            machine=self.machine,
            started_at=self.started_at,
            stages=tuple(self.journal.stages()),
            positions=self.positions,
            error=error,
        )


def _and_then(remedy: str, command: str) -> str:
    return f"{remedy.rstrip('. ')}; then {command}" if remedy else command


def give_up(estate: ClusterContext, journal: Journal, machine: Run, summary: RunSummary, why: str) -> None:
    """Cancel a run that changed nothing, because another one takes its place.

    Raises:
        InvariantBroken: it has changed something.
    """
    cancel(machine)
    journal.write(CANCEL, CANCELLED, {"reason": why})
    estate.store.put_run(replace(summary, state=State.CANCELLED, updated_at=now()))


def take_over(journal: Journal, owner: str, approval: Approval | None = None) -> None:
    """Journal who continues the run, and the approval for accepting more than before."""
    approved = {} if approval is None else {"approval": approval.journaled()}
    journal.write("resume", TAKEN, {"by": owner} | approved)
