"""Compares a drill with earlier ones of the same experiment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drkit.drill.judge.result import DrillSummary
from drkit.evidence.unknown_values import Unknown
from drkit.model.clock import iso
from drkit.model.wording import counted

LIKE_BEFORE = 1.25
"""A time up to this many times the worst of the earlier drills that passed is no regression: machines differ."""
ENOUGH = 2
"""So many earlier drills that passed are needed to say that a time is out of line."""
_SHOWN = 50


def trend_of(run: str, drills: Sequence[DrillSummary]) -> dict[str, Any] | Unknown:
    """Drills of the title of `run`, oldest first, each with its regressions.

    A regression is a verdict that isn't passed after one that was, RPO records beyond all earlier drills that passed,
    or a recovery time beyond theirs by more than a quarter.
    """
    mine = next((each for each in drills if each.run == run), None)
    if mine is None:
        return Unknown("the drill is not in the folder of kept drills")
    rows: list[dict[str, Any]] = []
    passed: list[DrillSummary] = []
    last: DrillSummary | None = None
    for each in sorted((each for each in drills if each.title == mine.title), key=lambda each: each.run):
        if each.run > run:
            break
        rows.append(
            {
                "run": each.run,
                "started_at": iso(each.started_at),
                "verdict": each.verdict,
                "rpo_records": each.rpo_records,
                "rto_seconds": each.rto_seconds,
                "regressions": list(_regressions(each, last, passed)),
            }
        )
        last = each
        if each.verdict == "passed":
            passed.append(each)
    if len(rows) == 1:
        return Unknown("it is the first drill of this experiment that was kept")
    return {"experiment": mine.title, "drills": rows[-_SHOWN:], "left_out": max(0, len(rows) - _SHOWN)}


def _regressions(drill: DrillSummary, last: DrillSummary | None, passed: Sequence[DrillSummary]) -> list[str]:
    found = []
    if last is not None and last.verdict == "passed" and drill.verdict != "passed":
        found.append(f"the verdict is {drill.verdict}, and {last.run} passed")
    if len(passed) < ENOUGH:
        return found
    records = [each.rpo_records for each in passed if each.rpo_records is not None]
    if records and drill.rpo_records is not None and drill.rpo_records > max(records):
        found.append(
            f"{counted(drill.rpo_records, 'record')} lost, at most {max(records):,} in earlier drills that passed"
        )
    times = [each.rto_seconds for each in passed if each.rto_seconds is not None]
    if times and drill.rto_seconds is not None and drill.rto_seconds > LIKE_BEFORE * max(times):
        found.append(
            f"recovery took {drill.rto_seconds:.1f} s, at most {max(times):.1f} s in earlier drills that passed"
        )
    return found
