"""Converts cron expressions to APScheduler triggers, with cron's own meaning.

APScheduler's `from_crontab` differs from cron in two ways that would run a drill on the wrong day: it counts weekdays
from Monday = 0 (cron: Sunday = 0 or 7), and if both the day of the month and the weekday are restricted, it requires
both (cron: either).
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from tzlocal import get_localzone

from drkit.model.errors import ConfigError

MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS: Final = ("minute", "hour", "day of the month", "month", "day of the week")
REMEDY: Final = (
    'Write five fields: minute, hour, day of the month, month, day of the week; "0 4 * * 1" is Monday at 04:00'
)
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def zone(name: str | None) -> ZoneInfo:
    """The time zone of this name; None: the machine's.

    Raises:
        ConfigError: there is no such zone.
    """
    try:
        return ZoneInfo(name or str(get_localzone()))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"--timezone: there is no time zone {name!r}", remedy="Give a name such as UTC or Europe/Vienna"
        ) from None


def trigger(expression: str, timezone: ZoneInfo) -> BaseTrigger:
    """The trigger of a cron expression.

    Raises:
        ConfigError: it is not valid, or it never fires; the message names the field.
    """
    fields = MACROS.get(expression.strip().lower(), expression).split()
    if len(fields) != len(FIELDS):
        raise ConfigError(f"--cron: {expression!r} has {len(fields)} fields, not five", remedy=REMEDY)
    minute, hour, day, month, weekday = fields
    days = _weekdays(weekday)
    common = {"minute": minute, "hour": hour, "month": month}
    for name, argument, value in zip(
        FIELDS, ("minute", "hour", "day", "month", "day_of_week"), (minute, hour, day, month, days), strict=True
    ):
        _check(name, argument, value, timezone)
    if "*" in (day[0], weekday[0]):
        found: BaseTrigger = CronTrigger(**common, day=day, day_of_week=days, timezone=timezone)
    else:
        found = OrTrigger(
            [
                CronTrigger(**common, day=day, timezone=timezone),
                CronTrigger(**common, day_of_week=days, timezone=timezone),
            ]
        )
    if found.get_next_fire_time(None, datetime.now(timezone)) is None:
        raise ConfigError(f"--cron: {expression!r} never fires: no such day exists", remedy=REMEDY)
    return found


def next_times(found: BaseTrigger, after: datetime, count: int) -> list[datetime]:
    """The next `count` times at which a trigger fires, strictly ascending (fewer if it ends)."""
    times: list[datetime] = []
    previous: datetime | None = None
    at = after
    while len(times) < count:
        following: datetime | None = found.get_next_fire_time(previous, at)
        if following is None:
            break
        times.append(following)
        previous = at = following
    return times


def _check(name: str, argument: str, value: str, timezone: ZoneInfo) -> None:
    try:
        CronTrigger(**{argument: value}, timezone=timezone)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"--cron: {value!r} is not a {name}: {error}", remedy=REMEDY) from None


def _weekdays(field: str) -> str:
    """Cron's weekday field for APScheduler: numbers become names, ranges become lists."""
    return ",".join(_weekday_part(part.lower()) for part in field.split(","))


def _weekday_part(part: str) -> str:
    match = re.fullmatch(r"(\*|[0-7]|[a-z]{3})(?:-([0-7]|[a-z]{3}))?(?:/([1-7]))?", part)
    if match is None:
        raise ConfigError(f"--cron: {part!r} is not a day of the week", remedy=REMEDY)
    first, last, step = match.groups()
    if first == "*" and last is None:
        if step is None:
            return "*"
        first, last = "0", "6"
    start = _number(first)
    end = _number(last) if last else (6 if step else start)
    if end < start:
        if end != 0:
            raise ConfigError(f"--cron: {part!r} runs backwards", remedy=REMEDY)
        end = 7  # `fri-sun`: a week may end with its Sunday
    return ",".join(_WEEKDAYS[day % 7] for day in range(start, end + 1, int(step or 1)))


def _number(day: str) -> int:
    if day.isdigit():
        return int(day)
    if day not in _WEEKDAYS:
        raise ConfigError(f"--cron: {day!r} is not a day of the week", remedy=REMEDY)
    return _WEEKDAYS.index(day)
