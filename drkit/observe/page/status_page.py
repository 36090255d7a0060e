"""The status page: one self-contained HTML document, no script from anywhere, readable without any."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from drkit.model.clock import iso, now
from drkit.model.link_state import Problem
from drkit.model.offsets import Certainty
from drkit.model.statistics import WorkerStatistics
from drkit.observe import formatting
from drkit.observe.status import GroupStatus, LinkStatus, PartitionStatus

MAX_ROWS = 200

_STYLE = """
:root{color-scheme:light dark;--fg:#1b2430;--bg:#f6f7f9;--card:#fff;--dim:#66717f;--line:#dfe4ea;
--ok:#12805c;--warn:#a76300;--bad:#c0272d}
@media(prefers-color-scheme:dark){:root{--fg:#e5eaf0;--bg:#12161b;--card:#1a2028;--dim:#93a0af;--line:#2b3440;
--ok:#45c195;--warn:#e3a53a;--bad:#ff7a76}}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:70rem;margin:2rem auto;padding:0 1rem}
section{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:1rem 1.3rem;margin:1rem 0}
h1{font-size:1.3rem}h2{font-size:1.1rem;margin:.2rem 0}h3{font-size:.9rem;color:var(--dim);margin:1rem 0 .2rem}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.87rem;font-variant-numeric:tabular-nums}
th{color:var(--dim);font-weight:500;text-align:left}
td,th{padding:.2rem .8rem .2rem 0;border-bottom:1px solid var(--line)}
.n{text-align:right}.ok{color:var(--ok)}.warn{color:var(--warn)}.bad{color:var(--bad)}.dim{color:var(--dim)}
.big{font-size:1.6rem;font-weight:600}
"""

_TONE = {
    "mirroring": "ok",
    "stopped": "warn",
    "paused": "warn",
    "degraded": "bad",
    "sealed": "warn",
    "reversed": "warn",
}


def render_page(statuses: Sequence[LinkStatus], error: str | None = None, *, refresh_seconds: int = 5) -> str:
    """The page for a snapshot, or for the reason why there is none."""
    body = "".join(_link(status) for status in statuses)
    if error is not None:
        body = f'<section><h2 class="bad">No status</h2><p>{escape(error)}</p></section>'
    elif not statuses:
        body = "<section><p>No link is configured.</p></section>"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>drkit status</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="refresh" content="{refresh_seconds}"><style>{_STYLE}</style></head>'
        f'<body><main><h1>drkit</h1>{body}<p class="dim">As of {iso(now())} · <a href="status.json">JSON</a> · '
        f'<a href="metrics">metrics</a></p></main></body></html>'
    )


def _link(status: LinkStatus) -> str:
    point = status.recovery_point
    loss = (
        "unknown"
        if point.records is None
        else f"{formatting.loss(point.records, lower_bound=point.lower_bound)} · {_seconds(point.seconds)}"
    )
    tone = _TONE.get(status.state, "warn")
    lines = [
        f'<section><h2>{escape(str(status.link.id))} <span class="{tone}">{escape(status.state)}</span></h2>',
        f'<div class="dim">{escape(status.loss_means)}</div><div class="big">{escape(loss)}</div>',
    ]
    for alias, reachable in (
        (status.link.id.source, status.source_reachable),
        (status.link.id.target, status.target_reachable),
    ):
        if not reachable:
            lines.append(f'<p class="bad">{escape(alias)} does not answer: its offsets are as last seen.</p>')
    if status.reason:
        lines.append(f'<p class="warn">{escape(status.reason)}</p>')
    lines.extend(
        f'<p class="bad">{_place(problem)}{escape(problem.reason)}. {escape(problem.remedy)}</p>'
        for problem in status.problems
    )
    lines.append(_workers(status.statistics) + _partitions(status.partitions) + _groups(status.groups) + "</section>")
    return "".join(lines)


def _place(problem: Problem) -> str:
    where = " ".join(filter(None, (formatting.place(problem), "(halted)" if problem.halted else "")))
    return f"<b>{escape(where)}</b> " if where else ""


def _workers(workers: Sequence[WorkerStatistics]) -> str:
    if not workers:
        return ""
    head = ["worker", "throughput", "in flight", "end to end", "batches", "as of"]
    rows = [
        _row(
            [
                formatting.short(worker.worker),
                formatting.throughput(worker),
                formatting.in_flight(worker.statistics),
                formatting.latency(worker.latency),
                formatting.treatment(worker.statistics),
                str(iso(worker.at)),
            ],
            tone="" if worker.state == "mirroring" else "warn",
        )
        for worker in workers[:MAX_ROWS]
    ]
    return _table("Workers", head, rows, len(workers), numbers=False)


def _partitions(partitions: Sequence[PartitionStatus]) -> str:
    if not partitions:
        return ""
    worst = sorted(partitions, key=lambda p: (-(p.lag_records or 0), p.topic, p.partition))[:MAX_ROWS]
    head = ["partition", "source end", "mirrored through", "target end", "delta", "lag", "seconds"]
    rows = [
        _row(
            [
                f"{p.topic}:{p.partition}",
                _count(p.source_end),
                _count(p.mirrored_through),
                _count(p.target_end),
                _count(p.delta),
                _count(p.lag_records),
                _seconds(p.lag_seconds),
            ],
            tone="warn" if p.lag_records else "",
        )
        for p in worst
    ]
    return _table("Partitions", head, rows, len(partitions), numbers=True)


def _groups(groups: Sequence[GroupStatus]) -> str:
    if not groups:
        return ""
    worst = sorted(groups, key=lambda g: (g.translation is Certainty.EXACT, g.group, g.topic, g.partition))[:MAX_ROWS]
    head = ["group", "partition", "source", "target", "translation", "captured"]
    rows = [
        _row(
            [
                g.group,
                f"{g.topic}:{g.partition}",
                _count(g.source_offset),
                _count(g.target_offset),
                g.translation.value if g.reason is None else f"{g.translation.value}: {g.reason}",
                str(iso(g.captured_at)),
            ],
            tone="" if g.translation is Certainty.EXACT else "warn",
        )
        for g in worst
    ]
    return _table("Groups", head, rows, len(groups), numbers=False)


def _table(title: str, head: Sequence[str], rows: Sequence[str], total: int, *, numbers: bool) -> str:
    css = ' class="n"' if numbers else ""
    cells = "".join(f"<th{css if i else ''}>{escape(name)}</th>" for i, name in enumerate(head))
    more = f'<p class="dim">{total - len(rows):,} more in the JSON.</p>' if total > len(rows) else ""
    body = "".join(rows).replace("<td>", f"<td{css}>") if numbers else "".join(rows)
    return f'<h3>{escape(title)}</h3><div class="scroll"><table><tr>{cells}</tr>{body}</table></div>{more}'


def _row(cells: Sequence[str], *, tone: str) -> str:
    first, *rest = cells
    return f'<tr class="{tone}"><th>{escape(first)}</th>' + "".join(f"<td>{escape(c)}</td>" for c in rest) + "</tr>"


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return "? s" if value is None else f"{value:.1f} s"
