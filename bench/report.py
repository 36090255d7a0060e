"""Renders the tables of a run as Markdown: RESULTS.md, which the terminal shows, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.cases import BACKLOG, LIVE, SITE_WAYS, SITES, TIMES, BacklogCase, LiveCase
from bench.mirrors import BARE, DIRECT, DRKIT, OTHER, TITLES
from bench.results import BacklogRun, Results
from bench.stats import ratio
from bench.targets import SPEED, TIMED_COMMANDS, Judgement, cpu_ratio, judge, rate_ratio

UNKNOWN = "-"
_LIVE_READERS = (DIRECT, BARE, DRKIT, OTHER)
_INTRODUCTION = (
    "Written by `python -m bench`; what each figure means, and what it doesn't, is in [README.md](README.md). "
    "What an audit costs is in [AUDIT.md](AUDIT.md). "
    "★: a case that a target is about.\n"
)
_SHARED = "Both brokers, the mirror, the loader and the readers share these cores.\n"
_LABELS = {
    "at": "begun",
    "cpu": "CPU",
    "memory_gib": "memory, GiB",
    "python": "Python",
    "java": "Java",
    "kafka": "Kafka and MirrorMaker 2",
    "cassandra": "Cassandra",
    "confluent_kafka": "confluent-kafka",
    "load_before": "load average before",
}


Cell = Callable[[Any], str]
Column = tuple[str, Cell]
"""A column's title, and a row's cell in it."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table as text. The first `left` columns, and those in `also_left`, are left-aligned; others right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int
    also_left: tuple[str, ...] = ()


def render(results: Results) -> str:
    """The file's text."""
    machine = "\n".join(
        f"| {_LABELS.get(name, name)} | {value} |" for name, value in results.machine.items() if value is not None
    )
    parts = [
        f"# drkit and MirrorMaker 2, side by side: a {results.extent} run\n",
        _INTRODUCTION,
        f"## The machine\n\n| | |\n| --- | --- |\n{machine}\n\n{_SHARED}",
        *(f"## {grid.title}\n\n{markdown(grid)}" for grid in grids(results)),
    ]
    if results.failures:
        failures = (f"- {each.strip().splitlines()[0]}\n" for each in results.failures)
        parts.append("## Not measured\n\n" + "".join(failures))
    return "\n".join(parts)


def grids(results: Results) -> list[Grid]:
    """Every table that has measurements; the targets come first."""
    tables = (
        *(_targets, _backlog, _launch_and_memory, _live, _translate, _lookup),
        *(_moves, _large_links, _sites, _outages),
    )
    return [grid for table in tables if (grid := table(results)).rows]


def table(
    title: str, left: int, columns: Sequence[Column], items: Iterable[Any], also_left: Sequence[str] = ()
) -> Grid:
    """A table with a row for each item; alignment as in `Grid`."""
    rows = tuple(tuple(cell(item) for _, cell in columns) for item in items)
    return Grid(title, tuple(name for name, _ in columns), rows, left, tuple(also_left))


def markdown(grid: Grid) -> str:
    """The table for a file, without the title."""
    rule = ["---" if index < grid.left or name in grid.also_left else "---:" for index, name in enumerate(grid.columns)]
    lines = ([cell.replace("|", "\\|") for cell in cells] for cells in (grid.columns, rule, *grid.rows))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def number(value: float | None, digits: int = 0) -> str:
    """A readable figure: with thousands separators; a dash if it is unknown."""
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def significant(value: float | None) -> str:
    """A figure with three significant digits."""
    if value is None:
        return UNKNOWN
    digits = next((count for limit, count in ((100, 0), (10, 1), (1, 2)) if abs(value) >= limit), 3)
    return f"{value:,.{digits}f}"


def figure(measure: str, digits: int = 0) -> Cell:
    """The cell of one field."""
    return lambda run: number(getattr(run, measure), digits)


# --- the tables ---------------------------------------------------------------------------------


def _targets(results: Results) -> Grid:
    def unit(each: Judgement) -> str:
        return f" {each.unit}" if each.unit else ""

    columns: list[Column] = [
        ("target", lambda each: str(each.target)),
        ("measured", lambda e: UNKNOWN if e.measured is None else f"{significant(e.measured)}{unit(e)}"),
        ("limit", lambda each: f"{'≥' if each.at_least else '≤'} {each.limit:g}{unit(each)}"),
        ("verdict", lambda each: str(each.verdict)),
        ("note", lambda each: str(each.note)),
    ]
    return table("Targets", 1, columns, judge(results), ("verdict", "note"))


def _backlog(results: Results) -> Grid:
    def typical(measure: str, shown: Callable[[float | None], str]) -> Cell:
        return lambda row: shown(results.typical("backlog", measure, case=row[0].name, peer=row[1]))

    def of_drkit(cell: Callable[[BacklogCase], str]) -> Cell:
        return lambda row: cell(row[0]) if row[1] == DRKIT else ""

    columns: list[Column] = [
        ("case", of_drkit(lambda case: f"{_star(case)}{case.name}: {case.description}")),
        ("records", lambda row: _records(results.rows("backlog", case=row[0].name, peer=row[1]))),
        ("mirror", lambda row: TITLES[row[1]]),
        ("records/s", typical("records_per_second", number)),
        ("MB/s", typical("mb_per_second", lambda value: number(value, 1))),
        ("CPU-s per million", typical("cpu_seconds_per_million", significant)),
        ("speed", of_drkit(lambda case: _multiple("{:.1f} " + TIMES, rate_ratio(results, case.name)))),
        ("CPU", of_drkit(lambda case: _multiple("1/{:.1f}", cpu_ratio(results, case.name)))),
        (
            "class target",
            of_drkit(lambda c: class_verdict(c, rate_ratio(results, c.name), cpu_ratio(results, c.name))),
        ),
    ]
    title = "Backlog, from the first to the last record on the target"
    return table(title, 1, columns, _measured(results), ("mirror", "class target"))


def _measured(results: Results) -> list[tuple[BacklogCase, str]]:
    every = ((case, peer) for case in BACKLOG for peer in (DRKIT, OTHER))
    return [(case, peer) for case, peer in every if results.rows("backlog", case=case.name, peer=peer)]


def _records(runs: Sequence[BacklogRun]) -> str:
    done = "" if all(run.complete for run in runs) else f" (stopped at {min(r.mirrored_records for r in runs):,})"
    uneven = sum(run.uneven_partitions for run in runs)
    return f"{runs[0].records:,}{done}" + (f" ({uneven} partitions differ from the source)" if uneven else "")


def _multiple(form: str, value: float | None) -> str:
    return UNKNOWN if value is None else form.format(value)


def _star(case: BacklogCase | LiveCase) -> str:
    return "★ " if case.named else ""


def class_verdict(case: BacklogCase, faster: float | None, cheaper: float | None) -> str:
    """Whether a case meets the target for its number of records per batch."""
    wanted = SPEED.get(case.records_a_batch)
    if wanted is None:
        return "none"
    if faster is None or cheaper is None:
        return "not measured"
    missed = [f"{wanted[0]:g} {TIMES}"] if faster < wanted[0] else []
    missed += [f"1/{wanted[1]:g}"] if cheaper < wanted[1] else []
    return f"not met: {', '.join(missed)}" if missed else "met"


def _launch_and_memory(results: Results) -> Grid:
    def typical(measure: str, digits: int = 0) -> Cell:
        return lambda row: number(results.typical("backlog", measure, case=row[0].name, peer=row[1]), digits)

    columns: list[Column] = [
        ("case", lambda row: str(row[0].name)),
        ("mirror", lambda row: TITLES[row[1]]),
        ("launch to first record, s", typical("launch_seconds", 2)),
        ("CPU-s until then", typical("launch_cpu_seconds", 2)),
        ("peak RSS, MiB", typical("peak_rss_mib")),
        ("1st half", typical("rss_first_half_mib")),
        ("2nd half", typical("rss_second_half_mib")),
    ]
    return table("Launch and memory", 2, columns, _measured(results))


def _live(results: Results) -> Grid:
    def typical(measure: str, digits: int = 1, times: float = 1) -> Cell:
        def cell(row: tuple[LiveCase, str, bool]) -> str:
            value = results.typical("live", measure, case=row[0].name, peer=row[1])
            return number(None if value is None else times * value, digits)

        return cell

    columns: list[Column] = [
        ("case", lambda row: f"{_star(row[0])}{row[0].name}: {row[0].description}" if row[2] else ""),
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
        measured = [peer for peer in _LIVE_READERS if results.rows("live", case=case.name, peer=peer)]
        rows += [(case, peer, peer == measured[0]) for peer in measured]
    return table("Live, end to end", 2, columns, rows)


def _translate(results: Results) -> Grid:
    columns: list[Column] = [
        ("mirror", lambda run: TITLES[run.peer]),
        ("topic", lambda run: str(run.kind)),
        ("commits", figure("commits")),
        ("answered", figure("answered")),
        ("exact", figure("exact")),
        ("read again, sum", figure("reread_sum")),
        ("read again, max", figure("reread_max")),
        ("skipped, sum", figure("skipped_sum")),
        ("skipped, max", figure("skipped_max")),
    ]
    return table("Translated positions, records", 2, columns, results.translate)


def _lookup(results: Results) -> Grid:
    columns: list[Column] = [
        ("rows", figure("rows")),
        ("lookups", figure("lookups")),
        ("p50, ms", figure("p50_ms", 2)),
        ("p99, ms", figure("p99_ms", 2)),
        ("rows/s when loading", lambda run: number(ratio(run.rows, run.load_seconds))),
    ]
    return table("Mapping lookups (Cassandra)", 0, columns, results.lookup)


def _moves(results: Results) -> Grid:
    columns: list[Column] = [
        ("tool", lambda run: str(run.tool)),
        ("groups and partitions", lambda run: f"{run.groups:,} {TIMES} {run.partitions}"),
        ("launch to end, s", lambda run: number(results.typical("moves", "seconds", tool=run.tool), 1)),
        ("CPU-s", lambda run: number(results.typical("moves", "cpu_seconds", tool=run.tool), 1)),
    ]
    one_of_each = {run.tool: run for run in results.moves}
    return table("Moving groups to a moment", 1, columns, one_of_each.values())


def _large_links(results: Results) -> Grid:
    def look(name: str) -> Column:
        return (
            f"{name}, s (CPU-s)",
            lambda run: f"{number(run.commands[name], 1)} ({number(run.commands_cpu[name], 1)})",
        )

    columns: list[Column] = [
        ("partitions and topics", lambda run: f"{run.partitions:,} in {run.topics:,}"),
        ("made by a bare client, s", figure("created", 1)),
        ("first record, s", figure("first", 1)),
        ("all moving, s", figure("moving", 1)),
        ("CPU-s until then", figure("moving_cpu", 1)),
        ("launched again: first, s", figure("again_first", 1)),
        ("all moving, s", figure("again_moving", 1)),
        ("at rest, % of a core", lambda run: number(100 * run.idle_share, 1)),
        ("peak RSS, MiB", figure("peak_rss_mib")),
        *map(look, TIMED_COMMANDS),
    ]
    return table("A large link", 1, columns, results.large_links)


def _sites(results: Results) -> Grid:
    def stage(name: str) -> Column:
        return name, lambda run: number(run.stages.get(name), 2)

    columns: list[Column] = [
        ("sources", lambda run: str(run.way)),
        ("groups and partitions", lambda run: f"{run.links} links, {run.groups:,} {TIMES} {run.partitions}"),
        ("launch to end, s", figure("seconds", 1)),
        ("to verified positions, s", figure("rto_seconds", 1)),
        ("CPU-s", figure("cpu_seconds", 1)),
        *map(stage, dict.fromkeys(name for run in results.sites for name in run.stages)),
    ]
    runs = [run for case in SITES for way in SITE_WAYS for run in results.rows("sites", case=case.name, way=way)]
    return table("A site's failover, all sources dead, by stage (of the slowest link, s)", 1, columns, runs)


def _outages(results: Results) -> Grid:
    columns: list[Column] = [
        ("catch_up", lambda run: str(run.policy)),
        ("records, partitions", lambda run: f"{run.records:,} on {run.partitions:,}"),
        ("p50 alone, ms", figure("alone_p50_ms", 1)),
        ("p99 alone, ms", figure("alone_p99_ms", 1)),
        ("p50", figure("p50_ms", 1)),
        ("p99", figure("p99_ms", 1)),
        ("max", figure("max_ms", 1)),
        ("took, s", figure("seconds", 1)),
        ("records/s", figure("records_per_second")),
    ]
    title = "A producer on the target, alone and while a backlog is copied there"
    return table(title, 1, columns, results.outages)
