"""`drkit abandon` of a site run: ends the unfinished run of each link by the rules for a link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from drkit.failover.recovery.abandon import AbandonReport, abandon_run
from drkit.failover.run.cluster_context import ClusterContext
from drkit.failover.run.journal.journal import ABANDONED
from drkit.failover.run.lease import RunLease
from drkit.failover.run.state_machine import State
from drkit.failover.site.site_record import SITE, SiteRecord, children_of, list_site, load_site
from drkit.model.clock import now
from drkit.model.errors import DrkitError, Refused
from drkit.model.runs.journal import RunSummary
from drkit.model.topology import LinkId


@dataclass(frozen=True, slots=True)
class SiteAbandoned:
    """The outcome of abandoning a site run. `kept`: links whose runs are not over, and why."""

    run: str
    reports: tuple[AbandonReport, ...]
    kept: tuple[tuple[LinkId, Refused], ...]
    journal: str | None


def abandon_site(estate: ClusterContext, run: str, say: Callable[[str], None]) -> SiteAbandoned:
    """End each link's unfinished run in its current state, and then the site run, if none is left.

    The links' runs are found by their summaries, too, so the site run's own journal may be damaged.

    Raises:
        Refused: no such run, or it is over; or none of its links' runs can be abandoned.
        Unreachable: the store doesn't answer.
    """
    record, problem = None, None
    try:
        record = load_site(estate.store, run)
    except Refused:
        raise
    except (DrkitError, ValueError, KeyError, TypeError) as error:
        problem = error.what if isinstance(error, DrkitError) else f"it can't be read: {type(error).__name__}"
    if record is not None and record.finished:
        raise Refused(f"run {run} is {record.state}: there is nothing to abandon", remedy="`drkit runs`")
    reports, kept = [], []
    for summary in children_of(estate.store, run):
        link = LinkId.parse(summary.detail.split(" ", maxsplit=1)[0])
        try:
            reports.append(abandon_run(estate, summary.run, say))
        except Refused as error:
            kept.append((link, error))
    if kept and not reports:
        raise kept[0][1]
    if not kept:
        _journal_abandoned(estate, run, record, reports)
    return SiteAbandoned(run, tuple(reports), tuple(kept), problem)


def _journal_abandoned(
    estate: ClusterContext, run: str, record: SiteRecord | None, reports: Sequence[AbandonReport]
) -> None:
    """Journal it in the run's own journal, if that is intact; update the summary."""
    if record is not None:
        with ExitStack() as stack:
            for link in sorted(record.plan.links, key=str):
                stack.enter_context(RunLease(estate.store, link, run))
            record.journal.anchor = estate.anchors.on(record.plan.anchor)
            body = {"links": [{"link": str(each.link), "run": each.run, "serves": each.serves} for each in reports]}
            record.journal.write("abandon", ABANDONED, body)
            list_site(estate.store, record, State.ABANDONED)
        return
    found = next((each for each in estate.store.runs() if each.run == run), None)
    if found is not None:
        ended = RunSummary(run, SITE, State.ABANDONED, found.started_at, now(), found.detail)
        estate.store.put_run(ended)
