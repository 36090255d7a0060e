"""Reads a run back from its journal: its state, plan and findings, and where its salvages are.

A salvage is a folder on a disk of the machine that made it. An operator may have moved it since, lost it, or ask from
another machine: what names it says, too, when it isn't there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from drkit import __version__
from drkit.config import Config
from drkit.config.effective import configuration_digest
from drkit.failover.context.anchors import read_anchors
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import (
    FINAL_STATES,
    PATHS,
    Facts,
    Kind,
    Run,
    StageOutcome,
    State,
    before_fence,
    undone,
)
from drkit.failover.journal.journal import (
    ABANDONED,
    AUDITED,
    CANCELLED,
    CARRIED,
    ESTABLISHED,
    FACTS,
    INTENT,
    LOSS,
    OUTCOME,
    PLACE_LIST,
    PLACES,
    PLAN,
    POSITION_LIST,
    POSITIONS,
    REWOUND,
    Journal,
    StageRecord,
)
from drkit.failover.plan.failback_plan import FailbackPlan, failback_plan_from_json
from drkit.failover.plan.failover_plan import FailoverPlan, plan_from_json
from drkit.failover.positions.position_checks import PositionCheck
from drkit.failover.positions.positions import PlannedPosition
from drkit.model.clock import exact_iso, iso
from drkit.model.errors import DrkitError, Refused
from drkit.model.runs import PART_OF, Approval, RunSummary, judge_chain
from drkit.model.topology import LinkId
from drkit.store.api import Store

Plan = FailoverPlan | FailbackPlan
KINDS = frozenset(Kind)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A failover or failback from its journal. `site`: the site run that it belongs to, or None."""

    journal: Journal
    plan: Plan
    machine: Run
    started_at: datetime
    stages: tuple[StageRecord, ...]
    positions: tuple[PlannedPosition, ...]
    places: tuple[PositionCheck, ...]
    carried: tuple[PlannedPosition, ...] = ()
    site: str | None = None

    @property
    def run(self) -> str:
        """The run's id."""
        return self.journal.run

    @property
    def label(self) -> str:
        """The run's line in `drkit runs`."""
        return label_of(self.plan, self.site)


def label_of(plan: Plan, site: str | None = None) -> str:
    """A run's line in `drkit runs`; begins with the configured link. `site`: the site run that it belongs to."""
    return f"{plan.link} {plan.mode} to {plan.target.alias}" + ("" if site is None else f"{PART_OF}{site}")


def live_cluster(plan: Plan) -> str:
    """The cluster that clients use until the run switches them, which its fence closes."""
    return plan.live.alias if isinstance(plan, FailbackPlan) else plan.source.alias


def planned_places(plan: Plan) -> tuple[PositionCheck, ...]:
    """The plan's records at the groups' new positions; a failback knows them only once the target is seeded again."""
    return plan.places if isinstance(plan, FailoverPlan) else ()


def begin(
    journal: Journal,
    plan: Plan,
    facts: Facts,
    started_at: datetime,
    plan_text: str,
    origin: dict[str, Any],
    *,
    site: str | None = None,
) -> Run:
    """Write a run's first entry: the plan, the initial facts, when and by whom
    (`drkit.failover.journal.run_record`).

    `site`: the site run that it belongs to.

    Returns the machine's first state.
    """
    body = {
        "kind": plan.kind,
        "started_at": exact_iso(started_at),
        "facts": FACTS.dump_python(facts, mode="json"),
        "origin": origin,
        **({} if site is None else {"site": site}),
    }
    frame = json.dumps(body, separators=(",", ":"))
    journal.write(PLAN, PLAN, f'{frame[:-1]},"plan":{plan_text}}}')  # not parsed again: it may be tens of megabytes
    return Run(plan.kind, State.PLANNED, facts)


def _without_plan(store: Store, run: str) -> Refused:
    """What is said of a run that has none: of a kind that has no plan, which may have changed much, or killed."""
    kind = next((each.kind for each in store.runs() if each.run == run), None)
    if kind is not None and kind not in KINDS:
        return Refused(
            f"run {run} is of kind {kind}: neither a failover nor a failback",
            remedy=f"drkit runs lists all runs with their kinds; drkit runs {run} shows this one",
        )
    return Refused(
        f"run {run} is neither a failover nor a failback, or was killed before its plan was written",
        remedy="Nothing was changed by it; plan again",
    )


def load_run(store: Store, run: str) -> RunRecord:
    """A run from its journal.

    Raises:
        Refused: no such run, or it isn't a failover or failback.
        DrkitError: its hash chain is broken.
    """
    journal = Journal.open(store, run)
    text = journal.read(PLAN)
    body = json.loads(text) if text is not None else {}
    if not isinstance(body, dict) or body.get("kind") not in KINDS:
        raise _without_plan(store, run)
    kind = Kind(body["kind"])
    plan_text = json.dumps(body["plan"])
    plan: Plan = plan_from_json(plan_text) if kind is Kind.FAILOVER else failback_plan_from_json(plan_text)
    first = FACTS.validate_python(body["facts"])
    kept, seen, carried = journal.read(POSITIONS), journal.read(PLACES), journal.read(CARRIED)
    return RunRecord(
        journal=journal,
        plan=plan,
        machine=_replay(journal, Run(kind, State.PLANNED, first), live_cluster(plan)),
        started_at=datetime.fromisoformat(body["started_at"]),
        stages=tuple(journal.stages()),
        positions=() if kept is None else POSITION_LIST.validate_json(kept),
        places=planned_places(plan) if seen is None else PLACE_LIST.validate_json(seen),
        carried=() if carried is None else POSITION_LIST.validate_json(carried),
        site=body.get("site"),
    )


def load_anchored_run(estate: ClusterContext, run: str) -> RunRecord:
    """Load a run and compare its journal with its anchors, before acting on it.

    Raises:
        Refused: no such run, or it isn't a failover or failback.
        DrkitError: its journal was tampered with. Without readable anchors it is trusted.
    """
    # before reading the plan, and on all clusters: a forged plan may name another one; and before the entries, else an
    # entry that another process writes meanwhile would seem to be missing
    aliases = dict.fromkeys(alias for link in estate.config.links for alias in (link.source, link.target))
    places = read_anchors(estate, list(aliases))
    verdict = judge_chain(run, Journal.open(estate.store, run).entries, places)
    if verdict.contradicted:
        raise DrkitError(
            f"the journal of run {run} is not what was written: {verdict.words}",
            meaning="The store was restored from an older copy, or somebody wrote to it. The journal's content "
            "can't be trusted, so drkit does not act on it",
            remedy=f"drkit runs {run} shows it; drkit abandon {run} ends it by the link, the fence and both clusters",
        )
    return load_run(estate.store, run)


def _replay(journal: Journal, run: Run, fenced: str) -> Run:
    """Replay the journal through the state machine. Entries were checked when they were written. `fenced`: the cluster
    that the run's fence closes."""
    reaches = {step.stage: step.reaches for step in PATHS[run.kind]}
    for happened in journal.events():
        if happened.event == CANCELLED:
            return replace(undone(run, json.loads(happened.payload).get("undone")), state=State.CANCELLED)
        if happened.event == ABANDONED:
            return _abandoned(run, json.loads(happened.payload), fenced)
        if happened.event == REWOUND:
            facts = FACTS.validate_python(json.loads(happened.payload)["facts"])
            run = replace(run, state=before_fence(run.kind), facts=facts)
            continue
        if happened.event == ESTABLISHED:
            run = replace(run, facts=FACTS.validate_python(json.loads(happened.payload)["facts"]))
        if happened.event == AUDITED:
            run = replace(run, facts=replace(run.facts, loss=LOSS.validate_json(happened.payload)))
            continue
        if happened.event != OUTCOME or happened.stage not in reaches:  # hooks reach no state
            continue
        body = json.loads(happened.payload)
        if StageOutcome(body["outcome"]) in {StageOutcome.OK, StageOutcome.SKIPPED}:
            run = replace(run, state=reaches[happened.stage], facts=FACTS.validate_python(body["facts"]))
    return run


def _abandoned(run: Run, left: dict[str, Any], fenced: str) -> Run:
    """The run as abandoning it has left it: the cluster that clients are to use is open."""
    facts = run.facts
    if facts.fenced is not None and left.get("serves") == fenced and left.get("open"):
        facts = replace(facts, fenced=False, fence_reason="; ".join(left.get("did", ())), unseen=())
    return replace(run, state=State.ABANDONED, facts=facts)


def unfinished(store: Store, link: str | None = None) -> list[RunSummary]:
    """Failovers and failbacks that are not over, newest first (of one configured link)."""
    return [
        summary
        for summary in store.runs()
        if summary.kind in KINDS
        and summary.state not in FINAL_STATES
        and (link is None or summary.detail.split(" ")[0] == link)
    ]


def since_brought_back(store: Store, link: LinkId) -> Iterator[RunSummary]:
    """The runs that move a link's groups, newest first, up to the last failback or reprotect that was closed, or given
    up after its switch had begun. A closed failover settles nothing of a failback that was given up before: it may have
    moved single groups."""
    for found in store.runs():
        if found.kind in KINDS and found.detail.split(" ")[0] == str(link):
            if found.kind != Kind.FAILOVER and (found.state == State.CLOSED or _given_up_late(store, found)):
                return
            yield found


def _given_up_late(store: Store, found: RunSummary) -> bool:
    if found.state != State.ABANDONED:
        return False
    return any(entry.stage == "switch" and entry.event == INTENT for entry in store.entries(found.run))


def run_to_resume(store: Store, run: str | None) -> str:
    """The run that `drkit resume` should continue.

    Raises:
        Refused: it is finished, or none (or more than one) is unfinished and none was named.
    """
    if run is not None:
        return run
    left = unfinished(store)
    if not left:
        raise Refused(
            "no run is unfinished",
            remedy="`drkit runs` lists what ran; one that was cancelled is begun again with its own command",
        )
    if len(left) > 1:
        named = "; ".join(f"{s.run} ({s.kind} {s.detail}, {s.state}, begun {iso(s.started_at)})" for s in left)
        raise Refused(f"{len(left)} runs are unfinished: {named}", remedy="Name one: drkit resume RUN")
    return left[0].run


_JUDGED = {"rpo_records", "rpo_seconds", "rto_seconds"}
"""The objectives that a run's evidence is compared with."""


def origin_of(config: Config, operator: str, approval: Approval | None = None) -> dict[str, Any]:
    """The journal's data about a run's start. `operator`: user@host, as in the lease."""
    approved = {} if approval is None else {"approval": approval.journaled()}
    return approved | {
        "operator": operator,
        "drkit": __version__,
        "configuration_digest": configuration_digest(config),
        "objectives": config.objectives.model_dump(include=_JUDGED),
        "links": [f"{link.source}->{link.target}" for link in config.links],
        "witness": config.evidence.witness,
    }
