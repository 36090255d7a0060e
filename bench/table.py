"""The tables of a run, made once as rows of text; shown by rich on a terminal and as Markdown in a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from bench.cases import BACKLOG, LIVE, SITE_WAYS, SITES, BacklogCase, LiveCase
from bench.live import DIRECT
from bench.peers.bare import BARE
from bench.results import Results
from bench.stats import TIMES
from bench.targets import DRKIT, LOOKS, OTHER, SPEED, cpu_ratio, judge, rate_ratio

TITLES = {DRKIT: "drkit", OTHER: "MirrorMaker 2", DIRECT: "the source, directly", BARE: "a bare forwarder"}
LIVE_READERS = (DIRECT, BARE, DRKIT, OTHER)
UNKNOWN = "-"
_STYLES = {"met": "green", "not met": "bold red", "not measured": "dim"}


@dataclass(frozen=True, slots=True)
class Grid:
    """A table as text. Columns named in `left` are aligned left, the others right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[str]


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


def _launch_and_memory(results: Results) -> Grid:
    columns = (
        "case",
        "mirror",
        "launch to first record, s",
        "CPU-s until then",
        "peak RSS, MiB",
        "1st half",
        "2nd half",
    )
    rows = []
    for case in BACKLOG:
        for peer in (DRKIT, OTHER):
            if results.runs_of(case.name, peer):
                figures = (
                    ("launch_seconds", 2),
                    ("launch_cpu_seconds", 2),
                    ("peak_rss_mib", 0),
                    ("rss_first_half_mib", 0),
                    ("rss_second_half_mib", 0),
                )
                cells = (number(results.typical(case.name, peer, measure), digits) for measure, digits in figures)
                rows.append((case.name, TITLES[peer], *cells))
    return Grid("Launch and memory", columns, tuple(rows), frozenset({"case", "mirror"}))


def _live(results: Results) -> Grid:
    columns = ("case", "reader of", "records/s", "p50, ms", "p99, ms", "max, ms", "CPU, % of a core", "peak RSS, MiB")
    rows = [row for case in LIVE for row in _live_rows(results, case)]
    return Grid("Live, end to end", columns, tuple(rows), frozenset({"case", "reader of"}))


def _live_rows(results: Results, case: LiveCase) -> Iterator[tuple[str, ...]]:
    first = True
    for peer in LIVE_READERS:
        if results.live_of(case.name, peer):
            share = results.typical_live(case.name, peer, "cpu_share")
            yield (
                f"{'★ ' if case.named else ''}{case.name}: {case.description}" if first else "",
                TITLES[peer] if peer == DIRECT else f"the target of {TITLES[peer]}",
                number(results.typical_live(case.name, peer, "records_per_second")),
                number(results.typical_live(case.name, peer, "p50_ms"), 1),
                number(results.typical_live(case.name, peer, "p99_ms"), 1),
                number(results.typical_live(case.name, peer, "max_ms"), 1),
                number(None if share is None else 100 * share, 1),
                number(results.typical_live(case.name, peer, "peak_rss_mib")),
            )
            first = False


def _translate(results: Results) -> Grid:
    columns = (
        "mirror",
        "topic",
        "commits",
        "answered",
        "exact",
        "read again, sum",
        "read again, max",
        "skipped, sum",
        "skipped, max",
    )
    rows = [
        (
            TITLES[run.peer],
            run.kind,
            *(
                f"{figure:,}"
                for figure in (
                    run.commits,
                    run.answered,
                    run.exact,
                    run.reread_sum,
                    run.reread_max,
                    run.skipped_sum,
                    run.skipped_max,
                )
            ),
        )
        for run in results.translate
    ]
    return Grid("Translated positions, records", columns, tuple(rows), frozenset({"mirror", "topic"}))


def _lookup(results: Results) -> Grid:
    rows = [
        (
            f"{run.rows:,}",
            f"{run.lookups:,}",
            number(run.p50_ms, 2),
            number(run.p99_ms, 2),
            number(run.rows / run.load_seconds if run.load_seconds else None),
        )
        for run in results.lookup
    ]
    columns = ("rows", "lookups", "p50, ms", "p99, ms", "rows/s when loading")
    return Grid("Mapping lookups (Cassandra)", columns, tuple(rows), frozenset())


def _moves(results: Results) -> Grid:
    rows = []
    for tool in dict.fromkeys(run.tool for run in results.moves):
        run = next(run for run in results.moves if run.tool == tool)
        rows.append(
            (
                tool,
                f"{run.groups:,} {TIMES} {run.partitions}",
                number(results.typical_move(tool, "seconds"), 1),
                number(results.typical_move(tool, "cpu_seconds"), 1),
            )
        )
    columns = ("tool", "groups and partitions", "launch to end, s", "CPU-s")
    return Grid("Moving groups to a moment", columns, tuple(rows), frozenset({"tool"}))


def _large_links(results: Results) -> Grid:
    rows = [
        (
            f"{run.partitions:,} in {run.topics:,}",
            number(run.created, 1),
            number(run.first, 1),
            number(run.moving, 1),
            number(run.moving_cpu, 1),
            number(run.again_first, 1),
            number(run.again_moving, 1),
            number(100 * run.idle_share, 1),
            number(run.peak_rss_mib),
            *(f"{number(run.commands[name], 1)} ({number(run.commands_cpu[name], 1)})" for name in LOOKS),
        )
        for run in results.large_links
    ]
    columns = (
        "partitions and topics",
        "made by a bare client, s",
        "first record, s",
        "all moving, s",
        "CPU-s until then",
        "launched again: first, s",
        "all moving, s",
        "at rest, % of a core",
        "peak RSS, MiB",
        *(f"{name}, s (CPU-s)" for name in LOOKS),
    )
    return Grid("A large link", columns, tuple(rows), frozenset({"partitions and topics"}))


def _sites(results: Results) -> Grid:
    names = list(dict.fromkeys(stage for run in results.sites for stage in run.stages))
    rows = [
        (
            way,
            f"{run.links} links, {run.groups:,} {TIMES} {run.partitions}",
            number(run.seconds, 1),
            number(run.rto_seconds, 1),
            number(run.cpu_seconds, 1),
            *(number(run.stages.get(name), 2) for name in names),
        )
        for case in SITES
        for way in SITE_WAYS
        for run in results.sites_of(case.name, way)
    ]
    columns = ("sources", "groups and partitions", "launch to end, s", "to verified positions, s", "CPU-s", *names)
    title = "A site's failover, all sources dead, by stage (of the slowest link, s)"
    return Grid(title, columns, tuple(rows), frozenset({"sources"}))


def _outages(results: Results) -> Grid:
    rows = [
        (
            run.policy,
            f"{run.records:,} on {run.partitions:,}",
            number(run.alone_p50_ms, 1),
            number(run.alone_p99_ms, 1),
            number(run.p50_ms, 1),
            number(run.p99_ms, 1),
            number(run.max_ms, 1),
            number(run.seconds, 1),
            f"{run.records_per_second:,.0f}",
        )
        for run in results.outages
    ]
    columns = (
        "catch_up",
        "records, partitions",
        "p50 alone, ms",
        "p99 alone, ms",
        "p50",
        "p99",
        "max",
        "took, s",
        "records/s",
    )
    title = "A producer on the target, alone and while a backlog is copied there"
    return Grid(title, columns, tuple(rows), frozenset({"catch_up"}))
