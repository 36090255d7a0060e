"""Options that take a point in time, for every verb that has one."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from drkit.failover.plan.point_in_time import FORMS, Moment, TimeBasis, parse_moment
from drkit.model.clock import now
from drkit.model.errors import ConfigError

AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        "--to-datetime",
        metavar="TIME",
        help=f"Put groups where the log was at this time, never past unread records: {FORMS}.",
    ),
]
CommittedAtOption = Annotated[
    str | None,
    typer.Option(
        "--committed-at",
        metavar="TIME",
        help="Put each group at its committed offset at this time (as the mirror captured it), translated.",
    ),
]
TimezoneOption = Annotated[
    str | None,
    typer.Option("--timezone", metavar="ZONE", help="IANA zone of local times (default: the machine's)."),
]


def either_moment(at: str | None, committed_at: str | None, timezone: str | None) -> Moment | None:
    """The moment of `--at` or of `--committed-at`; None where neither was given.

    Raises:
        ConfigError: both were given, or it is not a valid time.
    """
    if at is not None and committed_at is not None:
        raise ConfigError(
            "--at and --committed-at exclude each other",
            meaning="--at uses the records' timestamps, --committed-at the offsets that groups had committed by then",
            remedy="Give one of them",
        )
    found = moment(committed_at, timezone, option="--committed-at")
    return moment(at, timezone) if found is None else replace(found, basis=TimeBasis.COMMITS)


def moment(text: str | None, timezone: str | None, *, option: str = "--at") -> Moment | None:
    """The instant that an option's text means now; None where it wasn't given.

    Raises:
        ConfigError: not a time, in the future, repeated or skipped in its zone.
    """
    return None if text is None else parse_moment(text, now=now(), timezone=timezone, option=option)
