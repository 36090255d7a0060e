"""Charts as SVG in the page's colours, for light and dark screens and for print. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH = 760.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 22.0, 10.0, 24.0
_ROW = 24.0
_LABEL = 210.0
_LABEL_CHARACTERS = 32
_TICKS = 4

Bar = tuple[str, float, float, str]
"""Label, begin and end in seconds, and tone: ok, warn, bad or dim."""


def bars(rows: Sequence[Bar], until: float) -> str:
    """Time spans on a common axis, one row each."""
    if not rows or until <= 0:
        return ""
    height = _ROW * len(rows) + _BOTTOM
    room = WIDTH - _LABEL - 70
    parts = []
    for number, (label, begin, end, tone) in enumerate(rows):
        y = number * _ROW
        x, width = _LABEL + room * begin / until, max(2.0, room * (end - begin) / until)
        shown = label if len(label) <= _LABEL_CHARACTERS else f"{label[: _LABEL_CHARACTERS - 1]}…"
        took = f"{end - begin:.{1 if end - begin >= 1 else 2}f}"
        parts.append(
            f'<text x="{_LABEL - 8}" y="{y + 16}" class="label end">{escape(shown)}</text>'
            f'<rect x="{x:.1f}" y="{y + 5}" width="{width:.1f}" height="14" rx="2" class="fill-{tone}">'
            f"<title>{escape(label)}: {begin:.1f} s to {end:.1f} s</title></rect>"
            f'<text x="{x + width + 5:.1f}" y="{y + 16}" class="value">{took} s</text>'
        )
    parts += [_tick(_LABEL, room, height, part, until) for part in range(_TICKS + 1)]
    return _svg(height, "Time of each step", "".join(parts))


def line(name: str, unit: str, points: Sequence[Sequence[float]], until: float, marks: Sequence[float] = ()) -> str:
    """A quantity over time; `marks` are moments, drawn as vertical lines."""
    height = 150.0
    highest = _round_up(max((point[1] for point in points), default=0.0))
    room, tall = WIDTH - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    until = max(until, max((point[0] for point in points), default=0.0), 1.0)
    path = " ".join(f"{_LEFT + room * x / until:.1f},{_TOP + tall * (1 - y / highest):.1f}" for x, y in points)
    grid = "".join(
        f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{_TOP + tall * part}" y2="{_TOP + tall * part}" class="grid"/>'
        f'<text x="{_LEFT - 6}" y="{_TOP + tall * part + 4}" class="axis end">{highest * (1 - part):,.0f}</text>'
        for part in (0.0, 0.5, 1.0)
    )
    ticks = "".join(_tick(_LEFT, room, height, part, until) for part in range(_TICKS + 1))
    moments = "".join(
        f'<line x1="{_LEFT + room * mark / until:.1f}" x2="{_LEFT + room * mark / until:.1f}" y1="{_TOP}" '
        f'y2="{_TOP + tall}" class="mark"/>'
        for mark in marks
    )
    drawn = f'<polyline points="{path}" class="line"/>'
    if len(points) == 1:
        x, y = path.split(",")
        drawn = f'<circle cx="{x}" cy="{y}" r="3" class="fill-ok"/>'
    return _svg(height, f"{name}, {unit}", grid + moments + drawn + ticks)


def columns(name: str, rows: Sequence[tuple[str, float | None, str]]) -> str:
    """One column for each row: a label, a value (None: unknown) and a tone."""
    height = 150.0
    highest = _round_up(max((value for _, value, _ in rows if value is not None), default=0.0))
    room, tall = WIDTH - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    each = room / max(1, len(rows))
    base = _TOP + tall
    parts = [
        f'<text x="{_LEFT - 6}" y="{_TOP + 4}" class="axis end">{highest:,.0f}</text>',
        f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{base}" y2="{base}" class="grid"/>',
    ]
    for number, (label, value, tone) in enumerate(rows):
        x, wide = _LEFT + each * number + each * 0.15, min(60.0, each * 0.7)
        if value is None:
            parts.append(f'<text x="{x + wide / 2:.1f}" y="{_TOP + tall - 5:.1f}" class="axis">?</text>')
        else:
            size = max(2.0, tall * value / highest)
            parts.append(
                f'<rect x="{x:.1f}" y="{_TOP + tall - size:.1f}" width="{wide:.1f}" height="{size:.1f}" '
                f'class="fill-{tone}"><title>{escape(label)}: {value:,.1f}</title></rect>'
            )
        parts.append(f'<text x="{x + wide / 2:.1f}" y="{height - 6}" class="axis">{escape(label)}</text>')
    return _svg(height, name, "".join(parts))


def _tick(left: float, room: float, height: float, part: int, until: float) -> str:
    at = part / _TICKS
    return f'<text x="{left + room * at:.1f}" y="{height - 6}" class="axis">{until * at:.3g} s</text>'


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20 …, at least 1."""
    size = 1.0
    while True:
        for step in (1, 2, 5):
            if value <= size * step:
                return size * step
        size *= 10


def _svg(height: float, name: str, body: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{escape(name, quote=True)}">'
        f"<title>{escape(name)}</title>{body}</svg>"
    )
