"""`drkit audit group … --report`: one group's view as a self-contained HTML page."""

from __future__ import annotations

from html import escape

from drkit.cli.views.audit.bytes_text import shown_bytes
from drkit.cli.views.audit.report import STYLE
from drkit.model.audit.group_audit import GroupAudit, GroupPartition, GroupVerdict, GroupWitness
from drkit.model.clock import date_of, iso

_COLOURS = {
    GroupVerdict.CLEAN: "clean",
    GroupVerdict.DEVIATED: "deviated",
    GroupVerdict.UNKNOWN: "incomplete",
}
_KINDS = ("skipped", "lost", "unreadable", "unmirrored", "corrupted", "read again", "duplicated")


def render_group_report(result: GroupAudit) -> str:
    """The document."""
    move = result.move
    colour = _COLOURS[result.verdict]
    notes = [*result.notes, *(f"{_name(each)} {note}" for each in result.partitions for note in each.notes)]
    head = "".join(f'<th class="n">{name}</th>' for name in ("before", "after", *_KINDS))
    rows = "".join(_row(each) for each in result.partitions)
    witnesses = "".join(_witness(each) for each in result.witnesses)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>drkit audit of a group</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{STYLE}</style></head>'
        f"<body><main><h1>{escape(move.group)}</h1><section><h2>{escape(str(move.link))}, failover "
        f'{escape(move.run)}, {iso(move.moved_at)}</h2><p class="big {colour}">{result.verdict.value}</p>'
        f"<p>{escape(summary_line(result))}</p>"
        f'<div class="scroll"><table><tr><th>partition</th>{head}</tr>{rows}</table></div>'
        f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>"
        f'<h3>First witnesses</h3><div class="scroll"><table><tr><th>why</th><th>record</th><th>source</th>'
        f"<th>target</th><th>timestamp</th><th>key</th><th>value</th></tr>{witnesses}</table></div>"
        f'<p class="dim">Observed {iso(result.observed_at)}, in {result.seconds:.1f} s. Times are UTC.</p>'
        "</section></main></body></html>\n"
    )


def summary_line(result: GroupAudit) -> str:
    """What it missed and sees twice, in words."""
    counts = result.counts
    missed = _or_least(counts.missed, result.missed_at_least)
    return f"missed {missed}, sees {_or_least(counts.twice, result.twice_at_least)} twice"


def _or_least(count: int | None, least: int) -> str:
    if count is not None:
        return f"{count:,}"
    return f"at least {least:,}" if least else "an unknown number"


def _row(each: GroupPartition) -> str:
    place, counts = each.place, each.counts
    unmirrored = _number(counts.unmirrored)
    if counts.unmirrored is None and counts.unmirrored_at_least:
        unmirrored = f"at least {counts.unmirrored_at_least:,}"
    cells = (
        _position(place.source_offset, place.before),
        _position(place.target_offset, place.after),
        _number(counts.position),
        _number(counts.lost),
        _number(counts.unreadable),
        unmirrored,
        _number(counts.corrupted),
        _number(counts.reread),
        _number(counts.duplicated),
    )
    return f"<tr><td>{escape(_name(each))}</td>" + "".join(f'<td class="n">{cell}</td>' for cell in cells) + "</tr>"


def _witness(each: GroupWitness) -> str:
    timestamp = iso(date_of(each.stamp)) or ""
    cells = (
        each.reason.value,
        f"{each.topic}:{each.partition}",
        "-" if each.source_offset is None else str(each.source_offset),
        "-" if each.target_offset is None else str(each.target_offset),
        timestamp or "",
        each.problem or shown_bytes(each.key),
        "" if each.problem else shown_bytes(each.value),
    )
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _name(each: GroupPartition) -> str:
    return f"{each.place.topic}:{each.place.partition}"


def _position(offset: int | None, by: str | None) -> str:
    return "unknown" if offset is None else f"{offset} ({by})"


def _number(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"
