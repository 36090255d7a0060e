"""The decision "may I fail over now?": the plan of `drkit failover --dry-run`, for the page.

The answer is the plan's own: its obstacles, the loss, the positions of each group. `cli` makes it with the same
calls as the command (`drkit.cli.wiring.page_sources`).
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from drkit.model.clock import age_seconds, iso
from drkit.model.wording import counted


class Answer(StrEnum):
    """Whether a failover would be accepted now.

    `UNFENCED`: only if the operator accepts that the cluster that groups leave can't be fenced. `MOVED`: all links
    were failed over already: the command refuses, and `Decision.moved` says what is true instead.
    """

    YES = "yes"
    UNFENCED = "unfenced"
    NO = "no"
    MOVED = "moved"
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
    """Where one group would continue on one partition; unknown counts are None.

    `reread_at_most`: as `reread`, or a bound where that isn't known exactly.
    """

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
    reread_at_most: int | None
    skipped: int | None
    lost: int | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Duration:
    """The duration of an earlier move, and which one."""

    seconds: float
    of: str
    run: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Decision:
    """The current decision on a failover to one cluster.

    `records`, `seconds`: the loss; None: unknown, `loss_reason` says why. `lower_bound`: the loss may be larger;
    `upper_bound`: it may be smaller.
    `stages`: name and what it would do. `moved`: if the answer is `MOVED`, who serves and which command is next.
    `named`: the links are those that `--link` names; else all links to it.
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
    moved: str = ""
    named: bool = False
    upper_bound: bool = False


_MOST = 20
"""Obstructions, warnings and the like that the first view lists; it says how many more there are."""


def rounded_age(then: datetime, at: datetime) -> float | None:
    """How long ago it was at `at`, as the page's rows have it; None: not known (`age_seconds`)."""
    seconds = age_seconds(then, at)
    return None if seconds is None else round(seconds, 1)


def headline(decision: Decision) -> str:
    """The answer in a sentence."""
    to = decision.to
    if decision.answer is Answer.YES:
        return f"Yes: a failover to {to} would be accepted now"
    if decision.answer is Answer.UNFENCED:
        return f"Yes, unfenced: a failover to {to} needs --accept-unfenced"
    if decision.answer is Answer.MOVED:
        return decision.moved
    count = counted(len(decision.obstructions), "thing")
    stand = "stands" if len(decision.obstructions) == 1 else "stand"
    if decision.answer is Answer.NO:
        return f"No: {count} {stand} against a failover to {to}"
    return f"Unknown: drkit can't tell whether a failover to {to} would be accepted"


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
            "upper_bound": decision.upper_bound,
            "reason": decision.loss_reason,
        },
        "warnings": list(decision.warnings[:_MOST]),
        "more_warnings": max(0, len(decision.warnings) - _MOST),
        "stages": [{"name": name, "does": does} for name, does in decision.stages],
        "positions": len(decision.positions),
        "groups": len({each.group for each in decision.positions}),
        "digest": decision.digest,
        "made_at": iso(decision.made_at),
        "age_seconds": rounded_age(decision.made_at, at),
        "command": _command(decision),
    }


def _command(decision: Decision) -> str:
    """The command of this plan, quoted for a shell."""
    links = [word for link in decision.links for word in ("--link", link)] if decision.named else []
    return shlex.join(["drkit", "failover", "--to", decision.to, *links, "--dry-run"])


_LOG = "See the log of `drkit serve`"


def unknown(decision: Decision, why: str, remedy: str = _LOG) -> Decision:
    """An outdated decision: its answer is unknown, and its numbers are removed."""
    standing = Obstruction(None, why, "The earlier decision may be outdated", remedy)
    return Decision(decision.to, decision.links, Answer.UNKNOWN, (standing,), decision.made_at, named=decision.named)
