"""Puts the verbs together and runs one."""

from __future__ import annotations

import gc
import importlib
import os
import signal
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from typer._click.exceptions import NoArgsIsHelpError, UsageError  # of the click in Typer: no public name exists

from drkit import __version__
from drkit.cli.help import HelpfulCommand, HelpfulGroup, add_examples
from drkit.cli.output import NOTHING_DONE, drop_stdout, interruption, writer_for
from drkit.model.errors import ConfigError, ExitCode

VERBS = {
    "init": "Write a commented drkit.toml for two clusters.",
    "config": "Show the configuration with the origin of each value, check it, print its schema.",
    "demo": "Play a disaster and its end on real clusters with real data; exit 0 only if every claim holds.",
    "acls": "Print the least rights (ACLs) that drkit's commands need, by cluster and principal.",
    "jars": "Fetch the lab's jars in advance; the audit needs none.",
    "lab": "Real Kafka clusters and Cassandra on this machine, for trying and testing.",
    "mirror": "Mirror records, topics and group positions; exact after any stop.",
    "status": "Show links, lag in records and seconds, delta, group positions, the recovery point now.",
    "doctor": "Check whether a failover now would succeed, and at what loss.",
    "translate": "Translate a source position to the target: a group's captured positions, or any offset.",
    "link": "Pause or resume a link or a topic; acknowledge problems.",
    "endpoint": "Print where clients connect: to a cluster, or to the one that serves a link (or a group's link) now.",
    "failover": "Move consumer groups to another cluster: plan, show, act, prove.",
    "failback": "Salvage, scrub and re-seed the old primary, audit it, move the groups back, activate the link.",
    "reprotect": "Salvage, scrub, re-seed and audit the old primary as the standby; clients stay where they are.",
    "fence": "Deny clients of clusters that were failed away from, and show that they are denied; or lift a fence.",
    "resume": "Continue an interrupted run; a stage whose outcome isn't journaled is executed again.",
    "abandon": "End a run in its current state, by the clusters, the link and the fence; works even if its journal is "
    "damaged.",
    "runs": "List runs, or show one: each stage, its evidence, whether its hash chain holds.",
    "store": "Back up and restore the store; refill a lost one from the copy that a target cluster keeps.",
    "audit": "Find every record lost, duplicated, corrupted, reordered or foreign between both clusters.",
    "salvage": "Keep what only the source of a link holds, as Parquet and for replay.",
    "drill": "Rehearse: play an experiment on real clusters and judge it.",
    "evidence": "Export the evidence of a run or a drill as a signed bundle; verify one.",
    "serve": "Serve the status page, its JSON and Prometheus metrics; read-only.",
}
"""The verbs in the order of `drkit --help`, each with its summary."""

_FOLDERS = {
    "setup": ("init", "config", "acls", "jars", "store"),
    "lab": ("demo", "lab", "drill"),
    "mirroring": ("mirror", "status", "translate", "link", "serve"),
    "failover": (
        "doctor",
        "endpoint",
        "failover",
        "failback",
        "reprotect",
        "fence",
        "resume",
        "abandon",
        "runs",
        "evidence",
    ),
    "audit": ("audit", "salvage"),
}
_MODULES = {verb: f"{folder}.{verb}" for folder, verbs in _FOLDERS.items() for verb in verbs}
"""The module of each verb below drkit.cli.verbs; it has `register(app)`."""

_MOST_OF_VALUE = 60
_COLLECT_AFTER = (
    50_000,
    20,
    100,
)  # tens of thousands of positions aren't cycles: searching them for some costs time


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


def application(verbs: Iterable[str] = VERBS) -> typer.Typer:
    """The command line with these verbs."""
    app = _empty()
    for verb in verbs:
        importlib.import_module(f"drkit.cli.verbs.{_MODULES[verb]}").register(app)
    add_examples(app)
    return app


def listing() -> typer.Typer:
    """The command line that lists all verbs and loads none: for `drkit --help`, `--version` and unknown verbs."""
    app = _empty()
    for verb, summary in VERBS.items():
        app.command(verb, cls=HelpfulCommand, help=summary)(lambda: None)
    return app


def _empty() -> typer.Typer:
    app = typer.Typer(
        name="drkit",
        cls=HelpfulGroup,
        help="Disaster-recovery failover toolkit for Apache Kafka: mirror, fail over, fail back, audit, rehearse.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback()(_root)
    return app


def application_for(arguments: Sequence[str]) -> typer.Typer:
    """The command line for these arguments, or for a shell completion, with only the called verb loaded.

    Loading all verbs takes more than a second.
    """
    if "_DRKIT_COMPLETE" in os.environ:
        typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
        arguments = typed.split()[1:]
    verb = arguments[0] if arguments else ""
    return application((verb,)) if verb in VERBS else listing()


def run(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code. A closed pipe (`drkit runs | head`) is no error."""
    gc.set_threshold(*_COLLECT_AFTER)
    try:
        return _run(application_for(arguments), arguments)
    except BrokenPipeError:
        drop_stdout()
        return int(ExitCode.OK)


def _run(app: typer.Typer, arguments: Sequence[str]) -> int:
    """Run it. With `--output json` a usage error is a document on stdout, like any other error."""
    try:
        code = app(arguments, prog_name="drkit", standalone_mode=False)
    except SystemExit as ended:  # as Typer ends a shell's completion
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except NoArgsIsHelpError:  # which shows the help
        return int(ExitCode.USAGE)
    except UsageError as error:
        command = "drkit" if error.ctx is None else error.ctx.command_path
        what = f"{error.format_message().rstrip('.')}{_refused_value(error, arguments)}"
        writer_for(arguments).error(ConfigError(what, meaning=NOTHING_DONE, remedy=f"{command} --help"))
        return int(ExitCode.USAGE)
    except typer.Abort:  # Ctrl-C or the end of stdin at a question
        writer_for(arguments).error(interruption(signal.SIGINT, "The question was not answered: nothing was done"))
        return int(ExitCode.INTERRUPTED)
    return code if isinstance(code, int) else int(ExitCode.OK)


def _refused_value(error: UsageError, arguments: Sequence[str]) -> str:
    """The value of the option that is refused, where the message doesn't repeat it."""
    param = getattr(error, "param", None)
    for name in getattr(param, "opts", ()):
        for place, argument in enumerate(arguments):
            value = argument.removeprefix(f"{name}=") if argument.startswith(f"{name}=") else None
            if argument == name and place + 1 < len(arguments):
                value = arguments[place + 1]
            if value and value not in error.format_message():
                return f" (it is {value[:_MOST_OF_VALUE]!r})"
    return ""
