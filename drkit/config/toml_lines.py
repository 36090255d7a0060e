"""The line of each key of a TOML file: `tomllib` reads values, not lines."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

KeyPath = tuple[str, ...]
"""A key with its tables; an element of an array of tables is its number."""

_HEADER = re.compile(r"\s*\[")


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line, from 1 on, of each key of a TOML text, and of the header of each table.

    Args:
        text: valid TOML. The content of an inline table or an array has the line on which its statement begins.
    """
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for line, statement in _statements(text.splitlines()):
        found = tomllib.loads(statement)
        if _HEADER.match(statement):
            table = _table(found, counts)
            lines.setdefault(table, line)
            continue
        for key in _keys(found):
            lines.setdefault((*table, *key), line)
    return lines


def _statements(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Each statement with its first line: the fewest lines that are valid on their own."""
    number = 0
    while number < len(lines):
        begins, chunk = number, [lines[number]]
        number += 1
        if not chunk[0].strip() or chunk[0].lstrip().startswith("#"):
            continue
        while not _valid("\n".join(chunk)) and number < len(lines):
            chunk.append(lines[number])
            number += 1
            while chunk[-1].rstrip().endswith(",") and number < len(lines):  # an array continues: don't parse it yet
                chunk.append(lines[number])
                number += 1
        yield begins + 1, "\n".join(chunk)


def _valid(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _table(found: Mapping[str, Any], counts: dict[KeyPath, int]) -> KeyPath:
    """The path of a header's table: a number is the last element of an array so far."""
    path: KeyPath = ()
    inner: Any = found
    while inner:
        if isinstance(inner, list):
            counts[path] = counts.get(path, 0) + 1
            return (*path, str(counts[path] - 1))
        if path in counts:
            path = (*path, str(counts[path] - 1))
        name, inner = next(iter(inner.items()))
        path = (*path, name)
    return path


def _keys(value: Any) -> Iterator[KeyPath]:
    items: Iterator[tuple[str, Any]] = iter(())
    if isinstance(value, Mapping):
        items = iter(value.items())
    elif isinstance(value, list):
        items = ((str(number), each) for number, each in enumerate(value))
    for name, inner in items:
        yield (name,)
        for rest in _keys(inner):
            yield (name, *rest)
