"""Whether what would be done in a disaster was rehearsed, and not too long ago."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from drkit.model.wording import counted
from drkit.observe.drill_history import PASSED, DrillKind, age_in_words
from drkit.observe.readiness.check import Check, CheckOutcome

_DAY = 86_400.0


def drills_check(kinds: Sequence[DrillKind], every_days: float | None, at: datetime) -> Check | None:
    """Whether what has been rehearsed passed, and not too long ago; None: no drill is known, and none is asked for.

    `every_days`: `[drills] every_days`: some kind of drill must have passed within so many days.
    """
    name, remedy = "drills", "Rehearse: drkit drill run --config FILE, or by the clock with drkit drill schedule"
    ages = {each.title: each.age_seconds(at) for each in kinds}
    known = [age for age in ages.values() if age is not None]
    last = f"the last passed drill is {age_in_words(min(known))} old" if known else "no drill has passed"
    not_passed = [f"{each.title} ({each.verdict})" for each in kinds if each.verdict != PASSED]
    told = f"{last}, of {counted(len(kinds), 'kind')} that the store knows"
    if every_days is not None and (not known or min(known) > every_days * _DAY):
        return Check(name, CheckOutcome.WARN, f"{told}; one is due every {every_days:g} days", remedy)
    if not kinds:
        return None
    if not_passed:
        return Check(name, CheckOutcome.WARN, f"{told}; not passed last: {', '.join(not_passed)}", remedy)
    return Check(name, CheckOutcome.OK, told)
