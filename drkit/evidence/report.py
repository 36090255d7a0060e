"""Renders the bundle's page from evidence.json: one HTML file without scripts, for screen and print. Pure.

Its charts are SVG in the page's colours, for light and dark screens and for print.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from drkit.evidence.verifier import named_check
from drkit.model.wording import bounds

# --- charts --------------------------------------------------------------------------------------------------------

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


# --- the page ------------------------------------------------------------------------------------------------------

Document = Mapping[str, Any]
_TONE = {
    "passed": "ok",
    "met": "ok",
    "ok": "ok",
    "closed": "ok",
    "failed": "bad",
    "missed": "bad",
    "unknown": "warn",
    "open": "warn",
    "skipped": "dim",
}
_NAMES = {
    "rpo_records": "RPO, records lost",
    "rpo_seconds": "RPO, seconds",
    "rto_seconds": "RTO, seconds",
}
_MORE = {
    "acknowledged": "records acknowledged",
    "unknown": "sends without an answer",
    "landed": "records on the target",
    "reread": "records read again",
}
_MOST_ROWS = 200

_STYLE = """
:root{color-scheme:light dark;--fg:#1b2430;--bg:#f6f7f9;--card:#fff;--dim:#5d6876;--line:#dfe4ea;
--ok:#12805c;--warn:#9a5b00;--bad:#c0272d;--ink:#2563a8}
@media(prefers-color-scheme:dark){:root{--fg:#e5eaf0;--bg:#12161b;--card:#1a2028;--dim:#93a0af;--line:#2b3440;
--ok:#45c195;--warn:#e3a53a;--bad:#ff7a76;--ink:#6cb0f5}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:62rem;margin:1.5rem auto;padding:0 1rem}
section{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.8rem 1.2rem;margin:1rem 0}
h1{font-size:1.35rem;margin:.2rem 0}h2{font-size:1.05rem;margin:.2rem 0 .6rem}
h3{font-size:.88rem;font-weight:600;color:var(--dim);margin:.9rem 0 .2rem}
p{margin:.3rem 0}ul{margin:.2rem 0;padding-left:1.2rem}
.scroll{overflow-x:auto}.scroll svg{min-width:34rem}
table{border-collapse:collapse;width:100%;font-size:.87rem;font-variant-numeric:tabular-nums}
th{color:var(--dim);font-weight:500;text-align:left}
td,th{padding:.25rem .8rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td{overflow-wrap:anywhere}td.w,th{white-space:nowrap;overflow-wrap:normal}
@media(max-width:40rem){.scroll table:has(thead){min-width:32rem}
.scroll thead~tbody td:not(.w){min-width:11rem}.chart svg{min-width:0}.chart .axis{font-size:16px}}
td.bad{min-width:12rem}
.ok{color:var(--ok)}.warn{color:var(--warn)}.bad{color:var(--bad)}.dim{color:var(--dim)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:.8rem}
.card{border:1px solid var(--line);border-radius:.5rem;padding:.6rem .8rem}
.big{font-size:1.5rem;font-weight:600;line-height:1.2}
code{font-size:.85em;overflow-wrap:anywhere}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--fg);font:12px system-ui,sans-serif}svg .axis{fill:var(--dim);font-size:11px;text-anchor:middle}
svg .end{text-anchor:end}svg .axis.end{text-anchor:end}
svg .grid{stroke:var(--line)}svg .line{fill:none;stroke:var(--ink);stroke-width:1.8}
svg .mark{stroke:var(--bad);stroke-dasharray:3 3}
svg .fill-ok{fill:var(--ok)}svg .fill-warn{fill:var(--warn)}
svg .fill-bad{fill:var(--bad)}svg .fill-dim{fill:var(--dim)}
@media print{:root{color-scheme:light;--fg:#000;--bg:#fff;--card:#fff;--dim:#444;--line:#bbb;--ok:#0a5c41;
--warn:#7a4800;--bad:#a01a20;--ink:#1d4f88}
body{font-size:10.5pt}main{max-width:none;margin:0;padding:0}section{border:0;border-top:1px solid var(--line);
border-radius:0;padding:.6rem 0}svg,tr,.card,h2,h3{break-inside:avoid}h2,h3{break-after:avoid}.scroll{overflow:visible}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}@page{margin:16mm}}
"""


def render_report(document: Document, digest: str) -> str:
    """The page. `digest`: the SHA-256 of its evidence.json, which it shows."""
    title = f"{document['kind']} {document['run']}"
    body = "".join(
        (
            _head(document),
            _numbers(document),
            _steps(document),
            _series(document),
            _checks(document),
            _listed("Deviations from the plan", document["deviations"], "None: everything went as planned."),
            _findings(document),
            _trend(document),
            _who(document),
            _listed("Assumptions", document["assumptions"], "None."),
            _timeline(document),
            _journals(document),
            _not_known(document),
        )
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>drkit evidence: {escape(title)}</title>"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><main>{body}"
        f'<p class="dim">Made from evidence.json, SHA-256 <code>{digest}</code>, exported '
        f"{_text(document['exported_at'])}. "
        "This page is for reading; <code>python3 tools/verify_evidence.py DIR</code> verifies the bundle.</p>"
        "</main></body></html>\n"
    )


def _head(document: Document) -> str:
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in document["reasons"])
    what = document["what"]
    said = f"<p>{escape(what['hypothesis'])}</p>" if what["hypothesis"] else ""
    return (
        f"<h1>{escape(document['title'])}</h1>"
        f'<p class="dim">{escape(document["kind"])} <code>{escape(document["run"])}</code> · '
        f"{_text(document['started_at'])} to {_text(document['ended_at'])} · "
        f"{_lasted(document)} · "
        f"state {escape(document['state'])}</p>"
        f'<section><p class="big">{_toned(document["verdict"])}</p>{said}<ul>{reasons}</ul></section>'
    )


def _lasted(document: Document) -> str:
    """How long it took; a run's journal may also have entries from long after its end (its loss audited)."""
    length = f"{document['seconds']:,.1f} s"
    return length if document["kind"] == "drill" else f"its last entry {length} after the first"


def _numbers(document: Document) -> str:
    objectives = {each["name"]: each for each in document["objectives"]}
    cards = []
    for name, label in _NAMES.items():
        value, objective = document["measured"][name], objectives.get(name)
        against = '<span class="dim">no objective set</span>'
        if objective is not None:
            against = f"objective {_number(objective['objective'])}: {_toned(objective['outcome'])}"
        why = document["unknown"].get(f"/measured/{name}") if value is None else None
        lower, upper = (document["measured"].get(f"rpo_{each}_bound", False) for each in ("lower", "upper"))
        bound = bounds(lower=lower, upper=upper) if name == "rpo_records" else ""
        cards.append(
            f'<div class="card"><p class="dim">{label}</p><p class="big">{_number(value)}{bound}</p><p>{against}</p>'
            + (f'<p class="dim">{escape(why)}</p>' if why else "")
            + "</div>"
        )
    more = {key: value for key, value in document["measured"].items() if key not in _NAMES and value is not None}
    rest = " · ".join(
        f"{escape(_MORE.get(key, key.replace('_', ' ')))}: {escape(_plain(value))}" for key, value in more.items()
    )
    return (
        f'<section><h2>Recovery point and time</h2><div class="cards">{"".join(cards)}</div>'
        f'<p class="dim">{rest}</p>{_links(document)}</section>'
    )


def _links(document: Document) -> str:
    """The numbers of each link of a drill; nothing where there is one alone."""
    links = document.get("links", [])
    if len(links) < 2:  # noqa: PLR2004  # several
        return ""
    shown = (*_NAMES, "acknowledged", "landed")
    rows = [
        f'<td class="w">{escape(each["link"])}</td>'
        + "".join(
            f'<td class="w">{_number(each["measured"][name]) if each["moved"] or name != "rto_seconds" else ""}</td>'
            for name in shown
        )
        for each in links
    ]
    return _table(("link", *_NAMES.values(), "acknowledged", "on the target"), rows)


def _steps(document: Document) -> str:
    steps = document["steps"]
    spans = [
        (
            each["name"],
            each["ended_after_seconds"] - each["seconds"],
            each["ended_after_seconds"],
            _tone(each["outcome"]),
        )
        for each in steps
        if each["ended_after_seconds"] is not None and each["seconds"] is not None
    ]
    until = max((end for _, _, end, _ in spans), default=0.0)
    rows = [
        (
            f'<td class="w">{escape(each["name"])}</td><td class="w">{_toned(each["outcome"])}</td>'
            f'<td class="w">{_number(each["seconds"])}</td><td class="w">{_number(each["ended_after_seconds"])}</td>'
            f"<td>{_text(each['reason'])}</td>"
        )
        for each in steps
    ]
    chart = bars([(name, max(0.0, begin), end, tone) for name, begin, end, tone in spans], until)
    table = _table(("step", "outcome", "seconds", "ended after", "result"), rows)
    return f'<section><h2>Steps</h2><div class="scroll">{chart}</div>{table}</section>'


def _series(document: Document) -> str:
    series = document["timeline"]["series"]
    if series is None:
        return _missing(document, "Lag and throughput", "/timeline/series")
    faults = [each["seconds"] for each in document["timeline"]["faults"] or () if each["seconds"] is not None]
    parts = []
    for number, each in enumerate(series):
        parts.append(f"<h3>{escape(each['name'])} ({escape(each['unit'])})</h3>")
        if each["points"] is None:
            why = document["unknown"].get(f"/timeline/series/{number}/points", "not known")
            parts.append(f'<p class="dim">{escape(why)}</p>')
        else:
            drawn = line(each["name"], each["unit"], each["points"], document["seconds"], faults)
            parts.append(f'<div class="scroll chart">{drawn}</div>')
    marked = '<p class="dim">Dashed lines: faults.</p>' if faults else ""
    return f"<section><h2>Lag and throughput</h2>{marked}{''.join(parts)}</section>"


def _checks(document: Document) -> str:
    rows = []
    for each in document["checks"]:
        witnesses = "".join(f"<li><code>{escape(_witness(one))}</code></li>" for one in each["witnesses"])
        more = (each["anomalies"] or 0) - len(each["witnesses"])
        rest = f"<li>and {more:,} more</li>" if each["witnesses"] and more > 0 else ""
        name = named_check(each).replace("_", " ")
        rows.append(
            f'<td class="w">{escape(name)}</td><td class="w">{_toned(each["outcome"])}</td>'
            f'<td class="w">{_number(each["anomalies"])}</td><td>{_text(each["reason"])}<ul>{witnesses}{rest}</ul></td>'
        )
    table = _table(("check", "verdict", "anomalies", "why, and the first witnesses"), rows)
    return f"<section><h2>Checks</h2>{table}</section>"


def _findings(document: Document) -> str:
    rows = [
        f'<td class="w">{_toned(each["status"])}</td><td>{escape(each["what"])}</td><td>{_text(each["owner"])}</td>'
        f'<td class="w">{_text(each["due"])}</td><td>{_text(each["retest"])}</td>'
        for each in document["findings"]
    ]
    table = _table(("status", "finding", "owner", "due", "retest"), rows) if rows else "<p>None.</p>"
    return f"<section><h2>Findings</h2>{table}</section>"


def _trend(document: Document) -> str:
    trend = document["trend"]
    if trend is None:
        return _missing(document, "Trend", "/trend")
    rows = [
        f'<td class="w"><code>{escape(each["run"])}</code></td><td class="w">{_toned(each["verdict"])}</td>'
        f'<td class="w">{_number(each["rpo_records"])}</td><td class="w">{_number(each["rto_seconds"])}</td>'
        f'<td class="bad">{"<br>".join(map(escape, each["regressions"]))}</td>'
        for each in trend["drills"]
    ]
    marks = [
        (
            str(each["started_at"] or "?")[5:10],
            each["rto_seconds"],
            "bad" if each["regressions"] else _tone(each["verdict"]),
        )
        for each in trend["drills"][-12:]
    ]
    chart = columns("RTO in seconds, by drill", marks)
    table = _table(("drill", "verdict", "RPO, records", "RTO, s", "regressions"), rows)
    return f'<section><h2>Trend</h2><h3>RTO (seconds)</h3><div class="scroll chart">{chart}</div>{table}</section>'


def _who(document: Document) -> str:
    who, why, what = document["who"], document["why"], document["what"]
    clusters = document["clusters"] or ()
    runbook = document["runbook"]
    configuration = document["configuration"]
    pairs = [
        ("Why", why["purpose"] + (f": {why['statement']}" if why["statement"] else "")),
        ("Run by", ", then ".join([who["operator"], *who["taken_over_by"]])),
        ("Witnessed by", _or_why(document, who["witness"], "/who/witness")),
        ("Exported by", who["exported_by"]),
        ("drkit", f"{document['drkit']['version']}, exported with {document['drkit']['exported_with']}"),
        ("Link", f"{what['link']}{', ' + what['mode'] if what['mode'] else ''}"),
        (
            "Clusters",
            ", ".join(f"{each['alias']} ({each['cluster_id'] or 'id not known'})" for each in clusters) or "not known",
        ),
        ("Plan digest", _or_why(document, what["plan_digest"], "/what/plan_digest")),
        ("Configuration digest", _or_why(document, configuration["digest"], "/configuration/digest")),
        ("Runbook", _runbook(document, runbook)),
    ]
    if document["groups"] is not None:
        groups = document["groups"]
        by = ", ".join(f"{count:,} {name}" for name, count in groups["by_translation"].items())
        pairs.append(("Groups", f"{groups['groups']:,} groups, {groups['positions']:,} positions: {by}"))
    rows = [f'<td class="dim w">{name}</td><td>{escape(str(value))}</td>' for name, value in pairs]
    return f"<section><h2>What, who and why</h2>{_table((), rows)}</section>"


def _runbook(document: Document, runbook: Document | None) -> str:
    if runbook is None:
        return str(document["unknown"].get("/runbook", "not known"))
    changed = ", changed since" if runbook["changed_since"] else ""
    return f"{runbook['file']} ({runbook['path']}), git {runbook['revision'] or 'revision not known'}{changed}"


def _timeline(document: Document) -> str:
    events = document["timeline"]["events"]
    rows = [
        f'<td class="w">{_number(each["seconds"])}</td><td class="w{" bad" if each["fault"] else ""}">'
        f'{escape(each["what"])}</td><td class="w">{_toned(each["outcome"])}</td><td>{_text(each["detail"])}</td>'
        for each in events[:_MOST_ROWS]
    ]
    more = (
        f'<p class="dim">and {len(events) - _MOST_ROWS:,} more in evidence.json</p>' if len(events) > _MOST_ROWS else ""
    )
    return f"<section><h2>Timeline</h2>{_table(('s', 'what', 'outcome', 'detail'), rows)}{more}</section>"


def _journals(document: Document) -> str:
    rows = [
        f"<td><code>{escape(each['file'])}</code></td><td>{escape(each['verdict'])}</td>"
        f"<td>{each['entries']:,}</td><td><code>{_text(each['head'])}</code></td>"
        for each in document["journals"]
    ]
    drills = document["drills"]
    if drills is not None:
        rows.append(
            f"<td><code>{escape(drills['file'])}</code></td><td>the chain of all drills</td>"
            f"<td>{drills['entries']:,}</td><td><code>{escape(drills['head'])}</code></td>"
        )
    return f"<section><h2>Journals</h2>{_table(('file', 'chain', 'entries', 'head'), rows)}</section>"


def _not_known(document: Document) -> str:
    rows = [
        f"<td><code>{escape(pointer)}</code></td><td>{escape(reason)}</td>"
        for pointer, reason in document["unknown"].items()
    ]
    return f"<section><h2>What is not known</h2>{_table(('field', 'why'), rows)}</section>"


def _listed(title: str, lines: Sequence[str], none: str) -> str:
    items = "".join(f"<li>{escape(each)}</li>" for each in lines[:_MOST_ROWS])
    return f"<section><h2>{title}</h2>{f'<ul>{items}</ul>' if items else f'<p>{none}</p>'}</section>"


def _missing(document: Document, title: str, pointer: str) -> str:
    why = document["unknown"].get(pointer, "not known")
    return f'<section><h2>{title}</h2><p class="dim">{escape(why)}</p></section>'


def _table(heads: Iterable[str], rows: Sequence[str]) -> str:
    top = "".join(f"<th>{each}</th>" for each in heads)
    lines = "".join(f"<tr>{row}</tr>" for row in rows)
    head = f"<thead><tr>{top}</tr></thead>" if top else ""
    return f'<div class="scroll"><table>{head}<tbody>{lines}</tbody></table></div>'


def _or_why(document: Document, value: object, pointer: str) -> str:
    return str(value) if value is not None else f"not known: {document['unknown'].get(pointer, '')}"


def _witness(one: Document) -> str:
    position = ", ".join(f"{key} {value}" for key, value in one.items() if value is not None and key != "text")
    return f"{position}: {one['text']}" if "text" in one else position


def _tone(word: str | None) -> str:
    return _TONE.get(word or "", "dim")


def _toned(word: str | None) -> str:
    return f'<span class="{_tone(word)}">{escape(word or "")}</span>'


def _number(value: float | None) -> str:
    if value is None:
        return '<span class="warn">not known</span>'
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}" if value < 1 else f"{value:,.1f}"


def _plain(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value).lower()


def _text(value: object) -> str:
    return '<span class="dim">-</span>' if value is None else escape(str(value))
