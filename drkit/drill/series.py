"""Plays several experiments one after the other, each so many times, and summarizes them.

    exit code   the worst of the drills: 1 (refuted), then 8 (something couldn't be seen, or didn't run), then 6 (an
                objective was missed), then 0

An interrupt ends the running drill, with its rollbacks, and the series; the result lists the drills that didn't run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from drkit.drill.experiment.reader import ExperimentFile
from drkit.drill.judge.result import Document, DrillResult, ExitValue, Instant, Verdict
from drkit.model.clock import now
from drkit.model.errors import DrkitError
from drkit.model.wording import counted

Play = Callable[[ExperimentFile], DrillResult]
Say = Callable[[str], None]
WORST_FIRST: tuple[ExitValue, ...] = (1, 8, 6, 0)
VERDICTS: dict[ExitValue, Verdict] = {1: "failed", 8: "unknown", 6: "failed", 0: "passed"}
NOT_RUN: ExitValue = 8
"""The exit code of a drill that didn't run: its outcome is unknown."""


class SeriesDrill(Document):
    """One drill of a series. `run`, `verdict` and `exit_code` are null if it didn't run; `reason`: why it didn't, or
    the verdict's first reason."""

    file: str
    title: str
    repetition: int
    run: str | None
    verdict: Verdict | None
    exit_code: ExitValue | None
    seconds: float | None
    rpo_records: int | None
    rto_seconds: float | None
    reason: str | None
    folder: str | None


class SeriesExperiment(Document):
    """The outcomes of one experiment, counted."""

    file: str
    title: str
    passed: int
    failed: int
    unknown: int
    not_run: int


class SeriesResult(Document):
    """The document of `drkit drill run --output json` for several drills. `ended_early`: why not all of them ran."""

    verdict: Verdict
    exit_code: ExitValue
    ended_early: str | None
    started_at: Instant
    ended_at: Instant
    seconds: float
    experiments: list[SeriesExperiment]
    series: list[SeriesDrill]


@dataclass(frozen=True, slots=True)
class _Planned:
    file: ExperimentFile
    repetition: int


def worst(codes: Iterable[ExitValue]) -> ExitValue:
    """The worst exit code, by the rule above; 0 if there is none."""
    return min(codes, key=WORST_FIRST.index, default=0)


def play_series(files: Sequence[ExperimentFile], repeat: int, play: Play, say: Say) -> SeriesResult:
    """Play each experiment `repeat` times: all of them once, then all again.

    Args:
        files: the experiments.
        repeat: how often.
        play: plays one.
        say: called with a readable line before each drill.
    """
    at, began = now(), time.monotonic()
    planned = [_Planned(file, repetition) for repetition in range(1, repeat + 1) for file in files]
    drills: list[SeriesDrill] = []
    ended_early: str | None = None
    for number, each in enumerate(planned, 1):
        say(f"drill {number} of {len(planned)}: {each.file.experiment.title}")
        try:
            result = play(each.file)
        except KeyboardInterrupt:
            ended_early = "interrupted by a signal"
            break
        except DrkitError as error:
            ended_early = error.what
            break
        drills.append(drill_line(result, each.repetition))
        if result.interrupted and number < len(planned):
            ended_early = "interrupted by a signal"
            break
    left = planned[len(drills) :]
    drills += [_not_run(each, f"the series ended before it: {ended_early}") for each in left]
    code = worst(NOT_RUN if each.exit_code is None else each.exit_code for each in drills)
    return SeriesResult(
        verdict=VERDICTS[code],
        exit_code=code,
        ended_early=None if ended_early is None else f"{ended_early}; {counted(len(left), 'drill')} did not run",
        started_at=at,
        ended_at=now(),
        seconds=round(time.monotonic() - began, 3),
        experiments=[_tally(file, drills) for file in files],
        series=drills,
    )


def drill_line(result: DrillResult, repetition: int) -> SeriesDrill:
    """A drill's line in a series."""
    return SeriesDrill(
        file=result.file,
        title=result.title,
        repetition=repetition,
        run=result.run,
        verdict=result.verdict,
        exit_code=result.exit_code,
        seconds=result.seconds,
        rpo_records=result.measured.rpo_records,
        rto_seconds=result.measured.rto_seconds,
        reason=result.reasons[0] if result.reasons else None,
        folder=result.folder,
    )


def _not_run(planned: _Planned, reason: str) -> SeriesDrill:
    return SeriesDrill(
        file=str(planned.file.path),
        title=planned.file.experiment.title,
        repetition=planned.repetition,
        run=None,
        verdict=None,
        exit_code=None,
        seconds=None,
        rpo_records=None,
        rto_seconds=None,
        reason=reason,
        folder=None,
    )


def _tally(file: ExperimentFile, drills: Sequence[SeriesDrill]) -> SeriesExperiment:
    verdicts = [each.verdict for each in drills if each.file == str(file.path)]
    return SeriesExperiment(
        file=str(file.path),
        title=file.experiment.title,
        passed=verdicts.count("passed"),
        failed=verdicts.count("failed"),
        unknown=verdicts.count("unknown"),
        not_run=verdicts.count(None),
    )
