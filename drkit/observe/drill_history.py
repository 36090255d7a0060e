"""The drills in the store: one run each, and the age of the last passed one of each kind.

A kind of drill is an experiment, identified by its title. The store has the drills whose configuration names it, from
every machine; a drill's files are on the machine that ran it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drkit.model.runs.journal import RunSummary
from drkit.model.wording import counted

DRILL = "drill"
"""The kind of a drill's run."""
PASSED = "passed"
VERDICTS = (PASSED, "failed", "unknown")
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class DrillKind:
    """One kind of drill: its newest run, and when one last passed (None: never).

    `changes`: what has changed since it last passed (`drill_surroundings`); None: unknown.
    """

    title: str
    run: str
    at: datetime
    verdict: str
    passed_at: datetime | None
    passed_run: str | None = None
    changes: tuple[str, ...] | None = None

    def age_seconds(self, at: datetime) -> float | None:
        """The time since one last passed; None: never."""
        return None if self.passed_at is None else max(0.0, (at - self.passed_at).total_seconds())


def drill_kinds(runs: Iterable[RunSummary]) -> list[DrillKind]:
    """Every kind of drill among the store's runs, by title."""
    by_title: dict[str, list[RunSummary]] = {}
    for each in runs:
        if each.kind == DRILL:
            by_title.setdefault(each.detail, []).append(each)
    found = []
    for title, drills in sorted(by_title.items()):
        newest = max(drills, key=lambda each: each.started_at)
        passed = max((each for each in drills if each.state == PASSED), key=lambda each: each.started_at, default=None)
        found.append(
            DrillKind(
                title,
                newest.run,
                newest.started_at,
                newest.state,
                None if passed is None else passed.started_at,
                None if passed is None else passed.run,
            )
        )
    return found


def drills_document(kinds: Sequence[DrillKind], at: datetime) -> list[dict[str, Any]]:
    """The entry in `drkit status`."""
    return [
        {
            "title": each.title,
            "run": each.run,
            "started_at": each.at,
            "verdict": each.verdict,
            "last_passed_at": each.passed_at,
            "last_passed_age_seconds": each.age_seconds(at),
            "changed_since_passed": None if each.changes is None else list(each.changes),
        }
        for each in kinds
    ]


def age_in_words(seconds: float) -> str:
    """`3 days`, `5 hours`, `12 minutes`: whole units, rounded down."""
    for unit, length in (("day", _DAY), ("hour", 3600.0)):
        if seconds >= length:
            return counted(int(seconds // length), unit)
    return counted(int(seconds // 60), "minute")
