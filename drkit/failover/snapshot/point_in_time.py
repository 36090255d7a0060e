"""Parses a point in time as an operator types it: `--at 04:03`, `-2m`, an ISO-8601 instant.

Pure: the current time and the zone are arguments. The rules are the contract's:

- a bare time is the most recent such time in the zone, today's or yesterday's;
- a local time that the zone repeats (clocks went back) or skips (clocks went forward) is refused
  with both readings named, never guessed;
- a time in the future is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from whenever import (
    SYSTEM_TZ,
    Instant,
    OffsetDateTime,
    PlainDateTime,
    RepeatedTime,
    SkippedTime,
    Time,
    TimeDelta,
    TimeZoneNotFoundError,
    ZonedDateTime,
)

from drkit.model.clock import to_millis
from drkit.model.errors import ConfigError

FORMS = "04:03, 04:03:20, 2026-11-20T04:03 (local), 2026-11-20T04:03:00Z, or -2m"

_RELATIVE = re.compile(r"-(?=\d)((?P<d>\d+)d)?((?P<h>\d+)h)?((?P<m>\d+)m)?((?P<s>\d+(\.\d+)?)s)?")
_BARE_TIME = re.compile(r"(\d{1,2}:\d{2})(:\d{2}(\.\d{1,9})?)?")
_WITH_OFFSET = re.compile(r".*[T ].*(Z|[+-]\d{2}(:?\d{2})?)", re.IGNORECASE)


_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


class TimeBasis(StrEnum):
    """How a moment decides where a group goes."""

    STAMPS = "stamps"  # `--at`: to the records with that timestamp
    COMMITS = "commits"  # `--committed-at`: to the group's committed offset at that time


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time, as typed and as resolved.

    `instant` is UTC; `local` is the same instant written in `timezone` (ISO-8601 with its offset).
    """

    text: str
    instant: datetime
    timezone: str
    local: str
    basis: TimeBasis = TimeBasis.STAMPS

    @property
    def by_commits(self) -> bool:
        """Whether groups go to their committed offsets at that time."""
        return self.basis is TimeBasis.COMMITS

    @property
    def millis(self) -> int:
        """The instant as a Kafka timestamp (ms since the epoch)."""
        return to_millis(self.instant)


def parse_moment(text: str, *, now: datetime, timezone: str | None = None, option: str = "--at") -> Moment:
    """The instant that `text` means at the moment `now` in the zone `timezone` (None: the machine's).

    Raises:
        ConfigError: not a time, an unknown zone, a repeated or skipped local time (both readings are
            named), or a time in the future.
    """
    present = _present(now, timezone)
    written = text.strip()
    if relative := _RELATIVE.fullmatch(written):
        found = _before(present.to_instant(), relative, written, option).round(
            "millisecond", mode="floor"
        )  # as stamps are
    elif _BARE_TIME.fullmatch(written):
        found = _most_recent(_time(written, option), present, timezone, written, option)
    else:
        found = _date_time(written, timezone, option)
    if found > present.to_instant():
        raise ConfigError(
            f"{option} {written} is in the future: {_both(found, present, timezone)}",
            meaning=f"It is {_both(present.to_instant(), present, timezone)} now",
            remedy="Give a time in the past; with --timezone where you mean another zone",
        )
    if found.to_stdlib() < _FIRST:  # Kafka reads -1 and -2 ms as the ends of a log
        raise _too_early(written, option)
    local = _in_zone(found, timezone)
    return Moment(written, found.to_stdlib(), local.tz_id or "local", _written(local))


def _present(now: datetime, timezone: str | None) -> ZonedDateTime:
    try:
        return Instant(now).to_tz(SYSTEM_TZ if timezone is None else timezone)
    except TimeZoneNotFoundError:
        raise ConfigError(
            f"--timezone {timezone}: there is no such time zone", remedy="Give an IANA name, e.g. Europe/Berlin or UTC"
        ) from None


def _in_zone(instant: Instant, timezone: str | None) -> ZonedDateTime:
    return instant.to_tz(SYSTEM_TZ if timezone is None else timezone)


def _before(instant: Instant, match: re.Match[str], written: str, option: str) -> Instant:
    try:
        return instant - _span(match)
    except (ValueError, OverflowError):  # beyond the supported years
        raise _too_early(written, option) from None


def _span(match: re.Match[str]) -> TimeDelta:
    return TimeDelta(
        hours=24 * int(match["d"] or 0) + int(match["h"] or 0),
        minutes=int(match["m"] or 0),
        seconds=float(match["s"] or 0),
    )


def _time(written: str, option: str) -> Time:
    try:
        return Time.parse_iso(written if written[2] == ":" else f"0{written}")
    except ValueError:
        raise _not_a_time(written, option) from None


def _most_recent(time: Time, present: ZonedDateTime, timezone: str | None, written: str, option: str) -> Instant:
    """Today's reading if it isn't in the future, else yesterday's."""
    today = present.date().at(time)
    if _resolve(today, timezone, "earlier").to_instant() > present.to_instant():
        return _exactly(present.date().subtract(days=1).at(time), timezone, written, option)
    return _exactly(today, timezone, written, option)


def _date_time(written: str, timezone: str | None, option: str) -> Instant:
    try:
        if _WITH_OFFSET.fullmatch(written):
            return OffsetDateTime.parse_iso(written).to_instant()
        local = PlainDateTime.parse_iso(written)
    except ValueError:
        raise _not_a_time(written, option) from None
    return _exactly(local, timezone, written, option)


def _exactly(local: PlainDateTime, timezone: str | None, written: str, option: str) -> Instant:
    try:
        return local.assume_tz(SYSTEM_TZ if timezone is None else timezone, disambiguation="raise").to_instant()
    except RepeatedTime:
        what, why = "happened twice", "The clocks went back"
    except SkippedTime:
        what, why = "never happened", "The clocks went forward"
    earlier, later = (_resolve(local, timezone, side) for side in ("earlier", "later"))
    zone = earlier.tz_id or "the machine's zone"
    raise ConfigError(
        f"{option} {written} ({local.format_iso()} in {zone}) {what}: "
        f"it can be read as {_reading(earlier)} or as {_reading(later)}",
        meaning=why,
        remedy="Give one of them as an instant",
    )


def _resolve(local: PlainDateTime, timezone: str | None, side: str) -> ZonedDateTime:
    zone = SYSTEM_TZ if timezone is None else timezone
    if side == "earlier":
        return local.assume_tz(zone, disambiguation="earlier")
    return local.assume_tz(zone, disambiguation="later")


def _reading(local: ZonedDateTime) -> str:
    return f"{_written(local)} ({local.to_instant().format_iso()})"


def _written(local: ZonedDateTime) -> str:
    return local.to_fixed_offset().format_iso()


def _both(instant: Instant, present: ZonedDateTime, timezone: str | None) -> str:
    zone = f" [{present.tz_id}]" if present.tz_id else ""
    plain = instant.round("second", mode="floor")
    try:
        return f"{_written(_in_zone(plain, timezone))}{zone}, {plain.format_iso()}"
    except ValueError:  # the year 10,000 in that zone
        return plain.format_iso()


def _not_a_time(written: str, option: str) -> ConfigError:
    return ConfigError(f"{option} {written!r} is not a time", remedy=f"Write it as {FORMS}")


def _too_early(written: str, option: str) -> ConfigError:
    return ConfigError(
        f"{option} {written} is before 1970", meaning="Kafka's timestamps begin there", remedy="Give a later time"
    )
