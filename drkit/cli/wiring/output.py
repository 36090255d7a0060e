"""The one writer for people and the one for JSON. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from rich.console import Console

from drkit.model.clock import iso
from drkit.model.errors import DrkitError, error_body

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


@dataclass(frozen=True, slots=True)
class Writer:
    """Where a verb's result goes.

    `console` is stdout for people; `log` is stderr, for progress and remarks in either mode. `lines`: each JSON object
    is one line, errors too.
    """

    mode: OutputMode
    console: Console
    log: Console
    lines: bool = False

    @classmethod
    def for_mode(cls, mode: OutputMode, *, lines: bool = False) -> Writer:
        """The writer on this process's stdout and stderr."""
        return cls(mode, Console(highlight=False), Console(stderr=True, highlight=False), lines)

    def emit(self, document: JsonObject, human: Callable[[Console], None]) -> None:
        """Write the result once: `document` as JSON, or `human(console)`."""
        if self.mode is OutputMode.JSON:
            sys.stdout.write(to_json(document, indent=2) + "\n")
            sys.stdout.flush()
        else:
            human(self.console)

    def line(self, document: JsonObject) -> None:
        """Write one JSON object as one line (`drkit mirror --output json`)."""
        sys.stdout.write(to_json(document) + "\n")
        sys.stdout.flush()

    def error(self, error: DrkitError) -> None:
        """Say what happened, what it means and what to do; in JSON mode the document on stdout too."""
        self.log.print(f"[bold red]error:[/] {_escape(error.what)}", soft_wrap=True)
        if error.meaning:
            self.log.print(f"  [dim]means:[/] {_escape(error.meaning)}", soft_wrap=True)
        if error.remedy:
            self.log.print(f"  [bold]do:[/] {_escape(error.remedy)}", soft_wrap=True)
        if self.mode is OutputMode.JSON:
            sys.stdout.write(to_json({"error": error_body(error)}, indent=None if self.lines else 2) + "\n")
            sys.stdout.flush()


def _escape(text: str) -> str:
    return text.replace("[", r"\[")
