"""`drkit`: puts the verbs together."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated

import typer

from drkit import __version__

VERBS = (
    "demo",
    "lab",
    "lab_load",
    "mirror",
    "status",
    "doctor",
    "translate",
    "link",
    "failover",
    "failback",
    "resume",
    "runs",
    "audit",
    "salvage",
    "drill",
    "serve",
)
"""Modules of drkit.cli, in the order of `drkit --help`; each has `register(app)`."""

app = typer.Typer(
    name="drkit",
    help="Disaster-recovery failover toolkit for Apache Kafka: mirror, fail over, fail back, audit, rehearse.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"drkit {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the verb; each is handled by its own callback."""


for _verb in VERBS:
    importlib.import_module(f"drkit.cli.{_verb}").register(app)


def main() -> None:
    """Entry point. A reader that went away (`drkit runs | head`) is not an error."""
    try:
        app()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
