"""Options that take a point in time, for every verb that has one."""

from __future__ import annotations

from typing import Annotated

import typer

from drkit.failover.when import FORMS, Moment, parse_moment
from drkit.model.clock import now

AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        "--to-datetime",
        metavar="TIME",
        help=f"Put groups where the log was at this time, never past what was unread: {FORMS}.",
    ),
]
TimezoneOption = Annotated[
    str | None,
    typer.Option("--timezone", metavar="ZONE", help="IANA zone of local times (default: the machine's)."),
]


def moment(text: str | None, timezone: str | None, *, option: str = "--at") -> Moment | None:
    """The instant that an option's text means now; None where it wasn't given.

    Raises:
        ConfigError: not a time, in the future, repeated or skipped in its zone.
    """
    return None if text is None else parse_moment(text, now=now(), timezone=timezone, option=option)
