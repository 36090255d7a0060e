"""The contract's JSON of site plans and site runs: a run's keys over all links, and each link's own. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drkit.failover.context.evidence import Judgement
from drkit.failover.context.state_machine import State
from drkit.failover.journal.site_record import least_far
from drkit.failover.plan.failover_plan import Obstacle
from drkit.failover.plan.site_plan import AnySitePlan, SitePlan, expected_loss, summed
from drkit.failover.run.rehearsal import REHEARSAL
from drkit.failover.run.run_document import (
    Document,
    evidence_document,
    obstacle_document,
    plan_document,
    rehearsal_document,
    run_document,
)
from drkit.failover.run.runner import RunResult
from drkit.failover.site.site_result import LinkResult, SiteResult
from drkit.model.clock import iso
from drkit.model.errors import error_body
from drkit.model.topology import LinkId

_BY_LINK = ("stages", "groups", "without_place", "lost_by_topic", "places", "directories")
"""Lists over all links: each row names its link, and the links' own documents omit them."""
_OF_THE_RUN = ("at", "committed_at", "timezone", "at_local")


def site_plan_document(plan: AnySitePlan, standing: Sequence[tuple[LinkId | None, Obstacle]] = ()) -> Document:
    """A dry run; `standing`: why a run with the same flags would be refused, by link (None: the whole run)."""
    links = [plan_document(each) for each in plan.plans]
    document = _frame(plan, links, run=None, state=State.PLANNED, dry_run=True)
    document["evidence"] = evidence_document(expected_loss(plan))
    document["refusals"] = _refusals(standing)
    document["links"] = [_own(each) for each in links]
    return document


def site_run_document(result: SiteResult, judgement: Judgement | None = None) -> Document:
    """A site run as it is: at its end, or where it stopped; with what its numbers say of the objectives."""
    judgement = judgement or Judgement()
    links = [_link(each) for each in result.links]
    document = _frame(result.plan, links, run=result.run, state=result.state, dry_run=False)
    document["evidence"] = evidence_document(result.evidence)
    document["objectives_missed"] = list(judgement.missed)
    document["objectives_not_judged"] = list(judgement.unproven)
    endpoints = {each["endpoint"] for each in links if each.get("endpoint")}
    document["endpoint"] = endpoints.pop() if len(endpoints) == 1 else None  # back to several primaries: by link
    document["links"] = [_own(each) for each in links]
    if result.error is not None:
        document["error"] = error_body(result.error)
    return document


def site_rehearsal_document(
    plan: SitePlan, results: Sequence[RunResult], standing: Sequence[tuple[LinkId | None, Obstacle]]
) -> Document:
    """Rehearsals of all links: each is a run of its own; `refusals`: why a real run would be refused now."""
    own = {each.link: [obstacle for link, obstacle in standing if link == each.link] for each in plan.plans}
    rehearsed = zip(plan.plans, results, strict=True)
    links = [rehearsal_document(result, each, own[each.link]) for each, result in rehearsed]
    state = least_far([result.machine.state for result in results])
    document = _frame(plan, links, run=None, state=state, dry_run=False) | {"kind": REHEARSAL}
    document["evidence"] = evidence_document(summed(result.evidence for result in results))
    document["refusals"] = _refusals(standing)
    document["links"] = [_own(each) for each in links]
    return document


def link_document(document: Document, link: str) -> Document | None:
    """One link's part of a run's document, as it would be of the link's own run; None: the run left the link out.

    `document`: that of a site run, or of one link's run, which is its own part.
    """
    if "links" not in document:
        return document
    own = next((each for each in document["links"] if each["link"] == link), None)
    if own is None:
        return None
    return {**own, **{key: _rows_of(document, key, link) for key in _BY_LINK if key not in own}}


def _rows_of(document: Document, key: str, link: str) -> list[Document]:
    return [row for row in document.get(key, ()) if row["link"] == link]


def _refusals(standing: Sequence[tuple[LinkId | None, Obstacle]]) -> list[Document]:
    return [{**obstacle_document(obstacle), "link": None if link is None else str(link)} for link, obstacle in standing]


def _link(found: LinkResult) -> Document:
    """One link's run, or its plan where none was begun."""
    if found.result is None:
        document = {**plan_document(found.plan), "dry_run": False, "evidence": None}
        document["stages"], document["places"] = [], []
    else:
        document = run_document(found.result, found.plan)
    if found.elsewhere is not None:
        document["left_alone"] = found.elsewhere
    if found.error is not None:
        document["error"] = error_body(found.error)
    return document


def _own(document: Document) -> Document:
    """The part of a link's document that isn't listed over all links."""
    return {key: value for key, value in document.items() if key not in _BY_LINK or key == "stages"}


def _frame(plan: AnySitePlan, links: Sequence[Document], *, run: str | None, state: State, dry_run: bool) -> Document:
    first = links[0] if links else {}
    document: Document = {
        "run": run,
        "kind": plan.kind.value,
        "mode": plan.mode.value,
        "to": plan.to,
        "link": None,
        "state": state.value,
        "digest": plan.digest,
        "dry_run": dry_run,
        **{key: first.get(key) for key in _OF_THE_RUN},
        "made_at": iso(plan.made_at),
        "warnings": [*plan.own_warnings(), *(f"{each['link']}: {text}" for each in links for text in each["warnings"])],
        "needs": sorted({flag for each in links for flag in each["needs"]} | _needed(plan)),
        "left_out": [{"link": str(each.link), "reason": each.why} for each in plan.left_out],
        "other_links": [{"link": str(each.link), "effect": each.effect} for each in plan.others],
        "shared_groups": [
            {"group": group, "links": [str(link) for link in shared]} for group, shared in plan.shared_groups.items()
        ],
    }
    if isinstance(plan, SitePlan):
        if plan.waves:
            document["waves"] = _waves(plan)
    else:
        document["cluster_ids"] = dict(plan.old_primaries)
    for key in _BY_LINK:
        document[key] = [_with_link(row, each["link"]) for each in links for row in each.get(key, ())]
    return document


def _waves(plan: SitePlan) -> list[Document]:
    assignment = plan.assignment
    by_link = {str(link): assignment.groups(link) for link in plan.links}
    return [
        {
            "wave": wave.name,
            "groups": sorted({group for waves in by_link.values() for group in waves.get(number, ())}),
            "links": [link for link, waves in by_link.items() if number in waves],
            "after": [list(command) for command in wave.after],
            "pause_seconds": wave.pause_seconds,
            "on_failure": "stop" if wave.stops else "continue",
        }
        for number, wave in enumerate(plan.waves)
    ]


def _needed(plan: AnySitePlan) -> set[str]:
    return {obstacle.waived_by for obstacle in plan.obstacles if obstacle.waived_by}


def _with_link(row: dict[str, Any], link: str) -> Document:
    return {"link": link, **row}
