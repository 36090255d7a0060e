"""The tables of a run, made once as rows of text: shown by rich on a terminal, and as Markdown in RESULTS.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from bench.cases import BACKLOG, LIVE, SITE_WAYS, SITES, BacklogCase, LiveCase
from bench.live import DIRECT
from bench.peers.bare import BARE
from bench.results import Results
from bench.stats import TIMES, ratio
from bench.targets import DRKIT, LOOKS, OTHER, SPEED, cpu_ratio, judge, rate_ratio

TITLES = {DRKIT: "drkit", OTHER: "MirrorMaker 2", DIRECT: "the source, directly", BARE: "a bare forwarder"}
LIVE_READERS = (DIRECT, BARE, DRKIT, OTHER)
UNKNOWN = "-"
_STYLES = {"met": "green", "not met": "bold red", "not measured": "dim"}

_INTRODUCTION = (
    "Written by `python -m bench`; what each figure means, and what it doesn't, is in [README.md](README.md). "
    "What an audit costs is in [AUDIT.md](AUDIT.md). "
    "★: a case that a target is about.\n"
)
_SHARED = "Both brokers, the mirror, the loader and the readers share these cores.\n"
_LABELS = {
    "at": "begun",
    "cpu": "CPU",
    "cores": "cores",
    "memory_gib": "memory, GiB",
    "kernel": "kernel",
    "python": "Python",
    "java": "Java",
    "kafka": "Kafka and MirrorMaker 2",
    "cassandra": "Cassandra",
    "drkit": "drkit",
    "aiokafka": "aiokafka",
    "confluent_kafka": "confluent-kafka",
    "load_before": "load average before",
}


@dataclass(frozen=True, slots=True)
class Grid:
    """A table as text. Columns named in `left` are aligned left, the others right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[str]


def render(results: Results) -> str:
    """The file's text."""
    machine = "\n".join(
        f"| {_LABELS.get(name, name)} | {value} |" for name, value in results.machine.items() if value is not None
    )
    parts = [
        f"# drkit and MirrorMaker 2, side by side: a {results.extent} run\n",
        _INTRODUCTION,
        f"## The machine\n\n| | |\n| --- | --- |\n{machine}\n\n{_SHARED}",
        *(markdown(grid) for grid in grids(results)),
    ]
    if results.failures:
        parts.append("## Not measured\n\n" + "\n".join(f"- {_one_line(each)}" for each in results.failures) + "\n")
    return "\n".join(parts)


def _one_line(text: str) -> str:
    return text.strip().splitlines()[0]


def grids(results: Results) -> list[Grid]:
    """Every table for which something was measured; the targets come first."""
    made = [
        _targets(results),
        _backlog(results),
        _launch_and_memory(results),
        _live(results),
        _translate(results),
        _lookup(results),
        _moves(results),
        _large_links(results),
        _sites(results),
        _outages(results),
    ]
    return [grid for grid in made if grid.rows]


def rich_table(grid: Grid) -> Table:
    """For a terminal."""
    table = Table(title=grid.title, title_justify="left", title_style="bold", box=None, header_style="dim")
    for column in grid.columns:
        table.add_column(column, justify="left" if column in grid.left else "right")
    for row in grid.rows:
        table.add_row(*(Text(cell, _STYLES.get(cell, "")) for cell in row))
    return table


def markdown(grid: Grid) -> str:
    """For a file."""
    rule = ["---" if column in grid.left else "---:" for column in grid.columns]
    lines = [_line(grid.columns), _line(rule), *map(_line, grid.rows)]
    return f"## {grid.title}\n\n" + "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def number(value: float | None, digits: int = 0) -> str:
    """A figure for people: thousands separated; a dash where it isn't known."""
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def significant(value: float | None) -> str:
    """A figure with three digits that mean something."""
    if value is None:
        return UNKNOWN
    digits = next((count for limit, count in ((100, 0), (10, 1), (1, 2)) if abs(value) >= limit), 3)
    return f"{value:,.{digits}f}"


def _targets(results: Results) -> Grid:
    rows = []
    for each in judge(results):
        sign = "≥" if each.at_least else "≤"
        unit = f" {each.unit}" if each.unit else ""
        limit = f"{sign} {each.limit:g}{unit}"
        measured = UNKNOWN if each.measured is None else f"{significant(each.measured)}{unit}"
        rows.append((each.target, measured, limit, each.verdict, each.note))
    columns = ("target", "measured", "limit", "verdict", "note")
    return Grid("Targets", columns, tuple(rows), frozenset({"target", "verdict", "note"}))


def _backlog(results: Results) -> Grid:
    columns = ("case", "records", "mirror", "records/s", "MB/s", "CPU-s per million", "speed", "CPU", "class target")
    rows = [row for case in BACKLOG for row in _backlog_rows(results, case)]
    title = "Backlog, from the first to the last record on the target"
    return Grid(title, columns, tuple(rows), frozenset({"case", "mirror", "class target"}))


def _backlog_rows(results: Results, case: BacklogCase) -> Iterator[tuple[str, ...]]:
    for peer in (DRKIT, OTHER):
        runs = results.runs_of(case.name, peer)
        if not runs:
            continue
        ours = peer == DRKIT
        faster, cheaper = (rate_ratio(results, case.name), cpu_ratio(results, case.name)) if ours else (None, None)
        done = "" if all(run.complete for run in runs) else f" (stopped at {min(r.mirrored_records for r in runs):,})"
        uneven = sum(run.uneven_partitions for run in runs)
        odd = f" ({uneven} partitions differ from the source)" if uneven else ""
        yield (
            f"{'★ ' if case.named else ''}{case.name}: {case.description}" if ours else "",
            f"{runs[0].records:,}{done}{odd}",
            TITLES[peer],
            number(results.typical(case.name, peer, "records_per_second")),
            number(results.typical(case.name, peer, "mb_per_second"), 1),
            significant(results.typical(case.name, peer, "cpu_seconds_per_million")),
            "" if not ours else UNKNOWN if faster is None else f"{faster:.1f} {TIMES}",
            "" if not ours else UNKNOWN if cheaper is None else f"1/{cheaper:.1f}",
            class_verdict(case, faster, cheaper) if ours else "",
        )


def class_verdict(case: BacklogCase, faster: float | None, cheaper: float | None) -> str:
    """Whether a case meets the target that the issue states for its number of records a batch."""
    wanted = SPEED.get(case.records_a_batch)
    if wanted is None:
        return "none"
    if faster is None or cheaper is None:
        return "not measured"
    missed = [f"{wanted[0]:g} {TIMES}"] if faster < wanted[0] else []
    missed += [f"1/{wanted[1]:g}"] if cheaper < wanted[1] else []
    return f"not met: {', '.join(missed)}" if missed else "met"


Column = tuple[str, Callable[[Any], str]]
"""A column's title, and a row's cell in it."""


def _grid(title: str, left: int, columns: Sequence[Column], items: Iterable[Any]) -> Grid:
    """A table with a row for each item; the first `left` columns are aligned left."""
    rows = tuple(tuple(cell(item) for _, cell in columns) for item in items)
    titles = tuple(name for name, _ in columns)
    return Grid(title, titles, rows, frozenset(titles[:left]))


def _figure(measure: str, digits: int = 0) -> Callable[[Any], str]:
    """The cell of one field."""
    return lambda run: number(getattr(run, measure), digits)


def _launch_and_memory(results: Results) -> Grid:
    def typical(measure: str, digits: int = 0) -> Callable[[tuple[str, str]], str]:
        return lambda row: number(results.typical(*row, measure), digits)

    columns: list[Column] = [
        ("case", lambda row: str(row[0])),
        ("mirror", lambda row: TITLES[row[1]]),
        ("launch to first record, s", typical("launch_seconds", 2)),
        ("CPU-s until then", typical("launch_cpu_seconds", 2)),
        ("peak RSS, MiB", typical("peak_rss_mib")),
        ("1st half", typical("rss_first_half_mib")),
        ("2nd half", typical("rss_second_half_mib")),
    ]
    rows = [(case.name, peer) for case in BACKLOG for peer in (DRKIT, OTHER) if results.runs_of(case.name, peer)]
    return _grid("Launch and memory", 2, columns, rows)


def _live(results: Results) -> Grid:
    def typical(measure: str, digits: int = 1, times: float = 1) -> Callable[[tuple[LiveCase, str, bool]], str]:
        def cell(row: tuple[LiveCase, str, bool]) -> str:
            value = results.typical_live(row[0].name, row[1], measure)
            return number(None if value is None else times * value, digits)

        return cell

    columns: list[Column] = [
        ("case", lambda row: f"{'★ ' if row[0].named else ''}{row[0].name}: {row[0].description}" if row[2] else ""),
        ("reader of", lambda row: TITLES[row[1]] if row[1] == DIRECT else f"the target of {TITLES[row[1]]}"),
        ("records/s", typical("records_per_second", 0)),
        ("p50, ms", typical("p50_ms")),
        ("p99, ms", typical("p99_ms")),
        ("max, ms", typical("max_ms")),
        ("CPU, % of a core", typical("cpu_share", 1, 100)),
        ("peak RSS, MiB", typical("peak_rss_mib", 0)),
    ]
    rows = []
    for case in LIVE:
        measured = [peer for peer in LIVE_READERS if results.live_of(case.name, peer)]
        rows += [(case, peer, peer == measured[0]) for peer in measured]
    return _grid("Live, end to end", 2, columns, rows)


def _translate(results: Results) -> Grid:
    columns: list[Column] = [
        ("mirror", lambda run: TITLES[run.peer]),
        ("topic", lambda run: str(run.kind)),
        ("commits", _figure("commits")),
        ("answered", _figure("answered")),
        ("exact", _figure("exact")),
        ("read again, sum", _figure("reread_sum")),
        ("read again, max", _figure("reread_max")),
        ("skipped, sum", _figure("skipped_sum")),
        ("skipped, max", _figure("skipped_max")),
    ]
    return _grid("Translated positions, records", 2, columns, results.translate)


def _lookup(results: Results) -> Grid:
    columns: list[Column] = [
        ("rows", _figure("rows")),
        ("lookups", _figure("lookups")),
        ("p50, ms", _figure("p50_ms", 2)),
        ("p99, ms", _figure("p99_ms", 2)),
        ("rows/s when loading", lambda run: number(ratio(run.rows, run.load_seconds))),
    ]
    return _grid("Mapping lookups (Cassandra)", 0, columns, results.lookup)


def _moves(results: Results) -> Grid:
    columns: list[Column] = [
        ("tool", lambda run: str(run.tool)),
        ("groups and partitions", lambda run: f"{run.groups:,} {TIMES} {run.partitions}"),
        ("launch to end, s", lambda run: number(results.typical_move(run.tool, "seconds"), 1)),
        ("CPU-s", lambda run: number(results.typical_move(run.tool, "cpu_seconds"), 1)),
    ]
    one_of_each = {run.tool: run for run in reversed(results.moves)}
    tools = dict.fromkeys(run.tool for run in results.moves)
    return _grid("Moving groups to a moment", 1, columns, [one_of_each[tool] for tool in tools])


def _large_links(results: Results) -> Grid:
    def look(name: str) -> Column:
        return (
            f"{name}, s (CPU-s)",
            lambda run: f"{number(run.commands[name], 1)} ({number(run.commands_cpu[name], 1)})",
        )

    columns: list[Column] = [
        ("partitions and topics", lambda run: f"{run.partitions:,} in {run.topics:,}"),
        ("made by a bare client, s", _figure("created", 1)),
        ("first record, s", _figure("first", 1)),
        ("all moving, s", _figure("moving", 1)),
        ("CPU-s until then", _figure("moving_cpu", 1)),
        ("launched again: first, s", _figure("again_first", 1)),
        ("all moving, s", _figure("again_moving", 1)),
        ("at rest, % of a core", lambda run: number(100 * run.idle_share, 1)),
        ("peak RSS, MiB", _figure("peak_rss_mib")),
        *map(look, LOOKS),
    ]
    return _grid("A large link", 1, columns, results.large_links)


def _sites(results: Results) -> Grid:
    def stage(name: str) -> Column:
        return name, lambda run: number(run.stages.get(name), 2)

    columns: list[Column] = [
        ("sources", lambda run: str(run.way)),
        ("groups and partitions", lambda run: f"{run.links} links, {run.groups:,} {TIMES} {run.partitions}"),
        ("launch to end, s", _figure("seconds", 1)),
        ("to verified positions, s", _figure("rto_seconds", 1)),
        ("CPU-s", _figure("cpu_seconds", 1)),
        *map(stage, dict.fromkeys(name for run in results.sites for name in run.stages)),
    ]
    runs = [run for case in SITES for way in SITE_WAYS for run in results.sites_of(case.name, way)]
    return _grid("A site's failover, all sources dead, by stage (of the slowest link, s)", 1, columns, runs)


def _outages(results: Results) -> Grid:
    columns: list[Column] = [
        ("catch_up", lambda run: str(run.policy)),
        ("records, partitions", lambda run: f"{run.records:,} on {run.partitions:,}"),
        ("p50 alone, ms", _figure("alone_p50_ms", 1)),
        ("p99 alone, ms", _figure("alone_p99_ms", 1)),
        ("p50", _figure("p50_ms", 1)),
        ("p99", _figure("p99_ms", 1)),
        ("max", _figure("max_ms", 1)),
        ("took, s", _figure("seconds", 1)),
        ("records/s", _figure("records_per_second")),
    ]
    title = "A producer on the target, alone and while a backlog is copied there"
    return _grid(title, 1, columns, results.outages)
