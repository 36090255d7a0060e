"""Plays composed experiments until the time is up, and shrinks those that find something.

A drill that is refuted (exit code 1) found something: a check found an anomaly, or a step failed after the disturbance.
A drill with an unknown verdict is reported and kept, but is no finding. A finding is shrunk block by block, as long as
the rest fails in the same way: the same check of the same link, or the same step with the same exit code, also where
it stands in a parallel step that is shrunk. It is kept as an experiment in the drills' folder. What a shrunk
experiment no longer shows of its drill's failures is a finding of its own, shrunk again from the whole.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from drkit.drill.coverage import Cell
from drkit.drill.experiment.base import of_link
from drkit.drill.experiment.reader import ExperimentFile, load_experiment
from drkit.drill.judge.result import Document, DrillResult, ExitValue, Instant, StepResult, Verdict
from drkit.drill.random_drill.composition import Composition, FaultBlock, compose, planned_cells, to_yaml
from drkit.drill.results.archive import Drills
from drkit.drill.series import NOT_RUN, VERDICTS, Play, Say, worst
from drkit.model.clock import now
from drkit.model.errors import DrkitError
from drkit.model.wording import counted

REFUTED: ExitValue = 1
_EXIT_CODE = re.compile(r"exit code -?\d+")
INTERRUPTED = "interrupted by a signal"


class RandomDrill(Document):
    """The result of one composed experiment. `experiment`: the text of its file, which `drkit drill run` can play."""

    number: int
    title: str
    strikes: list[str]
    run: str
    verdict: Verdict
    exit_code: ExitValue
    seconds: float
    reason: str | None
    folder: str
    experiment: str


class RandomFinding(Document):
    """What a random drill found. `failed`: what refuted its drill, of which the shrunk experiment shows all, by name;
    `file`: that experiment; `kept`, `left_out`: its blocks; `replays`: the drills that shrank it; `cut_short`: why some
    blocks were not tried; null: all were."""

    number: int
    run: str
    failed: list[str]
    file: str
    kept: list[str]
    left_out: list[str]
    replays: int
    cut_short: str | None


class RandomResult(Document):
    """The document of `drkit drill random --output json`. The exit code is the worst of its drills', by the rule of a
    series; replays don't count. A session that a limit did not end, or that played none, counts as one not run (8)."""

    seed: int
    verdict: Verdict
    exit_code: ExitValue
    ended_because: str
    started_at: Instant
    ended_at: Instant
    seconds: float
    random: list[RandomDrill]
    findings: list[RandomFinding]


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The limits of a session. `deadline`: no drill begins after it (CLOCK_MONOTONIC); None: no such limit.

    `replays`: the most drills that may be played to shrink one finding.
    """

    deadline: float | None
    runs: int | None
    replays: int

    def reached(self, played: int) -> str | None:
        """Why no further drill begins; None: one may."""
        if self.runs is not None and played >= self.runs:
            return f"{counted(self.runs, 'drill')} were asked for" if self.runs != 1 else "1 drill was asked for"
        return self.time_is_up()

    def time_is_up(self) -> str | None:
        """The same, only by the deadline."""
        return "the time is up" if self.deadline is not None and time.monotonic() >= self.deadline else None


class RandomSession:
    """One session of random drills.

    Args:
        seed: together with `struck`, determines all experiments.
        struck: how often each cell was covered before.
        drills: where findings are kept.
        work: a folder for the files that are played.
        play: plays an experiment.
        say: called with a readable line.
        cassandra: whether to cover cells of the store, too.
    """

    def __init__(
        self,
        seed: int,
        struck: Mapping[Cell, int],
        drills: Drills,
        work: Path,
        play: Play,
        say: Say,
        *,
        cassandra: bool = True,
    ) -> None:
        self._seed = seed
        self._struck = dict(struck)
        self._drills = drills
        self._work = work
        self._play = play
        self._say = say
        self._cassandra = cassandra
        self._played: list[RandomDrill] = []
        self._findings: list[RandomFinding] = []

    def run(self, limits: SessionLimits) -> RandomResult:
        """Play until a limit is reached, or a signal comes."""
        at, began = now(), time.monotonic()
        ended: str | None = None
        in_order: str | None = None
        while ended is None:
            ended = in_order = limits.reached(len(self._played))
            if ended is None:
                try:
                    ended = self._play_one(len(self._played) + 1, limits)
                except KeyboardInterrupt:
                    ended = INTERRUPTED
                except DrkitError as error:
                    ended = error.what
                    if not self._played:
                        raise
        codes = [each.exit_code for each in self._played]
        code = worst(codes if in_order and codes else [*codes, NOT_RUN])
        return RandomResult(
            seed=self._seed,
            verdict=VERDICTS[code],
            exit_code=code,
            ended_because=ended,
            started_at=at,
            ended_at=now(),
            seconds=round(time.monotonic() - began, 3),
            random=self._played,
            findings=self._findings,
        )

    def _play_one(self, number: int, limits: SessionLimits) -> str | None:
        """Compose and play one experiment; returns why the session ends with it, if it does."""
        composition = compose(self._seed, number, self._struck, cassandra=self._cassandra)
        for cell in planned_cells(composition):
            self._struck[cell] = self._struck.get(cell, 0) + 1
        text = to_yaml(composition)
        self._say(f"{composition.title}: {composition.struck}")
        self._say(text)
        result = self._play(self._file(composition))
        self._played.append(
            RandomDrill(
                number=number,
                title=composition.title,
                strikes=[f"{cell.fault} ({cell.state})" for cell in planned_cells(composition)],
                run=result.run,
                verdict=result.verdict,
                exit_code=result.exit_code,
                seconds=result.seconds,
                reason=result.reasons[0] if result.reasons else None,
                folder=result.folder,
                experiment=text,
            )
        )
        self._say(f"{composition.title}: {result.verdict} ({result.run})")
        if result.exit_code == REFUTED:
            return self._shrink_and_keep(composition, result, limits)
        return INTERRUPTED if result.interrupted else None

    def _shrink_and_keep(self, composition: Composition, result: DrillResult, limits: SessionLimits) -> str | None:
        """Shrink what a drill found and keep it; returns why the session ends with it, if it does."""
        stopped = INTERRUPTED if result.interrupted else None
        left, found = failures(result), 0
        while left or not found:
            found += 1
            self._keep(composition, found)  # even if shrinking it fails
            shown, cut = self._shrunk(composition, left, limits, stopped)
            file = self._keep(cut.composition, found)
            self._findings.append(
                RandomFinding(
                    number=composition.number,
                    run=result.run,
                    failed=sorted(shown),
                    file=str(file),
                    kept=[str(block) for block in cut.composition.blocks],
                    left_out=[str(block) for block in cut.left_out],
                    replays=cut.replays,
                    cut_short=cut.cut_short,
                )
            )
            self._say(f"kept: drkit drill run {file}")
            left -= shown
            stopped = INTERRUPTED if cut.cut_short == INTERRUPTED else None
        return stopped

    def _shrunk(
        self, composition: Composition, failed: frozenset[str], limits: SessionLimits, stopped: str | None
    ) -> tuple[frozenset[str], ShrunkFinding]:
        """What the shrunk composition still shows of these failures, never nothing; and the shrunk composition."""
        shown = failed

        def fails(smaller: Composition) -> bool:
            nonlocal shown
            self._say(f"without one block: {smaller.struck or 'nothing strikes'}")
            result = self._play(self._file(smaller))
            if result.interrupted:
                raise KeyboardInterrupt
            same = failures(result) & shown if result.exit_code == REFUTED else frozenset()
            shown = same or shown
            return bool(same)

        cut = shrink(composition, fails, limits, stopped=stopped)
        return shown, cut

    def _file(self, composition: Composition) -> ExperimentFile:
        path = self._work / f"random-{composition.seed}-{composition.number}.yaml"
        path.write_text(to_yaml(composition), encoding="utf-8")
        return load_experiment(path)

    def _keep(self, composition: Composition, finding: int) -> Path:
        """Keep a finding as a file; `finding`: which one of its drill, from 1 on."""
        folder = self._drills.found
        more = "" if finding == 1 else f"-{finding}"
        file = folder / f"random-{composition.seed}-{composition.number}{more}.yaml"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.write_text(to_yaml(composition), encoding="utf-8")
        except OSError as error:
            raise DrkitError(
                f"{file} can't be written: {error.strerror or error}",
                meaning="The experiment that found something is only in its run's folder",
                remedy="Correct its permissions, or free some space",
            ) from error
        return file


@dataclass(frozen=True, slots=True)
class ShrunkFinding:
    """A shrunk finding. `cut_short`: why some blocks weren't tried; None: all were."""

    composition: Composition
    left_out: tuple[FaultBlock, ...]
    replays: int
    cut_short: str | None


def shrink(
    composition: Composition, fails: Callable[[Composition], bool], limits: SessionLimits, *, stopped: str | None = None
) -> ShrunkFinding:
    """Leave out block after block, as long as the rest still fails.

    Args:
        composition: what failed.
        fails: plays a smaller one; whether it fails in the same way. Raises KeyboardInterrupt after a signal.
        limits: how many to play, and until when.
        stopped: why to play none at all.
    """
    left_out: list[FaultBlock] = []
    replays = 0
    for block in composition.blocks:
        if stopped is None:
            stopped = "the limit of replays is reached" if replays >= limits.replays else limits.time_is_up()
        if stopped is not None:
            break
        smaller = composition.without(block)
        replays += 1
        try:
            still = fails(smaller)
        except KeyboardInterrupt:
            stopped = INTERRUPTED
            break
        if still:
            composition = smaller
            left_out.append(block)
    return ShrunkFinding(composition, tuple(left_out), replays, stopped)


def failures(result: DrillResult) -> frozenset[str]:
    """What refuted a drill: failed checks with their link, and steps that failed after the disturbance.

    A parallel step is named by the steps of its branches that failed: its own name changes as it is shrunk.
    """
    checks = {f"{each.check}{of_link(each.link)}" for each in result.checks if each.outcome == "failed"}
    steps = (one for each in result.steps for one in ([step for b in each.branches for step in b] or [each]))
    failed = (each for each in steps if each.section == "method" and each.outcome == "failed")
    return frozenset(checks | {_failed_step(each) for each in failed})


def _failed_step(step: StepResult) -> str:
    """The step, and the exit code of its command: another one is another failure."""
    code = _EXIT_CODE.match(step.reason or "")
    return step.step if code is None else f"{step.step}: {code.group()}"
