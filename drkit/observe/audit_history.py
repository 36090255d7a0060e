"""The results of earlier audits in the store, by link."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from drkit.model.runs import RunSummary
from drkit.store.api import Store

AUDIT = "audit"
"""The kind of an audit's run."""

FAILED = "failed"
"""The verdict of an audit that ended without one."""

CLEAN = "clean"
VERDICTS = (CLEAN, "incomplete", "deviated", FAILED)


class AuditOfLink(NamedTuple):
    """One audit's outcome for one link. `totals` is None if the audit failed; `detail` then has the reason. `whole`:
    whether it was about all that the link covers."""

    run: str
    link: str
    began: datetime
    verdict: str
    totals: dict[str, int] | None
    detail: str
    whole: bool = True


def past_audits(store: Store) -> list[AuditOfLink]:
    """All audits in the store, oldest first, with a row for each link of an audit."""
    listed = sorted((each for each in store.runs() if each.kind == AUDIT), key=lambda each: each.started_at)
    return [found for summary in listed for found in audits_of_run(store, summary)]


def last_audits(store: Store, links: Iterable[str]) -> list[AuditOfLink]:
    """The last audit of each of these links (in either direction), if there is one. One of some topics, or of some
    time, that found nothing says nothing of the rest: an earlier one of the whole link stands."""
    wanted = set(links)
    wanted |= {"->".join(reversed(link.split("->"))) for link in wanted}
    found: dict[str, AuditOfLink] = {}
    for summary in sorted((each for each in store.runs() if each.kind == AUDIT), key=_began, reverse=True):
        for each in audits_of_run(store, summary):
            if each.whole or each.verdict != CLEAN:
                found.setdefault(each.link, each)
        if wanted <= found.keys():
            break
    return [each for link, each in sorted(found.items()) if link in wanted]


def _began(summary: RunSummary) -> datetime:
    return summary.started_at


def audits_of_run(store: Store, summary: RunSummary) -> Iterable[AuditOfLink]:
    """The results of one audit, a row for each of its links."""
    for entry in store.entries(summary.run):
        payload = json.loads(entry.payload)
        for each in payload.get("links", ()):
            began, verdict, whole = summary.started_at, each["verdict"], each["whole"]
            yield AuditOfLink(summary.run, each["link"], began, verdict, each["totals"], "", whole)
        for each in payload.get("failures", ()):
            yield AuditOfLink(summary.run, each["link"], summary.started_at, FAILED, None, each["what"])
