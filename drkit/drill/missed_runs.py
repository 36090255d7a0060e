"""Which scheduled time that passed is made up for now (`missed_policy`). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from apscheduler.triggers.base import BaseTrigger

from drkit.drill.cron import next_times
from drkit.drill.missed_policy import MissedPolicy


def owed(policy: MissedPolicy, passed: Sequence[datetime], now: datetime) -> datetime | None:
    """The time for which a drill is played now; None: none is owed."""
    if policy is MissedPolicy.SKIP or not passed:
        return None
    newest = max(passed)
    late = (now - newest).total_seconds()
    return newest if policy.late_seconds is None or late <= policy.late_seconds else None


def passed_since(times: BaseTrigger, last: datetime | None, now: datetime) -> datetime | None:
    """The first time that passed since the last drill began; None: none did, or no drill was ever played."""
    if last is None:
        return None
    following = next_times(times, last, 1)
    return following[0] if following and following[0] <= now else None
