"""The one writer for people and the one for JSON. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from rich.console import Console

from drkit.cli.wiring.interrupts import held
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


_JSON = re.compile(r"(--output|-o)[ =]?json\b")


@dataclass(slots=True)
class Writer:
    """Where a verb's result goes.

    `console` is stdout for people; `log` is stderr, for progress and remarks in either mode. `lines`: each JSON object
    is one line, errors too. `answered`: the result is written; `wrote`: by any writer of this process.
    """

    mode: OutputMode
    console: Console
    log: Console
    lines: bool = False
    answered: bool = False
    wrote: ClassVar[bool] = False

    @classmethod
    def for_mode(cls, mode: OutputMode, *, lines: bool = False) -> Writer:
        """The writer on this process's stdout and stderr."""
        return cls(mode, Console(highlight=False), Console(stderr=True, highlight=False), lines)

    def emit(self, document: JsonObject, human: Callable[[Console], None]) -> None:
        """Write the result once: `document` as JSON, or `human(console)`. Whole, whatever signal comes meanwhile."""
        with held():
            if self.mode is OutputMode.JSON:
                sys.stdout.write(to_json(document, indent=2) + "\n")
                sys.stdout.flush()
            else:
                human(self.console)
            self.answered = Writer.wrote = True

    def line(self, document: JsonObject) -> None:
        """Write one JSON object as one line (`drkit mirror --output json`)."""
        sys.stdout.write(to_json(document) + "\n")
        sys.stdout.flush()

    def error(self, error: DrkitError) -> None:
        """Say what happened, what it means and what to do; in JSON mode the document on stdout too.

        Not after the result: stdout holds one document.
        """
        self.log.print(f"[bold red]error:[/] {_escape(error.what)}", soft_wrap=True)
        if error.meaning:
            self.log.print(f"  [dim]means:[/] {_escape(error.meaning)}", soft_wrap=True)
        if error.remedy:
            self.log.print(f"  [bold]do:[/] {_escape(error.remedy)}", soft_wrap=True)
        if self.mode is OutputMode.JSON and (self.lines or not self.answered):
            sys.stdout.write(to_json({"error": error_body(error)}, indent=None if self.lines else 2) + "\n")
            sys.stdout.flush()


def _escape(text: str) -> str:
    return text.replace("[", r"\[")


def writer_for(arguments: Sequence[str]) -> Writer:
    """The writer that a command line asks for, before it is understood."""
    mode = OutputMode.JSON if _JSON.search(" ".join(arguments)) else OutputMode.HUMAN
    return Writer.for_mode(mode, lines=bool(arguments) and (arguments[0] == "mirror" or "--watch" in arguments))


def interruption(number: int, meaning: str, remedy: str = "Run the command again") -> DrkitError:
    """The error that a signal ends a command with."""
    if number == signal.SIGTERM:
        return Terminated("ended by SIGTERM", meaning=meaning, remedy=remedy)
    return Interrupted("interrupted by the keyboard", meaning=meaning, remedy=remedy)
