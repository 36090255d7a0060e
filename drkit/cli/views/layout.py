"""Laying text out in a terminal's width: tables that fit, hanging paragraphs, single rows, and like texts as one.

In a `FittingTable` names are shortened in the middle, sentences are folded, and the columns that are least needed are
left out: Rich alone would fold names to one character a line, or cut their ends off, which tell partitions apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_GAP = 2
_LEAST_NAME = 16


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `name`: its texts may be shortened, to no less than `least`; `folds`: its sentences are folded at their
    words, to no narrower than `least`; else they are numbers or single words. `needed`: columns with the lowest number
    are left out first where there is no room; None: never.
    """

    title: str
    name: bool = False
    right: bool = False
    needed: int | None = None
    least: int = _LEAST_NAME
    folds: bool = False

    @property
    def narrows(self) -> bool:
        """Whether it can be narrower than its texts."""
        return self.name or self.folds


@dataclass(frozen=True, slots=True)
class FittingTable:
    """Rows of as many cells as there are columns, each one line where no column folds."""

    columns: Sequence[Column]
    rows: list[Sequence[str | Text]] = field(default_factory=list)

    def add(self, *cells: str | Text) -> None:
        """Add a row."""
        self.rows.append(cells)

    @property
    def least_width(self) -> int:
        """How many cells it takes with all of its columns, names as short as they may be."""
        widths = self._widths()
        least = [
            min(width, each.least) if each.narrows else width for each, width in zip(self.columns, widths, strict=True)
        ]
        return sum(least) + _GAP * (len(least) - 1)

    def _widths(self) -> list[int]:
        return [
            max(map(cell_len, (column.title, *(_plain(row[index]) for row in self.rows))))
            for index, column in enumerate(self.columns)
        ]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's protocol."""
        shown, widths = _fit(self.columns, self._widths(), options.max_width)
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, _GAP, 0, 0))
        for index in shown:
            column = self.columns[index]
            width = widths[index]
            justify: JustifyMethod = "right" if column.right else "left"
            table.add_column(column.title, justify=justify, no_wrap=not column.folds, min_width=width, max_width=width)
        for row in self.rows:
            table.add_row(*(_cell(row[index], self.columns[index], widths[index]) for index in shown))
        yield table

    def __rich_measure__(self, _console: Console, options: ConsoleOptions) -> Measurement:
        """Rich's protocol: as wide as there is room."""
        return Measurement(1, options.max_width)


def shortened(text: str, most: int) -> str:
    """A text of at most so many cells: its beginning and its end, which tell names apart."""
    if cell_len(text) <= most:
        return text
    tail = (most - 1) // 2
    head = most - 1 - tail
    return f"{text[:head]}…{text[len(text) - tail :]}"


def _fit(columns: Sequence[Column], natural: Sequence[int], room: int) -> tuple[list[int], list[int]]:
    """Which columns are shown, and how wide each is."""
    least = [
        min(width, column.least) if column.narrows else width for column, width in zip(columns, natural, strict=True)
    ]
    shown = list(range(len(columns)))

    def taken(widths: Sequence[int]) -> int:
        return sum(widths[index] + _GAP for index in shown) - _GAP

    while taken(least) > room:
        spare = [(needed, -index) for index in shown if (needed := columns[index].needed) is not None]
        if not spare:
            break
        shown.remove(-min(spare)[1])
    widths = list(least)
    names = [index for index in shown if columns[index].narrows]
    while (left := room - taken(widths)) > 0 and (short := [p for p in names if widths[p] < natural[p]]):
        for index in short:  # shared evenly: each round gives all that are short the same
            widths[index] = min(natural[index], widths[index] + max(1, left // len(short)))
            if taken(widths) >= room:
                break
    return shown, widths


def _cell(cell: str | Text, column: Column, width: int) -> Text:
    text = _plain(cell)
    style = cell.style if isinstance(cell, Text) else ""
    return Text(text if column.folds else shortened(text, width), style)


def _plain(cell: str | Text) -> str:
    return cell.plain if isinstance(cell, Text) else cell


_LEAST_WIDTH = 20


@dataclass(frozen=True, slots=True)
class Hanging:
    """A text; of each of its lines, what doesn't fit goes on lines that begin with `indent` spaces."""

    text: Text
    indent: int

    @classmethod
    def markup(cls, line: str, indent: int) -> Hanging:
        """A line with rich's markup."""
        return cls(Text.from_markup(line), indent)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's protocol."""
        narrow = max(_LEAST_WIDTH, options.max_width - self.indent)
        for line in self.text.split("\n", allow_blank=True):
            first, *rest = line.wrap(console, options.max_width) or [Text()]
            yield first
            if not rest:
                continue
            begin = len(first.plain)
            begin += len(line.plain[begin:]) - len(line.plain[begin:].lstrip())
            for each in line[begin:].wrap(console, narrow):
                yield Text(" " * self.indent).append_text(each)


@dataclass(frozen=True, slots=True)
class OneRow:
    """A line that is drawn again and again: cut to a row, so that the next drawing covers it in any terminal."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's protocol."""
        line = self.text.copy()
        line.truncate(options.max_width, overflow="ellipsis")
        yield line

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Rich's protocol."""
        return Measurement(min(_LEAST_WIDTH, options.max_width), min(self.text.cell_len, options.max_width))


Item = TypeVar("Item")
_NUMBER = re.compile(r"\d+")


def alike(
    items: Iterable[Item], text: Callable[[Item], str], *, apart: Callable[[Item], object] = lambda _: None
) -> list[list[Item]]:
    """The items in groups, in the order of each group's first; those that `apart` tells apart are in different ones."""
    groups: dict[tuple[object, str], list[Item]] = {}
    for each in items:
        groups.setdefault((apart(each), _NUMBER.sub("#", text(each))), []).append(each)
    return list(groups.values())
