"""Carrying out, resuming, cancelling and abandoning a site run: its links' runs side by side, and what came of them."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from drkit.failover.plan.failover_plan import FailoverPlan
from drkit.failover.plan.planner import make_plan
from drkit.failover.plan.waivers import ACCEPT_UNFENCED
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.recovery.rollback import CANCEL, point_of_no_return
from drkit.failover.run.cluster_context import ClusterContext
from drkit.failover.run.evidence import Evidence
from drkit.failover.run.journal.journal import CANCELLED, INTENT, OUTCOME, Journal, StageRecord, new_run_id
from drkit.failover.run.journal.run_record import RunRecord, origin_of
from drkit.failover.run.lease import RunLease
from drkit.failover.run.runner import Gate, RunResult, take_over
from drkit.failover.run.service import (
    PartOfSite,
    cancel_run,
    clear_the_way,
    request_of,
    resume_run,
    run_failover,
)
from drkit.failover.run.state_machine import Run, State
from drkit.failover.site.shared_groups import COMMITTED, SharedGroups
from drkit.failover.site.site_context import SiteContext
from drkit.failover.site.site_plan import SitePlan, refusal_of, standing, summed
from drkit.failover.site.site_record import (
    BEGUN,
    CLOSE,
    SiteRecord,
    begin_site,
    least_far,
    list_site,
    load_site,
    unfinished_sites,
)
from drkit.failover.site.wave_plan import Wave, WaveAssignment
from drkit.failover.site.waves import Waves
from drkit.model.clock import now
from drkit.model.errors import DrkitError, OutcomeUnknown, PartlyDone, Refused
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more, counted

SiteWatch = Callable[[LinkId, str, StageRecord | None, str], None]
"""Called as stages go, from any thread: (link, stage, its record once it ended, what is going on)."""


def nobody_watches(_link: LinkId, _stage: str, _record: StageRecord | None, _text: str) -> None:
    """A watcher that looks away."""


@dataclass(frozen=True, slots=True)
class LinkResult:
    """What came of one link. `result` None: its run was not begun. `elsewhere`: why it was left alone."""

    link: LinkId
    plan: FailoverPlan
    result: RunResult | None = None
    error: DrkitError | None = None
    elsewhere: str | None = None

    @property
    def state(self) -> State:
        """Where its run stands."""
        return State.PLANNED if self.result is None else self.result.machine.state


@dataclass(frozen=True, slots=True)
class SiteResult:
    """A site run as it stands. `error`: why it stopped, if it did."""

    run: str
    plan: SitePlan
    state: State
    started_at: datetime
    links: tuple[LinkResult, ...]
    error: DrkitError | None = None

    @property
    def evidence(self) -> Evidence:
        """The numbers of all links together, as far as they are known."""
        return summed(each.result.evidence for each in self.links if each.result is not None)


def run_site(
    site: SiteContext,
    plan: SitePlan,
    *,
    accept_unfenced: bool,
    started_at: datetime | None = None,
    watch: SiteWatch = nobody_watches,
) -> SiteResult:
    """Carry a plan out. `started_at`: where the recovery time begins (default: when the plan was made).

    Raises:
        Refused: a precondition of some link does not hold, or somebody else acts on one; nothing was changed.
        Unreachable: the store doesn't answer; nothing was changed.
    """
    waived = frozenset({ACCEPT_UNFENCED}) if accept_unfenced else frozenset()
    for link, obstacle in standing(plan, waived=waived):
        raise refusal_of(plan, link, obstacle).refusal()
    store, run, began = site.estate.store, new_run_id(), started_at or plan.made_at
    with _leases(site, plan.links, run) as leases:
        for link in plan.links:
            clear_the_way(site.of(link), link)
        _take_the_place(site, plan.links, run)
        journal = Journal(store, run, anchor=site.estate.anchors.on(plan.to))
        runs = {link: new_run_id() for link in plan.links}
        operator = next(iter(leases.values())).operator
        origin = origin_of(site.estate.config, operator)
        begin_site(journal, plan, runs, began, origin, accept_unfenced=accept_unfenced)
        record = SiteRecord(journal, plan, began, accept_unfenced, runs)
        list_site(store, record, State.PLANNED)
        return _SiteRunner(site, record, leases, watch, accept_unfenced=accept_unfenced).carry_out()


def resume_site(
    site: SiteContext, run: str, *, accept_unfenced: bool = False, watch: SiteWatch = nobody_watches
) -> SiteResult:
    """Take an interrupted site run to its end. A finished one is returned as it ended.

    Raises:
        Refused: no such run, or somebody else acts on one of its links.
        DrkitError: a journal is broken.
        Unreachable: the store doesn't answer.
    """
    record = load_site(site.estate.store, run)
    if record.finished:
        list_site(site.estate.store, record, record.state)  # it may have been killed before it was listed so
        return result_of(record)
    with _leases(site, _left(record), run) as leases:
        record = load_site(site.estate.store, run)  # under the leases: nobody writes to it any more
        if record.finished:
            return result_of(record)
        record.journal.anchor = site.estate.anchors.on(record.plan.to)
        take_over(record.journal, next(iter(leases.values())).owner)
        if record.journal.attempted(CANCEL):
            return _cancelled(site, record, leases, watch)
        accepted = accept_unfenced or record.accept_unfenced
        runner = _SiteRunner(site, record, leases, watch, accept_unfenced=accepted, again=True)
        runner.plan_anew()
        return runner.carry_out()


def cancel_site(site: SiteContext, run: str, *, watch: SiteWatch = nobody_watches) -> SiteResult:
    """Take every link back to where it began.

    Raises:
        Refused: no such run, it is over, a link is beyond its point of no return, or somebody else acts on one.
        DrkitError: a journal is broken.
        Unreachable: the store doesn't answer.
    """
    with _leases(site, _left(load_site(site.estate.store, run)), run) as leases:
        record = load_site(site.estate.store, run)
        if record.finished:
            raise Refused(f"run {run} is {record.state}: there is nothing to cancel", remedy="`drkit runs`")
        beyond = [link for link, child in record.children.items() if _beyond(child)]
        if beyond:
            raise Refused(
                f"run {run} can't be cancelled any more: {and_more([str(link) for link in beyond])} "
                f"{'has' if len(beyond) == 1 else 'have'} begun to commit",
                meaning="A site that is taken back by half would have its groups on both sides",
                remedy=f"drkit resume {run}; or take back single links that have not committed: "
                "drkit resume RUN --cancel, with the id of the link's run",
            )
        record.journal.anchor = site.estate.anchors.on(record.plan.to)
        take_over(record.journal, next(iter(leases.values())).owner)
        record.journal.write(CANCEL, INTENT, {})
        return _cancelled(site, record, leases, watch)


def result_of(record: SiteRecord) -> SiteResult:
    """A site run as its journals tell it, without doing anything."""
    links = tuple(
        LinkResult(
            plan.link,
            plan,
            _as_it_stands(record.children[plan.link]) if plan.link in record.children else None,
            elsewhere=record.elsewhere.get(plan.link),
        )
        for plan in record.plan.plans
    )
    return SiteResult(record.run, record.plan, record.state, record.started_at, links)


@dataclass(slots=True)
class _SiteRunner:
    """Carries the links of a site run out. `again`: it was begun before."""

    site: SiteContext
    record: SiteRecord
    leases: dict[LinkId, RunLease]
    watch: SiteWatch
    accept_unfenced: bool
    again: bool = False
    _fresh: dict[LinkId, FailoverPlan] = field(default_factory=dict)
    _refused: dict[LinkId, DrkitError] = field(default_factory=dict)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def plan_anew(self) -> None:
        """A link whose run took itself back gets a new plan by the same request, and a run of a new id."""
        children = self.record.children
        back = {link for link, child in children.items() if child.machine.state is State.CANCELLED}
        back |= self.record.anew - children.keys()  # planned anew before, and never begun
        links = [link for link in self.site.links if link.id in back - self.record.elsewhere.keys()]

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
            run = new_run_id()
            payload = {"link": str(link.id), "run": run, "digest": made.digest}
            self.record.journal.write(f"link {link.id}", BEGUN, payload)
            self.record.runs[link.id] = run
            self.record.anew.add(link.id)
            self.record.children.pop(link.id, None)

    def carry_out(self) -> SiteResult:
        """Every link that is left, side by side; the outcome of each is journaled as it ends."""
        journal, plan = self.record.journal, self.record.plan
        groups = SharedGroups(self.record.run, plan, self.record.elsewhere)
        results: dict[LinkId, LinkResult] = {}
        links = [link for link in plan.links if link not in self.record.elsewhere]
        waves = self._waves(links, groups) if plan.waves else None
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
        ordered = [
            results.get(each.link) or LinkResult(each.link, each, elsewhere=self.record.elsewhere.get(each.link))
            for each in plan.plans
        ]
        state = _state(ordered)
        error = _error(self.record.run, ordered, state)
        try:
            if state is State.CLOSED and error is None:
                seconds = round((now() - self.record.started_at).total_seconds(), 3)
                reason = f"{counted(len(links), 'link')} closed"
                journal.write(CLOSE, OUTCOME, {"outcome": "ok", "reason": reason, "seconds": seconds})
            elif state is State.CANCELLED:
                journal.write(CANCEL, CANCELLED, {"reason": "every link's run took itself back"})
            list_site(self.site.estate.store, self.record, state)
        except DrkitError as failed:
            error = error or PartlyDone(
                f"the end of the run could not be journaled: {failed.what}",
                meaning="Each link's own run is as shown; only the site run's record of it is missing",
                remedy=f"Once the store answers: drkit resume {self.record.run}",
            )
        return SiteResult(self.record.run, plan, state, self.record.started_at, tuple(ordered), error)

    def _waves(self, links: Sequence[LinkId], groups: SharedGroups) -> Waves:
        """The order in which the links' groups move."""
        plan = self.record.plan
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
        """Keep that a wave is over, or failed."""
        payload = {
            "wave": wave.name,
            "outcome": "ok" if why is None else "failed",
            "reason": why or "its groups stand on the target",
            "seconds": round(seconds, 3),
        }
        self._write(f"wave {wave.name}", payload)

    def _write(self, stage: str, payload: dict[str, Any]) -> None:
        """Journal an outcome: from any thread, one at a time.

        What a store that is gone doesn't keep, the journals of the links' runs tell.
        """
        with self._writing, suppress(DrkitError):
            self.record.journal.write(stage, OUTCOME, payload)

    def _link(self, link: LinkId, groups: SharedGroups, waves: Waves | None) -> LinkResult:
        """One link's run, on a thread of its own, to where it ends or stops."""
        found = LinkResult(link, self._plan(link))
        try:
            found = self._carried_out(link, groups, waves)
        except DrkitError as error:
            child = self.record.children.get(link)
            found = LinkResult(link, self._plan(link), None if child is None else _as_it_stands(child), error)
        finally:
            groups.ended(link, found.state)
            if waves is not None:
                if found.state in COMMITTED:
                    waves.has_committed(link)
                waves.ended(link)
        return found

    def _carried_out(self, link: LinkId, groups: SharedGroups, waves: Waves | None) -> LinkResult:
        if link in self._refused:
            raise self._refused[link]
        estate, plan, child = self.site.of(link), self._plan(link), self.record.children.get(link)
        lease = self.leases[link]
        gate = groups.gate(link, lease)
        part = PartOfSite(self.record.run, self.record.runs[link], lease, gate)
        if waves is not None:
            in_order = waves.in_order(link, lease)
            part = replace(part, gate=_with_waves(gate, waves, link, lease), in_order=in_order)
        watch = partial(self.watch, link)
        if child is not None:  # also one that is over: it may have been killed before it was listed so
            result = resume_run(estate, child.run, None, accept_unfenced=self.accept_unfenced, watch=watch, part=part)
            return LinkResult(link, plan, result, result.error)
        if self.again and link not in self._fresh and (why := _decided_since(estate, plan)) is not None:
            return LinkResult(link, plan, elsewhere=why)
        result = run_failover(
            estate,
            plan,
            accept_unfenced=self.accept_unfenced,
            started_at=self.record.started_at,
            watch=watch,
            part=part,
        )
        return LinkResult(link, plan, result, result.error)

    def _ended(self, link: LinkId, done: Future[LinkResult], results: dict[LinkId, LinkResult], began: float) -> None:
        """Keep what came of a link."""
        found = results[link] = done.result()
        if found.elsewhere is not None:
            self.record.elsewhere[link] = found.elsewhere
        outcome = "skipped" if found.elsewhere else "ok" if found.error is None else "failed"
        payload = {
            "link": str(link),
            "run": self.record.runs[link],
            "state": found.state.value,
            "outcome": outcome,
            "reason": found.elsewhere or (f"{link} is {found.state}" if found.error is None else str(found.error)),
            "seconds": round(time.monotonic() - began, 3),
            "elsewhere": found.elsewhere is not None,
        }
        self._write(f"link {link}", payload)

    def _plan(self, link: LinkId) -> FailoverPlan:
        return self._fresh.get(link) or self.record.plan.of(link)


def _with_waves(gate: Gate, waves: Waves, link: LinkId, lease: RunLease) -> Gate:
    """A gate that waits for the link's first wave before anything is done, too."""

    def ask(stage: str, run: Run, positions: tuple[PlannedPosition, ...]) -> None:
        if run.state is State.PLANNED:
            waves.begin(link, lease)
        elif run.state in COMMITTED:
            waves.has_committed(link)
        gate(stage, run, positions)

    return ask


def _cancelled(site: SiteContext, record: SiteRecord, leases: dict[LinkId, RunLease], watch: SiteWatch) -> SiteResult:
    """Take each link's run back that isn't over."""

    def back(link: Link) -> LinkResult:
        child, plan = record.children.get(link.id), record.plan.of(link.id)
        if child is None or child.machine.finished:
            return LinkResult(link.id, plan, None if child is None else _as_it_stands(child))
        part = PartOfSite(record.run, child.run, leases[link.id], lambda _stage, _run, _positions: None)
        try:
            result = cancel_run(site.of(link.id), child.run, watch=partial(watch, link.id), part=part)
        except DrkitError as error:
            return LinkResult(link.id, plan, _as_it_stands(child), error)
        return LinkResult(link.id, plan, result, result.error)

    links = tuple(site.side_by_side(back, [link for link in site.links if link.id in leases]))
    failed = [each for each in links if each.error is not None]
    if not failed:
        record.journal.write(CANCEL, CANCELLED, {"reason": "cancelled by the operator"})
        list_site(site.estate.store, record, State.CANCELLED)
        return SiteResult(record.run, record.plan, State.CANCELLED, record.started_at, links)
    error = PartlyDone(
        f"{counted(len(failed), 'link')} can't be taken back now: {_why(failed)}",
        meaning="Part of what the run did still stands",
        remedy=f"Remove the cause; then drkit resume {record.run} keeps taking it back",
    )
    list_site(site.estate.store, record, State.PLANNED)
    return SiteResult(record.run, record.plan, State.PLANNED, record.started_at, links, error)


@contextmanager
def _leases(site: SiteContext, links: Sequence[LinkId], run: str) -> Iterator[dict[LinkId, RunLease]]:
    """The right to act on every link, in the order of their names; none of it where one can't be had."""
    with ExitStack() as stack:
        wanted = sorted(links, key=str)
        yield {link: stack.enter_context(RunLease(site.estate.store, link, run)) for link in wanted}


def _take_the_place(site: SiteContext, links: Sequence[LinkId], run: str) -> None:
    """Earlier site runs that aren't over leave these links to this one; those with nothing left to do are over.

    Called under the links' leases, once their unfinished runs are out of the way.
    """
    store = site.estate.store
    for summary in unfinished_sites(store):
        try:
            record = load_site(store, summary.run)
        except DrkitError:
            continue  # `drkit abandon` ends it
        mine = [link for link in record.plan.links if link in links and link not in record.elsewhere]
        mine = [link for link in mine if not _closed(record, link)]
        if not mine:
            continue
        record.journal.anchor = site.estate.anchors.on(record.plan.to)
        for link in mine:
            reason = f"run {run} took its place"
            payload = {"link": str(link), "outcome": "skipped", "reason": reason, "seconds": 0.0, "elsewhere": True}
            record.journal.write(f"link {link}", OUTCOME, payload)
            record.elsewhere[link] = reason
        left = [link for link in record.plan.links if link not in record.elsewhere and not _closed(record, link)]
        if not left:
            record.journal.write(CANCEL, CANCELLED, {"reason": f"run {run} took its place"})
            list_site(store, record, State.CANCELLED)


def _left(record: SiteRecord) -> list[LinkId]:
    """The links that the run acts on: those that were not decided again by somebody else."""
    return [link for link in record.plan.links if link not in record.elsewhere] or list(record.plan.links)


def _closed(record: SiteRecord, link: LinkId) -> bool:
    child = record.children.get(link)
    return child is not None and child.machine.state is State.CLOSED


def _decided_since(estate: ClusterContext, plan: FailoverPlan) -> str | None:
    """Why a link whose run was never begun is left alone: somebody has decided it again since it was planned."""
    control = estate.store.link_control(plan.link)
    version = None if control is None else control.version
    if version == plan.control_version or control is None:
        return None
    by = f" by run {control.run}" if control.run else ""
    return f"{plan.link} was decided again{by} since this run was planned: it is {control.direction}"


def _beyond(child: RunRecord) -> bool:
    return child.machine.state is not State.CANCELLED and child.journal.attempted(point_of_no_return(child.plan))


def _as_it_stands(child: RunRecord) -> RunResult:
    return RunResult(child.run, child.machine, child.started_at, child.stages, child.positions)


def _state(links: Sequence[LinkResult]) -> State:
    return least_far([each.state for each in links if each.elsewhere is None])


def _error(run: str, links: Sequence[LinkResult], state: State) -> DrkitError | None:
    """What the operator is told, where a link isn't at its end."""
    if state is not State.CANCELLED:
        links = [_told(each, run) for each in links]
    failed = [each for each in links if each.error is not None]
    if not failed:
        return None
    first = failed[0].error
    if state is State.CANCELLED and first is not None:
        told = copy.copy(first)
        told.what = f"{failed[0].link}: {first.what}" if len(failed) == 1 else _why(failed)
        return told
    others = len(links) - len(failed)
    meaning = f"The other {others} {'is' if others == 1 else 'are'} at {'its' if others == 1 else 'their'} end"
    unknown = all(isinstance(each.error, OutcomeUnknown) for each in failed)
    kind = OutcomeUnknown if unknown else PartlyDone
    remedy = (first.remedy if first else "").rstrip(". ")
    return kind(
        f"{len(failed)} of {counted(len(links), 'link')} {'is' if len(failed) == 1 else 'are'} not at "
        f"{'its' if len(failed) == 1 else 'their'} end: {_why(failed)}",
        meaning=meaning if others else "What was done stands",
        remedy=f"{remedy}; the whole site continues with drkit resume {run}".lstrip("; "),
    )


def _told(link: LinkResult, run: str) -> LinkResult:
    """A link whose run was taken back to its end is not where the site's run leads to."""
    if link.error is not None or link.elsewhere is not None or link.state is not State.CANCELLED:
        return link
    error = PartlyDone("its run took itself back", remedy=f"drkit resume {run} plans it again")
    return replace(link, error=error)


def _why(failed: Sequence[LinkResult]) -> str:
    return and_more([f"{each.link}: {each.error.what}" for each in failed if each.error is not None], separator="; ")
