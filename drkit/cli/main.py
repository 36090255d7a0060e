"""`drkit`: puts the verbs together."""

from __future__ import annotations

import gc
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer._click.exceptions import ClickException  # of the click that Typer carries: no public name exists

from drkit import __version__
from drkit.cli.wiring.output import OutputMode, Writer
from drkit.model.errors import ConfigError, ExitCode

VERBS = (
    "demo",
    "lab",
    "lab_load",
    "mirror",
    "status",
    "doctor",
    "translate",
    "link",
    "endpoint",
    "failover",
    "failback",
    "reprotect",
    "fence",
    "resume",
    "abandon",
    "runs",
    "store",
    "audit",
    "salvage",
    "drill",
    "serve",
)
"""Modules of drkit.cli, in the order of `drkit --help`; each has `register(app)`."""

_JSON = re.compile(r"(--output|-o)[ =]?json\b")
_COLLECT_AFTER = (
    50_000,
    20,
    100,
)  # positions by the ten thousand aren't cycles: looking for some among them costs time


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"drkit {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the verb; each is handled by its own callback."""


def application(verbs: Sequence[str] = VERBS) -> typer.Typer:
    """The command line with these verbs."""
    app = typer.Typer(
        name="drkit",
        help="Disaster-recovery failover toolkit for Apache Kafka: mirror, fail over, fail back, audit, rehearse.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback()(_root)
    for verb in verbs:
        importlib.import_module(f"drkit.cli.verbs.{verb}").register(app)
    return app


def needed(arguments: Sequence[str]) -> tuple[str, ...]:
    """The verbs to load for these arguments: the one that is called, all where none is (help, completion, a typo).

    Loading them all takes most of a second, which a failover at night needn't wait for.
    """
    verb = arguments[0] if arguments else ""
    return tuple(each for each in VERBS if each.split("_", maxsplit=1)[0] == verb) or VERBS


def _run(app: typer.Typer, arguments: Sequence[str]) -> None:
    """Run it; with `--output json` a usage error is a document on stdout, too."""
    if not _JSON.search(" ".join(arguments)):
        app()
        return
    try:
        code = app(standalone_mode=False)
    except ClickException as error:
        lines = arguments[0] == "mirror" or "--watch" in arguments
        remedy = f"drkit {arguments[0]} --help" if arguments[0] in VERBS else "drkit --help"
        Writer.for_mode(OutputMode.JSON, lines=lines).error(ConfigError(error.format_message(), remedy=remedy))
        sys.exit(int(ExitCode.USAGE))
    except typer.Abort:
        sys.exit(int(ExitCode.INTERRUPTED))
    sys.exit(code if isinstance(code, int) else 0)


def main() -> None:
    """Entry point. A reader that went away (`drkit runs | head`) and Ctrl-C while loading are not errors."""
    gc.set_threshold(*_COLLECT_AFTER)
    try:
        _run(application(needed(sys.argv[1:])), sys.argv[1:])
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(int(ExitCode.INTERRUPTED))


if __name__ == "__main__":
    main()
