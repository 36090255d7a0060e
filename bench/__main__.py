"""`python -m bench`: measures, prints the tables, writes JSON and Markdown. One case for each question."""

from __future__ import annotations

import compileall
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from bench import backlog, groups, large_link, live, lookup, outage, translate
from bench.backlog import BacklogCase
from bench.clusters import Clusters
from bench.groups import SITES
from bench.live import LiveCase
from bench.mirrors import Drkit, MirrorMaker, Scene
from bench.processes import ROOT, MeasurementFailed, say
from bench.report import Results, Row, machine, render
from bench.wire import WireError
from drkit.files import write_atomically
from drkit.lab.toolchain import ensure
from drkit.model.errors import ConfigError, DrkitError, ExitCode, Refused

_HERE = Path(__file__).parent
_INTERRUPTED = 130
_TABLE_WIDTH = 170  # if the output is not a terminal
_NEED_FREE_GIB = 8
_K, _M = 1_000, 1_000_000

BACKLOG = (
    BacklogCase("large", 1000, 100, "lz4", 8, (10 * _M, 600 * _K)),
    BacklogCase("middling", 150, 100, "lz4", 8, (10 * _M + 50, 300 * _K)),
    BacklogCase("single", 1, 100, "none", 8, (10 * _M, 60 * _K)),
    BacklogCase("large-zstd", 1000, 100, "zstd", 8, (2 * _M, 300 * _K)),
    BacklogCase("large-none", 1000, 100, "none", 8, (2 * _M, 300 * _K)),
    BacklogCase("large-1p", 1000, 100, "lz4", 1, (2 * _M, 300 * _K)),
    BacklogCase("large-100p", 1000, 100, "lz4", 100, (3 * _M, 300 * _K)),
    BacklogCase("large-1kb", 1000, 1000, "lz4", 8, (1 * _M, 100 * _K)),
    BacklogCase("middling-none", 150, 100, "none", 8, (2 * _M, 300 * _K)),
    BacklogCase("middling-1kb-zstd", 150, 1000, "zstd", 8, (600 * _K, 60 * _K)),
    BacklogCase("middling-100p", 150, 100, "lz4", 100, (2 * _M, 300 * _K)),
    BacklogCase("ten", 10, 100, "lz4", 8, (1 * _M, 100 * _K)),
    BacklogCase("single-100p", 1, 100, "none", 100, (5 * _M, 60 * _K)),
)
_WARM_UP = BacklogCase("warm-up", 150, 100, "lz4", 8, (600 * _K, 100 * _K))
LIVE = (LiveCase("live", 100, "none", 8), LiveCase("live-1kb-1p", 1000, "lz4", 1))

Measure = Callable[[Scene], Iterator[Row]]
ON_THE_PAIR: dict[str, tuple[str, Measure]] = {
    **{case.name: ("backlog", partial(backlog.measure, case=case)) for case in BACKLOG},
    **{case.name: ("live", partial(live.measure, case=case)) for case in LIVE},
    "translate": ("translate", translate.measure),
    "move": ("moves", groups.measure),
    "outage": ("outages", outage.measure),
}
"""The cases on one pair of clusters, one after the other, by name: the kind of their rows, and how to measure."""

CASES: dict[str, tuple[str, Measure]] = {
    **ON_THE_PAIR,
    "lookup": ("lookup", lookup.measure),
    "partitions-10000": ("large_links", large_link.measure),
    **{case.name: ("sites", partial(groups.measure_site, case=case)) for case in SITES},
}
"""All cases, in the order in which they run."""

_KINDS = tuple(dict.fromkeys(kind for kind, _ in CASES.values()))

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def bench(
    full: Annotated[bool, typer.Option("--full", help="All of each case, for idle cores.")] = False,
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="NAME", help="Only this one (repeatable).")
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="How often; tables show medians.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for results.")] = None,
) -> None:
    """Measure drkit's mirror and MirrorMaker 2 on the same clusters, one after the other."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that children end and files go
    folder = out or (_HERE if full and not case else _HERE / "out")
    try:
        results = _run(chosen(case or []), folder, repeat, full=full)
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    except DrkitError as error:
        print(f"error: {error}\n  do: {error.remedy}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from error
    except (MeasurementFailed, WireError, OSError) as error:
        print(f"error: the bench's clusters failed: {error}", file=sys.stderr)
        raise typer.Exit(ExitCode.FAILED) from error
    console = Console(width=None if sys.stdout.isatty() else _TABLE_WIDTH)
    console.print(Markdown((folder / "RESULTS.md").read_text(encoding="utf-8")))
    raise typer.Exit(ExitCode.FAILED if results["failures"] else 0)


def chosen(names: list[str]) -> list[str]:
    """The cases with these names, or all, in the order in which they run."""
    for name in names:
        if name not in CASES:
            raise ConfigError(f"there is no case {name!r}", remedy=f"There are {', '.join(CASES)}")
    return [case for case in CASES if not names or case in names]


def earlier(path: Path, extent: str) -> Results:
    """The rows of an earlier run of this extent, which stay for the cases that are not measured again.

    Raises:
        ConfigError: the file holds something else.
    """
    kept: Results = {kind: [] for kind in _KINDS}
    try:
        found = json.loads(path.read_bytes())
        if found["extent"] == extent:
            kept |= {kind: found.get(kind, []) for kind in _KINDS}
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} holds no results of the bench: {error}", remedy="Remove it") from error
    return kept


def _run(names: list[str], out: Path, repeats: int, *, full: bool) -> Results:
    """Measure the cases; the results are written after every measurement. A case that fails is reported."""
    for package in ("drkit", "bench"):  # like an installer: MirrorMaker 2's jars are compiled, too
        compileall.compile_dir(ROOT / package, quiet=1)
    out.mkdir(parents=True, exist_ok=True)
    toolchain = ensure("kafka", "mirrormaker", "cassandra")
    extent = "full" if full else "quick"
    results: Results = {"machine": machine(toolchain), "extent": extent, "failures": []}
    results |= earlier(out / "results.json", extent)
    with tempfile.TemporaryDirectory(prefix="drkit-bench-") as folder, ExitStack() as stack:
        if shutil.disk_usage(folder).free < _NEED_FREE_GIB << 30:
            raise Refused(f"less than {_NEED_FREE_GIB} GiB are free", remedy="Make room, or point TMPDIR elsewhere")
        clusters, mirrors = Clusters(Path(folder), say), (Drkit(), MirrorMaker(toolchain))
        scene = Scene(Path(folder), clusters, mirrors, toolchain, full, repeats, say)
        on_the_pair = [name for name in names if name in ON_THE_PAIR]
        if on_the_pair:
            stack.enter_context(clusters)
            say("warming the brokers up: each mirror once, not measured")
            for _ in backlog.measure(scene, _WARM_UP):
                pass
        for turn, name in enumerate(names):
            if on_the_pair and name not in ON_THE_PAIR:
                stack.close()  # the other cases start their own
                on_the_pair = []
            _measure(replace(scene, turn=turn), name, results, out)
    return results


def _measure(scene: Scene, name: str, results: Results, out: Path) -> None:
    kind, measure = CASES[name]
    rows = [row for row in results[kind] if row.get("case", name) != name]
    try:
        with scene.folder() as inner:
            for row in measure(inner):
                rows.append(row)
                results[kind] = rows
                _write(results, out)
    except Exception as error:  # noqa: BLE001 - one case's failure, whatever it is, mustn't cost the others
        results["failures"].append(f"{name}: {error or repr(error)}")
        say(results["failures"][-1])
    _write(results, out)


def _write(results: Results, out: Path) -> None:
    described = {case.name: str(case) for case in (*BACKLOG, *LIVE)}
    write_atomically(out / "results.json", json.dumps(results, indent=1) + "\n")
    write_atomically(out / "RESULTS.md", render(results, described))


if __name__ == "__main__":
    app()
