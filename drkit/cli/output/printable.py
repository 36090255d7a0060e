"""Makes foreign text safe for a terminal: names, reasons and files may contain control sequences."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.measure import Measurement
from rich.segment import Segment

_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters except for tabs and line ends, and what turns the direction of text round."""
_SHOWN = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """Replace each character that a terminal would interpret."""
    return _OBEYED.sub(_SHOWN, text)


@dataclass(frozen=True, slots=True)
class Printable:
    """Something to be rendered, made printable; Rich's own control codes (colours, the cursor) stay."""

    renderable: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's protocol."""
        for segment in console.render(self.renderable, options):
            if segment.control or not _OBEYED.search(segment.text):
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Rich's protocol."""
        return Measurement.get(console, options, self.renderable)


class PrintableOnly(RenderHook):
    """Makes printable whatever a console prints (not what a live display shows: wrap that itself)."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Rich's protocol."""
        return [Printable(each) for each in renderables]
