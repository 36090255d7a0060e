"""A recording of a command at a terminal: as an asciinema cast (v2), and as an animated SVG that a README can show.

    python -m tools.recording build/demo.cast docs/demo-run.svg -- drkit demo

The cast holds what the command wrote, when it did, except for pauses above two seconds, which are cut to that. The SVG
shows the same on a terminal of 80 columns, a long run faster than it was (the title says how much), with at most four
pictures a second; what is written at once and is longer than a screen is shown page by page. CSS only, no script,
nothing loaded.
"""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

COLUMNS, ROWS = 80, 34
LONGEST_PAUSE = 2.0
"""Seconds: longer ones are cut to this."""
STEP = 0.25
"""Seconds: what is written within one is one event, and one picture."""
LAPSE_SECONDS = 40.0
"""How long the pictures take in all: a longer run is shown faster."""
LAST_SECONDS = 8.0
"""How long the last picture is shown before it begins again, and each screen of what is written at once."""
LAST_EVENTS = 200
"""Of a command that failed, so many are shown as the screen had them."""
_CHUNK = 65_536
_CELL_WIDTH, _CELL_HEIGHT, _MARGIN = 8.43, 18, 10
_TOKEN = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|([\r\n])|([^\x1b])")
_CUT = re.compile(r"\x1b(?:\[[?0-9;]*)?\Z")
"""A control sequence whose end is to come."""
_COLOURS = ("#5c6370", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#dcdfe4")
_INK, _PAPER = "#dcdfe4", "#1e2127"


class Event(NamedTuple):
    """What was written, and when, in seconds since the beginning."""

    at: float
    text: str


class Style(NamedTuple):
    """How a cell is shown. `colour`: 0 to 7 as terminals count them; None: the terminal's own."""

    colour: int | None = None
    bold: bool = False
    dim: bool = False


class Cell(NamedTuple):
    """One character of the screen."""

    text: str
    style: Style


Line = tuple[Cell, ...]
Picture = tuple[Line, ...]
BLANK = Cell(" ", Style())


class Shown(NamedTuple):
    """What the screen showed from `at` on. `page`: a screen of what was written at once, which scrolls on when read."""

    at: float
    picture: Picture
    page: bool = False


class Screen:
    """As much of a terminal as Rich's output asks for: text, its styles, movements of the cursor, deletions."""

    def __init__(self) -> None:
        self._rows: list[list[Cell]] = [[]]
        self._row = self._column = 0
        self._style = Style()
        self._cut = ""

    def write(self, text: str) -> None:
        """Show what a command writes."""
        text = self._cut + text
        cut = _CUT.search(text)
        self._cut = "" if cut is None else cut[0]
        text = text.removesuffix(self._cut)
        for found in _TOKEN.finditer(text):
            numbers, control, special, plain = found.groups()
            if control is not None:
                self._control(control, [int(each) for each in numbers.split(";") if each.isdigit()])
            elif special == "\r":
                self._column = 0
            elif special == "\n":
                self._down()
            elif plain is not None:
                self._put(plain)

    def picture(self) -> Picture:
        """The last rows, each without the blanks at its end."""
        return self._window(len(self._rows))

    def pages(self, begin: int) -> list[Picture]:
        """The screens from a row on, but for the last one, which `picture` shows."""
        return [self._window(end) for end in range(begin + ROWS, len(self._rows), ROWS)]

    @property
    def rows(self) -> int:
        """How many rows there are, with those that scrolled away."""
        return len(self._rows)

    def _window(self, end: int) -> Picture:
        return tuple(_stripped(row) for row in self._rows[max(0, end - ROWS) : end])

    def _put(self, character: str) -> None:
        if self._column >= COLUMNS:
            self._column = 0
            self._down()
        row = self._rows[self._row]
        row.extend([BLANK] * (self._column + 1 - len(row)))
        row[self._column] = Cell(character, self._style)
        self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])

    def _control(self, control: str, numbers: list[int]) -> None:
        first = numbers[0] if numbers else 0
        if control == "m":
            self._style = _styled(self._style, numbers or [0])
        elif control == "A":
            self._row = max(0, self._row - max(1, first))
        elif control == "B":
            self._row = min(len(self._rows) - 1, self._row + max(1, first))
        elif control == "K":
            row = self._rows[self._row]
            row[:] = [] if first == 2 else row[: self._column]  # noqa: PLR2004 - the whole line
        elif control == "J":
            del self._rows[self._row + 1 :]


def _stripped(row: Sequence[Cell]) -> Line:
    end = len(row)
    while end and row[end - 1].text == " ":
        end -= 1
    return tuple(row[:end])


def _styled(style: Style, numbers: Iterable[int]) -> Style:
    """The style after a Select Graphic Rendition; what isn't known changes nothing."""
    for number in numbers:
        if number == 0:
            style = Style()
        elif number == 1:
            style = style._replace(bold=True)
        elif number == 2:  # noqa: PLR2004 - faint, in ECMA-48
            style = style._replace(dim=True)
        elif number == 22:  # noqa: PLR2004 - neither bold nor faint
            style = style._replace(bold=False, dim=False)
        elif number == 39:  # noqa: PLR2004 - the terminal's own colour
            style = style._replace(colour=None)
        elif 30 <= number <= 37 or 90 <= number <= 97:  # noqa: PLR2004 - colours, and bright ones
            style = style._replace(colour=number % 10)
    return style


def record(command: Sequence[str]) -> tuple[list[Event], int]:
    """Run a command at a terminal; what it wrote, and its exit code."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    surroundings = {**os.environ, "TERM": "xterm", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    events: list[Event] = []
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with subprocess.Popen(
        command, stdin=its, stdout=its, stderr=its, env=surroundings, start_new_session=True
    ) as child:
        os.close(its)
        began = time.monotonic()
        while True:
            try:
                written = os.read(ours, _CHUNK)
            except OSError:  # the terminal's other side is closed
                break
            if not written:
                break
            events.append(Event(time.monotonic() - began, decoder.decode(written)))
    os.close(ours)
    return events, child.returncode


def shortened(events: Iterable[Event]) -> list[Event]:
    """The same with long pauses cut, and what was written within one step as one event."""
    found: list[Event] = []
    at = last = 0.0
    for event in events:
        at += min(event.at - last, LONGEST_PAUSE)
        last = event.at
        if found and at - found[-1].at < STEP:
            found[-1] = Event(found[-1].at, found[-1].text + event.text)
        else:
            found.append(Event(round(at, 3), event.text))
    return found


def cast(events: Iterable[Event], title: str, at: int) -> str:
    """An asciinema recording, version 2. `at`: when it began, seconds since the epoch."""
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "timestamp": at, "title": title, "env": {"TERM": "xterm"}}
    return "".join(f"{json.dumps(each)}\n" for each in (head, *([event.at, "o", event.text] for event in events)))


def pictures(events: Iterable[Event]) -> list[Shown]:
    """What the screen showed from when on, each time that it changed; of what is longer than a screen each page."""
    screen, found = Screen(), list[Shown]()
    for event in events:
        before = screen.rows
        screen.write(event.text)
        found += (Shown(event.at, page, page=True) for page in screen.pages(before - 1))
        seen = screen.picture()
        if not found or found[-1].picture != seen:
            found.append(Shown(event.at, seen))
    return found


def quickened(shown: Iterable[Shown], factor: float) -> list[Shown]:
    """The same so many times as fast; of pictures within one step the last, and of pages all, with time to read."""
    found, read = list[Shown](), 0.0
    for each in shown:
        at = each.at / factor + read
        if found and not found[-1].page and at - found[-1].at < STEP:
            found[-1] = each._replace(at=found[-1].at)
        else:
            found.append(each._replace(at=at))
        read += LAST_SECONDS if each.page else 0.0
    return found


def animation(shown: Sequence[Shown], title: str) -> str:
    """The pictures as one SVG. Lines that several of them have are in it once."""
    total = shown[-1].at + LAST_SECONDS
    height = max(len(each.picture) for each in shown) * _CELL_HEIGHT + 2 * _MARGIN
    width = round(COLUMNS * _CELL_WIDTH + 2 * _MARGIN)
    names = {line: f"l{number}" for number, line in enumerate(dict.fromkeys(_lines(shown)))}
    rules, frames = [], []
    for number, ((begin, picture, _), (end, _, _)) in enumerate(pairwise([*shown, Shown(total, ())])):
        first, last = (f"{100 * each / total:.3f}%" for each in (begin, end))
        rules.append(f"@keyframes k{number}{{0%{{opacity:0}}{first}{{opacity:1}}{last}{{opacity:0}}100%{{opacity:0}}}}")
        if last == "100.000%":
            rules[-1] = f"@keyframes k{number}{{0%{{opacity:0}}{first}{{opacity:1}}100%{{opacity:1}}}}"
        uses = (
            f'<use href="#{names[line]}" y="{row * _CELL_HEIGHT}"/>'
            for row, line in enumerate(picture)
            if line in names
        )
        frames.append(f'<g style="animation-name:k{number}">{"".join(uses)}</g>')
    lines = "".join(f'<text id="{name}" y="{_CELL_HEIGHT}">{_spans(line)}</text>' for line, name in names.items())
    colours = "".join(f".c{number}{{fill:{colour}}}" for number, colour in enumerate(_COLOURS))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">'
        f"<style>text{{font:14px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre;fill:{_INK}}}"
        f".b{{font-weight:bold}}.d{{opacity:.6}}{colours}"
        f".f>g{{opacity:0;animation:{total:.2f}s step-end infinite}}.f>g:last-child{{opacity:1}}{''.join(rules)}"
        f"@media (prefers-reduced-motion:reduce){{.f>g{{animation:none}}}}</style>"
        f"<title>{escape(title)}</title><defs>{lines}</defs>"
        f'<rect width="{width}" height="{height}" rx="8" fill="{_PAPER}"/>'
        f'<g class="f" transform="translate({_MARGIN} {_MARGIN // 2})">{"".join(frames)}</g></svg>\n'
    )


def _lines(shown: Iterable[Shown]) -> Iterator[Line]:
    return (line for each in shown for line in each.picture if line)


def _spans(line: Line) -> str:
    """A line's parts of one style each, in their places: fonts differ in how wide they are."""
    parts, at = [], 0
    for style, cells in groupby(line, key=lambda cell: cell.style):
        text = "".join(cell.text for cell in cells)
        if text.strip():
            names = [*(["b"] if style.bold else []), *(["d"] if style.dim else [])]
            names += [] if style.colour is None else [f"c{style.colour}"]
            kind = f' class="{" ".join(names)}"' if names else ""
            place = f'x="{at * _CELL_WIDTH:.1f}" textLength="{len(text) * _CELL_WIDTH:.1f}"'
            parts.append(f"<tspan {place}{kind}>{escape(text)}</tspan>")
        at += len(text)
    return "".join(parts)


def main(arguments: Sequence[str]) -> int:
    """See the module. Nothing is written where the command fails."""
    cast_file, svg_file, dashes, *command = arguments
    if dashes != "--" or not command:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    at = int(time.time())
    events, code = record(command)
    if code != 0:
        last = list(pictures(events[-LAST_EVENTS:]))[-1:]
        sys.stderr.writelines(f"{''.join(cell.text for cell in line)}\n" for each in last for line in each.picture)
        sys.stderr.write(f"{' '.join(command)} ended with {code}: nothing is recorded\n")
        return 1
    kept = shortened(events)
    title = " ".join(Path(word).name if number == 0 else word for number, word in enumerate(command))
    shown = pictures(kept)
    factor = max(1.0, shown[-1].at / LAPSE_SECONDS) if shown else 1.0
    faster = f", {factor:.1f} times as fast as it was" if factor > 1 else ""
    for file in (cast_file, svg_file):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(cast_file).write_text(cast(kept, title, at), encoding="utf-8")
    Path(svg_file).write_text(animation(quickened(shown, factor), title + faster), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
