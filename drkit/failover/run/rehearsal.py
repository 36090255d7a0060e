"""Rehearses a failover: computes positions like a real one, commits them, reads them back, and cleans up.

It uses the real target, but commits only for shadow groups, `drkit.rehearsal.<run>.<group>`: it only reads the real
groups, the link, the fence, the topics and the directories, and calls no hook. It holds a lease of its own, so a real
failover never waits for a rehearsal.

    planned → committed → verified → closed

The run's id is journaled before a shadow group is made; so the next rehearsal, or `drkit resume RUN`, finds what a
killed rehearsal left by its name, and removes it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import Facts, Run, StageOutcome, State
from drkit.failover.journal.journal import OUTCOME, PLAN, Journal, StageRecord, new_run_id
from drkit.failover.journal.run_record import label_of, origin_of
from drkit.failover.plan.failover_plan import FailoverPlan, plan_from_json, plan_json
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.positions.target_positions import compare_checks
from drkit.failover.run.runner import RunResult, Watch, nobody_watches
from drkit.failover.stages.failover_stages import by_group, commit_groups
from drkit.kafka.client.record_probe import LogPosition
from drkit.model.clock import exact_iso, now
from drkit.model.errors import DrkitError, PartlyDone, Refused
from drkit.model.process import working_on
from drkit.model.runs import RunSummary
from drkit.model.topology import REHEARSAL_GROUPS, LinkId
from drkit.model.wording import and_more
from drkit.store.api import Store

REHEARSAL = "rehearsal"
"""The kind of such a run, in the journal and the contract's `kind`."""

_SHOWN = 5


def rehearse(
    estate: ClusterContext, plan: FailoverPlan, *, started_at: datetime | None = None, watch: Watch = nobody_watches
) -> RunResult:
    """Rehearse a plan. The result's `error` says what failed; the shadow groups are removed then, too, if possible.

    Raises:
        Refused: another rehearsal of the link is in progress.
        Unreachable: the store doesn't answer; nothing was changed.
    """
    run = new_run_id()
    with working_on(plan.link, run=run), RunLease(estate.store, plan.link, run, what=REHEARSAL) as lease:
        _remove_left(estate, plan.link)
        journal = Journal(estate.store, run, anchor=estate.anchors.on(plan.link.target))
        began = started_at or plan.made_at
        body = {
            "kind": REHEARSAL,
            "target": plan.link.target,
            "started_at": exact_iso(began),
            "origin": origin_of(estate.config, lease.operator),
            "plan": json.loads(plan_json(plan)),
        }
        journal.write(PLAN, PLAN, body)
        facts = Facts(mode=plan.mode, loss=plan.loss, placed=len(plan.placed), endpoint=plan.endpoint)
        rehearsal = _Rehearsal(estate, plan, journal, lease, began, watch, facts)
        return rehearsal.run()


def find_rehearsal(store: Store, run: str) -> RunSummary | None:
    """The summary of the rehearsal with this id, or None."""
    return next((each for each in store.runs() if each.run == run and each.kind == REHEARSAL), None)


def clean_up(estate: ClusterContext, summary: RunSummary) -> tuple[RunResult, FailoverPlan]:
    """Remove what a killed rehearsal left on its target; returns the run as it ended, and its plan.

    Raises:
        Refused: it is in progress.
        Unreachable: the target or the store doesn't answer.
    """
    link = _link_of(summary)
    with RunLease(estate.store, link, summary.run, what=REHEARSAL):
        _remove(estate, summary)
    journal = Journal.open(estate.store, summary.run)
    plan = plan_from_json(json.dumps(json.loads(journal.read(PLAN) or "{}")["plan"]))
    ended = find_rehearsal(estate.store, summary.run) or summary
    machine = Run(plan.kind, State(ended.state), Facts(mode=plan.mode, loss=plan.loss))
    stages = tuple(journal.stages())
    return RunResult(summary.run, machine, summary.started_at, stages, plan.positions), plan


@dataclass(slots=True)
class _Rehearsal:
    """One rehearsal in progress."""

    estate: ClusterContext
    plan: FailoverPlan
    journal: Journal
    lease: RunLease
    started_at: datetime
    watch: Watch
    facts: Facts
    state: State = State.PLANNED

    def run(self) -> RunResult:
        self._list()
        error: DrkitError | None = None
        try:
            self._carry_out("translate", None, self._translate)
            self._carry_out("commit", State.COMMITTED, self._commit)
            self._carry_out("verify", State.VERIFIED, self._verify)
        except DrkitError as failed:
            error = failed
        except KeyboardInterrupt:
            error = DrkitError("the rehearsal was interrupted", remedy="Nothing in production was changed")
        try:
            self._carry_out("clean", State.CLOSED if error is None else State.CANCELLED, self._clean)
        except DrkitError as left:
            error = PartlyDone(
                f"shadow groups may be left on {self.plan.link.target}: {left.what}",
                meaning="They are named drkit.rehearsal.… and nobody reads with them",
                remedy=f"drkit resume {self.journal.run}, or the next rehearsal, removes them",
            )
        return RunResult(
            run=self.journal.run,
            machine=Run(self.plan.kind, self.state, self.facts),
            started_at=self.started_at,
            stages=tuple(self.journal.stages()),
            positions=self.plan.positions,
            error=error,
        )

    def _carry_out(self, stage: str, reaches: State | None, act: Callable[[], str]) -> None:
        self.journal.intent(stage)
        self.watch(stage, None, "")
        began = time.monotonic()
        try:
            reason = act()
        except DrkitError as error:
            with suppress(DrkitError):  # an unreachable store must not hide the failure
                self._record(StageRecord(stage, StageOutcome.FAILED, str(error), time.monotonic() - began))
            raise
        self.state = reaches or self.state
        self._record(StageRecord(stage, StageOutcome.OK, reason, time.monotonic() - began))

    def _translate(self) -> str:
        """The plan has the positions already: a real run computes them again, after its fence."""
        left = len(self.plan.positions) - len(self.plan.placed)
        return f"{len(self.plan.placed)} positions" + (f"; {left} have no place, each with its reason" if left else "")

    def _commit(self) -> str:
        wanted = {self._shadow(group): positions for group, positions in by_group(self.plan.positions).items()}
        failures = commit_groups(
            self.estate.groups(self.plan.link.target), wanted, self.lease.check, lambda _groups: None
        )
        if failures:
            group, first = next(iter(failures.items()))
            raise DrkitError(
                f"{len(failures)} of {len(wanted)} shadow groups can't be committed, {group}: {first.what}",
                meaning=first.meaning or "A real failover would have stopped here",
                remedy=first.remedy or "Remove the cause; then rehearse again",
            )
        self.facts = replace(self.facts, committed=len(self.plan.placed))
        return f"{len(self.plan.placed)} positions of {len(wanted)} shadow groups"

    def _verify(self) -> str:
        target = self.plan.link.target
        wanted = by_group(self.plan.positions)
        shadows = [self._shadow(group) for group in wanted]
        found = {(each.group, each.tp): each.offset for each in self.estate.groups(target).committed(shadows)}
        wrong = [
            f"{group} {position.target_tp}: {found.get((self._shadow(group), position.target_tp))}, "
            f"not {position.target_offset}"
            for group, positions in wanted.items()
            for position in positions
            if found.get((self._shadow(group), position.target_tp)) != position.target_offset
        ]
        compared = compare_checks(self.estate, target, _places(self.plan.placed), self.plan.places)
        wrong += compared.wrong
        if wrong:
            told = and_more(wrong, separator="; ", shown=_SHOWN)
            raise DrkitError(
                f"{len(wrong)} places on {target} are not as planned: {told}",
                meaning="A real failover would have stopped here",
                remedy="Check these with drkit audit, then rehearse again",
            )
        self.facts = replace(self.facts, verified=len(self.plan.placed), verified_at=now(), places=compared.seen)
        return f"{len(self.plan.placed)} positions read back, all as committed; {compared.seen}"

    def _clean(self) -> str:
        count = _delete(self.estate, self.plan.link.target, self.journal.run)
        return f"{count} shadow groups removed; nothing of production was touched"

    def _shadow(self, group: str) -> str:
        return f"{REHEARSAL_GROUPS}{self.journal.run}.{group}"

    def _record(self, record: StageRecord) -> None:
        self.journal.outcome(record, self.facts)
        self._list()
        self.watch(record.name, record, record.reason)

    def _list(self) -> None:
        self.estate.store.put_run(
            RunSummary(self.journal.run, REHEARSAL, self.state, self.started_at, now(), label_of(self.plan))
        )


def _places(positions: tuple[PlannedPosition, ...]) -> set[LogPosition]:
    return {LogPosition(p.target_tp, p.target_offset) for p in positions if p.target_offset is not None}


def _remove_left(estate: ClusterContext, link: LinkId) -> None:
    """Remove what killed rehearsals of this link left: nobody else holds the lease."""
    for summary in estate.store.runs():
        if summary.kind == REHEARSAL and _link_of(summary) == link:
            _remove(estate, summary)


def _remove(estate: ClusterContext, summary: RunSummary) -> int:
    if summary.state in {State.CLOSED, State.CANCELLED}:
        return 0
    count = _delete(estate, _link_of(summary).target, summary.run)
    journal = Journal.open(estate.store, summary.run) if estate.store.entries(summary.run) else None
    if journal is not None:
        journal.anchor = estate.anchors.on(_link_of(summary).target)
        journal.write("clean", OUTCOME, _cleaned(count))
    estate.store.put_run(replace(summary, state=State.CANCELLED, updated_at=now()))
    return count


def _cleaned(count: int) -> dict[str, object]:
    reason = f"{count} shadow groups that a killed rehearsal left are removed"
    return {"outcome": StageOutcome.OK.value, "reason": reason, "seconds": 0.0, "facts": None}


def _delete(estate: ClusterContext, target: str, run: str) -> int:
    """Delete the run's shadow groups, and check that none is left; returns their number."""
    coordinator = estate.groups(target)
    prefix = f"{REHEARSAL_GROUPS}{run}."
    mine = [name for name in coordinator.list_groups() if name.startswith(prefix)]
    coordinator.delete_groups(mine)
    left = [name for name in coordinator.list_groups() if name.startswith(prefix)]
    if left:
        raise Refused(f"{len(left)} shadow groups are still on {target}, e.g. {left[0]}", remedy="Try again")
    return len(mine)


def _link_of(summary: RunSummary) -> LinkId:
    return LinkId.parse(summary.detail.split(" ", maxsplit=1)[0])
