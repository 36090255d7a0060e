"""`--log-format`: what goes to stderr, as text for people or as one JSON object a line for programs.

Each event has `at`, `level`, `logger`, `message`, and `link`, `topic`, `partition`, `run`: null where it is about none.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import IO, Annotated, Any

import typer
from rich.console import Console

from drkit.cli.output.printable import PrintableOnly, printable
from drkit.model.clock import iso, now
from drkit.model.errors import DrkitError, error_body
from drkit.model.process.log_context import log_context
from drkit.model.topology import Link, LinkId, TopicPartition

ABOUT = ("link", "topic", "partition", "run")
_WIDE = 100_000


class LogFormat(StrEnum):
    """How events are written to stderr."""

    TEXT = "text"
    JSON = "json"


LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="On stderr: text for people, or one JSON object a line.")
]


def event_line(
    level: str, logger: str, message: str, about: Mapping[str, Any], at: datetime | None = None, **more: Any
) -> str:
    """One event as a line of JSON, without its end. Nothing in it is a control character."""
    said = {key: value for key, value in about.items() if value is not None}
    where = dict.fromkeys(ABOUT) | log_context()._asdict() | said
    event = {"at": iso(at or now()), "level": level, "logger": logger, "message": message} | where | more
    return json.dumps(event, default=str)


class JsonLines(logging.Formatter):
    """A log record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        more: dict[str, Any] = dict(getattr(record, "numbers", {}))
        if record.exc_info:
            more["trace"] = self.formatException(record.exc_info)
        at = datetime.fromtimestamp(record.created, UTC)
        return event_line(record.levelname.lower(), record.name, record.getMessage(), context_of(record), at, **more)


class TextLines(logging.Formatter):
    """A log record as a line of text: when, how grave, what."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = iso(datetime.fromtimestamp(record.created, UTC))
        text = f"{at} {record.levelname:<7} {printable(' '.join(record.getMessage().split()))}"
        return f"{text}\n{printable(self.formatException(record.exc_info))}" if record.exc_info else text


def context_of(record: logging.LogRecord) -> dict[str, Any]:
    """What a record is about: what its writer says in `extra`, else the link and the partition that its words name."""
    found: dict[str, Any] = {key: getattr(record, key) for key in ABOUT if getattr(record, key, None) is not None}
    for each in record.args if isinstance(record.args, tuple) else ():
        if isinstance(each, Link | LinkId):
            found.setdefault("link", str(each.id if isinstance(each, Link) else each))
        elif isinstance(each, TopicPartition):
            found.setdefault("topic", each.topic)
            found.setdefault("partition", each.partition)
    return found


class EventLines:
    """A stream for remarks: each line that is written becomes an event."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._begun = ""

    def write(self, text: str) -> int:
        """Write what ends; keep what doesn't."""
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            if line.strip():
                self._stream.write(event_line("info", "drkit", line.strip(), {}) + "\n")
        return len(text)

    def forward(self, line: str, **more: Any) -> None:
        """Another process's line: an event gets more keys, whatever else becomes one."""
        try:
            event = {**json.loads(line), **more}
        except (ValueError, TypeError):
            event = json.loads(event_line("info", "drkit", line.strip(), {}, **more))
        self._stream.write(json.dumps(event) + "\n")
        self._stream.flush()

    def error(self, error: DrkitError) -> None:
        """An error is one event."""
        body = error_body(error)
        more = {key: value for key, value in body.items() if key not in {"what", *ABOUT}}
        self._stream.write(event_line("error", "drkit", error.what, {}, **more) + "\n")
        self._stream.flush()

    def flush(self) -> None:
        """Write out what can be written."""
        self._stream.flush()

    def isatty(self) -> bool:
        """It isn't one."""
        return False


def event_console(stream: IO[str]) -> tuple[Console, EventLines]:
    """A console for remarks whose lines become events."""
    lines = EventLines(stream)
    console = Console(file=lines, width=_WIDE, highlight=False, no_color=True, force_terminal=False)  # type: ignore[arg-type]  # what Rich uses of a file
    console.push_render_hook(PrintableOnly())
    return console, lines


@contextmanager
def logging_to(console: Console, log_format: LogFormat, stream: IO[str], *, verbose: bool) -> Iterator[None]:
    """Send drkit's log to stderr: at a terminal as Rich shows it, else a line for each event."""
    from rich.logging import RichHandler

    handler: logging.Handler
    if log_format is LogFormat.TEXT and console.is_terminal:
        handler = RichHandler(console=console, show_path=verbose, markup=False)
    else:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(JsonLines() if log_format is LogFormat.JSON else TextLines())
    drkit_log = logging.getLogger("drkit")
    before = drkit_log.level
    drkit_log.addHandler(handler)
    drkit_log.setLevel(logging.DEBUG if verbose else logging.INFO)
    try:
        yield
    finally:
        drkit_log.removeHandler(handler)
        drkit_log.setLevel(before)
