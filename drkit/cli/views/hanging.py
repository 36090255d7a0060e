"""Text in the terminal's width: a paragraph whose further lines are indented, and a line that is cut to one row."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

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
