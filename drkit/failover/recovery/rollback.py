"""Rolls a run back before its point of no return: restores the link, lifts the fence, journals everything.

The link is active before the fence is lifted, so every record written then is mirrored. Each step can be repeated; a
run whose `cancel` was begun can only be cancelled (`drkit resume` finishes that).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import (
    BEHIND_THE_FENCE,
    POINT_OF_NO_RETURN,
    Facts,
    InvariantBroken,
    Kind,
    Mode,
    Run,
    back_before_fence,
    cancel,
    undone,
)
from drkit.failover.fencing.cluster_fence import ClusterFence, fence_record
from drkit.failover.fencing.write_block import let_writes_in
from drkit.failover.journal.journal import CANCELLED, Journal
from drkit.failover.journal.run_record import Plan, live_cluster
from drkit.failover.plan.failback_plan import FailbackPlan
from drkit.failover.stages.stage import decide_link, is_sealed_by, wait_for
from drkit.model.errors import DrkitError
from drkit.model.link_state import Direction, LinkControl
from drkit.model.runs import FenceRecord, FenceState
from drkit.model.topology import Link

CANCEL = "cancel"


def point_of_no_return(plan: Plan) -> str:
    """The stage from which a run of this plan isn't taken back by itself when it fails."""
    if isinstance(plan, FailbackPlan) and plan.level:
        return "reverse"  # its scrub deletes nothing
    return POINT_OF_NO_RETURN[plan.kind]


def why_not_taken_back(plan: Plan, journal: Journal, facts: Facts) -> str | None:
    """Why a run can only be finished, as a clause; None: no group was moved, no flow reversed, and nothing deleted, nor
    asked to be deleted, so it can be taken back."""
    if not isinstance(plan, FailbackPlan):
        point = point_of_no_return(plan)
        return f"{point} has begun" if journal.attempted(point) else None
    if journal.attempted("reverse"):
        return "reverse has begun"
    deleting = plan.deletes and bool(facts.deleting or facts.scrubbed)
    return f"scrub has begun to delete topics of {plan.target.alias}" if deleting else None


@dataclass(frozen=True, slots=True)
class Rollback:
    """Rolls a run back. It holds the run's lease. `link` is the configured link."""

    estate: ClusterContext
    link: Link
    lease: RunLease
    journal: Journal
    plan: Plan
    say: Callable[[str], None]

    @property
    def run(self) -> str:
        """The run."""
        return self.journal.run

    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Poll until `done`, for at most `seconds`; returns whether it came true. Keeps the lease."""
        return wait_for(self.lease, done, seconds)

    def take_back(self, machine: Run, why: str) -> tuple[Run, str]:
        """Undo the run's changes and journal it; returns the cancelled run, and what was undone.

        Raises:
            InvariantBroken: it is beyond the point of no return, or over.
            DrkitError: something can't be undone now; calling it again continues.
        """
        beyond = why_not_taken_back(self.plan, self.journal, machine.facts)
        if beyond is not None:
            raise InvariantBroken(
                f"I9: {beyond}: the run can't be cancelled any more", remedy=f"drkit resume {self.run}"
            )
        cancel(undone(machine))
        self.journal.intent(CANCEL)
        kept = _as_it_was(self.plan, machine.facts)
        did = "; ".join(filter(None, (self._reopen(), self._lift(), self._let_writes_in(), kept)))
        did = did or "nothing was changed"
        given_up = cancel(undone(machine, did))
        self.journal.write(CANCEL, CANCELLED, {"reason": why, "undone": did})
        return given_up, did

    def open_live(self, machine: Run, why: str) -> tuple[Run, str]:
        """Open the cluster that the run has closed, and go back to before the fence; returns the run, and what was
        done.

        Mirroring resumes before the cluster is opened, so every record written there is mirrored.

        Raises:
            InvariantBroken: clients may already have been switched.
            DrkitError: it can't be opened now.
        """
        before = back_before_fence(machine, why)
        flowing = "" if machine.facts.mode is Mode.UNPLANNED else self._reopen("the fence is no longer in place")
        live = live_cluster(self.plan)
        record = fence_record(self.estate.store, self.link.id, live)
        closed = record is not None and record.state is not FenceState.OPEN  # whatever run has closed it
        done = ClusterFence(self, live).open() if closed else ""
        self.journal.rewound(before.facts, why)
        return before, "; ".join(filter(None, (flowing, done))) or f"{live} is as it was"

    def _reopen(self, reason: str = "the run was cancelled") -> str:
        """Restore the data's direction as the plan found it, if this run has sealed it. A way back flows only while its
        link is reversed."""
        way = self.link.id if self.plan.kind is Kind.FAILOVER else self.link.id.reversed()
        configured = self.estate.store.link_control(self.link.id)
        if way != self.link.id and (configured is None or configured.direction is not Direction.REVERSED):
            return ""
        control = self.estate.store.link_control(way)
        if control is None or control.run != self.run or control.direction is not Direction.SEALED:
            return ""
        before = Direction.PAUSED if self.plan.control == Direction.PAUSED else Direction.ACTIVE
        decide_link(
            self,
            way,
            before,
            reason=reason,
            allowed=frozenset({Direction.SEALED}),
        )
        return f"{way} is {before} again"

    def _let_writes_in(self) -> str:
        """Lift what a scrub that stopped, or was killed, before it deleted anything may have left on its topics."""
        if not isinstance(self.plan, FailbackPlan) or not self.journal.attempted("scrub"):
            return ""
        old = self.link.id.source
        try:
            if self.estate.admin(old).cluster_id() != self.plan.target.cluster_id:
                return ""  # another cluster in its place
            return let_writes_in(self.estate, self.link.id, old)
        except DrkitError as error:  # it may be gone for good
            lift = f"drkit fence --lift --link '{self.link.id}'"
            return f"topics of {old} may take no writes since the scrub ({error.what}): {lift} lets them in"

    def _lift(self) -> str:
        """Lift the source's fence, whichever run put it, unless the link was failed away from before."""
        source = self.link.id.source
        control = self.estate.store.link_control(self.link.id)
        away = control is not None and not control.direction.serves_source
        record = fence_record(self.estate.store, self.link.id, source)
        if away or record is None or record.state is FenceState.OPEN:
            return ""
        return ClusterFence(self, source).open()


def _as_it_was(plan: Plan, facts: Facts) -> str:
    """What a failback that is taken back has left as it was."""
    if not isinstance(plan, FailbackPlan):
        return ""
    kept = f"; what was salvaged stays in {facts.salvage_path}" if facts.salvage_path else ""
    return (
        f"nothing was deleted on {plan.target.alias}, its topics and committed offsets are as they were, and clients "
        f"stay on {plan.live.alias}{kept}"
    )


def decided_by_another(control: LinkControl | None, plan: Plan, run: str | None) -> bool:
    """Whether another run has decided a link since a run of this plan found it. Pausing the link, or raising its
    version, doesn't count."""
    before = plan.failover_run if isinstance(plan, FailbackPlan) else plan.control_run
    return control is not None and control.run not in {None, run, before}


def decided_otherwise(control: LinkControl | None, plan: Plan, run: str, facts: Facts) -> str | None:
    """Why an unfinished failover decides its link no more: it was decided again since, in a sentence; None: it does.

    Its mirror may have gone on, and clients too: what the run would do by what it found before would undo that.
    """
    if isinstance(plan, FailbackPlan):
        return None
    ours = {run, *([plan.control_run] if plan.control == Direction.SEALED else [])}
    opened = facts.sealed and not is_sealed_by(control, ours) and (control is None or control.run != run)
    if not opened and not decided_by_another(control, plan, run):
        return None
    direction = Direction.ACTIVE if control is None else control.direction
    by = f" by run {control.run}" if control is not None and control.run else ""
    return f"{plan.link} was decided again{by} since run {run} began: it is {direction}"


def fence_is_gone(machine: Run, record: FenceRecord | None) -> bool:
    """Whether a run relies on a fence that is gone, or on an unfenced cluster that was once quiet.

    Args:
        machine: the run.
        record: the newest decision about the fence of its live cluster.
    """
    if machine.state not in BEHIND_THE_FENCE:
        return False
    facts = machine.facts
    if not facts.fenced:
        return facts.mode is Mode.PLANNED
    stands = record is not None and record.state is FenceState.CLOSED and record.proven
    return not stands or record is None or record.epoch != facts.fence_epoch
