"""The one writer for people and the one for JSON. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import io
import json
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import IO, Any, ClassVar, cast

from rich.console import Console
from rich.text import Text

from drkit.cli.output.log_format import EventLines, LogFormat, event_console, logging_to
from drkit.cli.output.printable import PrintableOnly
from drkit.cli.process.interrupts import deferred
from drkit.model.clock import iso
from drkit.model.errors import DrkitError, Interrupted, Terminated, error_body

JsonObject = Mapping[str, Any]


class OutputMode(StrEnum):
    """`--output`: for people, or exactly one JSON document on stdout."""

    HUMAN = "human"
    JSON = "json"


def to_json(document: JsonObject, *, indent: int | None = None) -> str:
    """JSON text of a result: instants as ISO-8601 `Z`, enums by value, sets sorted."""
    return json.dumps(document, default=_plain, ensure_ascii=False, indent=indent)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    return str(value)


_READ_BY_PEOPLE = 200_000
"""The characters up to which a document is indented: only Python's slow encoder can, in seconds for a site."""

_JSON = re.compile(r"(--output|-o)[ =]?json\b")
_JSON_LOG = re.compile(r"--log-format[ =]json\b")


@dataclass(slots=True)
class OutputWriter:
    """Where a verb's result goes.

    `console` is stdout for people; `log` is stderr, for progress and remarks in either mode, in `log_format`; `events`
    gets errors if that is JSON. `lines`: each JSON object is one line, errors too. `emitted`: the result is
    written; `wrote`: by any writer of this process.
    """

    mode: OutputMode
    console: Console
    log: Console
    lines: bool = False
    emitted: bool = False
    log_format: LogFormat = LogFormat.TEXT
    events: EventLines | None = None
    wrote: ClassVar[bool] = False

    @classmethod
    def for_mode(cls, mode: OutputMode, *, lines: bool = False) -> OutputWriter:
        """The writer on this process's stdout and stderr."""
        if mode is OutputMode.HUMAN and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that isn't UTF-8 lacks ▶
        console = Console(highlight=False)
        log = Console(file=cast("IO[str]", _StderrStream()), highlight=False)
        for each in (console, log):
            each.push_render_hook(PrintableOnly())
        return cls(mode, console, log, lines)

    def log_as(self, log_format: LogFormat) -> OutputWriter:
        """Write remarks, and errors, in this format from now on; returns itself."""
        self.log_format = log_format
        if log_format is LogFormat.JSON and self.events is None:
            self.log, self.events = event_console(cast("IO[str]", _StderrStream()))
        return self

    def logging(self, *, verbose: bool) -> AbstractContextManager[None]:
        """In the block drkit's log goes to stderr, too."""
        return logging_to(self.log, self.log_format, cast("IO[str]", _StderrStream()), verbose=verbose)

    def emit(self, document: JsonObject, human: Callable[[Console], None]) -> None:
        """Write the result once: `document` as JSON, or `human(console)`. Whole, whatever signal comes meanwhile."""
        with deferred():
            if self.mode is OutputMode.JSON:
                _write_json(document, indent=2)
            else:
                human(self.console)
            self.emitted = OutputWriter.wrote = True

    def line(self, document: JsonObject) -> None:
        """Write one JSON object as one line (`drkit mirror --output json`)."""
        _write_json(document)

    def error(self, error: DrkitError) -> None:
        """Write what happened, what it means and what to do; in JSON mode the document on stdout too.

        Not after the result: stdout holds one document.
        """
        if self.events is not None:
            self.events.error(error)
        said = (("error:", "bold red", error.what), ("  means:", "dim", error.meaning), ("  do:", "bold", error.remedy))
        for word, style, text in said:
            if text and self.events is None:
                self.log.print(Text.assemble((word, style), " ", text), soft_wrap=True)
        if self.mode is OutputMode.JSON and (self.lines or not self.emitted):
            with suppress(OSError):  # what is told may be that stdout takes nothing
                _write_json({"error": error_body(error)}, indent=None if self.lines else 2)


class _StderrStream:
    """stderr. Writes that fail (a full disk, a closed pipe) are dropped: no command fails for remarks."""

    def write(self, text: str) -> int:
        """Write what can be written."""
        with suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Write out what can be written."""
        with suppress(OSError):
            sys.stderr.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


def _write_json(document: JsonObject, *, indent: int | None = None) -> None:
    text = to_json(document)
    if len(text) > _READ_BY_PEOPLE:
        indent = None
    if indent is not None:
        text = to_json(document, indent=indent)
    try:
        sys.stdout.write(text + "\n")
    except UnicodeEncodeError:  # another locale's encoding, or an argument that is no text: JSON has escapes
        sys.stdout.write(json.dumps(json.loads(text), indent=indent) + "\n")
    sys.stdout.flush()


def writer_for(arguments: Sequence[str]) -> OutputWriter:
    """The writer that a command line asks for, before it is understood."""
    mode = OutputMode.JSON if _JSON.search(" ".join(arguments)) else OutputMode.HUMAN
    writer = OutputWriter.for_mode(mode, lines=bool(arguments) and (arguments[0] == "mirror" or "--watch" in arguments))
    writer.log_as(LogFormat.JSON if _JSON_LOG.search(" ".join(arguments)) else LogFormat.TEXT)
    return writer


def interruption(number: int, meaning: str, remedy: str = "Run the command again") -> DrkitError:
    """The error that a signal ends a command with."""
    if number == signal.SIGTERM:
        return Terminated("ended by SIGTERM", meaning=meaning, remedy=remedy)
    return Interrupted("interrupted by the keyboard", meaning=meaning, remedy=remedy)
