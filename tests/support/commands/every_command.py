"""All commands of drkit, collected from its command line; and which of them a command line runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from typer.main import get_command

from drkit.cli.application import application


@cache
def every_command() -> frozenset[str]:
    """Each verb, and each verb with its subverb: `status`, `link pause`; `audit` is both."""
    return frozenset(_below(get_command(application()), ()))


def command_of(words: Sequence[str]) -> str:
    """The command that these arguments run: the longest that they begin with."""
    begun = (" ".join(words[:length]) for length in (2, 1))
    return next(each for each in begun if each in every_command())


def _below(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    further = getattr(command, "commands", {})
    if path and (not further or command.invoke_without_command):
        yield " ".join(path)
    for name, each in further.items():
        yield from _below(each, (*path, name))
