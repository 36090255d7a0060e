"""Reads a page with commands at a terminal, so that a test can type them and check their output.

A `console` block holds commands (`$ drkit …`), lines of their output, and how each ended:

    $ drkit failover --to dr
    … Type the cluster's name to continue: dr
    ✓ verify …
    [exit 6, 8 s]

`…` means omitted output. What follows `to continue: ` or `to continue: ` at a line's end is typed there.
Numbers, times, ids and where lines break may be others than on the page.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from drkit.drill.runbook import read_runbook

_ASKED = re.compile(r"(to continue|to continue): (\S+)$")
_EXIT = re.compile(r"^\[exit (-?\d+)\b.*\]$")
_ALIKE = (
    (re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b"), "RUN"),
    (re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?)?"), "TIME"),
    (re.compile(r"(?<![\w-])\d[\d,]*(\.\d+)?"), "#"),
    (re.compile(r"\s+"), " "),
)
LEFT_OUT = "…"


@dataclass
class Step:
    """One command of a page, the answers to its prompts, its output, and its exit code."""

    line: str
    words: list[str]
    answers: list[tuple[str, str]] = field(default_factory=list)
    shows: list[str] = field(default_factory=list)
    code: int = 0


def steps(page: Path, name: str, given: Mapping[str, str]) -> Iterator[Step]:
    """The commands of a block.

    Args:
        page: the file.
        name: the block's.
        given: values of the page's variables (`$RUN`).
    """
    step: Step | None = None
    for line in read_runbook(page, given).block(name).lines:
        if line.startswith("$ "):
            assert step is None, f"no [exit N] before {line}"
            step = Step(line, [_filled(word, given) for word in shlex.split(line[2:])])
            continue
        if step is None:
            assert not line.strip(), f"before the first command: {line}"
        elif (ended := _EXIT.match(line)) is not None:
            step.code = int(ended[1])
            yield step
            step = None
        elif (asked := _ASKED.search(line)) is not None:
            step.answers.append((asked[1], _filled(asked[2], given)))
            step.shows.append(f"{line[: asked.end(1)]}{LEFT_OUT}")  # the answer, and remarks that come any time
        else:
            step.shows.append(line)
    assert step is None, f"no [exit N] after {step.line}"


def not_shown(step: Step, screen: str) -> list[str]:
    """The lines of a command's output on the page that the screen lacks, in the page's order."""
    rest, missing = _alike(screen), []
    for part in " ".join(step.shows).split(LEFT_OUT):
        wanted = _alike(part).strip()
        found = rest.find(wanted)
        if found < 0:
            missing.append(wanted)
        else:
            rest = rest[found + len(wanted) :]
    return missing


def _alike(text: str) -> str:
    for pattern, word in _ALIKE:
        text = pattern.sub(word, text)
    return text


def _filled(word: str, given: Mapping[str, str]) -> str:
    return given.get(word.removeprefix("$"), word) if word.startswith("$") else word
