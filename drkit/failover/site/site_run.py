"""Executes, resumes and cancels a site run: its links' runs, and their outcomes."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import Run, State
from drkit.failover.journal.journal import CANCELLED, INTENT, OUTCOME
from drkit.failover.journal.run_record import RunRecord
from drkit.failover.journal.site_record import SiteRecord, list_site, load_site
from drkit.failover.plan.approvals import check_approved, flags_of
from drkit.failover.plan.failover_plan import FailoverPlan
from drkit.failover.plan.site_context import SiteContext
from drkit.failover.plan.site_plan import SitePlan, refusal_of, standing
from drkit.failover.plan.waves import Wave, WaveAssignment, Waves
from drkit.failover.planning.failover_planner import make_plan
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.recovery.rollback import CANCEL, why_not_taken_back
from drkit.failover.run.runner import Gate, take_over
from drkit.failover.run.service import (
    PartOfSite,
    cancel_run,
    request_of,
    resume_run,
    run_failover,
)
from drkit.failover.site.shared_groups import COMMITTED, SharedGroups
from drkit.failover.site.site_failback_run import FailbackMeans, SiteFailbackRunner
from drkit.failover.site.site_lease import begun_site, decided_since, leases, links_left, links_to_plan_again
from drkit.failover.site.site_result import (
    LinkResult,
    SiteResult,
    SiteWatch,
    causes,
    end_site,
    keep_link,
    nobody_watches,
    of_site,
    result_of,
)
from drkit.model.errors import DrkitError, PartlyDone, Refused
from drkit.model.runs import ACCEPT_UNFENCED
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more, counted


def run_site(
    site: SiteContext,
    plan: SitePlan,
    *,
    unfenced: Collection[LinkId] = (),
    started_at: datetime | None = None,
    watch: SiteWatch = nobody_watches,
) -> SiteResult:
    """Execute a failover's plan. `started_at`: where the recovery time begins (default: when the plan was made).

    `unfenced`: the links that move although the clusters that they leave can't be fenced.

    Raises:
        Refused: a precondition of some link does not hold, or another run acts on one; nothing was changed.
        Unreachable: the store doesn't answer; nothing was changed.
    """
    for link, obstacle in standing(plan, unfenced=unfenced):
        raise refusal_of(plan, link, obstacle).refusal()
    waived = frozenset({ACCEPT_UNFENCED}) if unfenced else frozenset()
    estate, flags = site.estate, frozenset[str]().union(*(flags_of(each, waived) for each in plan.plans))
    check_approved(estate.config.approvals, estate.approval, plan.digest, flags, f"the {plan.kind} to {plan.to}")
    with begun_site(site, plan, started_at or plan.made_at, unfenced=unfenced) as (record, held):
        return _SiteRunner(site, record, plan, held, watch, record.unfenced).carry_out()


def resume_site(
    site: SiteContext,
    run: str,
    *,
    accept_unfenced: bool = False,
    means: FailbackMeans | None = None,
    watch: SiteWatch = nobody_watches,
) -> SiteResult:
    """Finish an interrupted site run. A finished one is returned unchanged.

    Args:
        site: its links, and connections for each.
        run: its id.
        accept_unfenced: like a failover's, for what the run has found since.
        means: the options and ports of a failback or reprotect.
        watch: receives progress.

    Raises:
        Refused: no such run, or another run acts on one of its links.
        DrkitError: a journal is broken.
        Unreachable: the store doesn't answer.
    """
    record = load_site(site.estate.store, run)
    salvage_only = means is not None and means.accept_salvage_only and not record.accept_salvage_only
    more = salvage_only or (accept_unfenced and not record.unfenced.issuperset(record.plan.links))
    if more and not record.finished:  # than was approved
        rule, what = site.estate.config.approvals, f"what run {run} is to accept now"
        check_approved(rule, site.estate.approval, "", frozenset(), what)
    if record.finished:
        list_site(site.estate.store, record, record.state)  # it may have been killed before its summary was stored
        return result_of(record)
    with leases(site, links_left(record), run) as held:
        record = load_site(site.estate.store, run)  # under the leases: nobody else writes to it
        if record.finished:
            return result_of(record)
        record.journal.anchor = site.estate.anchors.on(record.plan.anchor)
        take_over(record.journal, next(iter(held.values())).owner, site.estate.approval)
        if record.journal.attempted(CANCEL):
            return _cancelled(site, record, held, watch)
        plan = record.plan
        if isinstance(plan, SitePlan):
            unfenced = frozenset(plan.links) if accept_unfenced else record.unfenced
            runner = _SiteRunner(site, record, plan, held, watch, unfenced, again=True)
            runner.plan_anew()
            return runner.carry_out()
        if means is None:
            raise DrkitError(f"a {plan.kind} needs a mirror, a salvager and an auditor", remedy=f"drkit resume {run}")
        bringing_back = SiteFailbackRunner(site, record, plan, held, means, watch, again=True)
        bringing_back.plan_anew()
        return bringing_back.carry_out()


def cancel_site(site: SiteContext, run: str, *, watch: SiteWatch = nobody_watches) -> SiteResult:
    """Roll every link back to its start.

    Raises:
        Refused: no such run, it is over, a link is beyond its point of no return, or another run acts on one.
        DrkitError: a journal is broken, its own or that of a link's run.
        Unreachable: the store doesn't answer.
    """
    with leases(site, links_left(load_site(site.estate.store, run)), run) as held:
        record = load_site(site.estate.store, run)
        if record.finished:
            raise Refused(f"run {run} is {record.state}: there is nothing to cancel", remedy="`drkit runs`")
        for error in record.damaged.values():  # it may have begun to commit, or to delete
            raise error
        beyond = [link for link, child in record.children.items() if _beyond(child)]
        if beyond:
            begun = "commit" if isinstance(record.plan, SitePlan) else "delete"
            raise Refused(
                f"run {run} can't be cancelled any more: {and_more([str(link) for link in beyond])} "
                f"{'has' if len(beyond) == 1 else 'have'} begun to {begun}",
                meaning="A partly rolled back site would have its groups on both sides",
                remedy=f"drkit resume {run}; or roll back single links that have not begun to {begun}: "
                "drkit resume RUN --cancel, with the id of the link's run",
            )
        record.journal.anchor = site.estate.anchors.on(record.plan.anchor)
        take_over(record.journal, next(iter(held.values())).owner)
        record.journal.write(CANCEL, INTENT, {})
        return _cancelled(site, record, held, watch)


@dataclass(slots=True)
class _SiteRunner:
    """Executes the links of a failover concurrently. `unfenced`: see `run_site`. `again`: it was begun before."""

    site: SiteContext
    record: SiteRecord
    plan: SitePlan
    leases: dict[LinkId, RunLease]
    watch: SiteWatch
    unfenced: frozenset[LinkId]
    again: bool = False
    _fresh: dict[LinkId, FailoverPlan] = field(default_factory=dict)
    _refused: dict[LinkId, DrkitError] = field(default_factory=dict)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def plan_anew(self) -> None:
        """Plan a link again whose run rolled itself back; it gets a run with a new id."""
        links = []
        for link, since in links_to_plan_again(self.site, self.record):
            if since is None:
                links.append(link)
            else:
                keep_link(self.record, LinkResult(link.id, self._plan(link.id), elsewhere=since), 0.0)

        def plan(link: Link) -> FailoverPlan | DrkitError:
            estate = self.site.of(link.id)
            try:
                return make_plan(estate, request_of(estate, self._plan(link.id)))
            except DrkitError as error:
                return error

        for link, made in zip(links, self.site.side_by_side(plan, links), strict=True):
            if isinstance(made, DrkitError):
                self._refused[link.id] = made
                continue
            self._fresh[link.id] = made
            self.record.plan_again(link.id, made.digest)

    def carry_out(self) -> SiteResult:
        """Execute every remaining link concurrently; the outcome of each is journaled as it ends."""
        plan = self.plan
        left = {*self.record.elsewhere, *self.record.given_up}
        groups = SharedGroups(self.record.run, plan, left)
        results: dict[LinkId, LinkResult] = {}
        links = [link for link in plan.links if link not in self.record.elsewhere]
        waves = self._waves([link for link in links if link not in left], groups) if plan.waves else None
        with ThreadPoolExecutor(len(links) + 1, "drkit-link") as pool:
            began = time.monotonic()
            running = {pool.submit(self._link, link, groups, waves): link for link in links}
            conducting = None if waves is None else pool.submit(waves.conduct, self._wave_over)
            while len(results) < len(running):
                try:
                    for done in as_completed([each for each, link in running.items() if link not in results]):
                        self._ended(running[done], done, results, began)
                except KeyboardInterrupt:
                    for lease in self.leases.values():
                        lease.stop_acting("the run was interrupted")
        if conducting is not None:
            conducting.result()
        return end_site(self.site, self.record, [results[link] for link in links])

    def _waves(self, links: Sequence[LinkId], groups: SharedGroups) -> Waves:
        """The order in which the links' groups move."""
        plan = self.plan
        plans = [self._plan(link) for link in plan.links]
        return Waves(
            self.record.run,
            plan.waves,
            WaveAssignment(plan.waves, plans),
            links,
            over=frozenset(self.record.waves_over),
            environment={
                "DRKIT_SITE": self.record.run,
                "DRKIT_CLUSTER": plan.to,
                "DRKIT_BOOTSTRAP_SERVERS": self.site.estate.endpoint(plan.to),
            },
            committed=groups.committed,
        )

    def _wave_over(self, wave: Wave, why: str | None, seconds: float) -> None:
        """Journal that a wave is over, or failed."""
        payload = {
            "wave": wave.name,
            "outcome": "ok" if why is None else "failed",
            "reason": why or "its groups are on the target",
            "seconds": round(seconds, 3),
        }
        self._write(f"wave {wave.name}", payload)

    def _write(self, stage: str, payload: dict[str, Any]) -> None:
        """Journal an outcome: from any thread, one at a time.

        If the store is gone, the journals of the links' runs have it.
        """
        with self._writing, suppress(DrkitError):
            self.record.journal.write(stage, OUTCOME, payload)

    def _link(self, link: LinkId, groups: SharedGroups, waves: Waves | None) -> LinkResult:
        """Execute one link's run on its own thread, until it ends or stops."""
        found = LinkResult(link, self._plan(link))
        try:
            found = self._carried_out(link, groups, waves)
        except DrkitError as error:
            found = LinkResult.so_far(self._plan(link), self.record.children.get(link), error)
        finally:
            groups.ended(link, found.state)
            if waves is not None and link not in self.record.given_up:
                if found.state in COMMITTED:
                    waves.has_committed(link)
                waves.ended(link)
        return found

    def _carried_out(self, link: LinkId, groups: SharedGroups, waves: Waves | None) -> LinkResult:
        if link in self.record.damaged:
            raise self.record.damaged[link]
        if link in self._refused:
            raise self._refused[link]
        estate, plan, child = self.site.of(link), self._plan(link), self.record.children.get(link)
        lease, unfenced = self.leases[link], link in self.unfenced
        gate = groups.gate(link, lease)
        part = PartOfSite(self.record.run, self.record.runs[link], lease, gate)
        if waves is not None:
            in_order = waves.in_order(link, lease)
            part = replace(part, gate=_with_waves(gate, waves, link, lease), in_order=in_order)
        watch = partial(self.watch, link)
        if child is not None:  # even a finished one: it may have been killed before its summary was stored
            result = resume_run(estate, child.run, None, accept_unfenced=unfenced, watch=watch, part=part)
            return LinkResult(link, plan, result, result.error)
        if self.again and link not in self._fresh and (since := decided_since(estate, plan)) is not None:
            return LinkResult(link, plan, elsewhere=since)
        result = run_failover(
            estate,
            plan,
            accept_unfenced=unfenced,
            started_at=self.record.started_at,
            watch=watch,
            part=part,
        )
        return LinkResult(link, plan, result, result.error)

    def _ended(self, link: LinkId, done: Future[LinkResult], results: dict[LinkId, LinkResult], began: float) -> None:
        """Record the outcome of a link."""
        found = results[link] = of_site(done.result(), self.record)
        with self._writing:
            keep_link(self.record, found, time.monotonic() - began)

    def _plan(self, link: LinkId) -> FailoverPlan:
        return self._fresh.get(link) or self.plan.of(link)


def _with_waves(gate: Gate, waves: Waves, link: LinkId, lease: RunLease) -> Gate:
    """A gate that also waits for the link's first wave before anything is done."""

    def ask(stage: str, run: Run, positions: tuple[PlannedPosition, ...]) -> None:
        if run.state is State.PLANNED:
            waves.begin(link, lease)
        elif run.state in COMMITTED:
            waves.has_committed(link)
        gate(stage, run, positions)

    return ask


def _cancelled(site: SiteContext, record: SiteRecord, held: dict[LinkId, RunLease], watch: SiteWatch) -> SiteResult:
    """Roll back each link's unfinished run."""

    def back(link: Link) -> LinkResult:
        child, plan = record.children.get(link.id), record.plan.of(link.id)
        if link.id in record.damaged:
            return LinkResult.so_far(plan, None, record.damaged[link.id])
        if child is None or child.machine.finished:
            return LinkResult.so_far(plan, child)
        part = PartOfSite(record.run, child.run, held[link.id], lambda _stage, _run, _positions: None)
        try:
            result = cancel_run(site.of(link.id), child.run, watch=partial(watch, link.id), part=part)
        except DrkitError as error:
            return LinkResult.so_far(plan, child, error)
        return LinkResult(link.id, plan, result, result.error)

    links = tuple(site.side_by_side(back, [link for link in site.links if link.id in held]))
    failed = [each for each in links if each.error is not None]
    if not failed:
        record.journal.write(CANCEL, CANCELLED, {"reason": "cancelled by the operator"})
        list_site(site.estate.store, record, State.CANCELLED)
        return SiteResult.of(record, State.CANCELLED, links)
    error = PartlyDone(
        f"{counted(len(failed), 'link')} can't be rolled back now: {causes(failed)}",
        meaning="Part of what the run did is still in effect",
        remedy=f"Remove the cause; then drkit resume {record.run} continues the rollback",
    )
    list_site(site.estate.store, record, State.PLANNED)
    return SiteResult.of(record, State.PLANNED, links, error)


def _beyond(child: RunRecord) -> bool:
    if child.machine.state is State.CANCELLED:
        return False
    return why_not_taken_back(child.plan, child.journal, child.machine.facts) is not None
