"""Plays an experiment: lab, setup, steady state, method, rollbacks, reading of the target, verdict.

Whatever happens, including Ctrl-C, it runs the rollbacks, ends the processes, leaves the lab as it was, and writes the
result with what was seen.
"""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import FrameType

from drkit.drill.conditions import broken_rule, strikes_both_sides, wait_for
from drkit.drill.environment.clients import LinkProgress
from drkit.drill.environment.environment import DrillEnvironment, own_configuration
from drkit.drill.environment.secured import LISTENERS as SECURED_LISTENERS
from drkit.drill.environment.secured import new_users, tls_listeners
from drkit.drill.environment.waiting import play_parallel
from drkit.drill.environment.wan import LISTENERS as WAN_LISTENERS
from drkit.drill.experiment.base import Place
from drkit.drill.experiment.experiment import Experiment, LabSpec
from drkit.drill.experiment.faults import Fault, Kill, Pause
from drkit.drill.experiment.reader import ExperimentFile
from drkit.drill.experiment.steps import Parallel, PlainStep, Rollback, Step, describe
from drkit.drill.judge.checkers import judge
from drkit.drill.judge.history import ClientHistory, HistoryPart, Landed, LinkHistory, LogEnd, Returned
from drkit.drill.judge.result import (
    DrillResult,
    LinkResult,
    Section,
    SteadyStateResult,
    StepOutcome,
    StepResult,
    StrikeResult,
)
from drkit.drill.judge.verdict import (
    check_result,
    measure,
    measure_site,
    objective_results,
    outcome_of_branches,
    verdict,
)
from drkit.drill.results.archive import LAB_NOTE, Drills, new_run
from drkit.drill.results.recording import add_lab, begin_in_chain, write_experiment, write_history, write_origin
from drkit.drill.steps import Played, PlayedStrike, play, unforeseen
from drkit.drill.workload.reading import NotRead, read_all, stable_ends
from drkit.lab import Lab
from drkit.lab.lab import LabLink
from drkit.lab.layout import LabDir
from drkit.model.clock import now
from drkit.model.errors import DrkitError, Refused
from drkit.model.process import handled, working_on

Say = Callable[[str], None]
READ_SECONDS = 20.0
"""How long reading the target may make no progress before it is given up."""
SETTLE_SECONDS = 30.0
"""How long a transaction of a producer that is gone may stay open: its timeout of 10 s, and the 10 s between two looks
of the broker for such transactions, with a margin."""
NOT_ASKED = SteadyStateResult(reached=None, reason="the drill ended before it was checked", seconds=0.0)


Guard = Callable[[], str | None]


def nothing_stands_against() -> str | None:
    """The guard of a drill without a lease: it never objects."""
    return None


def no_histories(experiment: Experiment) -> list[LinkHistory]:
    """The links' histories if a drill ends before they are collected."""
    why = dict.fromkeys(HistoryPart, "the drill did not get that far")
    return [LinkHistory(ClientHistory(link.source, link.target, incomplete=why)) for link in experiment.links]


@dataclass
class _DrillProgress:
    """The progress of a drill so far."""

    file: ExperimentFile
    run: str
    started_at: datetime
    folder: Path
    say: Say
    guard: Guard = nothing_stands_against
    began: float = field(default_factory=time.monotonic)
    steady: SteadyStateResult = NOT_ASKED
    steps: list[StepResult] = field(default_factory=list)
    histories: list[LinkHistory] = field(default_factory=list)
    interrupted: str | None = None
    signalled: bool = False
    ended_by: tuple[signal.Signals, ...] = ()

    def signal(self, why: str) -> None:
        """Note a signal; the first reason stays."""
        self.interrupted, self.signalled = self.interrupted or why, True

    def told(self, line: str) -> None:
        # the terminal may be gone, and the rollbacks are not; parallel steps have threads of their own
        with suppress(OSError), working_on(run=self.run):
            self.say(f"{time.monotonic() - self.began:6.1f} s  {line}")


def run_drill(
    file: ExperimentFile,
    drills: Drills,
    *,
    lab_dir: Path | None,
    keep_lab: bool,
    say: Say,
    witness: str | None = None,
    guard: Guard = nothing_stands_against,
    begun: Callable[[str, datetime], None] = lambda _run, _at: None,
) -> DrillResult:
    """Play an experiment and keep its result.

    Args:
        file: the experiment.
        drills: the folder that keeps the run.
        lab_dir: the lab's folder: an existing lab is used as it is, else a new one is created there. None: a new lab
            in a temporary folder.
        keep_lab: leave the lab up if this drill created it.
        say: called with a readable line about each step.
        witness: who witnesses the drill; part of its evidence.
        guard: returns why no further step may be played, or None; called before each step from the disturbance on.
        begun: called with the run and its start before anything else happens, so that a drill that is killed is known.

    What can't be kept has its verdict nevertheless, but never passed: nobody finds it again.

    Raises:
        Refused: the configuration of the existing lab doesn't allow it (`own_configuration`).
        DrkitError: the run's folder or the chain of drills can't be written when it begins.
    """
    if lab_dir is not None and _holds_lab(lab_dir):
        own_configuration(Lab.open(lab_dir), file.experiment)
    at = now()
    run = new_run(at)
    course = _DrillProgress(file, run, at, drills.begin(run, file.path), say, guard)
    begin_in_chain(drills.path, run, file.experiment.title, at)
    begun(run, at)
    course.histories = no_histories(file.experiment)
    course.told(f"{file.experiment.title} ({run})")
    write_experiment(course.folder, file)
    write_origin(course.folder, run, witness=witness, began=course.began)
    env: DrillEnvironment | None = None
    with _signals_interrupt() as course.ended_by:
        try:
            with _lab(course, lab_dir, keep_lab) as lab:
                env = DrillEnvironment.on(lab, run, file.experiment, course.folder, course.told)
                env.may_not_strike = _strike_guard(env, course)
                _play_on(env, course)
        except (KeyboardInterrupt, SystemExit):
            course.signal("interrupted by a signal")
        except DrkitError as error:
            course.interrupted = f"the lab: {error}"
        except Exception as error:  # noqa: BLE001  # whatever it is, the drill has a result
            course.interrupted = course.interrupted or unforeseen(error)
    result = _result(course, env)
    try:
        write_history(course.folder, course.histories, interrupted=course.interrupted)
        drills.keep(result)
    except (DrkitError, OSError) as error:
        course.told(f"{run} can't be kept: {error}")
        why = [*result.reasons, f"it could not be kept: {error}"]
        left = {} if result.exit_code == 1 else {"verdict": "unknown", "exit_code": 8}
        return result.model_copy(update={"reasons": why, **left})
    return result


def _play_on(env: DrillEnvironment, course: _DrillProgress) -> None:
    try:
        _method(env, course)
    except (KeyboardInterrupt, SystemExit):
        course.signal("interrupted by a signal")
        course.told("interrupted: rolling back")
    finally:
        with _undisturbed(course), ExitStack() as last_first:  # each is done, also where another one raises
            last_first.callback(add_lab, course.folder, env.lab)
            last_first.callback(env.end_processes)
            last_first.callback(_collect_all, env, course)
            last_first.callback(_rollbacks, env, course)
            last_first.callback(env.stop_clients)


def _method(env: DrillEnvironment, course: _DrillProgress) -> None:
    """Play the steps; the steady state must be seen before the disturbance."""
    experiment = course.file.experiment
    disturbance = experiment.disturbance
    for number, step in enumerate(experiment.method):
        if number == disturbance and not _steady(env, course):
            return _skip(course, number)
        disturbed = disturbance is not None and number >= disturbance
        section: Section = "method" if disturbed else "setup"
        if isinstance(step, Parallel):
            succeeded = _play_branches(env, course, section, step, number)
        elif disturbed and _aborted(env, course, step, ("method", number)) is not None:
            return None
        else:
            played = _play_one(env, course, section, step, ("method", number), course.steps.append)
            succeeded = played == "ok"
        if not succeeded:
            return _skip(course, number + 1)
    if disturbance is None:
        _steady(env, course)
    return None


def _aborted(env: DrillEnvironment, course: _DrillProgress, step: Step, place: Place) -> str | None:
    """The safety rule that ends the method before this step; None: it may be played."""
    broken = course.guard() or broken_rule(env, course.file.experiment.safety, step, course.began)
    if broken is not None:
        line = course.file.line(*place)
        course.interrupted = f"aborted before {describe(step)} (line {line}) by a safety rule: {broken}"
        course.told(f"{course.interrupted}: rolling back")
    return broken


def _strike_guard(env: DrillEnvironment, course: _DrillProgress) -> Callable[[Fault], str | None]:
    """The guard for each fault at a stage: the step's own check was some time ago."""
    safety = course.file.experiment.safety
    return lambda fault: course.guard() or broken_rule(env, safety, fault, course.began)


def _play_branches(
    env: DrillEnvironment, course: _DrillProgress, section: Section, step: Parallel, number: int
) -> bool:
    """Play the branches of a parallel step; safety rules are checked before each step of theirs.

    Returns whether all steps succeeded.
    """
    played: dict[tuple[int, int], StepResult] = {}
    name, began = describe(step), time.monotonic()

    def player(at: int, one: int, inner: PlainStep) -> Callable[[], bool]:
        place = ("method", number, "branches", at, one)

        def keep(result: StepResult) -> None:
            played[at, one] = result

        def play_inner() -> bool:
            broken = _aborted(env, course, inner, place) if section == "method" else None
            if broken is None:
                return _play_one(env, course, section, inner, place, keep) == "ok"
            keep(_skipped(course, section, inner, place, f"not played, by a safety rule: {broken}"))
            return False

        return play_inner

    course.told(f"{name} …")
    try:
        play_parallel(
            [[player(at, one, inner) for one, inner in enumerate(branch)] for at, branch in enumerate(step.branches)]
        )
    finally:
        branches = [
            [
                played.get((at, one))
                or _skipped(course, section, inner, ("method", number, "branches", at, one), _NOT_BEGUN)
                for one, inner in enumerate(branch)
            ]
            for at, branch in enumerate(step.branches)
        ]
        outcome, reason = outcome_of_branches(branches)
        course.steps.append(
            StepResult(
                section=section,
                step=name,
                line=course.file.line("method", number),
                outcome=outcome,
                reason=reason,
                seconds=time.monotonic() - began,
                started_after_seconds=round(began - course.began, 3),
                branches=branches,
            )
        )
        course.told(f"{name}: {outcome}{'' if reason is None else f' ({reason})'}")
    return outcome == "ok"


_NOT_BEGUN = "it had not begun when the parallel step ended"


def _play_one(
    env: DrillEnvironment,
    course: _DrillProgress,
    section: Section,
    step: PlainStep | Rollback,
    place: Place,
    keep: Callable[[StepResult], None],
) -> StepOutcome:
    name = describe(step)
    course.told(f"{name} …")
    began = time.monotonic()
    played = Played("unknown", "interrupted by a signal")
    try:
        if section == "rollbacks" and isinstance(step, Kill | Pause):
            broken = strikes_both_sides(env, course.file.experiment.safety, step)
        else:
            broken = None
        played = play(env, step) if broken is None else Played("unknown", f"not played, by a safety rule: {broken}")
    except Exception as error:  # noqa: BLE001  # a full disk, a process that is gone: the drill and its rollbacks go on
        played = Played("unknown", unforeseen(error))
    finally:
        keep(
            StepResult(
                section=section,
                step=name,
                line=course.file.line(*place),
                outcome=played.outcome,
                reason=played.reason,
                seconds=time.monotonic() - began,
                started_after_seconds=round(began - course.began, 3),
                strikes=[_strike_result(course, place, each) for each in played.strikes],
            )
        )
        course.told(f"{name}: {played.outcome}{'' if played.reason is None else f' ({played.reason})'}")
    return played.outcome


def _strike_result(course: _DrillProgress, step: Place, strike: PlayedStrike) -> StrikeResult:
    began, (at, one) = strike.began, strike.place
    return StrikeResult(
        step=strike.step,
        line=course.file.line(*step, "strikes", at, "faults", one),
        outcome=strike.played.outcome,
        reason=strike.played.reason,
        seconds=strike.seconds,
        started_after_seconds=None if began is None else round(began - course.began, 3),
    )


def _skip(course: _DrillProgress, first: int) -> None:
    reason = "a step before it did not succeed"
    for number, step in enumerate(course.file.experiment.method[first:], first):
        course.steps.append(_skipped(course, "method", step, ("method", number), reason))


def _skipped(course: _DrillProgress, section: Section, step: Step, place: Place, reason: str) -> StepResult:
    branches = step.branches if isinstance(step, Parallel) else []
    return StepResult(
        section=section,
        step=describe(step),
        line=course.file.line(*place),
        outcome="skipped",
        reason=reason,
        seconds=0.0,
        branches=[
            [
                _skipped(course, section, inner, (*place, "branches", at, one), reason)
                for one, inner in enumerate(branch)
            ]
            for at, branch in enumerate(branches)
        ],
    )


def _steady(env: DrillEnvironment, course: _DrillProgress) -> bool:
    steady = course.file.experiment.steady_state
    course.told("steady state …")
    began = time.monotonic()
    result = wait_for(env, steady.conditions, steady.within_seconds)
    course.steady = SteadyStateResult(reached=result.holds, reason=result.seen, seconds=time.monotonic() - began)
    course.told(f"steady state: {'ok' if result.holds else 'not reached'} ({result.seen})")
    return result.holds


def _rollbacks(env: DrillEnvironment, course: _DrillProgress) -> None:
    for number, step in enumerate(course.file.experiment.rollbacks):
        try:
            _play_one(env, course, "rollbacks", step, ("rollbacks", number), course.steps.append)
        except (KeyboardInterrupt, SystemExit):  # the lab raises a signal that came meanwhile; the others still run
            course.signal("interrupted by a signal while rolling back")


def _collect_all(env: DrillEnvironment, course: _DrillProgress) -> None:
    course.histories = [_collect(env, course, link) for link in env.links.values()]


def _collect(env: DrillEnvironment, course: _DrillProgress, link: LinkProgress) -> LinkHistory:
    """The history of a link's clients, and its target as an independent reader finds it now; of a link that a failback
    brought back the source, too.

    After a signal nothing is read any more.
    """
    if course.signalled:
        nothing = next(each.history for each in course.histories if each.history.link == link.spec.name)
        return LinkHistory(nothing, link.disaster_at, link.moved)
    clients, incomplete = link.clients, link.clients.incomplete()
    if link.start_unknown is not None:
        incomplete[HistoryPart.POLLS] = link.start_unknown
    landed, ends, unread = _read(env, course, link, link.spec.target)
    returned = None
    if link.returned_at is not None:
        returned = Returned(link.returned_at, *_read(env, course, link, link.spec.source))
    history = ClientHistory(
        *link.spec.clusters,
        attempts=clients.attempts(),
        polls=clients.polls(),
        positions=(*link.started_from, *clients.committed()),
        landed=landed,
        incomplete=incomplete | unread,
        stated=link.stated,
        stated_loss=link.stated_loss,
        ends=ends,
        returned=returned,
    )
    return LinkHistory(history, link.disaster_at, link.moved)


def _read(
    env: DrillEnvironment, course: _DrillProgress, link: LinkProgress, cluster: str
) -> tuple[tuple[Landed, ...], tuple[LogEnd, ...], dict[HistoryPart, str]]:
    """The workload's topic on a cluster: its records, its ends where it has transactions, and what couldn't be read."""
    workload, topic, properties = link.workload, link.topic_on(cluster), env.properties[cluster]
    incomplete: dict[HistoryPart, str] = {}
    ends: list[LogEnd] = []
    landed: list[Landed] = []
    if workload.transactions is not None:
        try:
            ends = stable_ends(properties, topic, workload.partitions, READ_SECONDS, SETTLE_SECONDS)
        except NotRead as error:
            incomplete[HistoryPart.ENDS] = str(error)
    course.told(f"reading {topic} on {cluster} …")
    try:
        landed = read_all(properties, link.drill, topic, workload.partitions, READ_SECONDS)
    except NotRead as error:
        incomplete[HistoryPart.LANDED] = str(error)
    course.told(f"{len(landed)} records on {cluster}")
    return tuple(landed), tuple(ends), incomplete


def _result(course: _DrillProgress, env: DrillEnvironment | None) -> DrillResult:
    experiment = course.file.experiment
    moved = {each.history.link: each.moved for each in course.histories}
    by_link = {
        each.history.link: measure(each.history, disaster_at=each.disaster_at, moved=each.moved)
        for each in course.histories
    }
    measured = measure_site(by_link, moving=experiment.moving)
    checks = [
        check_result(name, each.history.link, judge(name, each.history))
        for each in course.histories
        for name in experiment.checks_of(each.history.link)
    ]
    objectives = objective_results(experiment.objectives, measured)
    judged, code, reasons = verdict(
        steady_state=course.steady,
        steps=course.steps,
        checks=checks,
        objectives=objectives,
        interrupted=course.interrupted,
    )
    return DrillResult(
        run=course.run,
        title=experiment.title,
        hypothesis=experiment.hypothesis.strip(),
        file=str(course.file.path),
        verdict=judged,
        exit_code=code,
        reasons=reasons,
        started_at=course.started_at,
        ended_at=now(),
        seconds=round(time.monotonic() - course.began, 3),
        steady_state=course.steady,
        steps=course.steps,
        checks=checks,
        objectives=objectives,
        measured=measured,
        links=[
            LinkResult(
                link=link.name,
                topic=experiment.workload(link.name).topic,
                target_topic=link.topic_on(link.target, experiment.workload(link.name).topic),
                group=experiment.workload(link.name).group,
                moved=moved[link.name],
                measured=by_link[link.name],
                failover=None if env is None else env.links[link.name].failover,
            )
            for link in experiment.links
        ],
        failover=None if env is None else env.failover,
        failback=None if env is None else env.failback,
        reprotect=None if env is None else env.reprotect,
        interrupted=course.signalled,
        folder=str(course.folder),
    )


@contextmanager
def _lab(course: _DrillProgress, lab_dir: Path | None, keep_lab: bool) -> Iterator[Lab]:
    """The lab of the drill; one that this drill created is taken down again, unless it is to be kept."""
    spec = course.file.experiment.lab
    if lab_dir is not None and _holds_lab(lab_dir):
        yield Lab.up(lab_dir, brokers=spec.brokers, store=spec.store, say=course.told)
        return
    folder = lab_dir or Path(tempfile.mkdtemp(prefix="drkit-drill-"))
    (course.folder / LAB_NOTE).write_text(f"{folder}\n", encoding="utf-8")
    users = new_users() if spec.secured else None
    listeners = {**_applications(spec, folder), **(WAN_LISTENERS if spec.wan else {})}
    links = [LabLink(link.source, link.target, link.policy, tuple(link.topics)) for link in spec.links]
    lab = Lab.up(
        folder,
        brokers=spec.brokers,
        store=spec.store,
        clusters=spec.clusters,
        links=links,
        users=users,
        listeners=listeners,
        say=course.told,
    )
    try:
        yield lab
    finally:
        if keep_lab:
            course.told(f"the lab stays up: drkit lab status --dir {folder}")
        else:
            with _undisturbed(course):
                _down(lab, course)


def _applications(spec: LabSpec, folder: Path) -> dict[str, dict[str, str]]:
    """The listener of the applications, if they have one; its certificates are in the lab's folder, and go with it."""
    if not spec.tls:
        return SECURED_LISTENERS if spec.secured else {}
    certificates = LabDir(folder.resolve()).secure
    certificates.make([])
    return tls_listeners(certificates)


def _holds_lab(lab_dir: Path) -> bool:
    try:
        Lab.open(lab_dir)
    except Refused:
        return False
    return True


def _down(lab: Lab, course: _DrillProgress) -> None:
    try:
        lab.down(say=course.told)
    except (KeyboardInterrupt, SystemExit):  # the lab stops between two nodes after a signal: once more
        lab.down(say=course.told)


@contextmanager
def _signals_interrupt() -> Iterator[tuple[signal.Signals, ...]]:
    """SIGTERM, and the SIGHUP of a terminal that closes, end a drill like Ctrl-C, with its rollbacks.

    SIGHUP is left to a command that handles it, and to `nohup`. Gives the signals.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    closes = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    numbers = (signal.SIGTERM, *((signal.SIGHUP,) if closes else ()))
    with _handled_in_main_thread(interrupt, *numbers):
        yield numbers


@contextmanager
def _undisturbed(course: _DrillProgress) -> Iterator[None]:
    """Ignore signals, but answer them with a message."""

    def answer(_number: int, _frame: FrameType | None) -> None:
        course.told("cleaning up; this can't be interrupted")

    with _handled_in_main_thread(answer, signal.SIGINT, *course.ended_by):
        yield


def _handled_in_main_thread(
    handler: Callable[[int, FrameType | None], None], *numbers: signal.Signals
) -> AbstractContextManager[None]:
    in_main_thread = threading.current_thread() is threading.main_thread()
    return handled(handler, *numbers) if in_main_thread else nullcontext()
