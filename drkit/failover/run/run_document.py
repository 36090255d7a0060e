"""The contract's JSON of plans and runs (docs/schemas/failover.schema.json, runs.schema.json). Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from drkit.failover.context.evidence import Evidence, Judgement, expected_evidence
from drkit.failover.context.salvage_folders import not_here, salvage_folders
from drkit.failover.context.state_machine import Loss, StageOutcome, State
from drkit.failover.journal.journal import StageRecord
from drkit.failover.journal.run_record import Plan, RunRecord
from drkit.failover.plan.failback_plan import FailbackPlan
from drkit.failover.plan.failover_plan import FailoverPlan, Obstacle
from drkit.failover.positions.consistent_cut import ConsistentCut
from drkit.failover.positions.group_commands import GroupWithoutPlace, without_place
from drkit.failover.positions.position_checks import PositionCheck
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.run.runner import RunResult
from drkit.model.clock import from_millis, iso
from drkit.model.errors import error_body
from drkit.model.runs import AnchorPlace, ChainVerdict, JournalEntry, RunSummary

Document = dict[str, Any]
_YEAR_10000 = 253_402_300_800_000  # ms: from there on no ISO-8601 instant can be written


def plan_document(plan: Plan, *, standing: Sequence[Obstacle] = ()) -> Document:
    """A dry run: its stages are skipped, each with what it would do, and the evidence is the expected one.

    `standing`: obstacles because of which a run with the same flags would be refused.
    """
    document = _frame(plan, run=None, state=State.PLANNED, dry_run=True)
    document["stages"] = [
        {
            "name": stage.name,
            "outcome": StageOutcome.SKIPPED.value,
            "reason": f"dry run: {stage.explanation}",
            "seconds": 0.0,
        }
        for stage in plan.stages
    ]
    document["groups"] = [_group(position) for position in plan.positions]
    planned = plan.positions if isinstance(plan, FailoverPlan) else ()
    document["without_place"] = _without_place(planned, plan)
    loss = plan.loss if isinstance(plan, FailoverPlan) else None
    document["evidence"] = evidence_document(expected_evidence(loss))
    document["lost_by_topic"] = _lost_by_topic(loss)
    document["refusals"] = [obstacle_document(obstacle) for obstacle in standing]
    document["places"] = [_place(place) for place in plan.places] if isinstance(plan, FailoverPlan) else []
    return document


def run_document(result: RunResult, plan: Plan, judgement: Judgement | None = None) -> Document:
    """A run as it is: at its end, or where it stopped; with what its numbers say of the objectives."""
    judgement = judgement or Judgement()
    facts = result.machine.facts
    document = _frame(plan, run=result.run, state=result.machine.state, dry_run=False)
    document["stages"] = [_stage(record) for record in result.stages]
    positions = result.positions or (plan.positions if not result.machine.finished else ())
    document["groups"] = [_group(position) for position in positions]
    document["without_place"] = _without_place(result.positions, plan)
    document["evidence"] = evidence_document(result.evidence)
    document["lost_by_topic"] = _lost_by_topic(facts.loss)
    document["objectives_missed"] = list(judgement.missed)
    document["objectives_not_judged"] = list(judgement.unproven)
    document["endpoint"] = facts.endpoint
    document["fence_reason"] = facts.fence_reason
    document["written_unfenced"] = {tp: list(offsets) for tp, offsets in sorted(facts.late.items())}
    document["fence_epoch"] = facts.fence_epoch
    document["places_verified"] = None if facts.places is None else asdict(facts.places)
    if isinstance(plan, FailbackPlan):
        folders = salvage_folders(facts)
        document["salvaged"] = {
            "records": facts.salvaged,
            "path": facts.salvage_path,
            "folders": folders,
            "not_here": not_here(folders),
        }
        document["audit"] = {"verdict": facts.audit, "detail": facts.audit_detail}
    if result.error is not None:
        document["error"] = error_body(result.error)
    return document


def rehearsal_document(result: RunResult, plan: FailoverPlan, standing: Sequence[Obstacle]) -> Document:
    """A rehearsal: like a run's, with `kind` "rehearsal", and the refusals that a real run would get now."""
    document = run_document(result, plan)
    document["kind"] = "rehearsal"
    document["groups"] = [_group(position) for position in plan.positions]
    document["without_place"] = _without_place(plan.positions, plan)
    document["refusals"] = [obstacle_document(obstacle) for obstacle in standing]
    document["places"] = [_place(place) for place in plan.places]
    return document


def runs_document(runs: Sequence[RunSummary], missing: Sequence[str], places: Sequence[AnchorPlace]) -> Document:
    """`drkit runs`: the summaries, newest first; anchored runs that are missing; and the queried anchors."""
    return {
        "runs": [_summary(summary) for summary in runs],
        "missing": list(missing),
        "anchors": [_anchor_place(place) for place in places],
    }


def journal_document(
    run: str,
    summary: RunSummary | None,
    entries: Sequence[JournalEntry],
    verdict: ChainVerdict,
    places: Sequence[AnchorPlace],
    record: RunRecord | None,
    judgement: Judgement | None = None,
) -> Document:
    """`drkit runs RUN`: the journal verbatim, whether its chain holds, what the run came to, and by the objectives."""
    began = summary.started_at if summary is not None else entries[0].at if entries else None
    result = None if record is None else run_document(RunResult.of(record), record.plan, judgement)
    return {
        "run": run,
        "kind": None if summary is None else summary.kind,
        "state": record.machine.state.value if record is not None else None if summary is None else summary.state,
        "started_at": iso(began),
        "updated_at": iso(entries[-1].at if entries else None if summary is None else summary.updated_at),
        "detail": None if summary is None else summary.detail,
        "chain": {
            "state": verdict.state.value,
            "intact": not verdict.contradicted,
            "problem": verdict.words if verdict.contradicted else None,
            "verdict": verdict.words,
            "entries": len(entries),
            "anchored_through": verdict.anchored_through,
            "anchors": [_anchor_place(place, run) for place in places],
        },
        "entries": [
            {
                "run": entry.run,
                "seq": entry.seq,
                "at": iso(entry.at),
                "stage": entry.stage,
                "event": entry.event,
                "payload": _payload(entry.payload),
                "payload_text": entry.payload,
                "previous": entry.previous,
                "hash": entry.hash,
            }
            for entry in entries
        ],
        "result": result,
    }


def _frame(plan: Plan, *, run: str | None, state: State, dry_run: bool) -> Document:
    at = plan.at if isinstance(plan, FailoverPlan) else None
    document: Document = {
        "run": run,
        "kind": plan.kind.value,
        "mode": plan.mode.value,
        "to": plan.target.alias,
        "link": str(plan.link),
        "state": state.value,
        "digest": plan.digest,
        "dry_run": dry_run,
        "at": None if at is None or at.by_commits else iso(at.instant),
        "committed_at": iso(at.instant) if at is not None and at.by_commits else None,
        "timezone": None if at is None else at.timezone,
        "at_local": None if at is None else at.local,
        "made_at": iso(plan.made_at),
        "warnings": list(plan.warnings),
        "directories": [asdict(view) for view in plan.directories],
    }
    if isinstance(plan, FailoverPlan):
        document["consistent"] = None if plan.cut is None else _cut(plan.cut)
        document["needs"] = sorted({obstacle.waived_by for obstacle in plan.obstacles if obstacle.waived_by})
    else:
        document["cluster_id"] = plan.target.cluster_id
        document["scrub"] = [
            {
                "topic": topic.topic,
                "topic_id": topic.topic_id,
                "partitions": topic.partitions,
                "deleted_offsets": topic.records,
                "only_here": topic.only_here,
                "gap": topic.gap or None,
            }
            for topic in plan.topics
            if not plan.level
        ]
        document["level"] = plan.level
        document["needs"] = sorted({obstacle.waived_by for obstacle in plan.obstacles if obstacle.waived_by})
        document["carried_group_offsets"] = plan.carried
        document["engine"] = "spark" if plan.by_spark else "mirror"
        document["deleted_group_offsets"] = dict(plan.offsets)
    return document


def _stage(record: StageRecord) -> Document:
    return {
        "name": record.name,
        "outcome": record.outcome.value,
        "reason": record.reason,
        "seconds": round(record.seconds, 3),
    }


def _group(position: PlannedPosition) -> Document:
    return {
        "group": position.group,
        "topic": position.topic,
        "target_topic": position.target_topic,
        "partition": position.partition,
        "source_offset": position.source_offset,
        "target_offset": position.target_offset,
        "strategy": None if position.strategy is None else position.strategy.value,
        "translation": position.translation.value,
        "reread": position.reread,
        "reread_at_most": position.reread_bound,
        "skipped": position.skipped,
        "lost": position.lost,
        "reason": position.reason,
        "why": position.why,
        "existing": position.existing,
        "captured_at": iso(position.captured_at),
        "transactional": position.transactional,
        "transactions_again": position.transactions_again,
    }


def _without_place(positions: Sequence[PlannedPosition], plan: Plan) -> list[Document]:
    """The groups that the move leaves without a position, and the commands that place them."""
    return [_group_without_place(each) for each in without_place(positions, plan.endpoint)]


def _group_without_place(found: GroupWithoutPlace) -> Document:
    return {
        "group": found.group,
        "partitions": [
            {
                "topic": position.topic,
                "target_topic": position.target_topic,
                "partition": position.partition,
                "reason": position.reason or position.why,
                "existing": position.existing,
            }
            for position in found.positions
        ],
        "command": found.command,
    }


def _cut(cut: ConsistentCut) -> Document:
    return {
        "instant": iso(cut.instant),
        "limits": [
            {
                "topic": limit.topic,
                "partition": limit.partition,
                "before": iso(limit.before),
                "exact": limit.exact,
                "why": limit.why,
            }
            for limit in cut.limits
        ],
        "beyond": [
            {"topic": topic.topic, "on_target": topic.on_target, "missing": topic.missing} for topic in cut.beyond
        ],
        "cuts": list(cut.cuts),
    }


def _place(standing: PositionCheck) -> Document:
    stamp = standing.timestamp
    written = stamp is not None and 0 <= stamp < _YEAR_10000
    return {
        "target_topic": standing.topic,
        "partition": standing.partition,
        "offset": standing.offset,
        "record_offset": standing.record,
        "timestamp": iso(from_millis(stamp)) if stamp is not None and written else None,
        "crc32c": None if standing.crc is None else f"{standing.crc:08x}",
        "reason": standing.reason,
    }


def evidence_document(evidence: Evidence) -> Document:
    """The contract's `evidence`."""
    return {
        "rpo_records": evidence.rpo_records,
        "rpo_seconds": _rounded(evidence.rpo_seconds),
        "rpo_basis": evidence.rpo_basis,
        "rpo_lower_bound": evidence.rpo_lower_bound,
        "rpo_upper_bound": evidence.rpo_upper_bound,
        "rpo_reason": evidence.rpo_reason,
        "observed_at": iso(evidence.observed_at),
        "rto_seconds": _rounded(evidence.rto_seconds),
        "fenced": evidence.fenced,
        "removed_unread": evidence.removed_unread,
    }


def _lost_by_topic(loss: Loss | None) -> list[Document]:
    if loss is None:
        return []
    return [
        {"topic": topic.topic, "records": topic.records, "seconds": _rounded(topic.seconds)} for topic in loss.by_topic
    ]


def obstacle_document(obstacle: Obstacle) -> Document:
    """One of the contract's `refusals`."""
    return {
        "what": obstacle.what,
        "meaning": obstacle.meaning,
        "remedy": obstacle.remedy,
        "waived_by": obstacle.waived_by,
    }


def _summary(summary: RunSummary) -> Document:
    return {
        "run": summary.run,
        "kind": summary.kind,
        "state": summary.state,
        "started_at": iso(summary.started_at),
        "updated_at": iso(summary.updated_at),
        "detail": summary.detail,
    }


def _anchor_place(place: AnchorPlace, run: str | None = None) -> Document:
    mine = [anchor for anchor in place.anchors or () if run in {None, anchor.run}]
    through = max((anchor.seq for anchor in mine), default=None)
    return {
        "place": place.name,
        "read": place.anchors is not None,
        "reason": place.reason or None,
        **({} if run is None else {"through": through}),
    }


def _payload(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
