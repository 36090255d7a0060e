"""Plans and executes a failback or reprotect of several links. Their clusters are read concurrently; the plan is
executed one link after the other, in common phases.

    salvage                         of every link: nothing is deleted anywhere yet
    scrub, reverse, reseed, audit   of every link, once all are salvaged; the live cluster serves
    fence … close                   of every link; one that shares a group with a failed link waits
                                    (a reprotect only closes)

A link's run stops at the end of a phase and continues in the next, like with `drkit resume`. So a killed run goes
through the same phases again, and finds each link in its journaled state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

from drkit.failover.context.interfaces import Ports
from drkit.failover.context.lease import RunLease
from drkit.failover.context.live_log import Lacking
from drkit.failover.context.state_machine import BEHIND_THE_FENCE, FINAL_STATES, PATHS, Kind, Run, State
from drkit.failover.failback.failback_snapshot import not_accepted
from drkit.failover.fencing.cluster_fence import fence_record
from drkit.failover.journal.run_record import load_run
from drkit.failover.journal.site_record import SiteRecord, list_site
from drkit.failover.plan.approvals import check_approved
from drkit.failover.plan.failback_plan import FailbackPlan
from drkit.failover.plan.failover_plan import Obstacle
from drkit.failover.plan.site_context import SiteContext
from drkit.failover.plan.site_failback_plan import SiteFailbackPlan
from drkit.failover.plan.site_plan import refusal_of, standing
from drkit.failover.planning.failback_planner import has_deleted, make_failback_plan
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.recovery.rollback import point_of_no_return
from drkit.failover.run.runner import Gate
from drkit.failover.run.service import (
    PartOfSite,
    confirm_cluster,
    resume_run,
    run_failback,
    standing_obstacles,
)
from drkit.failover.site.site_lease import begun_site, decided_since, links_to_plan_again
from drkit.failover.site.site_result import (
    LinkResult,
    SiteResult,
    SiteWatch,
    end_site,
    keep_link,
    nobody_watches,
    of_site,
)
from drkit.failover.snapshot.choose_links import LinkLeftOut
from drkit.model.clock import now
from drkit.model.errors import DrkitError, PartlyDone, Refused
from drkit.model.runs import ACCEPT_SALVAGE_ONLY, ACCEPT_UNFENCED, FenceState
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more, counted


def make_site_failback_plan(
    site: SiteContext, kind: Kind, left_out: Sequence[LinkLeftOut] = (), *, by_spark: bool = False
) -> SiteFailbackPlan:
    """Observe and plan every link.

    Args:
        site: the links, and connections for each.
        kind: failback or reprotect.
        left_out: matching links that are left as they are.
        by_spark: let Spark's tasks seed the old primaries.

    Raises:
        ConfigError, Refused: a link can't be planned at all; it is named.
        Unreachable: the store doesn't answer.
    """
    made_at = now()

    def planned(link: Link) -> FailbackPlan:
        with site.naming(link, f"bring the others back without it: drkit {kind}"):
            return make_failback_plan(
                site.of(link.id),
                None,
                link,
                for_good=kind is Kind.REPROTECT,
                by_spark=by_spark,
                together=[each.id for each in site.links],
            )

    plans = tuple(site.side_by_side(planned))
    return SiteFailbackPlan(kind, made_at, plans, tuple(left_out), tuple(_contended(plans)))


def _contended(plans: Sequence[FailbackPlan]) -> Iterator[Obstacle]:
    """Topics of an old primary that more than one link would bring back: the second would undo the first."""
    wanted: dict[tuple[str | None, str], list[LinkId]] = {}
    for plan in plans:
        for topic in plan.topics:
            wanted.setdefault((plan.target.cluster_id, topic.topic), []).append(plan.link)
    twice = {topic: links for (_, topic), links in wanted.items() if len(links) > 1}
    if twice:
        links = list(dict.fromkeys(str(link) for meant in twice.values() for link in meant))
        yield Obstacle(
            f"{and_more(sorted(twice))} would be brought back by more than one link: {and_more(links)}",
            "Each would replace the records that the other has brought back",
            f"Choose the cluster that they come from, by leaving the others out: --link '{links[0]}'",
        )


@dataclass(frozen=True, slots=True)
class FailbackMeans:
    """The options and ports of a failback or reprotect of several links.

    `before_fence`: called before a link's live cluster is closed; see `Runner`. The flags: see `run_failback`.
    """

    ports: Ports
    accept_unfenced: bool = False
    accept_salvage_only: bool = False
    before_fence: Callable[[LinkId], None] | None = None

    @property
    def waived(self) -> frozenset[str]:
        """The obstacles that the given flags waive."""
        flags = {ACCEPT_UNFENCED: self.accept_unfenced, ACCEPT_SALVAGE_ONLY: self.accept_salvage_only}
        return frozenset(flag for flag, given in flags.items() if given)


def run_site_failback(
    site: SiteContext,
    plan: SiteFailbackPlan,
    means: FailbackMeans,
    *,
    cluster_ids: Mapping[str, str],
    started_at: datetime | None = None,
    watch: SiteWatch = nobody_watches,
) -> SiteResult:
    """Execute a plan.

    Args:
        site: the links, and connections for each.
        plan: the plan.
        means: options and ports.
        cluster_ids: for each old primary by alias, the id that the operator gave.
        started_at: where the run begins (default: when the plan was made).
        watch: receives progress.

    Raises:
        Refused: a cluster has another id, a precondition of some link does not hold, or another run acts on one;
            nothing was changed.
        Unreachable: the store doesn't answer; nothing was changed.
    """
    for each in plan.plans:
        confirm_cluster(each, cluster_ids.get(each.target.alias, ""))
    for link, obstacle in standing(plan, waived=means.waived):
        raise refusal_of(plan, link, obstacle).refusal()
    flags, what = frozenset(means.waived), f"the {plan.kind} of {and_more([str(link) for link in plan.links])}"
    check_approved(site.estate.config.approvals, site.estate.approval, plan.digest, flags, what)
    with begun_site(
        site,
        plan,
        started_at or plan.made_at,
        unfenced=plan.links if means.accept_unfenced else (),
        accept_salvage_only=means.accept_salvage_only,
    ) as (record, held):
        return SiteFailbackRunner(site, record, plan, held, means, watch).carry_out()


_DELETING = 1
"""The phase that begins with the scrub."""


class _PhaseOver(PartlyDone):
    """A link's run has come to the end of a phase."""


@dataclass(slots=True)
class SiteFailbackRunner:
    """Executes the links in the calling thread. `again`: the run was begun before."""

    site: SiteContext
    record: SiteRecord
    plan: SiteFailbackPlan
    leases: dict[LinkId, RunLease]
    means: FailbackMeans
    watch: SiteWatch
    again: bool = False
    _fresh: dict[LinkId, FailbackPlan] = field(default_factory=dict)
    _ended: dict[LinkId, LinkResult] = field(default_factory=dict)
    _mine: set[LinkId] = field(default_factory=set)
    _interrupted: bool = False

    def plan_anew(self) -> None:
        """Plan a link again whose run rolled itself back; it gets a run with a new id."""
        for link, since in links_to_plan_again(self.site, self.record):
            if since is not None:
                self._end(LinkResult(link.id, self._plan(link.id), elsewhere=since))
                continue
            try:
                made = self._look(link)
            except DrkitError as error:
                self._end(self._as_it_is(link.id, error))
                continue
            self._fresh[link.id] = made
            self.record.plan_again(link.id, made.digest)

    def carry_out(self) -> SiteResult:
        """All phases; the outcome of each link is journaled as it ends or stops."""
        began = time.monotonic()
        links = [link for link in self.plan.links if link not in self.record.elsewhere]
        for link, error in self.record.damaged.items():
            self._end(self._as_it_is(link, error))
        try:
            self._go_through(links, began)
        except KeyboardInterrupt:
            self._interrupted = True
        except DrkitError as error:  # the store is gone: no link can continue
            self._stop_all(links, error)
        if self._interrupted:
            self._stop_all(links, PartlyDone("not continued: the run was interrupted"))
        return end_site(self.site, self.record, list(self._ended.values()))

    def _go_through(self, links: Sequence[LinkId], began: float) -> None:
        every_stage = frozenset(step.stage for step in PATHS[self.plan.kind])
        for link in links:
            if self._is_closing(link):  # its clients are turned away: don't wait
                self._carry_on(link, every_stage, began)
        for number, phase in enumerate(phases(self.plan.kind)):
            if number == _DELETING:
                self._before_deleting(links)
            for link in links:
                if link not in self._ended and not (number > _DELETING and self._waits(link)):
                    self._carry_on(link, phase, began)
            if self.record.state not in FINAL_STATES:  # a finished run gets its summary once it is journaled
                list_site(self.site.estate.store, self.record, self.record.state)

    def _before_deleting(self, links: Sequence[LinkId]) -> None:
        """Delete nothing for any link while one isn't salvaged, or a precondition of one doesn't hold."""
        if self._interrupted:
            return
        before = [link for link in links if link not in self._ended and not self._has_deleted(link)]
        self._look_again(before)
        if behind := self._failed():
            for link in [each for each in before if each not in self._ended]:
                self._hold_back(
                    link,
                    f"nothing is deleted on {link.source}: {and_more([str(each) for each in behind])} "
                    f"{'is' if len(behind) == 1 else 'are'} not salvaged, or can't be scrubbed",
                    "No old primary is scrubbed before all links of the run can be",
                )

    def _waits(self, link: LinkId) -> bool:
        """Whether a link isn't moved because it shares groups with a failed one."""
        child = self.record.children.get(link)
        if self._interrupted or (child is not None and child.journal.attempted("switch")):
            return False
        mine, live = self._groups(link), self._plan(link).live.alias
        behind = [each for each in self._failed() if self._plan(each).live.alias == live and mine & self._groups(each)]
        if behind:
            self._hold_back(
                link,
                f"{live} is not fenced for {link}: {and_more([str(each) for each in behind])}, with which it shares "
                f"groups, {'is' if len(behind) == 1 else 'are'} not back",
                f"Consumers of these groups still read on {live}; fenced, they could not",
            )
        return bool(behind)

    def _failed(self) -> list[LinkId]:
        return [link for link, found in self._ended.items() if found.error is not None]

    def _is_closing(self, link: LinkId) -> bool:
        """Whether clients are turned away for this link: by its state, or by the fence of a run killed within it."""
        child = self.record.children.get(link)
        if child is None or child.machine.finished:
            return False
        live = self._plan(link).live.alias
        fence = fence_record(self.site.estate.store, link, live) if child.journal.attempted("fence") else None
        fenced = fence is not None and fence.state is not FenceState.OPEN
        return fenced or child.machine.state in BEHIND_THE_FENCE | {State.SWITCHED, State.VERIFIED}

    def _look_again(self, links: Sequence[LinkId]) -> None:
        """Salvages may take hours: check all preconditions again before the first topic is deleted."""

        def look(link: Link) -> tuple[DrkitError | None, tuple[Lacking, ...]]:
            waived = self.means.waived | self._accepted_before()
            try:
                plan = self._look(link)
                live = self.site.of(link.id).admin(plan.live.alias)
                if not_accepted(live, plan.topics, self._may_be_salvage_only(link.id)):
                    waived -= {ACCEPT_SALVAGE_ONLY}
            except DrkitError as error:
                return error, ()
            left = standing_obstacles(plan, waived=waived)
            return (left[0].refusal() if left else None), plan.gaps

        chosen = [link for link in self.site.links if link.id in links]
        for link, (error, gaps) in zip(chosen, self.site.side_by_side(look, chosen), strict=True):
            if error is not None:
                self._ask(link.id, gaps)
                told = PartlyDone(
                    error.what, meaning=error.meaning or f"Nothing of {link.id} is deleted yet", remedy=error.remedy
                )
                self._end(self._as_it_is(link.id, told))

    def _look(self, link: Link) -> FailbackPlan:
        """A link's plan as it would be made now.

        Raises:
            Refused: its old primary is another cluster than the one that was confirmed, or nobody has confirmed that
                topics are deleted there.
            DrkitError: it can't be planned.
        """
        kept = self.plan.of(link.id)
        estate = self.site.of(link.id)
        made = make_failback_plan(
            estate,
            None,
            link,
            for_good=self.plan.kind is Kind.REPROTECT,
            by_spark=kept.by_spark,
            together=self.plan.links,
        )
        confirm_cluster(made, kept.target.cluster_id or "")
        if made.deletes and made.target.alias not in self.plan.deleting:
            raise Refused(
                f"{counted(len(made.topics), 'topic')} of {made.target.alias} would be deleted now, and nobody has "
                "confirmed that",
                meaning=f"When the run was planned, {made.target.alias} held nothing that {made.live.alias} lacked",
                remedy=f"drkit {made.kind} --link '{link.id}' brings this link back by itself, and asks for the id of "
                f"{made.target.alias}; then drkit resume {self.record.run}",
            )
        return made

    def _may_be_salvage_only(self, link: LinkId) -> tuple[Lacking, ...]:
        """What an operator accepted to have in the salvage only: what the plan named, and on a resume what the last
        stop named.
        """
        plan, child = self._plan(link), self.record.children.get(link)
        if child is None:
            return plan.gaps
        facts = child.machine.facts
        asked = facts.asked if self.again and self.means.accept_salvage_only else ()
        return (*facts.salvage_only, *asked)

    def _ask(self, link: LinkId, gaps: Collection[Lacking]) -> None:
        """Journal for what a link stops before its scrub, in its own run: a resume accepts this."""
        child = self.record.children.get(link)
        known = () if child is None else child.machine.facts.salvage_only
        asked = tuple(each for each in gaps if not each.is_within(known))
        if child is None or not asked:
            return
        child.journal.anchor = self.site.of(link).anchors.on(child.plan.target.alias)
        child.journal.established("scrub", replace(child.machine.facts, asked=asked))
        self.record.children[link] = load_run(self.site.estate.store, child.run)

    def _accepted_before(self) -> frozenset[str]:
        flags = {
            ACCEPT_UNFENCED: bool(self.record.unfenced),
            ACCEPT_SALVAGE_ONLY: self.record.accept_salvage_only,
        }
        return frozenset(flag for flag, given in flags.items() if given)

    def _carry_on(self, link: LinkId, phase: frozenset[str], began: float) -> None:
        """Run one link through one phase; it ends if its run is over, or stops."""
        if self._interrupted:
            return
        try:
            found = self._through(link, phase)
        except DrkitError as error:
            found = self._as_it_is(link, error)
        if found is not None:
            self._end(found, time.monotonic() - began)

    def _through(self, link: LinkId, phase: frozenset[str]) -> LinkResult | None:
        """The outcome of the link; None: it is at the end of the phase."""
        estate, plan, child = self.site.of(link), self._plan(link), self.record.children.get(link)
        part = PartOfSite(
            self.record.run, self.record.runs[link], self.leases[link], _until(phase), continued=link in self._mine
        )
        self._mine.add(link)
        asking = None if self.means.before_fence is None else partial(self.means.before_fence, link)
        watch = partial(self.watch, link)
        if child is not None:
            result = resume_run(
                estate,
                child.run,
                self._ports(),
                accept_unfenced=self.means.accept_unfenced or link in self.record.unfenced,
                accept_salvage_only=self.again and self.means.accept_salvage_only,
                watch=watch,
                before_fence=asking,
                part=part,
            )
        else:
            if self.again and link not in self._fresh and (since := decided_since(estate, plan)) is not None:
                return LinkResult(link, plan, elsewhere=since)
            result = run_failback(
                estate,
                plan,
                self._ports(),
                cluster_id=plan.target.cluster_id or "",
                accept_unfenced=self.means.accept_unfenced or link in self.record.unfenced,
                accept_salvage_only=self.means.accept_salvage_only or self.record.accept_salvage_only,
                started_at=self.record.started_at,
                watch=watch,
                before_fence=asking,
                part=part,
            )
        self._interrupted = self._interrupted or result.interrupted
        self.record.children[link] = load_run(self.site.estate.store, result.run)
        if isinstance(result.error, _PhaseOver):
            return None
        return LinkResult(link, plan, result, result.error)

    def _ports(self) -> Ports:
        """Those of this process; a link that begins only now keeps its salvages where the others do."""
        ports = self.means.ports
        roots = [child.machine.facts.salvage_root for child in self.record.children.values()]
        named = next((root for root in roots if root is not None), None)
        return replace(ports, salvage_root=Path(named)) if ports.salvage_root is None and named is not None else ports

    def _groups(self, link: LinkId) -> frozenset[str]:
        return frozenset(position.group for position in self._plan(link).positions)

    def _has_deleted(self, link: LinkId) -> bool:
        """Whether a link's run has deleted anything. Where that can't be seen, the link ends here."""
        child = self.record.children.get(link)
        if child is None or not child.journal.attempted(point_of_no_return(child.plan)):
            return False
        if child.machine.state is not State.SALVAGED or not isinstance(child.plan, FailbackPlan):
            return True
        try:
            return has_deleted(self.site.of(link), child.plan, child.machine.facts)
        except DrkitError as error:
            told = PartlyDone(error.what, meaning=error.meaning, remedy=error.remedy)
            self._end(self._as_it_is(link, told))
            return True

    def _hold_back(self, link: LinkId, what: str, meaning: str) -> None:
        self._end(
            self._as_it_is(
                link,
                PartlyDone(what, meaning=meaning, remedy=f"Once the cause is removed: drkit resume {self.record.run}"),
            )
        )

    def _stop_all(self, links: Sequence[LinkId], error: DrkitError) -> None:
        for link in links:
            if link not in self._ended:
                self._end(self._as_it_is(link, error))

    def _as_it_is(self, link: LinkId, error: DrkitError) -> LinkResult:
        return LinkResult.so_far(self._plan(link), self.record.children.get(link), error)

    def _end(self, found: LinkResult, seconds: float = 0.0) -> None:
        found = self._ended[found.link] = of_site(found, self.record)
        keep_link(self.record, found, seconds)

    def _plan(self, link: LinkId) -> FailbackPlan:
        return self._fresh.get(link) or self.plan.of(link)


def phases(kind: Kind) -> tuple[frozenset[str], ...]:
    """The stages of each phase: all links complete one before the next begins."""
    names = [step.stage for step in PATHS[kind]]
    cuts = [0, *(names.index(stage) for stage in ("scrub", "fence") if stage in names), len(names)]
    return tuple(frozenset(names[first:last]) for first, last in pairwise(cuts))


def _until(phase: frozenset[str]) -> Gate:
    """A gate that stops a link's run at the first stage after a phase."""

    def ask(stage: str, _run: Run, _positions: tuple[PlannedPosition, ...]) -> None:
        if stage not in phase:
            raise _PhaseOver(f"{stage} comes once all links are there")

    return ask
