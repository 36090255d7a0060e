"""`python -m bench`: measures, prints the tables, writes JSON and Markdown."""

from __future__ import annotations

import compileall
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from bench.cases import FULL, QUICK, STEPS
from bench.machine import describe
from bench.processes import ROOT, say
from bench.results import Results, load
from bench.run import REPORT_FILE, RESULTS_FILE, Run
from bench.wire import WireError
from drkit.lab.toolchain import ensure
from drkit.model.errors import ConfigError, DrkitError, ExitCode

_HERE = Path(__file__).parent
_INTERRUPTED = 130
_TABLE_WIDTH = 170  # if the output is not a terminal

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def bench(
    full: Annotated[bool, typer.Option("--full", help="All of each case; about 45 minutes on 2 idle cores.")] = False,
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="NAME", help="Only this one (repeatable).")
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="How often; tables show medians.")] = 1,
    minutes: Annotated[float, typer.Option("--minutes", min=1, help="Begin no case after so long.")] = 60.0,
    resume: Annotated[bool, typer.Option("--resume", help="Keep earlier results; measure the rest.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for results.")] = None,
) -> None:
    """Measure drkit's mirror and MirrorMaker 2 on the same clusters, one after the other."""
    try:
        raise typer.Exit(_bench(full, case or [], repeat, minutes, resume, out))
    except DrkitError as error:
        print(f"error: {error}\n  do: {error.remedy}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from error
    except (WireError, OSError) as error:
        print(f"error: the bench's clusters failed: {error}", file=sys.stderr)
        raise typer.Exit(ExitCode.FAILED) from error


def _bench(full: bool, case: list[str], repeat: int, minutes: float, resume: bool, out: Path | None) -> int:
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that children end and files go
    for package in ("drkit", "bench"):  # like an installer: MirrorMaker 2's jars are compiled, too
        compileall.compile_dir(ROOT / package, quiet=1)
    steps, extent = chosen(case), FULL if full else QUICK
    folder = out or (_HERE if full and not case else _HERE / "out")
    folder.mkdir(parents=True, exist_ok=True)
    toolchain = ensure("kafka", "mirrormaker", "cassandra")
    results = load(folder / RESULTS_FILE) if resume else Results(describe(toolchain), extent.name)
    if results.extent != extent.name:
        raise ConfigError(
            f"{folder / RESULTS_FILE} holds a {results.extent} run, and this is a {extent.name} one",
            remedy="Give the same extent, or leave out --resume",
        )
    say(f"results so far are kept in {folder / RESULTS_FILE}")
    run = Run(steps, extent, repeat, results, folder, toolchain, began + minutes * 60, say)
    try:
        run.run()
    except KeyboardInterrupt:
        say("interrupted; continue with --resume")
        return _INTERRUPTED
    finally:
        run.write()
    console = Console(width=None if sys.stdout.isatty() else _TABLE_WIDTH)
    console.print(Markdown((folder / REPORT_FILE).read_text(encoding="utf-8")))
    say(f"{folder / REPORT_FILE}, {(time.monotonic() - began) / 60:.1f} min")
    return int(ExitCode.FAILED) if results.failures else 0


def chosen(names: list[str]) -> list[str]:
    """The steps with these names, or all, in the order in which they run."""
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        raise ConfigError(f"there is no case {unknown[0]!r}", remedy=f"There are {', '.join(STEPS)}")
    return [step for step in STEPS if not names or step in names]


if __name__ == "__main__":
    app()
