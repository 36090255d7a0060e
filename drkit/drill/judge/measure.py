"""Measures RPO and RTO as the clients saw them, of each link and of all links together. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drkit.drill.judge.history import AttemptOutcome, ClientHistory, HistoryPart
from drkit.drill.judge.result import Measurements
from drkit.model.totals import greatest, total


def measure(history: ClientHistory, *, disaster_at: float | None, moved: bool) -> Measurements:
    """Measure a history.

    Args:
        history: the clients' history.
        disaster_at: the time of the disaster (CLOCK_MONOTONIC seconds), or None if there was none.
        moved: whether a failover succeeded and clients were moved: otherwise there is no RTO.

    Returns:
        None for what couldn't be measured: there is no RPO where the source acknowledged nothing. `rpo_seconds` is 0
        where nothing is missing; `acknowledged` and `unknown` count the attempts on both clusters.
    """
    sure = not {HistoryPart.ATTEMPTS, HistoryPart.LANDED} & history.incomplete.keys()
    on_target = history.landed_records()
    promised = list(history.acked(history.source))
    sure = sure and bool(promised)  # without acknowledged records no loss was measured
    missing = [attempt for attempt in promised if attempt.record not in on_target]
    rpo_seconds: float | None = None
    if sure and not missing:
        rpo_seconds = 0.0
    elif sure and disaster_at is not None:
        rpo_seconds = max(0.0, disaster_at - min(attempt.sent_at for attempt in missing))
    first = None
    if disaster_at is not None:
        first = min((p.at for p in history.polls if p.cluster == history.target and p.at >= disaster_at), default=None)
    read_on_source = {poll.record for poll in history.polls if poll.cluster == history.source}
    read_on_target = {poll.record for poll in history.polls if poll.cluster == history.target}
    return Measurements(
        rpo_records=len(missing) if sure else None,
        rpo_seconds=rpo_seconds,
        rto_seconds=first - disaster_at if moved and first is not None and disaster_at is not None else None,
        acknowledged=sum(attempt.outcome is AttemptOutcome.ACKED for attempt in history.attempts),
        unknown=sum(attempt.outcome is AttemptOutcome.UNKNOWN for attempt in history.attempts),
        landed=None if HistoryPart.LANDED in history.incomplete else len(history.landed),
        reread=None if HistoryPart.POLLS in history.incomplete else len((read_on_source & read_on_target) - {None}),
    )


def measure_site(measured: Mapping[str, Measurements], *, moving: Sequence[str]) -> Measurements:
    """The measurements of all links together: the sum of records, the greatest of seconds.

    Args:
        measured: by link.
        moving: the links whose clients move to the target: the RTO is the greatest of theirs.
    """
    every = measured.values()
    return Measurements(
        rpo_records=total(one.rpo_records for one in every),
        rpo_seconds=greatest(one.rpo_seconds for one in every),
        rto_seconds=greatest(measured[link].rto_seconds for link in moving),
        acknowledged=sum(one.acknowledged for one in every),
        unknown=sum(one.unknown for one in every),
        landed=total(one.landed for one in every),
        reread=total(one.reread for one in every),
    )
