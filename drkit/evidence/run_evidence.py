"""The evidence of a failover, failback, reprotect or rehearsal, from its journal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drkit import __version__
from drkit.config import Config
from drkit.evidence import verifier
from drkit.evidence.statements import ExportStatements, Unknown, findings_of, known, runbook_of, with_reasons
from drkit.failover.journal.files import JournalFiles, entry_document, journal_files
from drkit.failover.journal.journal import POSITION_LIST
from drkit.failover.journal.run_record import KINDS, RunRecord, load_run
from drkit.failover.journal.site_record import SITE
from drkit.failover.positions.positions import PlannedPosition
from drkit.failover.run.run_document import run_document
from drkit.failover.run.runner import RunResult
from drkit.model.clock import iso
from drkit.model.errors import DrkitError, Refused
from drkit.model.offsets import Certainty
from drkit.model.runs import judge_chain
from drkit.model.wording import counted
from drkit.store.api import Store

REHEARSAL = "rehearsal"
_NO_SAMPLES = "a run doesn't sample lag or throughput: `drkit serve` has both as metrics"
_PURPOSES = {"unplanned": "recovery", "planned": "planned move"}
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BundleContent:
    """The content of a bundle: the document, and every other file except for the page and the signature."""

    document: Document
    files: dict[str, bytes]


def judge_run(store: Store, run: str) -> tuple[str, list[str]]:
    """The verdict of a run, with its reasons, as its evidence has it.

    Raises:
        Refused: its journal can't be read.
        Unreachable: the store doesn't answer.
    """
    judged = _judged(run, [entry_document(entry) for entry in store.entries(run)])
    return judged["verdict"], judged["reasons"]


def _judged(run: str, rows: list[Document]) -> Document:
    try:
        return verifier.run_judgement(rows)
    except (verifier.Broken, KeyError, ValueError, TypeError) as error:
        raise Refused(
            f"the journal of run {run} can't be read: {error}",
            meaning="Nothing can be concluded from it",
            remedy=f"drkit runs {run}",
        ) from error


def gather_run(config: Config, store: Store, run: str, statements: ExportStatements) -> BundleContent:
    """The evidence of a run.

    Raises:
        Refused: there is no such run, it is of a kind without evidence, or it was killed before it wrote its plan.
        Unreachable: the store doesn't answer.
    """
    kept = journal_files(config, store, [run])
    rows = [entry_document(entry) for entry in kept.entries[run]]
    first = _first(run, rows)
    judged = _judged(run, rows)
    record = _record(store, run)
    plan, origin, kind = first["plan"], first["origin"], first["kind"]
    files = dict(kept.files) | {"plan.json": (json.dumps(plan, indent=1) + "\n").encode()}
    if isinstance(record, RunRecord):
        result = RunResult.of(record)
        judgement = result.judged(config.objectives)
        files["result.json"] = (json.dumps(run_document(result, record.plan, judgement), indent=1) + "\n").encode()
    runbook, more = runbook_of(statements.runbook)
    files |= more
    deviations = list(_deviations(rows, record))
    ended = verifier.run_ended_at(list(verifier.events(rows)))
    document = {
        "run": run,
        "kind": kind,
        "title": f"{kind} of {_link(plan)}",
        "verdict": judged["verdict"],
        "reasons": judged["reasons"],
        "state": judged["state"],
        "started_at": _instant(first["started_at"]),
        "ended_at": ended,
        "seconds": verifier.seconds_between(first["started_at"], ended),
        "what": {
            "link": _link(plan),
            "mode": plan["mode"],
            "plan": "plan.json",
            "plan_digest": plan.get("digest"),
            "experiment": Unknown("a run has no experiment"),
            "hypothesis": Unknown("a run has no hypothesis"),
            "result": "result.json" if "result.json" in files else record,
            "stages": plan.get("stages", []),
        },
        "drkit": {"version": origin["drkit"], "exported_with": __version__},
        "configuration": {
            "digest": origin["configuration_digest"],
            "links": origin["links"],
            "objectives": {name: limit for name, limit in origin["objectives"].items() if limit is not None},
        },
        "clusters": _clusters(plan),
        "runbook": runbook,
        "who": {
            "operator": origin["operator"],
            "taken_over_by": [body["by"] for row, body in verifier.events(rows) if row["event"] == "taken"],
            "witness": known(
                statements.witness or origin["witness"], "nobody was named: --witness, or evidence.witness"
            ),
            "exported_by": statements.exported_by,
        },
        "why": {
            "purpose": statements.purpose or (REHEARSAL if kind == REHEARSAL else _PURPOSES[plan["mode"]]),
            "statement": known(statements.why, "nothing was said: --why at the export"),
        },
        "assumptions": list(_assumptions(plan, first.get("facts", {}))),
        "timeline": {
            "events": list(_timeline(first["started_at"], rows)),
            "faults": Unknown("only drills inject faults"),
            "series": Unknown(_NO_SAMPLES),
        },
        "steps": judged["steps"],
        "measured": _measured(judged["measured"], kind),
        "objectives": judged["objectives"],
        "checks": judged["checks"],
        "groups": _groups(record, plan),
        "deviations": deviations,
        "findings": findings_of(verifier.open_points(judged, deviations), statements.findings, ()),
        "journals": [_journal(kept, run, plan)],
        "drills": Unknown("a run is not a drill"),
        "trend": Unknown("only drills have trends"),
    }
    return BundleContent(with_reasons(document), files)


def _first(run: str, rows: list[Document]) -> Document:
    if not rows:
        raise Refused(f"there is no run {run}", remedy="`drkit runs` and `drkit drill history` list what there is")
    _, body = next(verifier.events(rows), (None, None))
    if not isinstance(body, dict) or body.get("kind") not in {*KINDS, REHEARSAL}:
        kind = body.get("kind") if isinstance(body, dict) else None
        if isinstance(body, dict) and kind == SITE:
            raise Refused(
                f"run {run} covers several links, and each of their runs has its own evidence",
                remedy="; ".join(f"drkit evidence export {each['run']} --out DIR" for each in body["links"]),
            )
        raise Refused(
            f"run {run} is {'of kind ' + str(kind) if kind else 'none that has a plan'}",
            meaning="Only failovers, failbacks, reprotects, rehearsals and drills have evidence",
            remedy="`drkit runs` lists them with their kind",
        )
    return body


def _record(store: Store, run: str) -> RunRecord | Unknown:
    """The run; Unknown: a rehearsal, or a journal whose chain is broken."""
    try:
        return load_run(store, run)
    except (DrkitError, ValueError, KeyError, TypeError) as error:
        return Unknown(error.what if isinstance(error, DrkitError) else f"the journal can't be read: {error}")


def _link(plan: Document) -> str:
    return f"{plan['link']['source']}->{plan['link']['target']}"


def _clusters(plan: Document) -> list[Document]:
    views = [plan[role] for role in ("source", "live", "target") if plan.get(role)]
    return [
        {
            "alias": view["alias"],
            "cluster_id": known(view["cluster_id"], f"it did not answer when the plan was made: {view.get('reason')}"),
        }
        for view in views
    ]


def _assumptions(plan: Document, facts: Mapping[str, Any]) -> Iterator[str]:
    yield from plan.get("warnings", ())
    if facts.get("unfenced_accepted"):
        yield "An operator accepted that the old cluster is not fenced (--accept-unfenced)"
    if plan.get("accept_loss") is not None:
        yield f"An operator accepted the loss of records (--accept-loss {plan['accept_loss']})"
    if plan.get("allow_rewind"):
        yield "Groups may go back behind what they have on the target (--allow-rewind)"
    if facts.get("salvage_only"):
        yield f"An operator accepted that these are only in the salvage: {', '.join(facts['salvage_only'])}"
    if facts.get("gone"):
        gone = ", ".join(facts["gone"])
        yield f"An operator accepted that records went from the live cluster before they were brought back: {gone}"
    if plan.get("at"):
        yield f"Groups go back to {plan['at']['local']} ({plan['at']['timezone']}) at least"
    yield "The recovery time counts from the start of the run (a failback's: from its fence), not from the disaster"


def _timeline(started_at: str, rows: list[Document]) -> Iterator[Document]:
    for row, body in verifier.events(rows):
        fields = body if isinstance(body, dict) else {}
        yield {
            "at": row["at"],
            "seconds": verifier.seconds_between(started_at, row["at"]),
            "what": f"{row['stage']}: {row['event']}" if row["stage"] != row["event"] else row["stage"],
            "fault": False,
            "outcome": fields.get("outcome") if row["event"] == "outcome" else None,
            "detail": fields.get("reason") or fields.get("by"),
        }


def _deviations(rows: list[Document], record: RunRecord | Unknown) -> Iterator[str]:
    begun: dict[str, int] = {}
    for row, body in verifier.events(rows):
        stage, event = row["stage"], row["event"]
        if event == "intent":
            begun[stage] = begun.get(stage, 0) + 1
        elif event == "outcome" and body["outcome"] in ("failed", "unknown"):
            yield f"{stage} ended {body['outcome']}: {body['reason']}"
        elif event == "taken":
            yield f"{body['by']} took over the run at {row['at']}"
        elif event in ("rewound", "cancelled"):
            yield f"{event} at {row['at']}: {body.get('reason')}"
        elif event == "abandoned":
            yield f"abandoned at {row['at']}: {'; '.join(body.get('stands', ()))}"
    yield from (f"{stage} was begun {count} times" for stage, count in begun.items() if count > 1)
    if isinstance(record, RunRecord) and record.positions:
        yield from _moved(record)


def _moved(record: RunRecord) -> Iterator[str]:
    planned = {(each.group, each.topic, each.partition): each.target_offset for each in record.plan.positions}
    other = [
        each
        for each in record.positions
        if planned.get((each.group, each.topic, each.partition), each.target_offset) != each.target_offset
    ]
    if other and record.plan.kind == "failover":
        first = other[0]
        planned_position = planned[first.group, first.topic, first.partition]
        yield (
            f"{counted(len(other), 'position')} changed behind the fence, such as {first.group} "
            f"{first.topic}:{first.partition}: {planned_position} planned, {first.target_offset} committed"
        )


def _measured(measured: Document, kind: str) -> Document:
    why = measured["rpo_reason"] or "nothing is recorded of it"
    late = "the run is not verified yet" if kind != "reprotect" else "a reprotect moves no clients"
    return {
        **measured,
        "rpo_records": known(measured["rpo_records"], why),
        "rpo_seconds": known(measured["rpo_seconds"], why),
        "rto_seconds": known(measured["rto_seconds"], measured["rto_reason"] or late),
        "rpo_basis": known(measured["rpo_basis"], why),
        "rpo_reason": known(measured["rpo_reason"], "nothing about the loss is left open"),
        "rto_reason": known(measured["rto_reason"], "rto_seconds has its own reason if it isn't known"),
    }


def _groups(record: RunRecord | Unknown, plan: Document) -> Document | Unknown:
    if isinstance(record, RunRecord):
        positions: tuple[PlannedPosition, ...] = record.positions or record.plan.positions
    else:
        try:
            positions = POSITION_LIST.validate_json(json.dumps(plan["positions"]))
        except (ValueError, KeyError):
            return Unknown("the positions of the plan can't be read")
    by_certainty = {str(each): sum(p.translation is each for p in positions) for each in Certainty}
    return {
        "groups": len({position.group for position in positions}),
        "positions": len(positions),
        "by_translation": by_certainty,
        "reread_at_least": sum(position.reread or 0 for position in positions),
        "skipped": sum(position.skipped or 0 for position in positions),
        "without_place": [
            {"group": p.group, "topic": p.topic, "partition": p.partition, "reason": p.reason or p.why}
            for p in positions
            if p.target_offset is None
        ][: verifier.SHOWN],
    }


def _journal(kept: JournalFiles, run: str, plan: Document) -> Document:
    entries = kept.entries[run]
    verdict = judge_chain(run, entries, kept.places, plan["target"]["alias"])
    return {
        "run": run,
        "file": verifier.journal_of(run),
        "entries": len(entries),
        "head": entries[-1].hash,
        "chain": verdict.state.value,
        "verdict": verdict.words,
        "anchored_through": known(verdict.anchored_through, "no anchor confirms an entry"),
    }


def _instant(text: str) -> str | None:
    return iso(datetime.fromisoformat(text))
