"""The evidence of a drill: everything from its folder, and the chain of all drills."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from drkit import __version__
from drkit.drill.faults import FAULTS
from drkit.drill.judge.result import DrillResult, StepResult
from drkit.drill.results.archive import Drills
from drkit.drill.results.origin import ORIGIN
from drkit.drill.results.recording import CHAINED_FILES, chain_anchors, other_chain_anchors, read_chain
from drkit.evidence import verifier
from drkit.evidence.lag_charts import chart_series
from drkit.evidence.run_evidence import Gathered
from drkit.evidence.statements import Statements, findings_of, open_points, runbook_of
from drkit.evidence.trend import trend_of
from drkit.evidence.unknown_values import Unknown, known, with_reasons
from drkit.failover.run.journal.files import ANCHORS, RUNS, anchor_document, entry_document, json_lines
from drkit.model.clock import iso
from drkit.model.errors import DrkitError, Refused

_JOURNAL = re.compile(r"journal/([0-9A-Z]{26})[.]jsonl")
Document = dict[str, Any]


def gather_drill(drills: Drills, run: str, said: Statements) -> Gathered:
    """Everything that was kept of a drill.

    Raises:
        DrkitError: it left no result, or files of it can't be read.
        Refused: what verdicts are computed from isn't there any more.
    """
    result = drills.result(run)
    folder = drills.path / run
    files = _raw_files(folder, run)
    chain = read_chain(drills.path)
    origin = json.loads(files.pop(ORIGIN))
    files["drills.jsonl"] = json_lines(map(entry_document, chain))
    anchors = json.loads(files.get(ANCHORS, b'{"store": null, "places": []}'))
    anchors["drills"] = [anchor_document(anchor) for anchor in chain_anchors(drills.path)]
    others = other_chain_anchors(drills.path)
    anchors["other_drills"] = {name: [anchor_document(each) for each in heads] for name, heads in others.items()}
    files[ANCHORS] = (json.dumps(anchors, indent=1) + "\n").encode()
    files.setdefault(RUNS, b"")
    entries = [json.loads(entry.payload) for entry in chain]
    if not any(each["run"] == run for each in entries):
        raise Refused(
            f"{run} is not in the chain of drills, {drills.path / 'chain.jsonl'}",
            meaning="The chain was cut, or the drill was put into the folder by another way",
            remedy="Bring the chain back from a copy, or play the drill again",
        )
    runbook, more = runbook_of(said.runbook)
    files |= more
    judged = _judged(folder, run)
    deviations = list(_deviations(result))
    passed = set(_retests(entries, run))
    gone = sorted(each["run"] for each in entries if not (drills.path / each["run"] / "result.json").is_file())
    document = {
        "run": run,
        "kind": "drill",
        "title": result.title,
        "verdict": result.verdict,
        "reasons": result.reasons,
        "state": "ended",
        "started_at": iso(result.started_at),
        "ended_at": iso(result.ended_at),
        "seconds": result.seconds,
        "what": {
            "link": "primary->dr",
            "mode": Unknown("a drill's failover has its mode in its own result"),
            "plan": Unknown("what a drill plans is its experiment"),
            "plan_digest": Unknown("what a drill plans is its experiment"),
            "experiment": "experiment.yaml",
            "hypothesis": result.hypothesis,
            "result": "result.json",
            "stages": [],
        },
        "drkit": {"version": origin["drkit"], "exported_with": __version__},
        "configuration": {
            "digest": known(origin["configuration_digest"], "the lab did not come up"),
            "links": ["primary->dr"],
            "objectives": {each.name: each.objective for each in result.objectives},
        },
        "clusters": known(origin["clusters"], "the lab did not come up"),
        "runbook": runbook,
        "who": {
            "operator": origin["operator"],
            "taken_over_by": [],
            "witness": known(said.witness or origin["witness"], "nobody was named: --witness, or evidence.witness"),
            "exported_by": said.exported_by,
        },
        "why": {
            "purpose": said.purpose or "drill",
            "statement": known(said.why, "nothing was said: --why at the export"),
        },
        "assumptions": list(_assumptions(result, origin)),
        "timeline": {
            "events": list(_events(result)),
            "faults": [_fault(step) for step in result.steps if _is_fault(step)],
            "series": chart_series(folder, origin["began"], result.started_at),
        },
        "steps": [_step(step) for step in result.steps],
        "measured": _measured(judged["measured"]),
        "objectives": judged["objectives"],
        "checks": judged["checks"],
        "groups": Unknown("a drill has one group of its own; its result counts what it read and read again"),
        "deviations": deviations,
        "findings": findings_of(open_points(judged, deviations), said.findings, passed),
        "journals": [_journal(files, name) for name in sorted(files) if _JOURNAL.fullmatch(name)],
        "journals_missing": known(
            origin["journals_missing"], "the journals of all runs in the drill are in the bundle"
        ),
        "drills": {"file": "drills.jsonl", "entries": len(chain), "head": chain[-1].hash, "not_kept_any_more": gone},
        "trend": trend_of(run, drills.summaries()),
    }
    return Gathered(with_reasons(document), files)


def _retests(entries: list[Document], run: str) -> Iterator[str]:
    """Drills after this one that played the same experiment and passed: nothing else is a retest."""
    number = next(number for number, each in enumerate(entries) if each["run"] == run)
    mine = entries[number]
    for each in entries[number + 1 :]:
        same = (each["title"], each["files"]["experiment.yaml"]) == (mine["title"], mine["files"]["experiment.yaml"])
        if same and each["verdict"] == "passed":
            yield each["run"]


def _raw_files(folder: Path, run: str) -> dict[str, bytes]:
    wanted = [*CHAINED_FILES, ORIGIN]
    missing = [name for name in wanted if not (folder / name).is_file()]
    if missing:
        raise Refused(
            f"{run} lacks {', '.join(missing)}",
            meaning="Its verdict can't be computed anew, so nothing is signed",
            remedy="Bring the drill's folder back from a copy, or play it again",
        )
    names = [*wanted, *(name for name in (ANCHORS, RUNS) if (folder / name).is_file())]
    names += [f"journal/{path.name}" for path in sorted((folder / "journal").glob("*.jsonl"))]
    try:
        return {name: (folder / name).read_bytes() for name in names}
    except OSError as error:
        raise DrkitError(f"{folder} can't be read: {error}", remedy="Mend its permissions") from error


def _judged(folder: Path, run: str) -> Document:
    try:
        return verifier.drill_judgement(folder)
    except (verifier.Broken, KeyError, ValueError, TypeError) as error:
        raise Refused(
            f"the verdict of {run} doesn't follow from what its clients recorded: {error}",
            meaning="Its files were changed, or drkit's checks and its verifier disagree, which is a defect",
            remedy="Bring the drill's folder back from a copy; if it is as it was written, report it",
        ) from error


def _is_fault(step: StepResult) -> bool:
    return step.section == "method" and step.step.split(" ")[0] in FAULTS


def _fault(step: StepResult) -> Document:
    return {
        "what": step.step,
        "seconds": known(step.started_after_seconds, f"it was {step.outcome}"),
        "outcome": step.outcome,
    }


def _events(result: DrillResult) -> Iterator[Document]:
    for step in result.steps:
        after = step.started_after_seconds
        at = None if after is None else iso(result.started_at + timedelta(seconds=after))
        why = f"it was {step.outcome}"
        yield {
            "at": known(at, why),
            "seconds": known(after, why),
            "what": step.step,
            "fault": _is_fault(step),
            "outcome": step.outcome,
            "detail": step.reason,
        }


def _step(step: StepResult) -> Document:
    after = step.started_after_seconds
    return {
        "name": step.step,
        "section": step.section,
        "outcome": step.outcome,
        "reason": step.reason,
        "seconds": step.seconds,
        "ended_after_seconds": None if after is None else round(after + step.seconds, 3),
        "attempts": 0 if step.outcome == "skipped" else 1,
    }


def _assumptions(result: DrillResult, origin: Document) -> Iterator[str]:
    lab = origin["lab"]
    if lab is not None:
        yield f"Played on a lab of one machine ({lab['machine']}): {', '.join(lab['nodes'])}; its network is loopback"
    yield "Producer, consumer and bystander are plain confluent-kafka clients, with the workload of the file"
    yield "All times are of one machine's monotonic clock; the recovery time counts from the first fault on primary"
    if result.steady_state.reached is not True:
        yield f"The steady state was not seen before the disturbance: {result.steady_state.reason}"


def _deviations(result: DrillResult) -> Iterator[str]:
    for step in result.steps:
        if step.outcome != "ok":
            yield f"{step.step} (line {step.line}) ended {step.outcome}: {step.reason}"
    if result.steady_state.reached is False:
        yield f"the steady state was not reached: {result.steady_state.reason}"


def _measured(measured: Document) -> Document:
    return {
        name: known(value, "its part of the history is missing, or has nothing to measure: see checks")
        for name, value in measured.items()
    }


def _journal(files: dict[str, bytes], name: str) -> Document:
    entries = [json.loads(line) for line in files[name].decode().splitlines()]
    problem = verifier.chain_problem(entries[0]["run"], entries) if entries else "it has no entry"
    return {
        "run": Path(name).stem,
        "file": name,
        "entries": len(entries),
        "head": entries[-1]["hash"] if entries else None,
        "chain": "holds" if problem is None else "broken",
        "verdict": problem or "every hash fits",
        "anchored_through": Unknown("see anchors.json"),
    }
