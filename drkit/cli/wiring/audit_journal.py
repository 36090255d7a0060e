"""An audit in `drkit runs`: one summary, and one journal entry with its result."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from drkit.model.audit.audit_result import DEVIATIONS, AuditResult, Counts, ForeignKeyAudit, Verdict
from drkit.model.audit.group_audit import GroupAudit
from drkit.model.clock import iso, now
from drkit.model.errors import DrkitError
from drkit.model.runs import JournalEntry, RunSummary
from drkit.model.topology import LinkId
from drkit.model.wording import and_more

if TYPE_CHECKING:
    from drkit.store.api import Store


class KeptRun(NamedTuple):
    """The run's name; None, and the reason, where the store could not keep it."""

    run: str | None
    problem: str | None = None


class Failure(NamedTuple):
    """A link whose audit failed, and why."""

    link: LinkId
    error: DrkitError


def keep_run(
    store: Store, run: str, results: Sequence[AuditResult], failures: Sequence[Failure], began: datetime
) -> KeptRun:
    """Keep an audit of one or several links, also one that failed. One that can't be kept is an audit all the same."""
    verdict = "failed" if failures and not results else overall(results, failures).value
    counts = Counts.total(result.counts for result in results)
    links = ", ".join(str(result.link) for result in results)
    found = [f"{getattr(counts, kind):,} {kind}" for kind in DEVIATIONS if getattr(counts, kind)]
    told = [f"{links}: {', '.join(found) or f'{counts.matched:,} records match'}"] if results else []
    detail = "; ".join([*told, *(f"{link} failed: {error.what}" for link, error in failures)])
    payload = {
        "links": [
            {
                "link": str(result.link),
                "verdict": result.verdict.value,
                "whole": result.whole,
                "totals": {name: getattr(result.counts, name) for name in Counts.__slots__},
                "from": iso(result.since),
                "until": iso(result.until),
                "observed_at": iso(result.observed_at),
                "seconds": round(result.seconds, 3),
                "findings_path": result.findings_path,
                "foreign_keys": [foreign_key_line(each) for each in result.foreign_keys],
                "incomplete": list(result.incomplete),
            }
            for result in results
        ],
        "failures": [{"link": str(link), "what": error.what} for link, error in failures],
    }
    return _keep(store, run, verdict, began, detail, payload)


def overall(results: Sequence[AuditResult], failures: Sequence[Failure]) -> Verdict:
    """The verdict over all links: of a link whose audit failed nothing is known."""
    verdicts = [result.verdict for result in results]
    return Verdict.worst([*verdicts, Verdict.INCOMPLETE] if failures else verdicts)


def keep_group_view(
    store: Store, run: str, result: GroupAudit, summary: str, document: Mapping[str, Any], began: datetime
) -> KeptRun:
    """Keep one group's view as this run: `summary` in words, and its document without the witnesses."""
    detail = f"{result.move.link}: {result.move.group} {summary} by failover {result.move.run}"
    kept = {key: value for key, value in document.items() if key != "witnesses"}
    return _keep(store, run, result.verdict.value, began, detail, kept)


def new_run(began: datetime) -> str:
    """A name for an audit."""
    from drkit.observe.audit_history import AUDIT

    return f"{AUDIT}-{began.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def _keep(store: Store, run: str, verdict: str, began: datetime, detail: str, payload: Mapping[str, Any]) -> KeptRun:
    from drkit.observe.audit_history import AUDIT

    at = now()
    entry = JournalEntry.chained(None, run=run, at=at, stage=AUDIT, event="done", payload=json.dumps(payload))
    try:
        store.append_entry(entry)
        store.put_run(RunSummary(run, AUDIT, verdict, began, at, detail))
    except DrkitError as error:
        return KeptRun(None, error.what)
    return KeptRun(run)


def entry_summary(entry: JournalEntry) -> str:
    """What an entry of an audit's journal says was found, for people; "" where it is another's entry."""
    from drkit.observe.audit_history import AUDIT

    if entry.stage != AUDIT:
        return ""
    payload = json.loads(entry.payload)
    if "found" in payload:  # of a continuous audit
        return str(payload["found"])
    if "failed" in payload:
        return "; ".join(payload["failed"]) or "called for the alert of " + str(payload["range"])
    found = []
    for link in payload.get("links", ()):
        kinds = [f"{link['totals'][kind]:,} {kind}" for kind in DEVIATIONS if link["totals"][kind]]
        where = f"; findings: {link['findings_path']}" if kinds else ""
        found.append(f"{link['link']}: {', '.join(kinds) or link['verdict']}{where}")
    found += [f"{each['link']} failed: {each['what']}" for each in payload.get("failures", ())]
    return "; ".join(found)


def foreign_key_line(audit: ForeignKeyAudit) -> str:
    """One foreign key as a sentence."""
    name = f"{audit.child} {audit.key} -> {audit.parent} {audit.parent_key}"
    unread = f"; not known for sure: {and_more(audit.unread, separator='; ')}" if audit.unread else ""
    if not audit.orphans:
        return f"{name}: all {audit.children:,} have their parent on the target{unread}"
    torn = "all of them on the source, too" if not audit.brought else f"{audit.brought:,} of them not on the source"
    return f"{name}: {audit.orphans:,} of {audit.children:,} have no parent on the target, {torn}{unread}"
