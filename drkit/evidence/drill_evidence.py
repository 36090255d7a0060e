"""The evidence of a drill, from its folder and the chain of all drills.

The verifier itself (`verifier.Drill`) computes what follows from the files; the statements of the export are added.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from drkit import __version__
from drkit.drill.results.archive import Drills
from drkit.drill.results.recording import CHAINED_FILES, chain_anchors, other_chain_anchors, read_chain
from drkit.evidence import verifier
from drkit.evidence.run_evidence import BundleContent
from drkit.evidence.statements import ExportStatements, Unknown, findings_of, known, runbook_of, with_reasons
from drkit.failover.journal.files import anchor_document, entry_document, json_lines
from drkit.model.errors import DrkitError, Refused

Document = dict[str, Any]
_NO_LAB = "the lab did not come up"
_ITS_EXPERIMENT = "the plan of a drill is its experiment"
_NOTHING = "nothing happened there"
_NOT_MOVED = "its clients were not moved after a failover"
_NO_REPORTS = "the mirror did not run, or its log has no reports"


def gather_drill(drills: Drills, run: str, statements: ExportStatements) -> BundleContent:
    """The evidence of a kept drill.

    Raises:
        DrkitError: it left no result, or its files can't be read.
        Refused: files that its verdict is computed from are missing, or were changed after its end.
    """
    drills.result(run)  # raises if it is missing or can't be read
    folder = drills.path / run
    files = _raw_files(folder, run)
    rows = [entry_document(entry) for entry in read_chain(drills.path)]
    chain = verifier.kept_drills(rows)
    mine = next((each for each in chain if each["run"] == run), None)
    if mine is None:
        raise Refused(
            f"{run} is not in the chain of drills, {drills.path / 'chain.jsonl'}",
            meaning="The chain was cut, or the folder of the drill was put there by other means",
            remedy="Restore the chain from a copy, or play the drill again",
        )
    computed = _computed(folder, run, chain, mine["files"])
    origin = json.loads(files["origin.json"])
    others = other_chain_anchors(drills.path)
    anchors = {
        "drills": [anchor_document(anchor) for anchor in chain_anchors(drills.path)],
        "other_drills": {name: [anchor_document(each) for each in heads] for name, heads in others.items()},
    }
    files[verifier.DRILLS] = json_lines(rows)
    files[verifier.DRILL_ANCHORS] = (json.dumps(anchors, indent=1) + "\n").encode()
    runbook, more = runbook_of(statements.runbook)
    files |= more
    statement = verifier.drills_statement(rows, anchors)
    through = statement["anchored_through"]
    document = {
        "run": run,
        "kind": "drill",
        **{name: computed[name] for name in ("title", "verdict", "reasons", "state")},
        **{name: computed[name] for name in ("started_at", "ended_at", "seconds")},
        "what": {
            **computed["what"],
            "mode": Unknown("a drill's failover has its mode in its own result"),
            "plan": Unknown(_ITS_EXPERIMENT),
            "plan_digest": Unknown(_ITS_EXPERIMENT),
        },
        "drkit": {"version": computed["drkit.version"], "exported_with": __version__},
        "configuration": {
            **computed["configuration"],
            "digest": known(computed["configuration"]["digest"], _NO_LAB),
        },
        "clusters": known(computed["clusters"], _NO_LAB),
        "runbook": runbook,
        "who": {
            "operator": computed["who.operator"],
            "taken_over_by": computed["who.taken_over_by"],
            "witness": known(
                statements.witness or origin["witness"], "nobody was named: --witness, or evidence.witness"
            ),
            "exported_by": statements.exported_by,
        },
        "why": {
            "purpose": statements.purpose or "drill",
            "statement": known(statements.why, "nothing was said: --why at the export"),
        },
        "assumptions": computed["assumptions"],
        "timeline": _timeline(computed["timeline"]),
        "steps": computed["steps"],
        "measured": _measured(computed["measured"]),
        "links": [
            each | {"measured": _measured(each["measured"], None if each["moved"] else _NOT_MOVED)}
            for each in computed["links"]
        ],
        "objectives": computed["objectives"],
        "checks": computed["checks"],
        "groups": Unknown("a drill has its own group; its result counts what it read and read again"),
        "deviations": computed["deviations"],
        "findings": findings_of(
            verifier.open_points(computed, computed["deviations"]), statements.findings, {*verifier.retests(run, chain)}
        ),
        "journals": [
            {**each, "anchored_through": known(each["anchored_through"], "no anchor confirms an entry")}
            for each in computed["journals"]
        ],
        "journals_missing": known(
            computed["journals_missing"], "the journals of all runs in the drill are in the bundle"
        ),
        "drills": {
            **statement,
            "anchored_through": known(through, "no anchor confirms an entry"),
            "not_kept_any_more": sorted(each["run"] for each in chain if not _is_kept(drills, each["run"])),
        },
        "trend": known(computed["trend"], "it is the first drill of this experiment in the chain"),
    }
    return BundleContent(with_reasons(document), files)


def _is_kept(drills: Drills, run: str) -> bool:
    return (drills.path / run / "result.json").is_file()


def _raw_files(folder: Path, run: str) -> dict[str, bytes]:
    missing = [name for name in CHAINED_FILES if not (folder / name).is_file()]
    if missing:
        raise Refused(
            f"{run} lacks {', '.join(missing)}",
            meaning="Its verdict can't be computed again, so nothing is signed",
            remedy="Restore the drill's folder from a copy, or play it again",
        )
    names = [*CHAINED_FILES, *(f"journal/{path.name}" for path in sorted((folder / "journal").glob("*.jsonl")))]
    try:
        return {name: (folder / name).read_bytes() for name in names}
    except OSError as error:
        raise DrkitError(f"{folder} can't be read: {error}", remedy="Correct its permissions") from error


def _computed(folder: Path, run: str, chain: list[Document], digests: dict[str, str]) -> Document:
    changed = list(verifier.check_kept(folder, run, digests))
    if changed:
        raise Refused(
            f"the files of {run} differ from those at its end: {'; '.join(changed)}",
            meaning="They were changed since, so nothing is signed",
            remedy="Restore the drill's folder from a copy, or play it again",
        )
    try:
        return verifier.drill_document(folder, run, chain)
    except (verifier.Broken, KeyError, ValueError, TypeError) as error:
        said = "; ".join(map(str, error.args)) if isinstance(error, verifier.Broken) else str(error)
        raise Refused(
            f"the verdict of {run} doesn't follow from what its clients recorded: {said}",
            meaning="Its files were changed, or drkit's checks and its verifier disagree, which is a bug",
            remedy="Restore the drill's folder from a copy; if nobody changed it, report the bug",
        ) from error


def _timeline(timeline: Document) -> Document:
    events = [
        {**each, **{name: known(each[name], f"it was {each['outcome']}") for name in ("at", "seconds")}}
        for each in timeline["events"]
    ]
    faults = [{**each, "seconds": known(each["seconds"], f"it was {each['outcome']}")} for each in timeline["faults"]]
    series = [
        {
            **each,
            "points": known(each["points"], _NO_REPORTS if each["name"].startswith(verifier.MIRROR_LAG) else _NOTHING),
        }
        for each in timeline["series"]
    ]
    return {"events": events, "faults": faults, "series": series}


def _measured(measured: Document, no_rto: str | None = None) -> Document:
    """What was measured. `no_rto`: why there is no recovery time, if it is known."""
    missing = "its part of the history is missing, or holds nothing to measure: see checks"
    return {
        name: known(value, (no_rto if name == "rto_seconds" else None) or missing) for name, value in measured.items()
    }
