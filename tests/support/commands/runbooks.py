"""Executes the blocks of runbooks, and asks whether the real CLI accepts their commands."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer
from typer._click.exceptions import UsageError  # typer bundles its own click, and exports it nowhere else

from drkit.cli.application import application
from drkit.drill.runbook import Command, Runbook


class NotAccepted(Exception):
    """The CLI refuses a command."""


@dataclass(frozen=True, slots=True)
class Ran:
    """An executed command of a runbook."""

    command: Command
    done: subprocess.CompletedProcess[str]


def run_block(book: Runbook, name: str, cwd: Path) -> list[Ran]:
    """Execute the drkit commands of a block, one after the other, with the runbook's exported variables."""
    return [
        Ran(
            command,
            subprocess.run(
                [sys.executable, "-m", *command.argv],
                env={**os.environ, **book.environment},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            ),
        )
        for command in book.of_block(name)
    ]


def parse(argv: tuple[str, ...]) -> Any:
    """Parse `drkit …` with the CLI's own parser, without executing it; returns the innermost context.

    Raises:
        NotAccepted: no such command, no such option, a missing or wrong value.
    """
    name, *rest = argv
    if name != "drkit":
        raise ValueError(f"{name} is not drkit")
    try:
        return _parsed(rest)
    except UsageError as error:
        raise NotAccepted(f"{' '.join(argv)}: {error.format_message()}") from None


@cache
def _parser() -> Any:
    return typer.main.get_command(application())


def _parsed(rest: list[str]) -> Any:
    context = _parser().make_context("drkit", rest)
    while hasattr(context.command, "resolve_command"):
        left = [*context._protected_args, *context.args]  # a group's unconsumed arguments
        if not left and context.command.invoke_without_command:
            break
        verb, command, rest = context.command.resolve_command(context, left)
        context = command.make_context(verb, rest, parent=context)
    return context
