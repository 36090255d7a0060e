"""Runs the steps of a benchmark in order, keeps the results, and handles failures."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench import large_link, live, lookup, move, outage, site, translate
from bench.backlog import Backlog
from bench.cases import (
    BACKLOG,
    LARGE_LINK,
    LIVE,
    LOOKUP,
    MOVE,
    ON_THE_PAIR,
    OUTAGE,
    SITES,
    TRANSLATE,
    WARM_UP,
    Extent,
    Scene,
)
from bench.clusters import Clusters
from bench.mirrors import DIRECT, Bare, Drkit, Mirror, MirrorMaker
from bench.processes import MeasurementFailed
from bench.report import render
from bench.results import Results
from bench.wire import WireError
from drkit.lab.toolchain import Toolchain
from drkit.model.errors import DrkitError, Refused

RESULTS_FILE = "results.json"
REPORT_FILE = "RESULTS.md"
_NEED_FREE_GIB = 8
_WARMED_BY_ITSELF = frozenset({MOVE, OUTAGE})
_FAILURES = (MeasurementFailed, WireError, DrkitError, OSError)


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of measurement: rows of one list of `Results`, identified by `where`."""

    step: str
    kind: str
    measure: Callable[[Scene], Sequence[Any]]
    where: dict[str, Any]


@dataclass(slots=True)
class Run:
    """One run of the bench.

    Args:
        steps: the names of the steps, in order.
        out: the folder for results, which are written after every measurement.
        deadline: by the monotonic clock; steps that haven't begun by then are skipped and reported.
        say: called with a readable line about each step.
    """

    steps: Sequence[str]
    extent: Extent
    repeat: int
    results: Results
    out: Path
    toolchain: Toolchain
    deadline: float
    say: Callable[[str], None]

    def run(self) -> None:
        """Measure the requested steps that have no results yet."""
        self.results.failures.clear()  # they are tried again
        with tempfile.TemporaryDirectory(prefix="drkit-bench-") as name:
            work = Path(name)
            if shutil.disk_usage(work).free < _NEED_FREE_GIB << 30:
                raise Refused(
                    f"less than {_NEED_FREE_GIB} GiB are free in {work.parent}",
                    remedy="Make room, or point TMPDIR elsewhere",
                )
            clusters = Clusters(work, self.toolchain, self.say)
            scene = Scene(work, clusters, self.toolchain, self.extent, self.say)
            mirrors = (Drkit(), MirrorMaker(self.toolchain))
            todo = {step: [unit for unit in self._units(step, mirrors) if self._missing(unit)] for step in self.steps}
            on_the_pair = [step for step in ON_THE_PAIR if todo.get(step)]
            with ExitStack() as stack:
                if on_the_pair:
                    stack.enter_context(clusters)
                if set(on_the_pair) - _WARMED_BY_ITSELF:
                    self._warm_up(scene, mirrors)
                for step in on_the_pair:
                    self._step(step, todo[step], scene)
            for step in self.steps:
                if step not in ON_THE_PAIR and todo[step]:
                    self._step(step, todo[step], scene)

    def write(self) -> None:
        """Write the report of the results so far."""
        (self.out / REPORT_FILE).write_text(render(self.results), encoding="utf-8")

    # -- the parts of a step -----------------------------------------------------------------------

    def _units(self, step: str, mirrors: Sequence[Mirror]) -> list[Unit]:
        """All parts of a step. The first mirror alternates from step to step and from repeat to repeat."""
        ordered = mirrors if self.steps.index(step) % 2 else mirrors[::-1]
        once: dict[str, tuple[str, Callable[[Scene], Sequence[Any]]]] = {
            MOVE: ("moves", partial(move.measure, repeats=self.repeat)),
            OUTAGE: ("outages", partial(outage.measure, repeats=self.repeat)),
            LOOKUP: ("lookup", lookup.measure),
        }
        if step in once:
            return [Unit(step, *once[step], {})]
        if step == TRANSLATE:
            return [
                Unit(step, "translate", partial(translate.measure, mirror=mirror), {"peer": mirror.name})
                for mirror in ordered
            ]
        if step == LARGE_LINK:
            return [
                Unit(step, "large_links", partial(large_link.measure, repeat=repeat), {"repeat": repeat})
                for repeat in range(1, self.repeat + 1)
            ]
        for case in SITES:
            if case.name == step:
                return [Unit(step, "sites", partial(site.measure, case=case, repeats=self.repeat), {"case": step})]
        return [*self._compared(step, ordered)]

    def _compared(self, step: str, ordered: Sequence[Mirror]) -> Iterator[Unit]:
        """A case for each mirror in each repeat: a backlog, or live."""
        live_case = next((case for case in LIVE if case.name == step), None)
        backlog = next((Backlog(case) for case in BACKLOG if case.name == step), None)
        for repeat in range(1, (max(self.repeat, self.extent.live_repeats) if live_case else self.repeat) + 1):
            turn: list[Mirror | None] = [*(ordered if repeat % 2 else ordered[::-1])]
            for mirror in [None, Bare(live_case.partitions), *turn] if live_case else turn:
                where = {"case": step, "peer": mirror.name if mirror else DIRECT, "repeat": repeat}
                if live_case:
                    yield Unit(step, "live", partial(live.measure, case=live_case, mirror=mirror, repeat=repeat), where)
                elif backlog and mirror:
                    yield Unit(step, "backlog", partial(backlog.measure, mirror=mirror, repeat=repeat), where)

    def _missing(self, unit: Unit) -> bool:
        return not self.results.rows(unit.kind, **unit.where)

    # -- measuring ---------------------------------------------------------------------------------

    def _warm_up(self, scene: Scene, mirrors: Sequence[Mirror]) -> None:
        """Run both mirrors once without measuring, to compile the brokers' code and fill their caches."""
        self.say("warming the brokers up: each mirror once, not measured")
        backlog = Backlog(WARM_UP)
        for mirror in mirrors:
            self._attempt(WARM_UP.name, partial(backlog.measure, scene, mirror=mirror, repeat=0))

    def _step(self, step: str, units: Sequence[Unit], scene: Scene) -> None:
        if time.monotonic() >= self.deadline:
            self.results.failures.append(f"{step}: the time was over; run again with --resume")
            self.say(self.results.failures[-1])
            return
        for unit in units:
            with tempfile.TemporaryDirectory(dir=scene.work) as folder:
                found = self._attempt(step, partial(unit.measure, replace(scene, work=Path(folder))))
            getattr(self.results, unit.kind).extend(found)
            self.results.save(self.out / RESULTS_FILE)

    def _attempt(self, step: str, measure: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """The measurements; notes a failure, and the other steps continue."""
        try:
            return measure()
        except Exception as error:  # noqa: BLE001 - one case's failure, whatever it is, mustn't cost the others
            expected = isinstance(error, _FAILURES)
            self.results.failures.append(f"{step}: {error}" if expected else f"{step}: {error!r}")
            self.say(self.results.failures[-1])
            return ()
