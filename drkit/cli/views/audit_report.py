"""Audits, and one group's view of a failover, as HTML documents without other files: tables, charts, witnesses."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from drkit.cli.views.audit_view import digest_lines, shown_bytes
from drkit.cli.wiring.audit_journal import foreign_key_line
from drkit.files import write_private
from drkit.model.audit.audit_result import AuditResult, Counts, FindingKind
from drkit.model.audit.group_audit import GroupAudit, GroupPartition, GroupVerdict, GroupWitness
from drkit.model.clock import date_of, iso
from drkit.model.errors import DrkitError

if TYPE_CHECKING:
    from drkit.audit.findings.findings_files import FindingsOverTime
    from drkit.audit.findings.witnesses import Content, FindingWitness


_KINDS = tuple(kind.value for kind in FindingKind)
_MEANINGS = {
    "matched": "an equal record stands on the target",
    FindingKind.LOST: "the mirror passed it, and it is not on the target",
    FindingKind.UNREADABLE: "its place on the target is in a batch that a consumer which checks CRCs can't read",
    FindingKind.CORRUPTED: "another record stands in its place",
    FindingKind.DUPLICATED: "a further copy on the target of a record that is matched",
    FindingKind.FOREIGN: "on the target, from no source record",
    FindingKind.REORDERED: "matched, but out of the partition's order",
    FindingKind.UNSEEN: "the mirror had not got there: no deviation",
}
_LONGEST = 400
_TOPICS_CHARTED = 50
_WIDTH, _HEIGHT, _BAR = 720, 90, 14
STYLE = """
:root{color-scheme:light dark;--fg:#1b2430;--bg:#f6f7f9;--card:#fff;--dim:#5d6876;--line:#dfe4ea;--matched:#7fa99b;
--lost:#c0272d;--corrupted:#8e3fa8;--duplicated:#a75c00;--foreign:#2f6fbd;--reordered:#84690a;--unseen:#5c6976;--unreadable:#5b2333;--clean:#12805c;--incomplete:#84690a}
@media(prefers-color-scheme:dark){:root{--fg:#e5eaf0;--bg:#12161b;--card:#1a2028;--dim:#93a0af;--line:#2b3440;
--matched:#3f7263;--lost:#ff7a76;--corrupted:#c98be0;--duplicated:#f0a44b;--foreign:#77aef0;--reordered:#d6bb4e;--unseen:#93a0af;--unreadable:#b98a74;--clean:#4fc79b;
--incomplete:#d6bb4e}}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:70rem;margin:2rem auto;padding:0 1rem}
section{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:1rem 1.3rem;margin:1rem 0}
h1{font-size:1.3rem}h2{font-size:1.1rem;margin:.2rem 0}h3{font-size:.95rem;margin:1.2rem 0 .3rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.87rem;font-variant-numeric:tabular-nums}
th{color:var(--dim);font-weight:500;text-align:left}td,th{padding:.25rem .8rem .25rem 0;vertical-align:top;
border-bottom:1px solid var(--line)}.n{text-align:right}.dim{color:var(--dim)}.big{font-size:1.6rem;font-weight:600}
.clean{color:var(--clean)}.incomplete{color:var(--incomplete)}.deviated{color:var(--lost)}
.topic{min-width:15rem;overflow-wrap:anywhere}svg{display:block;max-width:100%;height:auto}
svg text{fill:var(--dim);font-size:11px;font-family:system-ui,sans-serif}pre{margin:0;white-space:pre-wrap;
overflow-wrap:anywhere;font-size:.82rem}.key{display:inline-block;
width:.8em;height:.8em;border-radius:.2em;margin:0 .35em 0 0}.legend>span{white-space:nowrap;margin-right:1em}
p,li,h2{overflow-wrap:anywhere}.bad{font-weight:600}.chart{width:100%;height:5.6rem}.axis{display:flex;justify-content:space-between;gap:1rem;
flex-wrap:wrap;font-size:.75rem;color:var(--dim)}
.finding{display:grid;grid-template-columns:9rem 1fr 1fr;gap:.3rem 1rem;
padding:.4rem 0;border-top:1px solid var(--line);font-size:.87rem}.finding>div{min-width:0;overflow-wrap:anywhere}
details{margin:-.4rem 0 1rem}details ul,ul.dim{margin:.3rem 0;font-size:.87rem}
@media(max-width:44rem){.finding{grid-template-columns:minmax(0,1fr)}section{padding:.7rem .8rem}main{padding:0 .5rem}
.topics tr{display:block;padding:.4rem 0;border-bottom:1px solid var(--line)}.topics th,.topics .zero{display:none}
.topics td{display:inline-block;border:0;padding:0 1rem 0 0}.topics .topic{display:block;padding:0}
.topics td[data-name]::before{content:attr(data-name) " ";color:var(--dim);font-weight:400}}
@media print{:root{color-scheme:light;--fg:#000;--bg:#fff;--card:#fff;--dim:#444;--line:#bbb;
--matched:#5c8275;--lost:#a01a20;--corrupted:#7a2f93;--duplicated:#7a4800;--foreign:#1d4f88;--reordered:#6b5600;--unseen:#4c5763;--unreadable:#5b2333;
--clean:#0a5c41;--incomplete:#6b5600}
body{font-size:10.5pt}main{max-width:none;margin:0;padding:0}section{border:0;border-radius:0;padding:.4rem 0}
.finding,tr,svg,.chart,h2,h3{break-inside:avoid}h2,h3{break-after:avoid}.scroll{overflow:visible}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}@page{margin:16mm}}
"""


def write_report(path: Path, text: str) -> None:
    """Write a document of this module.

    Raises:
        DrkitError: the file can't be written; the audit is done all the same.
    """
    try:
        write_private(path, text)
    except OSError as error:
        raise DrkitError(
            f"the report can't be written to {path}: {error.strerror or error}",
            meaning="The audit itself is done",
            remedy="Give another --report",
        ) from error


def render_report(
    results: Sequence[AuditResult],
    times: Sequence[FindingsOverTime | None],
    shown: Sequence[Sequence[FindingWitness]],
    run: str,
) -> str:
    """The document.

    Args:
        results: an audit of each link.
        times: of each, when its findings' records were stamped.
        shown: of each, the first witnesses.
        run: what `drkit runs` lists them as.
    """
    parts = "".join(_link(*each) for each in zip(results, times, shown, strict=True))
    legend = " ".join(f"<span>{_legend_key(kind)}{kind}</span>" for kind in ("matched", *_KINDS))
    meanings = "".join(f"<li><b>{kind}</b>: {escape(meaning)}</li>" for kind, meaning in _MEANINGS.items())
    links = ", ".join(str(result.link) for result in results)
    title = escape(f"drkit {run}: {links}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{STYLE}</style></head>'
        f'<body><main><h1>drkit audit</h1><p class="dim">Run {escape(run)}. Times are UTC.</p>'
        f'<p class="dim legend">{legend}</p><details class="dim"><summary>What these mean</summary>'
        f"<ul>{meanings}</ul></details>{parts}</main></body></html>\n"
    )


def _link(result: AuditResult, times: FindingsOverTime | None, shown: Sequence[FindingWitness]) -> str:
    counts, verdict = result.counts, result.verdict
    window = "".join(
        f", {word} {iso(at)}" for word, at in (("from", result.since), ("until", result.until)) if at is not None
    )
    found = "".join(f", {getattr(counts, kind):,} {kind}" for kind in _KINDS if getattr(counts, kind))
    incomplete = [f"Not compared: {reason}" for reason in result.incomplete]
    notes = "".join(f"<p>{escape(note)}</p>" for note in (*incomplete, *digest_lines(result), *result.notes))
    return (
        f"<section><h2>{escape(str(result.link))}</h2>"
        f'<p class="dim">Observed {iso(result.observed_at)}</p>'
        f'<p class="big {verdict.value}">{result.verdict_in_words}</p>'
        f"<p>{counts.source_records:,} source and {counts.target_records:,} target records, "
        f"{counts.matched:,} matched{found}; looked at in {result.seconds:.1f} s{escape(window)}</p>"
        f"{_one_sided_notes(counts)}{notes}"
        f"<h3>Topics</h3>{_topics(result)}{_foreign_keys(result)}{_findings(result, times, shown)}</section>"
    )


def _one_sided_notes(counts: Counts) -> str:
    """What is on one side only, and is no deviation."""
    words = {
        "source_retired": "on the target only: the source's retention or compaction removed them there",
        "target_retired": "on the source only: the target's retention or compaction removed them there",
        "target_appended": "on the target since the link was sealed: its own applications' records",
    }
    lines = "".join(f"<li>{count:,} {text}</li>" for name, text in words.items() if (count := getattr(counts, name)))
    return f'<p>No deviation, and in none of these counts:</p><ul class="dim">{lines}</ul>' if lines else ""


def _findings(result: AuditResult, times: FindingsOverTime | None, shown: Sequence[FindingWitness]) -> str:
    if not result.findings_total:
        return '<p class="dim">No findings.</p>'
    return (
        f"<h3>Findings over time, by the records' timestamps</h3>{_over_time(times)}"
        f"<h3>First witnesses</h3>{_witnesses(shown)}"
        f'<p class="dim">All {result.findings_total:,} findings: {escape(result.findings_path)}</p>'
    )


def _topics(result: AuditResult) -> str:
    by_topic: dict[str, list[Counts]] = {}
    for each in result.partitions:
        by_topic.setdefault(each.topic, []).append(each.counts)
    head = "".join(f'<th class="n">{name}</th>' for name in ("source", "target", "matched", *_KINDS))
    totals = {topic: Counts.total(parts) for topic, parts in by_topic.items()}
    rows = []
    for topic, counts in sorted(totals.items(), key=lambda each: (_nothing_found(each[1]), each[0])):
        columns = {"source": "source_records", "target": "target_records", "matched": "matched"}
        cells = "".join(
            f'<td class="n" data-name="{name}">{getattr(counts, column):,}</td>' for name, column in columns.items()
        ) + "".join(_number(kind, getattr(counts, kind)) for kind in _KINDS)
        rows.append(f'<tr><td class="topic">{escape(topic)}{_bar(counts)}</td>{cells}</tr>')
    return f'<div class="scroll"><table class="topics"><tr><th>topic</th>{head}</tr>{"".join(rows)}</table></div>'


def _nothing_found(counts: Counts) -> bool:
    return not any(getattr(counts, kind) for kind in _KINDS)


def _number(kind: str, count: int) -> str:
    if not count:
        return f'<td class="n dim zero" data-name="{kind}">0</td>'
    return f'<td class="n bad" data-name="{kind}" style="color:var(--{kind})">{count:,}</td>'


def _legend_key(kind: str) -> str:
    return f'<span class="key" style="background:var(--{kind})"></span>'


def _foreign_keys(result: AuditResult) -> str:
    lines = "".join(f"<li>{escape(foreign_key_line(each))}</li>" for each in result.foreign_keys)
    return f"<h3>Foreign keys</h3><ul>{lines}</ul>" if lines else ""


def _bar(counts: Counts) -> str:
    """The share of each kind; what is there at all is at least two pixels wide."""
    shares = [(name, getattr(counts, name)) for name in ("matched", *_KINDS)]
    shares[0] = ("matched", counts.matched - counts.reordered)
    total = sum(count for _, count in shares)
    if not total:
        return ""
    width = 240
    sizes = [(name, count, max(2.0, width * count / total)) for name, count in shares if count]
    scale = width / sum(size for *_, size in sizes)
    at, bars = 0.0, []
    for name, count, size in sizes:
        bars.append(
            f'<rect x="{at:.1f}" width="{size * scale:.1f}" height="{_BAR}" style="fill:var(--{name})">'
            f"<title>{name}: {count:,}</title></rect>"
        )
        at += size * scale
    return f'<svg viewBox="0 0 {width} {_BAR}" width="{width}" height="{_BAR}" role="img">{"".join(bars)}</svg>'


def _over_time(times: FindingsOverTime | None) -> str:
    if times is None:
        return '<p class="dim">None of these timestamps is a date.</p>'
    topics = sorted({topic for topic, _ in times.counts})
    charts = [f"<p>{escape(topic)}</p>{_chart(times, topic)}" for topic in topics[:_TOPICS_CHARTED]]
    if len(topics) > _TOPICS_CHARTED:
        charts.append(f'<p class="dim">and {len(topics) - _TOPICS_CHARTED:,} more topics, in the findings</p>')
    return "".join(charts)


def _chart(times: FindingsOverTime, topic: str) -> str:
    from drkit.audit.findings.findings_files import BUCKETS

    columns = [[times.counts.get((topic, kind), [0] * BUCKETS)[at] for kind in _KINDS] for at in range(BUCKETS)]
    most = max(sum(column) for column in columns) or 1
    step = _WIDTH / BUCKETS
    bars = []
    for at, column in enumerate(columns):
        top = float(_HEIGHT)
        for kind, count in zip(_KINDS, column, strict=True):
            if count:
                size = max(1.5, _HEIGHT * count / most)
                top -= size
                bars.append(
                    f'<rect x="{at * step:.1f}" y="{max(0.0, top):.1f}" width="{step - 1:.1f}" height="{size:.1f}" '
                    f'style="fill:var(--{kind})"><title>{kind}: {count:,}</title></rect>'
                )
    outside = "".join(
        f"<span>{count:,} {when}</span>"
        for when, count in (("earlier", times.earlier), ("later", times.later))
        if count
    )
    ends = (times.first,) if times.first == times.last else (times.first, times.last)
    return (
        f'<div class="axis"><span>up to {most:,} at a time</span>{outside}</div>'
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img">{"".join(bars)}'
        f'<line x1="0" x2="{_WIDTH}" y1="{_HEIGHT}" y2="{_HEIGHT}" style="stroke:var(--line)"/></svg>'
        f'<div class="axis">{"".join(f"<span>{iso(each)}</span>" for each in ends)}</div>'
    )


def _witnesses(shown: Sequence[FindingWitness]) -> str:
    rows = []
    for each in shown:
        finding = each.finding
        partition = f"{escape(finding.topic)}:{finding.partition}"
        rows.append(
            f'<div class="finding"><div>{_legend_key(finding.kind.value)}<b>{finding.kind.value}</b><br>{partition}'
            f"{_difference(each)}</div><div>{_content('source', finding.source_offset, each.source)}</div>"
            f"<div>{_content('target', finding.target_offset, each.target)}</div></div>"
        )
    return "".join(rows)


def _difference(witness: FindingWitness) -> str:
    """Which parts of a corrupted record are not as they were."""
    from drkit.audit.findings.witnesses import Content

    one, other = witness.source, witness.target
    if (
        witness.finding.kind is not FindingKind.CORRUPTED
        or not isinstance(one, Content)
        or not isinstance(other, Content)
    ):
        return ""
    parts = {"key": "key", "value": "value", "headers": "headers", "stamp": "timestamp"}
    names = [name for part, name in parts.items() if getattr(one, part) != getattr(other, part)]
    return f'<br><span class="dim">other {" and ".join(names)}</span>' if names else ""


def _content(side: str, offset: int | None, content: Content | str | None) -> str:
    if content is None:
        return f'<span class="dim">{side}: -</span>'
    at = f'<span class="dim">{side}: offset {offset}</span>'
    if isinstance(content, str):
        return f"{at}<br>{escape(content)}"
    lines = [
        f"key {_text(content.key)}",
        *(f"{escape(_name(name))}: {_text(value)}" for name, value in content.headers),
    ]
    timestamp = iso(date_of(content.stamp)) or f"timestamp {content.stamp} ms"
    return f'{at} <span class="dim">{timestamp}</span><pre>{chr(10).join(lines)}\n{_text(content.value)}</pre>'


def _name(name: str) -> str:
    """A header's name; bytes of it that are no text, as they are."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _text(value: bytes | None) -> str:
    if not value:
        return f'<span class="dim">{"null" if value is None else "empty"}</span>'
    return escape(shown_bytes(value, _LONGEST))


_COLOURS = {
    GroupVerdict.CLEAN: "clean",
    GroupVerdict.DEVIATED: "deviated",
    GroupVerdict.UNKNOWN: "incomplete",
}
_GROUP_KINDS = ("skipped", "lost", "unreadable", "unmirrored", "corrupted", "read again", "duplicated")


def render_group_report(result: GroupAudit) -> str:
    """The document."""
    move = result.move
    colour = _COLOURS[result.verdict]
    notes = [*result.notes, *(f"{_partition_name(each)} {note}" for each in result.partitions for note in each.notes)]
    head = "".join(f'<th class="n">{name}</th>' for name in ("before", "after", *_GROUP_KINDS))
    rows = "".join(_group_row(each) for each in result.partitions)
    witnesses = "".join(_group_witness(each) for each in result.witnesses)
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


def _group_row(each: GroupPartition) -> str:
    place, counts = each.place, each.counts
    unmirrored = _known(counts.unmirrored)
    if counts.unmirrored is None and counts.unmirrored_at_least:
        unmirrored = f"at least {counts.unmirrored_at_least:,}"
    cells = (
        _group_position(place.source_offset, place.before),
        _group_position(place.target_offset, place.after),
        _known(counts.position),
        _known(counts.lost),
        _known(counts.unreadable),
        unmirrored,
        _known(counts.corrupted),
        _known(counts.reread),
        _known(counts.duplicated),
    )
    return (
        f"<tr><td>{escape(_partition_name(each))}</td>"
        + "".join(f'<td class="n">{cell}</td>' for cell in cells)
        + "</tr>"
    )


def _group_witness(each: GroupWitness) -> str:
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


def _partition_name(each: GroupPartition) -> str:
    return f"{each.place.topic}:{each.place.partition}"


def _group_position(offset: int | None, by: str | None) -> str:
    return "unknown" if offset is None else f"{offset} ({by})"


def _known(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"
