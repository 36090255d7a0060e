"""Reads runbooks: their blocks, their commands, and whether the real CLI accepts them.

A runbook's commands are in fenced `sh` blocks (only commands) or `console` blocks (`$ ` before a command, the rest is
output), and in the text as inline code that begins with `drkit`. The word after the language names the block
(```sh dry-run), so that a test can also execute a runbook, block by block.

Variables are those that the runbook itself sets; a test may override them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import typer
from typer._click.exceptions import UsageError  # typer bundles its own click, and exports it nowhere else

from drkit.cli.application import application

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>.*)$")
_INLINE = re.compile(r"`(drkit [^`]+)`")
_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_OPERATORS = frozenset("|&;<>()")
SHELL = ("sh", "console")


class RunbookError(Exception):
    """A runbook can't be parsed; the message begins with file:line."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `line`: its first content line; `name`: "" if it has none."""

    file: Path
    line: int
    language: str
    name: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """One command with its variables replaced. `block`: "" for inline code."""

    file: Path
    line: int
    block: str
    argv: tuple[str, ...]

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.file.name}:{self.line}"


@dataclass(frozen=True, slots=True)
class Ran:
    """An executed command of a runbook."""

    command: Command
    done: subprocess.CompletedProcess[str]


@dataclass
class Runbook:
    """A parsed runbook; `variables`: those that it sets and those of the caller; `exported`: some of them."""

    file: Path
    blocks: list[Block] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)

    def block(self, name: str) -> Block:
        """The block with this name."""
        found = [block for block in self.blocks if block.name == name]
        if len(found) != 1:
            raise KeyError(f"{self.file.name} has {len(found)} blocks {name!r}")
        return found[0]

    def of_drkit(self) -> list[Command]:
        """The commands that call drkit."""
        return [command for command in self.commands if command.argv[0] == "drkit"]


def read_runbook(file: Path, given: Mapping[str, str] | None = None) -> Runbook:
    """Read a runbook.

    Raises:
        RunbookError: an unclosed fence, a command that a shell would not accept, an unknown variable.
    """
    book = Runbook(file, variables=dict(given or {}))
    lines = file.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        if opening is None:
            for text in _INLINE.findall(lines[at]):
                book.commands += _commands(book, at + 1, "", text)
            at += 1
            continue
        end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == "```"), None)
        if end is None:
            raise RunbookError(f"{file.name}:{at + 1}: the block is not closed")
        language, _, name = opening["info"].strip().partition(" ")
        indent = len(opening["indent"])
        block = Block(file, at + 2, language, name.strip(), tuple(line[indent:] for line in lines[at + 1 : end]))
        book.blocks.append(block)
        if language in SHELL:
            for number, text in _logical_lines(block):
                book.commands += _commands(book, number, block.name, text)
        at = end + 1
    return book


def _logical_lines(block: Block) -> list[tuple[int, str]]:
    """Commands with their continuation lines joined, and the line on which each begins."""
    found: list[tuple[int, str]] = []
    pending: tuple[int, str] | None = None
    for number, raw in enumerate(block.lines, block.line):
        line = raw
        if pending is None:
            if block.language == "console":
                if not raw.startswith("$ "):
                    continue
                line = raw[2:]
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            pending = (number, "")
        elif block.language == "console":
            line = raw.removeprefix("> ")
        if line.rstrip().endswith("\\"):
            pending = (pending[0], pending[1] + line.rstrip()[:-1] + " ")
            continue
        found.append((pending[0], pending[1] + line))
        pending = None
    if pending is not None:
        raise RunbookError(f"{block.file.name}:{pending[0]}: the last line continues, and there is no next one")
    return found


def _commands(book: Runbook, line: int, block: str, text: str) -> list[Command]:
    where = f"{book.file.name}:{line}"
    if "$(" in text or ("'" in text and "$" in text):
        raise RunbookError(f"{where}: write it without $(…) and without a variable beside single quotes: {text}")
    assignment = _ASSIGNMENT.fullmatch(text.strip())
    try:
        if assignment is not None:
            if text.strip().startswith("export "):
                book.exported.add(assignment[1])
            values = shlex.split(_filled(book, where, assignment[2]), comments=True)
            if len(values) > 1:
                raise RunbookError(f"{where}: a value with spaces needs quotes: {text}")
            book.variables.setdefault(assignment[1], values[0] if values else "")
            return []
        lexer = shlex.shlex(_filled(book, where, text), posix=True, punctuation_chars="".join(_OPERATORS))
        lexer.whitespace_split = True
        tokens = list(lexer)
    except ValueError as error:
        raise RunbookError(f"{where}: a shell would not take this ({error}): {text}") from None
    found: list[Command] = []
    argv: list[str] = []
    skip = False
    for token in [*tokens, ";"]:
        if set(token) <= _OPERATORS:
            skip = token[0] in "<>"
            if not skip and argv:
                found.append(Command(book.file, line, block, tuple(argv)))
                argv = []
        elif skip:
            skip = False
        else:
            argv.append(token)
    return found


def _filled(book: Runbook, where: str, text: str) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in book.variables:
            raise RunbookError(f"{where}: ${name} is used and never set")
        return book.variables[name]

    return _VARIABLE.sub(value, text)


def run_block(book: Runbook, name: str, cwd: Path) -> list[Ran]:
    """Execute the drkit commands of a block, one after the other, with the runbook's exported variables."""
    environment = {**os.environ, **{key: book.variables[key] for key in book.exported}}
    block = book.block(name)
    lines = range(block.line, block.line + len(block.lines))
    return [
        Ran(
            command,
            subprocess.run(
                [sys.executable, "-m", *command.argv],
                env=environment,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            ),
        )
        for command in book.of_drkit()
        if command.line in lines
    ]


def parse(argv: tuple[str, ...]) -> Any:
    """Parse `drkit …` with the CLI's own parser, without executing it; returns the innermost context.

    Raises:
        RunbookError: no such command, no such option, a missing or wrong value.
    """
    name, *rest = argv
    if name != "drkit":
        raise ValueError(f"{name} is not drkit")
    try:
        return _parsed(rest)
    except UsageError as error:
        raise RunbookError(f"{' '.join(argv)}: {error.format_message()}") from None


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
