"""Reads a runbook: its blocks and their commands, as a person who pastes them would execute them.

A runbook's commands are in fenced `sh` blocks (only commands) or `console` blocks (`$ ` before a command, the rest is
output), and in the text as inline code that begins with `drkit`. The word after the language names the block
(```sh dry-run), so that a drill can execute a runbook, block by block.

Variables are those that the runbook itself sets; whoever reads it may give others in their place.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from drkit.model.errors import ConfigError

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>.*)$")
_INLINE = re.compile(r"`(drkit [^`]+)`")
_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_OPERATORS = frozenset("|&;<>()")
SHELL = ("sh", "console")


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


@dataclass
class Runbook:
    """A parsed runbook; `variables`: those that it sets and those of the caller; `exported`: some of them."""

    file: Path
    blocks: list[Block] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)

    def block(self, name: str) -> Block:
        """The block with this name.

        Raises:
            ConfigError: it has none, or several.
        """
        found = [block for block in self.blocks if block.name == name]
        if len(found) != 1:
            raise _wrong(f"{self.file.name} has {len(found)} blocks named {name!r}")
        return found[0]

    def of_drkit(self) -> list[Command]:
        """The commands that call drkit."""
        return [command for command in self.commands if command.argv[0] == "drkit"]

    def of_block(self, name: str) -> list[Command]:
        """The commands of the block with this name that call drkit, in order.

        Raises:
            ConfigError: it has no such block, or several.
        """
        block = self.block(name)
        return [each for each in self.of_drkit() if each.line in range(block.line, block.line + len(block.lines))]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it exports to its commands."""
        return {name: self.variables[name] for name in sorted(self.exported)}


def read_runbook(file: Path, given: Mapping[str, str] | None = None) -> Runbook:
    """Read a runbook.

    Raises:
        ConfigError: it can't be read, an unclosed fence, a command that a shell would not accept, an unknown variable.
    """
    book = Runbook(file, variables=dict(given or {}))
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(f"{file} can't be read: {error}") from None
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
            raise _wrong(f"{file.name}:{at + 1}: the block is not closed")
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
        raise _wrong(f"{block.file.name}:{pending[0]}: the last line continues, and there is no next one")
    return found


def _commands(book: Runbook, line: int, block: str, text: str) -> list[Command]:
    where = f"{book.file.name}:{line}"
    if "$(" in text or ("'" in text and "$" in text):
        raise _wrong(f"{where}: write it without $(…) and without a variable beside single quotes: {text}")
    assignment = _ASSIGNMENT.fullmatch(text.strip())
    try:
        if assignment is not None:
            if text.strip().startswith("export "):
                book.exported.add(assignment[1])
            values = shlex.split(_filled(book, where, assignment[2]), comments=True)
            if len(values) > 1:
                raise _wrong(f"{where}: a value with spaces needs quotes: {text}")
            book.variables.setdefault(assignment[1], values[0] if values else "")
            return []
        lexer = shlex.shlex(_filled(book, where, text), posix=True, punctuation_chars="".join(_OPERATORS))
        lexer.whitespace_split = True
        tokens = list(lexer)
    except ValueError as error:
        raise _wrong(f"{where}: a shell would not take this ({error}): {text}") from None
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
            raise _wrong(f"{where}: ${name} is used and never set")
        return book.variables[name]

    return _VARIABLE.sub(value, text)


def _wrong(what: str) -> ConfigError:
    return ConfigError(what, remedy="Correct the runbook: its blocks are pasted into a shell as they are")
