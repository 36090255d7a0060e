"""The leases on all links of a site run, and the handling of earlier site runs on some of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.lease import RunLease
from drkit.failover.context.state_machine import State
from drkit.failover.journal.journal import CANCELLED, OUTCOME, Journal, new_run_id
from drkit.failover.journal.run_record import Plan, origin_of
from drkit.failover.journal.site_record import SiteRecord, begin_site, list_site, load_site, unfinished_sites
from drkit.failover.plan.site_context import SiteContext
from drkit.failover.plan.site_plan import AnySitePlan
from drkit.failover.recovery import rollback
from drkit.failover.recovery.rollback import CANCEL
from drkit.failover.run.service import clear_the_way
from drkit.model.errors import DrkitError
from drkit.model.topology import Link, LinkId


@contextmanager
def leases(site: SiteContext, links: Sequence[LinkId], run: str) -> Iterator[dict[LinkId, RunLease]]:
    """Acquire the leases of all links, in the order of their names; none if one is held.

    Raises:
        Refused: another process holds one.
    """
    with ExitStack() as stack:
        wanted = sorted(links, key=str)
        yield {link: stack.enter_context(RunLease(site.estate.store, link, run)) for link in wanted}


@contextmanager
def begun_site(
    site: SiteContext,
    plan: AnySitePlan,
    started_at: datetime,
    *,
    unfenced: Collection[LinkId],
    accept_salvage_only: bool = False,
) -> Iterator[tuple[SiteRecord, dict[LinkId, RunLease]]]:
    """Start a new run of a plan: journaled, with its summary, holding the leases of all its links.

    Raises:
        Refused: another run acts on a link, or an unfinished run of it must be finished first.
        Unreachable: the store doesn't answer.
    """
    run = new_run_id()
    with leases(site, plan.links, run) as held:
        for link in plan.links:
            clear_the_way(site.of(link), link)
        take_the_place(site, plan.links, run)
        journal = Journal(site.estate.store, run, anchor=site.estate.anchors.on(plan.anchor))
        runs = {link: new_run_id() for link in plan.links}
        origin = origin_of(site.estate.config, next(iter(held.values())).operator, site.estate.approval)
        record = SiteRecord(journal, plan, started_at, frozenset(unfenced), runs, accept_salvage_only)
        begin_site(record, origin)
        list_site(site.estate.store, record, State.PLANNED)
        yield record, held


def links_to_plan_again(site: SiteContext, record: SiteRecord) -> list[tuple[Link, str | None]]:
    """The links whose runs rolled themselves back, or that were planned again and never begun; each with the reason why
    it is left alone (another run has decided it since), or None.
    """
    back = {link for link, child in record.children.items() if child.machine.state is State.CANCELLED}
    back |= record.anew - record.children.keys() - record.damaged.keys()
    plans = {each.link: each for each in record.plan.plans}
    found = []
    for link in site.links:
        if link.id in back - record.elsewhere.keys():
            child = record.children.get(link.id)
            planned, own = (plans[link.id], None) if child is None else (child.plan, child.run)
            found.append((link, decided_by_another(site.of(link.id), planned, own)))
    return found


def links_left(record: SiteRecord) -> list[LinkId]:
    """The links that the run acts on: those that no other run has decided since."""
    return [link for link in record.plan.links if link not in record.elsewhere] or list(record.plan.links)


def decided_by_another(estate: ClusterContext, plan: Plan, own: str | None) -> str | None:
    """Why a link whose run rolled itself back is left alone: another run than its `own` has decided it since."""
    found = rollback.decided_by_another(estate.store.link_control(plan.link), plan, own)
    return decided_since(estate, plan) if found else None


def decided_since(estate: ClusterContext, plan: Plan) -> str | None:
    """Why a link whose run was never begun is left alone: it was decided again since it was planned."""
    control = estate.store.link_control(plan.link)
    version = None if control is None else control.version
    if version == plan.control_version or control is None:
        return None
    by = f" by run {control.run}" if control.run else ""
    return f"{plan.link} was decided again{by} since this run was planned: it is {control.direction}"


def take_the_place(site: SiteContext, links: Sequence[LinkId], run: str) -> None:
    """Close earlier unfinished site runs with nothing left to do; the others lose these links to this one.

    Called under the links' leases, once their unfinished runs are handled.
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
        record.journal.anchor = site.estate.anchors.on(record.plan.anchor)
        for link in mine:
            reason = f"run {run} took its place"
            payload = {"link": str(link), "outcome": "skipped", "reason": reason, "seconds": 0.0, "elsewhere": True}
            record.journal.write(f"link {link}", OUTCOME, payload)
            record.elsewhere[link] = reason
        left = [link for link in record.plan.links if link not in record.elsewhere and not _closed(record, link)]
        if not left:
            record.journal.write(CANCEL, CANCELLED, {"reason": f"run {run} took its place"})
            list_site(store, record, State.CANCELLED)


def _closed(record: SiteRecord, link: LinkId) -> bool:
    child = record.children.get(link)
    return child is not None and child.machine.state is State.CLOSED
