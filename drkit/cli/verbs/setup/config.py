"""`drkit config show|check|schema`: what the configuration says, whether it holds, and its schema for editors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from drkit.cli.output import to_json
from drkit.cli.views.checks_view import check_mark, print_checks
from drkit.cli.wiring.context import Invocation, TimeoutOption, verb
from drkit.model.errors import ExitCode
from drkit.observe.readiness.check import CheckOutcome, worst_outcome

if TYPE_CHECKING:
    from drkit.config.effective import Setting
    from drkit.config.load import ConfigSources
    from drkit.observe.readiness.configuration_check import ConfigCheck


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    config = typer.Typer(
        name="config",
        help="Show the configuration with the origin of each value, check it, print its schema.",
        no_args_is_help=True,
    )
    config.callback()(_about)
    config.command("show")(show)
    config.command("check")(check)
    config.command("schema")(schema)
    app.add_typer(config)


def _about() -> None:
    """Look at the configuration."""


@verb()
def show(
    run: Invocation,
) -> None:
    """Show every value in effect and its origin: a line of the file, a variable, or the default.

    Secrets are hidden, and so are the arguments of commands. Connects to nothing.
    """
    from drkit.config.effective import effective_settings
    from drkit.config.load import read_sources

    sources = read_sources(run.config_path)
    settings = effective_settings(sources)
    document = _shown_document(run.config_path, sources, settings)
    run.writer.emit(document, lambda console: _print_settings(console, run.config_path, settings))


@verb()
def check(
    run: Invocation,
    connect: Annotated[
        bool, typer.Option("--connect", help="Also ask the clusters, the store and the directories once.")
    ] = False,
    timeout: TimeoutOption = None,
) -> None:
    """Check all that can be checked without a cluster: keys, files, client properties, programs, callables.

    Exits 0 where no check fails (warnings name their cost), 2 where one does. Changes nothing.
    """
    from drkit.config.load import config_of, read_sources
    from drkit.kafka.admin.clusters import observing
    from drkit.observe.readiness.configuration_check import checks_with_clusters, checks_without_clusters

    sources = read_sources(run.config_path)
    read = config_of(sources)
    found = checks_without_clusters(read, sources)
    if connect:
        with observing(read.clusters, timeout) as clusters:
            found += checks_with_clusters(read, clusters)
    worst = worst_outcome(each.check for each in found)
    run.writer.emit(
        _checked_document(sources.file, found, worst, connected=connect),
        lambda console: _print_checks(console, sources.file, found, worst),
    )
    if worst is CheckOutcome.FAIL:
        run.exit(ExitCode.USAGE)


@verb()
def schema(
    run: Invocation,
) -> None:
    """Print the JSON Schema of drkit.toml, for editors; the same for people and programs. Reads no configuration."""
    from drkit.config.schema.config import toml_schema

    document = toml_schema()
    run.writer.emit(document, lambda _: typer.echo(to_json(document, indent=2)))


def _shown_document(path: Path | None, sources: ConfigSources, settings: Sequence[Setting]) -> dict[str, Any]:
    from drkit.config.effective import file_origin

    return {
        "file": str(sources.file.absolute()),
        "file_origin": file_origin(path).value,
        "settings": [
            {
                "key": each.key,
                "value": each.value,
                "hidden": each.hidden,
                "origin": each.origin.value,
                "line": each.line,
                "variable": each.variable,
            }
            for each in settings
        ],
    }


def _print_settings(console: Console, path: Path | None, settings: Sequence[Setting]) -> None:
    from drkit.config.effective import Origin, file_origin
    from drkit.config.environment import CONFIG_VARIABLE
    from drkit.config.load import find_config

    by = {Origin.FLAG: "--config", Origin.ENVIRONMENT: CONFIG_VARIABLE, Origin.DEFAULT: "default"}[file_origin(path)]
    file = find_config(path)
    console.print(Text.assemble((str(file.absolute()), "bold"), f"  ({by})"), soft_wrap=True)
    for each in settings:
        style = "dim" if each.origin is Origin.DEFAULT else ""
        line = Text.assemble((f"{each.key} = {_value(each)}", style), "  ", (_origin(each, file), "dim"))
        console.print(line, soft_wrap=True)


def _value(setting: Setting) -> str:
    value = setting.value
    if value is None:
        return "not set"
    return value if isinstance(value, str) else to_json({"v": value})[len('{"v": ') : -1]


def _origin(setting: Setting, file: Path) -> str:
    if setting.variable is not None:
        return setting.variable
    return setting.origin.value if setting.line is None else f"{file.name}:{setting.line}"


def _checked_document(
    file: Path, found: Sequence[ConfigCheck], worst: CheckOutcome, *, connected: bool
) -> dict[str, Any]:
    return {
        "file": str(file.absolute()),
        "connected": connected,
        "outcome": worst.value,
        "checks": [
            {
                "key": each.key or None,
                "check": each.check.name,
                "outcome": each.check.outcome.value,
                "reason": each.check.reason,
                "remedy": each.check.remedy or None,
            }
            for each in found
        ],
    }


def _print_checks(console: Console, file: Path, found: Sequence[ConfigCheck], worst: CheckOutcome) -> None:
    console.print(Text.assemble((str(file), "bold"), "  ", check_mark(worst)))
    print_checks(console, [(each.key, each.check) for each in found])
