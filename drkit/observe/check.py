"""One question about readiness, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckOutcome(StrEnum):
    """What a check found."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer; `remedy` is empty where there is nothing to do."""

    name: str
    outcome: CheckOutcome
    reason: str
    remedy: str = ""
