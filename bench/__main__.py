"""`python -m bench`: measure, print the tables, write JSON and Markdown."""

from __future__ import annotations

import compileall
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.cases import FULL, QUICK, STEPS, Extent
from bench.machine import describe
from bench.progress import Screen
from bench.report import grids, rich_table
from bench.results import Results
from bench.results import load as load_results
from bench.run import REPORT_FILE, RESULTS_FILE, Run
from bench.wire import WireError
from drkit.lab.toolchain import ensure
from drkit.model.errors import ConfigError, DrkitError, ExitCode

_HERE = Path(__file__).parent
_SCRATCH = _HERE / "out"
_INTERRUPTED = 130
_TABLE_WIDTH = 170  # where the output is no terminal

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def bench(
    full: Annotated[bool, typer.Option("--full", help="All cases in full; about 45 minutes on 2 idle cores.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="All cases, small (the default).")] = False,
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="NAME", help="Only this one (repeatable).")
    ] = None,
    records: Annotated[int | None, typer.Option("--records", min=10_000, help="For each backlog case.")] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="How often; tables show medians.")] = 1,
    minutes: Annotated[float, typer.Option("--minutes", min=1, help="Begin no further case after so long.")] = 60.0,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what an earlier run measured; do the rest.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for results.")] = None,
) -> None:
    """Measure drkit's mirror and MirrorMaker 2 on the same clusters, one after the other."""
    try:
        raise typer.Exit(_bench(full, quick, case or [], records, repeat, minutes, resume, out))
    except DrkitError as error:
        print(f"error: {error}\n  do: {error.remedy}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from error
    except (WireError, OSError) as error:
        print(f"error: the bench's clusters failed: {error}", file=sys.stderr)
        raise typer.Exit(ExitCode.FAILED) from error


def _bench(
    full: bool,
    quick: bool,
    case: list[str],
    records: int | None,
    repeat: int,
    minutes: float,
    resume: bool,
    out: Path | None,
) -> int:
    began = time.monotonic()
    _compile()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that children and files go
    if full and quick:
        raise ConfigError("--full and --quick exclude each other", remedy="Give one of them")
    extent = FULL if full else QUICK
    steps = _steps(case)
    complete = full and not case and records is None
    folder = out or (_HERE if complete else _SCRATCH)
    folder.mkdir(parents=True, exist_ok=True)
    screen = Screen()
    toolchain = ensure("kafka", "mirrormaker", "cassandra")
    results = _kept(folder / RESULTS_FILE, extent) if resume else Results(describe(toolchain), extent.name)
    screen.say(f"results so far are kept in {folder / RESULTS_FILE}")
    run = Run(steps, extent, records, repeat, results, folder, toolchain, screen, began + minutes * 60)
    try:
        run.run()
    except KeyboardInterrupt:
        screen.say("interrupted; continue with --resume")
        return _INTERRUPTED
    finally:
        run.write()
    console = Console(width=None if sys.stdout.isatty() else _TABLE_WIDTH)
    for grid in grids(results):
        console.print(rich_table(grid))
        console.print()
    screen.say(f"{folder / REPORT_FILE}, {(time.monotonic() - began) / 60:.1f} min")
    return int(ExitCode.FAILED) if results.failures else 0


def _compile() -> None:
    """Compile drkit before it is measured, as an installer does: MirrorMaker 2 has its jars, too."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(_HERE.parent / "drkit", quiet=1)
    compileall.compile_dir(_HERE, quiet=1)


def _steps(names: list[str]) -> list[str]:
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        raise ConfigError(f"there is no case {unknown[0]!r}", remedy=f"There are {', '.join(STEPS)}")
    return [step for step in STEPS if not names or step in names]


def _kept(path: Path, extent: Extent) -> Results:
    results = load_results(path)
    if results.extent != extent.name:
        raise ConfigError(
            f"{path} holds a {results.extent} run, and this is a {extent.name} one",
            remedy="Give the same extent, or leave out --resume",
        )
    return results


if __name__ == "__main__":
    app()
