"""Writes the outcome of each link, and of the run, into the site run's journal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from drkit.failover.recovery.rollback import CANCEL
from drkit.failover.run.journal.journal import CANCELLED, OUTCOME
from drkit.failover.run.state_machine import State
from drkit.failover.site.site_context import SiteContext
from drkit.failover.site.site_record import CLOSE, SiteRecord, list_site
from drkit.failover.site.site_result import LinkResult, SiteResult, error_of, state_of
from drkit.model.clock import now
from drkit.model.errors import DrkitError, PartlyDone
from drkit.model.wording import counted


def keep_link(record: SiteRecord, found: LinkResult, seconds: float) -> None:
    """Journal the outcome of a link. If the store is gone, the link's own journal has it."""
    if found.elsewhere is not None:
        record.elsewhere[found.link] = found.elsewhere
    outcome = "skipped" if found.elsewhere else "ok" if found.error is None else "failed"
    payload = {
        "link": str(found.link),
        "run": record.runs[found.link],
        "state": found.state.value,
        "outcome": outcome,
        "reason": found.elsewhere or (f"{found.link} is {found.state}" if found.error is None else str(found.error)),
        "seconds": round(seconds, 3),
        "elsewhere": found.elsewhere is not None,
    }
    with suppress(DrkitError):
        record.journal.write(f"link {found.link}", OUTCOME, payload)


def end_site(site: SiteContext, record: SiteRecord, ended: Sequence[LinkResult]) -> SiteResult:
    """End or stop the run: journaled, with its summary.

    Args:
        site: the store, and connections.
        record: the run.
        ended: the outcome of each link that the run acted on, causes before their consequences.
    """
    found = {each.link: each for each in ended}
    ordered = tuple(
        found.get(plan.link) or LinkResult(plan.link, plan, elsewhere=record.elsewhere.get(plan.link))
        for plan in record.plan.plans
    )
    state = state_of(ordered)
    error = error_of(record.run, [*ended, *(each for each in ordered if each.link not in found)], state)
    try:
        if state is State.CLOSED and error is None:
            seconds = round((now() - record.started_at).total_seconds(), 3)
            reason = f"{counted(len(ended), 'link')} closed"
            record.journal.write(CLOSE, OUTCOME, {"outcome": "ok", "reason": reason, "seconds": seconds})
        elif state is State.CANCELLED:
            record.journal.write(CANCEL, CANCELLED, {"reason": "every link's run rolled itself back"})
        list_site(site.estate.store, record, state)
    except DrkitError as failed:
        error = error or PartlyDone(
            f"the end of the run could not be journaled: {failed.what}",
            meaning="Each link's own run is as shown; only the site run's record of it is missing",
            remedy=f"Once the store answers: drkit resume {record.run}",
        )
    return SiteResult(record.run, record.plan, state, ordered, error)
