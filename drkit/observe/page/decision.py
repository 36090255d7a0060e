"""May I fail over now? The plan of `drkit failover --dry-run`, as the page shows it.

The answer is the plan's own: its obstacles, what it would lose, where it would put each group. `cli` makes it
by the same calls as the command (`drkit.cli.wiring.page_sources`).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from drkit.model.clock import iso
from drkit.model.wording import counted


class Answer(StrEnum):
    """Whether a failover would be accepted now.

    `UNFENCED`: only where the operator accepts that the cluster which groups leave can't be closed to its clients.
    """

    YES = "yes"
    UNFENCED = "unfenced"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Obstruction:
    """An obstacle. `link` None: of the failover as a whole; `waived_by`: the flag that accepts it."""

    link: str | None
    what: str
    meaning: str
    remedy: str
    waived_by: str | None = None


class PlannedRow(NamedTuple):
    """Where one group would continue on one partition; counts are None where they aren't known."""

    link: str
    group: str
    topic: str
    partition: int
    target_topic: str
    source_offset: int | None
    target_offset: int | None
    strategy: str | None
    translation: str
    reread: int | None
    skipped: int | None
    lost: int | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Duration:
    """How long an earlier move took, and which."""

    seconds: float
    of: str
    run: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Decision:
    """A failover to one cluster, as it would be decided now.

    `records`, `seconds`: what would be lost; None: not known, `loss_reason` says why. `lower_bound`: at least so much.
    `stages`: name and what it would do. `named`: the links are those that `--link` names; else all that lead there.
    """

    to: str
    links: tuple[str, ...]
    answer: Answer
    obstructions: tuple[Obstruction, ...]
    made_at: datetime
    records: int | None = None
    seconds: float | None = None
    lower_bound: bool = False
    loss_reason: str | None = None
    digest: str | None = None
    warnings: tuple[str, ...] = ()
    stages: tuple[tuple[str, str], ...] = ()
    positions: tuple[PlannedRow, ...] = ()
    named: bool = False


_MOST = 20
"""Obstructions, warnings and the like that the first view lists; it says how many more there are."""


def headline(decision: Decision) -> str:
    """The answer in a sentence."""
    to = decision.to
    if decision.answer is Answer.YES:
        return f"Yes: a failover to {to} would be accepted now"
    if decision.answer is Answer.UNFENCED:
        return f"Yes, unfenced: a failover to {to} needs --accept-unfenced"
    count = counted(len(decision.obstructions), "thing")
    stand = "stands" if len(decision.obstructions) == 1 else "stand"
    if decision.answer is Answer.NO:
        return f"No: {count} {stand} against a failover to {to}"
    return f"Unknown: whether a failover to {to} would be accepted can't be told"


def decision_document(decision: Decision, at: datetime) -> dict[str, Any]:
    """The decision without its positions, as JSON values."""
    return {
        "to": decision.to,
        "links": list(decision.links),
        "answer": decision.answer.value,
        "headline": headline(decision),
        "obstructions": [
            {
                "link": each.link,
                "what": each.what,
                "meaning": each.meaning,
                "remedy": each.remedy,
                "waived_by": each.waived_by,
            }
            for each in decision.obstructions[:_MOST]
        ],
        "more_obstructions": max(0, len(decision.obstructions) - _MOST),
        "loss": {
            "records": decision.records,
            "seconds": None if decision.seconds is None else round(decision.seconds, 3),
            "lower_bound": decision.lower_bound,
            "reason": decision.loss_reason,
        },
        "warnings": list(decision.warnings[:_MOST]),
        "more_warnings": max(0, len(decision.warnings) - _MOST),
        "stages": [{"name": name, "does": does} for name, does in decision.stages],
        "positions": len(decision.positions),
        "groups": len({each.group for each in decision.positions}),
        "digest": decision.digest,
        "made_at": iso(decision.made_at),
        "age_seconds": round(max(0.0, (at - decision.made_at).total_seconds()), 1),
        "command": _command(decision),
    }


def _command(decision: Decision) -> str:
    """The command whose plan this is, as a shell takes it."""
    links = [word for link in decision.links for word in ("--link", link)] if decision.named else []
    return shlex.join(["drkit", "failover", "--to", decision.to, *links, "--dry-run"])


_LOG = "Look at the log of `drkit serve`"


def unknown(decision: Decision, why: str, remedy: str = _LOG) -> Decision:
    """The decision once it counts no more: unknown is not yes, and its numbers are nobody's any more."""
    standing = Obstruction(None, why, "What was found before may no longer hold", remedy)
    return Decision(decision.to, decision.links, Answer.UNKNOWN, (standing,), decision.made_at, named=decision.named)
