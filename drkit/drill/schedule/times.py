"""When scheduled drills begin: cron expressions with cron's own meaning, and blackouts in which none does.

APScheduler's `from_crontab` differs from cron in two ways that would run a drill on the wrong day: it counts weekdays
from Monday = 0 (cron: Sunday = 0 or 7), and if both the day of the month and the weekday are restricted, it requires
both (cron: either).

A calendar of blackouts:

    [[blackout]]
    from = 2026-12-19               # a date means its first moment in `from`, its last in `until`
    until = 2027-01-06
    reason = "year-end freeze"

    [[blackout]]
    cron = "0 18 28-31 * *"         # recurring: from each of these moments on, so many hours
    hours = 36
    reason = "end of the month"

Dates and times are in the schedule's time zone, unless they have their own offset.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from tzlocal import get_localzone

from drkit.model.errors import ConfigError

# --- cron expressions ----------------------------------------------------------------------------------------------

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


# --- blackouts -----------------------------------------------------------------------------------------------------

_KEYS = ({"from", "until", "reason"}, {"cron", "hours", "reason"})
_REMEDY = "A [[blackout]] has `from`, `until` and `reason`, or `cron`, `hours` and `reason` (docs/drills.md)"
_MOST_HOURS = 24 * 366
_MOST_LOOKS = 1_000
"""How many times of a trigger are tried to find one outside of the blackouts."""


@dataclass(frozen=True, slots=True)
class Blackout:
    """A time span, [begins, ends), and the reason."""

    begins: datetime
    ends: datetime
    reason: str


class _Spans(Protocol):
    def covering(self, at: datetime) -> Blackout | None: ...


@dataclass(frozen=True, slots=True)
class _SingleBlackout:
    blackout: Blackout

    def covering(self, at: datetime) -> Blackout | None:
        return self.blackout if self.blackout.begins <= at < self.blackout.ends else None


@dataclass(frozen=True, slots=True)
class _RecurringBlackout:
    begins: BaseTrigger
    lasts: timedelta
    reason: str
    zone: ZoneInfo

    def covering(self, at: datetime) -> Blackout | None:
        """The newest span that has begun: it ends last."""
        found = None
        for fired in _fired(self.begins, (at.astimezone(UTC) - self.lasts).astimezone(self.zone), at):
            begun = fired.astimezone(UTC)
            if at < begun + self.lasts:
                found = Blackout(begun, begun + self.lasts, self.reason)
        return found


class Blackouts:
    """The blackouts of all calendars."""

    def __init__(self, spans: Sequence[_Spans] = ()) -> None:
        self._spans = tuple(spans)

    def covering(self, at: datetime) -> Blackout | None:
        """The blackout at a moment, the one that ends last; None: a drill may begin."""
        found = [span for each in self._spans if (span := each.covering(at)) is not None]
        return max(found, key=lambda span: span.ends, default=None)

    def outside(self, times: BaseTrigger, after: datetime, count: int) -> list[datetime]:
        """The next times of a trigger outside of the blackouts (fewer if there are hardly any)."""
        found: list[datetime] = []
        at = after
        for _ in range(_MOST_LOOKS):
            following = next_times(times, at, 1)
            if not following or len(found) == count:
                break
            blackout = self.covering(following[0])
            if blackout is None:
                found += following
                at = following[0] + timedelta(microseconds=1)
            else:
                at = blackout.ends.astimezone(after.tzinfo)
        return found


def read_calendars(files: Iterable[Path], zone: ZoneInfo) -> Blackouts:
    """The blackouts of these files.

    Raises:
        ConfigError: one can't be read, or is wrong; the message names the file and the entry.
    """
    return Blackouts([span for file in files for span in _read(file, zone)])


def _read(file: Path, zone: ZoneInfo) -> Iterator[_Spans]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--calendar: {file} can't be read: {error}", remedy=_REMEDY) from error
    entries = document.pop("blackout", None)
    if document or not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        unknown = ", ".join(sorted(document)) or "no [[blackout]]"
        raise ConfigError(f"--calendar: {file} has {unknown}", remedy=_REMEDY)
    for number, entry in enumerate(entries, 1):
        try:
            yield _span(entry, zone)
        except (ValueError, ConfigError) as error:
            what = error.what if isinstance(error, ConfigError) else str(error)
            raise ConfigError(f"--calendar: {file}, blackout {number}: {what}", remedy=_REMEDY) from error


def _span(entry: dict[str, Any], zone: ZoneInfo) -> _Spans:
    """The spans of an entry. Raises ValueError or ConfigError if it is wrong."""
    if set(entry) not in _KEYS:
        raise ValueError(f"it has {', '.join(sorted(entry)) or 'nothing'}")
    if not isinstance(entry["reason"], str) or not entry["reason"].strip():
        raise ValueError("`reason` is empty")
    if "cron" in entry:
        hours = entry["hours"]
        if not isinstance(hours, int | float) or isinstance(hours, bool) or not 0 < hours <= _MOST_HOURS:
            raise ValueError(f"`hours` is {hours!r}, not a number of hours up to a year")
        return _RecurringBlackout(trigger(str(entry["cron"]), zone), timedelta(hours=hours), entry["reason"], zone)
    begins = _moment("from", entry["from"], zone, last=False)
    ends = _moment("until", entry["until"], zone, last=True)
    if ends <= begins:
        raise ValueError(f"it ends ({entry['until']}) before it begins ({entry['from']})")
    return _SingleBlackout(Blackout(begins, ends, entry["reason"]))


def _moment(name: str, value: object, zone: ZoneInfo, *, last: bool) -> datetime:
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=zone)
    if isinstance(value, date):
        return datetime.combine(value + timedelta(days=1 if last else 0), time(), tzinfo=zone)
    raise ValueError(f"`{name}` is {value!r}, neither a date nor a date with a time")


def _fired(times: BaseTrigger, after: datetime, until: datetime) -> Iterator[datetime]:
    """The times of a trigger from one moment to another, including both."""
    at = after
    while following := next_times(times, at, 1):
        if following[0] > until:
            return
        yield following[0]
        at = following[0] + timedelta(microseconds=1)
