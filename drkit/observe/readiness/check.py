"""One question about readiness, and its answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class CheckOutcome(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer; `remedy` is empty if there is nothing to do."""

    name: str
    outcome: CheckOutcome
    reason: str
    remedy: str = ""


def asked_again(alias: str) -> str:
    """The remedy of a check that a silent cluster leaves unknown."""
    return f"drkit doctor asks again: run it once {alias} answers"


def worst_outcome(checks: Iterable[Check]) -> CheckOutcome:
    """The worst outcome of checks; ok if there is none."""
    found = {check.outcome for check in checks}
    for worst in (CheckOutcome.FAIL, CheckOutcome.UNKNOWN, CheckOutcome.WARN):
        if worst in found:
            return worst
    return CheckOutcome.OK
