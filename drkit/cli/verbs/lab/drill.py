"""`drkit drill`: rehearse a disaster on a lab, by hand or on a schedule, and show earlier drills."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from drkit.cli.views.drill_view import show_history, show_result, show_schedule
from drkit.cli.wiring.context import OutputOption, VerboseOption, command
from drkit.cli.wiring.output import OutputMode
from drkit.model.errors import ExitCode

drill_app = typer.Typer(no_args_is_help=True, help="Rehearse: play an experiment on real clusters and judge it.")

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Experiment file (see chaos/ and docs/drills.md).")]
DirOption = Annotated[
    Path | None,
    typer.Option(
        "--dir", help="Play on the lab in this folder, made if there is none (default: one of the drill's own)."
    ),
]
ObjectivesOption = Annotated[
    Path | None,
    typer.Option(
        "--config", help=r"Its \[objectives] stand in where the experiment sets none (default: $DRKIT_CONFIG)."
    ),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Accepted as everywhere; kept drills don't need it.")
]
KeepLabOption = Annotated[bool, typer.Option("--keep-lab", help="Leave the lab up that the drill made.")]
WitnessOption = Annotated[
    str | None, typer.Option("--witness", metavar="NAME", help="Who watches the drill; its evidence names them.")
]
DrillsOption = Annotated[
    Path | None, typer.Option("--drills", help="Folder of kept drills (default: in the user's state directory).")
]


@drill_app.command("run")
def run(
    file: FileArgument,
    directory: DirOption = None,
    keep_lab: KeepLabOption = False,
    witness: WitnessOption = None,
    drills: DrillsOption = None,
    config: ObjectivesOption = None,
    output: OutputOption = OutputMode.HUMAN,
    verbose: VerboseOption = False,
) -> None:
    """Play an experiment. Exit 0 passed, 1 failed, 6 only an objective missed, 8 unknown."""
    from drkit.drill.experiment.reader import load_experiment
    from drkit.drill.results.archive import Drills, default_drills
    from drkit.drill.runner import run_drill

    with command(_configured(config), output, verbose) as invocation:
        experiment = load_experiment(file)
        if invocation.config_path is not None:
            defaults = experiment.experiment.with_defaults(invocation.config.objectives)
            experiment = replace(experiment, experiment=defaults)
        result = run_drill(
            experiment,
            Drills(drills or default_drills()),
            lab_dir=directory,
            keep_lab=keep_lab,
            say=lambda line: invocation.writer.log.print(line, markup=False, soft_wrap=True),
            witness=witness or os.environ.get("DRKIT_EVIDENCE__WITNESS"),
        )
        invocation.writer.emit(result.model_dump(mode="json"), lambda console: show_result(console, result))
        if result.exit_code:
            invocation.exit(ExitCode(result.exit_code))


@drill_app.command("schedule")
def schedule(
    file: FileArgument,
    cron: Annotated[str, typer.Option("--cron", help='Five fields as cron reads them, e.g. "0 4 * * 1".')],
    timezone: Annotated[
        str | None, typer.Option("--timezone", help="Zone of the cron expression (default: the machine's).")
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Play it once right away, too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the coming times.")] = False,
    drills: DrillsOption = None,
    config: ObjectivesOption = None,
    output: OutputOption = OutputMode.HUMAN,
    verbose: VerboseOption = False,
) -> None:
    """Play an experiment by the clock, in the foreground, until SIGTERM or Ctrl-C."""
    from drkit.config import load_config
    from drkit.drill.cron import zone
    from drkit.drill.schedule import DrillSchedule

    with command(_configured(config), output, verbose) as invocation:
        options = [] if drills is None else ["--drills", str(drills.resolve())]
        if invocation.config_path is not None:
            load_config(invocation.config_path)  # found wrong now, not at the first drill
            options += ["--config", str(invocation.config_path.resolve())]
        plan = DrillSchedule(
            file,
            cron,
            zone(timezone),
            options,
            lambda line: invocation.writer.log.print(line, markup=False, soft_wrap=True),
        )
        if not dry_run:
            plan.run(at_once=now)
        result = plan.result()
        invocation.writer.emit(result.model_dump(mode="json"), lambda console: show_schedule(console, result))


@drill_app.command("history")
def history(
    drills: DrillsOption = None,
    config: ConfigOption = None,
    output: OutputOption = OutputMode.HUMAN,
    verbose: VerboseOption = False,
) -> None:
    """List the drills that were kept, newest first."""
    from drkit.drill.judge.result import DrillHistory
    from drkit.drill.results.archive import Drills, default_drills

    with command(config, output, verbose) as invocation:
        found = DrillHistory(drills=Drills(drills or default_drills()).summaries())
        invocation.writer.emit(found.model_dump(mode="json"), lambda console: show_history(console, found))


@drill_app.command("report")
def report(
    run_name: Annotated[
        str, typer.Argument(metavar="RUN", help="A run of `drkit drill history`, its beginning or end, or `last`.")
    ],
    drills: DrillsOption = None,
    config: ConfigOption = None,
    output: OutputOption = OutputMode.HUMAN,
    verbose: VerboseOption = False,
) -> None:
    """Show the result of a drill that was kept."""
    from drkit.drill.results.archive import Drills, default_drills

    with command(config, output, verbose) as invocation:
        kept = Drills(drills or default_drills())
        result = kept.result(kept.find(run_name))
        invocation.writer.emit(result.model_dump(mode="json"), lambda console: show_result(console, result))


def _configured(config: Path | None) -> Path | None:
    """The configuration that was named; a drkit.toml that merely lies here says nothing about a lab."""
    named = os.environ.get("DRKIT_CONFIG")
    return config if config is not None or not named else Path(named)


def register(app: typer.Typer) -> None:
    """Add `drkit drill`."""
    app.add_typer(drill_app, name="drill")
