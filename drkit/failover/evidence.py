"""What a run would lose, did lose, and how long it took. Pure.

What isn't known is None. The loss is a lower bound while the source is gone: it rests on the last
that the mirror saw of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from drkit.config import Objectives
from drkit.failover.machine import Facts, Loss, TopicLoss
from drkit.failover.world import PartitionView


@dataclass(frozen=True, slots=True)
class Evidence:
    """The numbers a run ends with; the contract's `evidence`."""

    rpo_records: int | None
    rpo_seconds: float | None
    rpo_basis: str
    observed_at: datetime | None
    rto_seconds: float | None
    fenced: bool | None


def loss_at(partitions: Iterable[PartitionView], moment: datetime) -> Loss:
    """What of these partitions isn't on the target, and its age at `moment` (the fence).

    A partition that lags without a first sighting of its lag was caught up when it was last looked
    at; its oldest missing record came after that, so the time since is an upper bound of the age.
    """
    by_topic: dict[str, list[PartitionView]] = defaultdict(list)
    for view in partitions:
        by_topic[view.topic].append(view)
    topics = tuple(_of_topic(topic, views, moment) for topic, views in sorted(by_topic.items()))
    unknown = [topic.topic for topic in topics if topic.records is None]
    seen = [
        view.watermark.observed_at
        for views in by_topic.values()
        for view in views
        if view.watermark is not None and view.source_end is None
    ]
    live = any(view.source_end is not None for views in by_topic.values() for view in views)
    reason = f"the mirror recorded nothing about {', '.join(unknown)}" if unknown else None
    if not topics:
        reason = "the link has no partitions yet"
    return Loss(
        records=_sum([topic.records for topic in topics]) if topics else None,
        seconds=_max([topic.seconds for topic in topics]) if topics else None,
        observed_at=min(seen, default=moment if live else None),
        by_topic=topics,
        reason=reason,
    )


def evidence_of(facts: Facts, since: datetime | None) -> Evidence:
    """The evidence that a run's facts give.

    `rto_seconds` runs from `since` to the verification. That is the run's start for a failover; for a
    failback the moment the live cluster's writers had to be quiet: until then it went on serving.
    """
    loss = facts.loss
    rto = None
    if facts.verified_at is not None and since is not None:
        rto = max(0.0, (facts.verified_at - since).total_seconds())
    return Evidence(
        rpo_records=None if loss is None else loss.records,
        rpo_seconds=None if loss is None else loss.seconds,
        rpo_basis="observed" if loss is None else loss.basis,
        observed_at=None if loss is None else loss.observed_at,
        rto_seconds=rto,
        fenced=facts.fenced,
    )


def missed_objectives(evidence: Evidence, objectives: Objectives) -> list[str]:
    """Objectives of the configuration that the numbers show to be missed, one sentence each."""
    pairs = (
        ("RPO", "records", evidence.rpo_records, objectives.rpo_records),
        ("RPO", "seconds", evidence.rpo_seconds, objectives.rpo_seconds),
        ("RTO", "seconds", evidence.rto_seconds, objectives.rto_seconds),
    )
    return [
        f"{name} {_number(value)} {unit}, objective {_number(limit)}"
        for name, unit, value, limit in pairs
        if value is not None and limit is not None and value > limit
    ]


def unproven_objectives(evidence: Evidence, objectives: Objectives) -> list[str]:
    """Objectives of the configuration that can't be judged because the number isn't known."""
    pairs = (
        ("RPO in records", evidence.rpo_records, objectives.rpo_records),
        ("RPO in seconds", evidence.rpo_seconds, objectives.rpo_seconds),
        ("RTO in seconds", evidence.rto_seconds, objectives.rto_seconds),
    )
    return [f"{name} is not known" for name, value, limit in pairs if limit is not None and value is None]


def _of_topic(topic: str, views: Sequence[PartitionView], moment: datetime) -> TopicLoss:
    lags = [view.lag for view in views]
    ages = [_age(view, lag, moment) for view, lag in zip(views, lags, strict=True)]
    return TopicLoss(topic, _sum(lags), _max(ages))


def _age(view: PartitionView, lag: int | None, moment: datetime) -> float | None:
    if lag == 0:
        return 0.0
    if lag is None or view.watermark is None:
        return None
    since = view.watermark.behind_since or view.watermark.observed_at
    return max(0.0, (moment - since).total_seconds())


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _max(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known, default=0.0) if len(known) == len(values) else None


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.1f}"
