"""How the help of commands looks: paragraphs fill the terminal, and a flag, which takes no value, has no type."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from typer._click.core import Command  # of the click in Typer: no public name exists
from typer.core import TyperCommand, TyperGroup


class _Helpful(Command):
    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.help = None if self.help is None else reflowed(self.help)

    def get_params(self, ctx: Any) -> Any:
        """Typer's own hook: all parameters, `--help` included."""
        return _without_types_of_flags(super().get_params(ctx))


class HelpfulCommand(_Helpful, TyperCommand):
    """A command with such a help."""


class HelpfulGroup(_Helpful, TyperGroup):
    """A group of commands with such a help."""


def reflowed(text: str) -> str:
    """A docstring with each paragraph on one line (Typer keeps the breaks of its source); lists stay as they are."""
    return "\n\n".join(map(_joined, inspect.cleandoc(text).split("\n\n")))


def _joined(paragraph: str) -> str:
    lines = paragraph.splitlines()
    kept = any(line.startswith((" ", "- ", "* ", "\b", "[")) for line in lines)
    return paragraph if kept else " ".join(lines)


def _without_types_of_flags(params: Iterable[Any]) -> list[Any]:
    """The same, but Typer doesn't say `<bool>` beside a flag, as if it wanted a value."""
    found = list(params)
    for param in found:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return found
