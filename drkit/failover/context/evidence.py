"""The numbers that a run ends with, loss (`loss.py`) and time, and what they say of the objectives. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from drkit.config import Objectives
from drkit.failover.context.state_machine import Facts, Kind, Loss, State
from drkit.model.wording import bounds


@dataclass(frozen=True, slots=True)
class Evidence:
    """The numbers a run ends with; the contract's `evidence`.

    `rpo_lower_bound`: at least `rpo_records` were lost; `rpo_upper_bound`: at most; both: about so many. `rpo_reason`:
    why the loss is unknown, or inexact. `fenced`: None: it isn't shown for all topics (`Facts.unseen`), or not yet.
    `removed_unread`: offsets that groups had not read, and that retention or DeleteRecords had removed on the target
    before the move; None until the positions are final.
    """

    rpo_records: int | None
    rpo_seconds: float | None
    rpo_basis: str
    observed_at: datetime | None
    rto_seconds: float | None
    fenced: bool | None
    rpo_lower_bound: bool = False
    rpo_reason: str | None = None
    removed_unread: int | None = None
    rpo_upper_bound: bool = False


def evidence_of(facts: Facts, since: datetime | None) -> Evidence:
    """The evidence from a run's facts.

    `rto_seconds` runs from `since` to the verification. `since` is the run's start for a failover; for a failback the
    moment at which the live cluster's writers had to stop, because it served until then.
    """
    loss = facts.loss
    rto = None
    if facts.verified_at is not None and since is not None and facts.verified_at >= since:  # else the clock went back
        rto = (facts.verified_at - since).total_seconds()
    fenced = None if facts.fenced and facts.unseen else facts.fenced
    return replace(expected_evidence(loss), rto_seconds=rto, fenced=fenced, removed_unread=facts.removed_unread)


def expected_evidence(loss: Loss | None) -> Evidence:
    """The known loss before a run, or after it, as evidence."""
    if loss is None:
        return Evidence(None, None, "observed", None, None, None)
    return Evidence(
        rpo_records=loss.records,
        rpo_seconds=loss.seconds,
        rpo_basis=loss.basis,
        observed_at=loss.observed_at,
        rto_seconds=None,
        fenced=None,
        rpo_lower_bound=loss.lower_bound,
        rpo_reason=loss.reason,
        rpo_upper_bound=loss.upper_bound,
    )


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a run's numbers say of the objectives, a sentence each. `unproven`: none of these counts as met."""

    missed: Sequence[str] = ()
    unproven: Sequence[str] = ()

    @property
    def met(self) -> bool:
        """Whether every objective was met, and shown to be."""
        return not self.missed and not self.unproven


def judge(evidence: Evidence, objectives: Objectives, kind: Kind, state: State | None) -> Judgement:
    """Judge a run by the objectives of the configuration; nothing of one that isn't closed (None: it stopped)."""
    if state is not State.CLOSED:
        return Judgement()
    moves = kind is not Kind.REPROTECT  # where no group moves there is nothing that an objective is about
    return Judgement(
        missed_objectives(evidence, objectives), unproven_objectives(evidence, objectives) if moves else ()
    )


def missed_objectives(evidence: Evidence, objectives: Objectives) -> list[str]:
    """Missed objectives of the configuration, one sentence each."""
    records = None if evidence.rpo_upper_bound else evidence.rpo_records  # it isn't known to be as much
    pairs = (
        ("RPO", "records", records, objectives.rpo_records),
        ("RPO", "seconds", evidence.rpo_seconds, objectives.rpo_seconds),
        ("RTO", "seconds", evidence.rto_seconds, objectives.rto_seconds),
    )
    return [
        f"{name} {_number(value)} {unit}, objective {_number(limit)}"
        for name, unit, value, limit in pairs
        if value is not None and limit is not None and value > limit
    ]


def unproven_objectives(evidence: Evidence, objectives: Objectives) -> list[str]:
    """Objectives of the configuration that can't be judged, each with its reason: none counts as met."""
    why = evidence.rpo_reason or "nothing was recorded"
    found = []
    if objectives.rpo_records is not None:
        if evidence.rpo_records is None:
            found.append(f"RPO in records is not known: {why}")
        elif evidence.rpo_lower_bound if evidence.rpo_records <= objectives.rpo_records else evidence.rpo_upper_bound:
            known = bounds(lower=evidence.rpo_lower_bound, upper=evidence.rpo_upper_bound)
            found.append(f"RPO in records is only known to be {evidence.rpo_records:,}{known}: {why}")
    if objectives.rpo_seconds is not None and evidence.rpo_seconds is None:
        found.append(f"RPO in seconds is not known: {why}")
    if objectives.rto_seconds is not None and evidence.rto_seconds is None:
        found.append("RTO in seconds is not known")
    return found


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.1f}"
