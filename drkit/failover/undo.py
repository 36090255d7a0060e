"""Taking a run back before its point of no return: the link as it was, the fence lifted, and journaled.

The link goes on before the fence is lifted, so that no record is written that nobody would mirror. Each act
can be repeated; a run whose `cancel` was begun is only ever cancelled (`drkit resume` finishes that).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from drkit.failover.estate import Estate
from drkit.failover.failback_plan import FailbackPlan
from drkit.failover.gate import Gate, gate_record
from drkit.failover.gate_rules import GateState
from drkit.failover.journal import CANCELLED, Journal
from drkit.failover.lease import RunLease
from drkit.failover.machine import POINT_OF_NO_RETURN, Facts, InvariantBroken, Run, cancel
from drkit.failover.record import Plan
from drkit.failover.stage import decide_link, wait_for
from drkit.model.links import Direction
from drkit.model.topology import Link

CANCEL = "cancel"


def point_of_no_return(plan: Plan) -> str:
    """The stage from which on a run of this plan can only be taken to its end."""
    if isinstance(plan, FailbackPlan) and plan.level:
        return "reverse"  # its scrub deletes nothing
    return POINT_OF_NO_RETURN[plan.kind]


@dataclass(frozen=True, slots=True)
class Undo:
    """What a run is taken back with: it has the run's lease. `link` is the configured link."""

    estate: Estate
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
        """Poll until `done`, at most for `seconds`; whether it came true. Keeps the right to run."""
        return wait_for(self.lease, done, seconds)

    def take_back(self, machine: Run, why: str) -> tuple[Run, str]:
        """Undo what the run has done and journal it; the run, cancelled, and what was undone.

        Raises:
            InvariantBroken: it is beyond the point of no return, or over.
            DrkitError: something can't be undone now; doing it again goes on.
        """
        point = point_of_no_return(self.plan)
        if self.journal.attempted(point):
            raise InvariantBroken(
                f"I9: {point} has begun: the run can't be cancelled any more", remedy=f"drkit resume {self.run}"
            )
        cancel(undone(machine), why)
        self.journal.intent(CANCEL)
        did = "; ".join(filter(None, (self._reopen(), self._lift()))) or "nothing was changed"
        given_up = cancel(undone(machine, did), why).run
        self.journal.write(CANCEL, CANCELLED, {"reason": why, "undone": did})
        return given_up, did

    def _reopen(self) -> str:
        """The link's direction as the plan found it, where this run has sealed it."""
        control = self.estate.store.link_control(self.link.id)
        if control is None or control.run != self.run or control.direction is not Direction.SEALED:
            return ""
        before = Direction.PAUSED if self.plan.control == Direction.PAUSED else Direction.ACTIVE
        decide_link(
            self.estate,
            self.link.id,
            before,
            run=self.run,
            reason="the run was cancelled",
            allowed=frozenset({Direction.SEALED}),
        )
        return f"{self.link.id} is {before} again"

    def _lift(self) -> str:
        """The fence that this run has put, unless the link was failed away from before: then it stays."""
        source = self.link.id.source
        control = self.estate.store.link_control(self.link.id)
        away = control is not None and control.direction in {Direction.SEALED, Direction.REVERSED}
        record = gate_record(self.estate.store, self.link.id, source)
        if away or record is None or record.run != self.run or record.state is GateState.OPEN:
            return ""
        return Gate(self, source).open()


def undone(machine: Run, did: str | None = None) -> Run:
    """The run as it is once nothing of it stands."""
    facts: Facts = replace(
        machine.facts, sealed=False, mirror_stopped=False, fenced=None, fence_reason=did, fenced_at=None
    )
    return replace(machine, facts=facts)
