"""One SVG with three panels: throughput, CPU per record, live latency. No fonts or scripts from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from bench.cases import BACKLOG, LIVE
from bench.live import DIRECT
from bench.peers.bare import BARE
from bench.results import Results
from bench.table import LIVE_READERS, TITLES, significant
from bench.targets import DRKIT, OTHER

_COLOURS = {DRKIT: "#0b7285", OTHER: "#e8590c", DIRECT: "#868e96", BARE: "#ced4da"}
_WIDTH = 960
_LABEL_WIDTH = 300
_VALUE_WIDTH = 90
_BAR = 12
_GAP = 10
_TOP = 70
_PANEL_HEAD = 48
_FONT = "font-family='system-ui, sans-serif'"


@dataclass(frozen=True, slots=True)
class Group:
    """Bars that belong together: a label, and (series, value) pairs."""

    label: str
    bars: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart of horizontal bars on a logarithmic scale."""

    title: str
    groups: tuple[Group, ...]


def render(results: Results) -> str:
    """The picture of a run as SVG text."""
    panels = [panel for panel in _panels(results) if panel.groups]
    body: list[str] = []
    at = _TOP
    for panel in panels:
        drawn, at = _panel(panel, at)
        body += drawn
    legend = "".join(
        f"<rect x='{20 + 190 * place}' y='40' width='12' height='12' fill='{_COLOURS[name]}'/>"
        f"<text x='{38 + 190 * place}' y='50' font-size='13'>{escape(TITLES[name])}</text>"
        for place, name in enumerate((DRKIT, OTHER, DIRECT, BARE))
    )
    machine = results.machine
    title = f"drkit and MirrorMaker 2 (Kafka {machine.get('kafka', '?')}), {machine.get('cores', '?')} cores"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {at + 10}' {_FONT} role='img'>\n"
        f"<title>{escape(title)}</title>\n"
        f"<rect width='{_WIDTH}' height='{at + 10}' fill='#ffffff'/>\n"
        f"<text x='20' y='26' font-size='17' font-weight='600'>{escape(title)}</text>\n{legend}\n"
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _panels(results: Results) -> list[Panel]:
    return [
        Panel("Backlog: records/s (logarithmic; more is better)", _backlog(results, "records_per_second")),
        Panel(
            "Backlog: CPU-seconds per million records (logarithmic; less is better)",
            _backlog(results, "cpu_seconds_per_million"),
        ),
        Panel("Live at 5,000 records/s: latency end to end, ms (logarithmic; less is better)", _live(results)),
    ]


def _backlog(results: Results, measure: str) -> tuple[Group, ...]:
    groups = []
    for case in BACKLOG:
        bars = _known((peer, results.typical(case.name, peer, measure)) for peer in (DRKIT, OTHER))
        if bars:
            groups.append(Group(f"{'★ ' if case.named else ''}{case.description}", bars))
    return tuple(groups)


def _live(results: Results) -> tuple[Group, ...]:
    groups = []
    for case in LIVE:
        for name, measure in (("p50", "p50_ms"), ("p99", "p99_ms")):
            bars = _known((peer, results.typical_live(case.name, peer, measure)) for peer in LIVE_READERS)
            if bars:
                groups.append(Group(f"{case.name}, {name}", bars))
    return tuple(groups)


def _known(pairs: Iterable[tuple[str, float | None]]) -> tuple[tuple[str, float], ...]:
    return tuple((name, value) for name, value in pairs if value)


def _panel(panel: Panel, top: int) -> tuple[list[str], int]:
    """Its elements, and where the next one may begin."""
    values = [value for group in panel.groups for _, value in group.bars]
    low, high = scale(values)
    drawn = [f"<text x='20' y='{top + 24}' font-size='15' font-weight='600'>{escape(panel.title)}</text>"]
    at = top + _PANEL_HEAD
    room = _WIDTH - _LABEL_WIDTH - _VALUE_WIDTH
    for group in panel.groups:
        middle = at + len(group.bars) * _BAR / 2 + 4
        drawn.append(
            f"<text x='{_LABEL_WIDTH - 12}' y='{middle:.0f}' font-size='12' text-anchor='end'>"
            f"{escape(group.label)}</text>"
        )
        for name, value in group.bars:
            width = max(1.0, room * math.log(value / low) / math.log(high / low))
            shown = significant(value)
            drawn.append(
                f"<rect x='{_LABEL_WIDTH}' y='{at}' width='{width:.1f}' height='{_BAR - 2}' fill='{_COLOURS[name]}'>"
                f"<title>{escape(TITLES[name])}: {shown}</title></rect>"
                f"<text x='{_LABEL_WIDTH + width + 6:.1f}' y='{at + _BAR - 3}' font-size='11'>{shown}</text>"
            )
            at += _BAR
        at += _GAP
    return drawn, at + _GAP


def scale(values: Sequence[float]) -> tuple[float, float]:
    """The powers of ten around positive values, at least one decade apart."""
    low = 10.0 ** math.floor(math.log10(min(values)))
    high = 10.0 ** math.ceil(math.log10(max(values)))
    return low, max(high, low * 10)
