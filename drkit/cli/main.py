"""`drkit`: puts the verbs together."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
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
    "endpoint",
    "failover",
    "failback",
    "reprotect",
    "fence",
    "resume",
    "abandon",
    "runs",
    "audit",
    "salvage",
    "drill",
    "serve",
)
"""Modules of drkit.cli, in the order of `drkit --help`; each has `register(app)`."""

_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
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
        importlib.import_module(f"drkit.cli.{verb}").register(app)
    return app


def needed(arguments: Sequence[str]) -> tuple[str, ...]:
    """The verbs to load for these arguments: the one that is called, all where none is (help, completion, a typo).

    Loading them all takes most of a second, which a failover at night needn't wait for.
    """
    verb = arguments[0] if arguments else ""
    return tuple(each for each in VERBS if each.split("_", maxsplit=1)[0] == verb) or VERBS


def main() -> None:
    """Entry point. A reader that went away (`drkit runs | head`) and Ctrl-C while loading are not errors."""
    gc.set_threshold(*_COLLECT_AFTER)
    try:
        application(needed(sys.argv[1:]))()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
