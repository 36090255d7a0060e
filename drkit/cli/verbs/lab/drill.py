"""`drkit drill`: rehearse a disaster on a lab, by hand or on a schedule, and show earlier drills."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drkit.cli.process.hangup import hangups
from drkit.cli.views.drill_view import (
    show_coverage,
    show_estate,
    show_export,
    show_history,
    show_random,
    show_result,
    show_schedule,
    show_series,
)
from drkit.cli.wiring.context import Invocation, bounded, verb
from drkit.drill.schedule import MissedPolicy
from drkit.model.errors import ConfigError, DrkitError, ExitCode, Refused, StoreMissing

if TYPE_CHECKING:
    from datetime import datetime

    from drkit.drill.experiment.reader import ExperimentFile
    from drkit.drill.judge.result import DrillResult
    from drkit.drill.schedule.scheduler import DrillSchedule
    from drkit.drill.schedule.times import Blackouts
    from drkit.model.runs import RunSummary

drill_app = typer.Typer(no_args_is_help=True, help="Rehearse: play an experiment on real clusters and judge it.")

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Experiment file, or a name of the library (docs/drills.md).")
]
FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FILE]...",
        help="Experiment files, names of the library (such as primary-lost), or folders of experiments.",
    ),
]
DirOption = Annotated[
    Path | None,
    typer.Option(
        "--dir", help="Play on the lab in this folder, made if there is none (default: one of the drill's own)."
    ),
]
_CONFIG_HELP = (
    r"Its \[objectives] are used where the experiment sets none; its store lets one drill run at a time, and "
    "keeps its result (default: $DRKIT_CONFIG)."
)
_NO_CONFIG = "Accepted as everywhere; kept drills don't need it."
KeepLabOption = Annotated[bool, typer.Option("--keep-lab", help="Leave the drill's lab up.")]
WitnessOption = Annotated[
    str | None, typer.Option("--witness", metavar="NAME", help="Who watches the drill; its evidence names them.")
]
DrillsOption = Annotated[
    Path | None, typer.Option("--drills", help="Folder of kept drills (default: in the user's state directory).")
]


class DrillTarget(StrEnum):
    """The target of a drill: a lab that the drill makes, or the configured clusters, on which it only rehearses."""

    LAB = "lab"
    ESTATE = "estate"


@drill_app.command("run")
@verb(config_help=_CONFIG_HELP)
def run(
    invocation: Invocation,
    files: FilesArgument = None,
    whole_library: Annotated[bool, typer.Option("--all", help="Every experiment of the library.")] = False,
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, metavar="N", help="Play each N times: all once, then all again.")
    ] = 1,
    target: Annotated[
        DrillTarget,
        typer.Option(
            "--target",
            help="estate: rehearse on the configured clusters with shadow groups and canaries; without faults.",
        ),
    ] = DrillTarget.LAB,
    to: Annotated[
        str | None, typer.Option("--to", metavar="C", help="With --target estate: rehearse a failover to C only.")
    ] = None,
    directory: DirOption = None,
    keep_lab: KeepLabOption = False,
    witness: WitnessOption = None,
    drills: DrillsOption = None,
) -> None:
    """Play experiments. Exits 0 passed, 1 failed, 6 only an objective missed, 8 unknown; the worst of several."""
    from drkit.drill.experiment.reader import experiment_files, load_experiments
    from drkit.drill.series import play_series

    invocation.config_path = _configured(invocation.config_path)
    if target is DrillTarget.ESTATE:
        if whole_library or repeat != 1 or directory is not None or keep_lab:
            raise ConfigError(
                "--all, --repeat, --dir and --keep-lab are for labs",
                meaning="On an estate a drill rehearses: it plays no experiment and makes no lab",
                remedy="Leave them out, or leave --target estate out",
            )
        _rehearse_estate(invocation, files or [], to)
        return
    if to is not None:
        raise ConfigError("--to needs --target estate", remedy="An experiment says itself where it fails over to")
    if not files and not whole_library:
        raise ConfigError("no experiment is named", remedy="Name a FILE, or give --all for the whole library")
    experiments = load_experiments(experiment_files(files or [], whole_library=whole_library))
    alone = len(experiments) * repeat == 1
    if not alone and (directory is not None or keep_lab):
        raise ConfigError(
            "--dir and --keep-lab are for one drill",
            meaning="A link that was failed over stays sealed, so each drill of several has a lab of its own",
            remedy="Leave them out, or play one experiment once",
        )
    play = _player(invocation, drills, witness, directory=directory, keep_lab=keep_lab)
    if alone:
        result = play(experiments[0])
        invocation.writer.emit(result.model_dump(mode="json"), lambda console: show_result(console, result))
        _end(invocation, result.exit_code)
    else:
        series = play_series(experiments, repeat, play, invocation.say)
        invocation.writer.emit(series.model_dump(mode="json"), lambda console: show_series(console, series))
        _end(invocation, series.exit_code)


@drill_app.command("random")
@verb(config_help=_NO_CONFIG)
def random(
    invocation: Invocation,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, metavar="N", help="Determines what is composed (default: random)."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes", min=0.1, callback=bounded, metavar="M", help="Start no further drill after M minutes."
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option("--runs", min=1, metavar="N", help="At most N drills (default: 1 without --minutes)."),
    ] = None,
    replays: Annotated[
        int, typer.Option("--replays", min=0, metavar="N", help="At most N replays to reduce one finding.")
    ] = 4,
    ignore_history: Annotated[
        bool, typer.Option("--ignore-history", help="Use this session alone: a seed always gives the same drills.")
    ] = False,
    cassandra: Annotated[
        bool, typer.Option("--cassandra/--no-cassandra", help="Whether the store is hit, too: its node takes 1 GiB.")
    ] = True,
    witness: WitnessOption = None,
    drills: DrillsOption = None,
) -> None:
    """Compose experiments from a seed, favouring rarely tested states, play them, and reduce those that fail."""
    import secrets
    import tempfile

    from drkit.drill.coverage import read_kept, strikes_counted
    from drkit.drill.random_drill.play import RandomSession, SessionLimits
    from drkit.drill.results.archive import Drills, default_drills

    with tempfile.TemporaryDirectory(prefix="drkit-random-") as work:
        kept = Drills(drills or default_drills())
        chosen = secrets.randbelow(2**31) if seed is None else seed
        say = invocation.say
        say(f"seed {chosen}")
        session = RandomSession(
            chosen,
            {} if ignore_history else strikes_counted(read_kept(kept)[0]),
            kept,
            Path(work),
            _player(invocation, drills, witness),
            say,
            cassandra=cassandra,
        )
        deadline = None if minutes is None else time.monotonic() + minutes * 60
        limits = SessionLimits(deadline, 1 if runs is None and minutes is None else runs, replays)
        result = session.run(limits)
        invocation.writer.emit(result.model_dump(mode="json"), lambda console: show_random(console, result))
        _end(invocation, result.exit_code)


@drill_app.command("coverage")
@verb(config_help=_NO_CONFIG)
def coverage(
    invocation: Invocation,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Your own experiments, beside the library's (files or folders)."),
    ] = None,
    drills: DrillsOption = None,
) -> None:
    """Show which fault was tested in which state of a run, by which drill, when, with which verdict; and where
    never."""
    from drkit.drill.coverage import coverage as table_of
    from drkit.drill.coverage import read_found, read_kept
    from drkit.drill.experiment.reader import experiment_files, load_experiments
    from drkit.drill.results.archive import Drills, default_drills

    archive = Drills(drills or default_drills())
    experiments = load_experiments(experiment_files(files or [], whole_library=True))
    (found, damaged), (kept, unread) = read_found(archive), read_kept(archive)
    result = table_of([*experiments, *found], kept, [*damaged, *unread])
    invocation.writer.emit(result.model_dump(mode="json"), lambda console: show_coverage(console, result))


@drill_app.command("export")
@verb(config_help=_NO_CONFIG)
def export(
    invocation: Invocation,
    file: FileArgument,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The file to write; none is overwritten.")
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="D", help="The lab's folder in it (default: under your state directory)."),
    ] = None,
) -> None:
    """Export an experiment for Chaos Toolkit: its steps that drkit has a command for, and the list of the others."""
    from drkit.drill.chaos_toolkit import export_experiment
    from drkit.drill.experiment.reader import experiment_file, load_experiment
    from drkit.lab.lab import default_dir

    result = export_experiment(load_experiment(experiment_file(file)), (directory or default_dir()).absolute())
    if out is not None:
        _write_new(out, json.dumps(result.chaos_toolkit, indent=2, ensure_ascii=False) + "\n")
        result = result.model_copy(update={"out": str(out)})
    say = invocation.say
    for each in result.not_exported:
        say(f"not exported: {result.file}:{each.line}: {each.said()}")
    invocation.writer.emit(result.model_dump(mode="json"), lambda console: show_export(console, result))


@drill_app.command("schedule")
@verb(config_help=_CONFIG_HELP)
def schedule(
    invocation: Invocation,
    file: FileArgument,
    cron: Annotated[str, typer.Option("--cron", help='Five fields as cron reads them, e.g. "0 4 * * 1".')],
    timezone: Annotated[
        str | None, typer.Option("--timezone", help="Zone of the cron expression (default: the machine's).")
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Also play it once right away.")] = False,
    calendar: Annotated[
        list[Path] | None,
        typer.Option("--calendar", metavar="FILE", help="TOML file of blackouts, in which no drill starts."),
    ] = None,
    missed: Annotated[
        MissedPolicy,
        typer.Option("--missed", help="Missed times: left out, made up for within 5 minutes, or once."),
    ] = MissedPolicy.GRACE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the next times.")] = False,
    drills: DrillsOption = None,
) -> None:
    """Play an experiment on a schedule, in the foreground, until SIGTERM or Ctrl-C.

    SIGHUP makes it reload its calendars; each drill reloads the experiment and the configuration.
    """
    from drkit.config import load_config
    from drkit.config.extras import Extra, require
    from drkit.drill.experiment.reader import experiment_file
    from drkit.drill.results.archive import Drills, default_drills, last_began
    from drkit.drill.schedule.scheduler import DrillSchedule
    from drkit.drill.schedule.times import read_calendars, zone

    invocation.config_path = _configured(invocation.config_path)
    options = ["--log-format", invocation.writer.log_format.value]
    options += [] if drills is None else ["--drills", str(drills.resolve())]
    if invocation.config_path is not None:
        load_config(invocation.config_path)  # found wrong now, not at the first drill
        options += ["--config", str(invocation.config_path.resolve())]
    clock = zone(timezone)
    plan = DrillSchedule(
        experiment_file(file),
        cron,
        clock,
        options,
        invocation.say,
        blackouts=read_calendars(calendar or (), clock),
        missed=missed,
        last_began=lambda title: last_began(title, Drills(drills or default_drills()), _runs(invocation)),
    )
    if not dry_run:
        require(Extra.LAB, "`drkit drill`")  # now, not when the first drill is due

        def reload() -> None:
            _reload_calendars(invocation, plan, lambda: read_calendars(calendar or (), clock))

        with hangups(plan.stopped) as hangup_signals:
            hangup_signals.handle_with(reload)
            plan.run(at_once=now)
    result = plan.result()
    invocation.writer.emit(result.model_dump(mode="json"), lambda console: show_schedule(console, result))


@drill_app.command("history")
@verb(config_help=_NO_CONFIG)
def history(
    invocation: Invocation,
    drills: DrillsOption = None,
) -> None:
    """List kept drills, newest first."""
    from drkit.drill.judge.result import DrillHistory
    from drkit.drill.results.archive import Drills, default_drills

    found = DrillHistory(drills=Drills(drills or default_drills()).summaries())
    invocation.writer.emit(found.model_dump(mode="json"), lambda console: show_history(console, found))


@drill_app.command("report")
@verb(config_help=_NO_CONFIG)
def report(
    invocation: Invocation,
    run_name: Annotated[
        str, typer.Argument(metavar="RUN", help="A run of `drkit drill history`, its beginning or end, or `last`.")
    ],
    drills: DrillsOption = None,
) -> None:
    """Show the result of a kept drill."""
    from drkit.drill.results.archive import Drills, default_drills

    kept = Drills(drills or default_drills())
    result = kept.result(kept.find(run_name))
    invocation.writer.emit(result.model_dump(mode="json"), lambda console: show_result(console, result))


def _rehearse_estate(invocation: Invocation, files: list[Path], to: str | None) -> None:
    """Rehearse on the configured clusters; an experiment that is named is refused before anything is asked of them."""
    from drkit.drill.estate import refuse_experiments, rehearse_estate
    from drkit.drill.experiment.reader import experiment_files, load_experiments
    from drkit.evidence.run_evidence import judge_run

    refuse_experiments(load_experiments(experiment_files(files, whole_library=False)))
    config = invocation.config
    if to is not None:
        invocation.check_cluster(to, "--to")
    links = [link for link in invocation.links(None) if to in (None, link.id.target)]
    if not links or config.file is None:
        raise ConfigError(f"no link leads to {to}", remedy="Name the target of a link")
    store = invocation.store(recorded=False)
    judge = partial(judge_run, store)
    result = rehearse_estate(config, config.file.resolve(), store, links, judge, invocation.say)
    invocation.writer.emit(result.model_dump(mode="json"), lambda console: show_estate(console, result))
    _end(invocation, result.exit_code)


def _player(
    invocation: Invocation,
    drills: Path | None,
    witness: str | None,
    *,
    directory: Path | None = None,
    keep_lab: bool = False,
) -> Callable[[ExperimentFile], DrillResult]:
    """What plays one experiment, with the configured objectives where it sets none."""
    from drkit.config.extras import Extra, require
    from drkit.drill.results.archive import (
        Drills,
        begin_in_store,
        default_drills,
        drill_lease,
        folder_lease,
        keep_in_store,
        lost,
    )
    from drkit.drill.runner import Guard, nothing_stands_against, run_drill
    from drkit.observe.drill_history import DRILL

    require(Extra.LAB, "`drkit drill`")
    kept, say = Drills(drills or default_drills()), invocation.say

    def on_lab(
        file: ExperimentFile, guard: Guard, begun: Callable[[str, datetime], None] = lambda _run, _at: None
    ) -> DrillResult:
        return run_drill(
            file,
            kept,
            lab_dir=directory,
            keep_lab=keep_lab,
            say=say,
            witness=witness or os.environ.get("DRKIT_EVIDENCE__WITNESS"),
            guard=guard,
            begun=begun,
        )

    def play(file: ExperimentFile) -> DrillResult:
        with folder_lease(kept.path):
            return play_alone(file)

    def play_alone(file: ExperimentFile) -> DrillResult:
        if invocation.config_path is None:
            return on_lab(file, nothing_stands_against)
        file = replace(file, experiment=file.experiment.with_defaults(invocation.config.objectives))
        try:
            store = invocation.store(recorded=False)
        except StoreMissing as error:
            say(f"{error.what}: another machine can run a drill at the same time, and only this one keeps the result")
            return on_lab(file, nothing_stands_against)

        def begun(run: str, at: datetime) -> None:
            problem = begin_in_store(store, run, file.experiment.title, at)
            if problem is not None:
                say(f"the store doesn't remember that {run} begins: {problem}")

        with drill_lease(store, DRILL) as lease:
            result = on_lab(file, lambda: lost(lease), begun)
        problem = keep_in_store(invocation.config, store, kept.path, result)
        if problem is not None:
            say(f"the store doesn't remember {result.run}: {problem}")
        return result

    return play


def _runs(invocation: Invocation) -> list[RunSummary]:
    """The runs of the configuration's store, from every machine; what can't be asked is told, and counts as none."""
    if invocation.config_path is None:
        return []
    try:
        return list(invocation.store(recorded=False).runs())
    except DrkitError as error:
        invocation.say(f"only the drills of this machine are known: {error.what}")
        return []


def _write_new(file: Path, text: str) -> None:
    """Write a file that doesn't exist."""
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise Refused(f"--out: {file} exists already", meaning="Nothing was written", remedy="Name another") from None
    except OSError as error:
        raise ConfigError(f"--out: {file} can't be written: {error.strerror or error}", remedy="Name another") from None


def _reload_calendars(invocation: Invocation, plan: DrillSchedule, read: Callable[[], Blackouts]) -> None:
    """Answer SIGHUP; what can't be used is told with its remedy, and the old calendars stay."""
    from drkit.config import load_config

    say = invocation.say
    try:
        if invocation.config_path is not None:
            load_config(invocation.config_path)  # found wrong now, not at the next drill
        plan.observe(read())
    except DrkitError as error:
        say(f"nothing is reloaded, the old calendars stay: {error}")


def _end(invocation: Invocation, code: int) -> None:
    if code:
        invocation.exit(ExitCode(code))


def _configured(config: Path | None) -> Path | None:
    """The configuration that was named; a drkit.toml that merely lies here says nothing about a lab."""
    named = os.environ.get("DRKIT_CONFIG")
    return config if config is not None or not named else Path(named)


def register(app: typer.Typer) -> None:
    """Add `drkit drill`."""
    app.add_typer(drill_app, name="drill")
