"""The order of things: which step runs when, what is kept, what happens when one fails."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from bench import lookup
from bench.backlog import Backlog
from bench.cases import (
    BACKLOG,
    LARGE_LINK,
    LIVE,
    LOOKUP,
    MOVE,
    OUTAGE,
    SITES,
    TRANSLATE,
    WARM_UP,
    BacklogCase,
    Extent,
    LiveCase,
    SiteCase,
)
from bench.clusters import Clusters
from bench.large_link import LargeLink
from bench.live import DIRECT, Live
from bench.move import Move
from bench.outage import Outage
from bench.peers.bare import BARE, Bare
from bench.peers.base import Peer
from bench.peers.drkit import Drkit
from bench.peers.mirrormaker import MirrorMaker
from bench.processes import MeasurementFailed
from bench.progress import Screen
from bench.report import render as render_report
from bench.results import Results
from bench.site import Site
from bench.translate import Translate
from bench.wire import WireError
from drkit.lab.toolchain import Toolchain
from drkit.model.errors import DrkitError, Refused

RESULTS_FILE = "results.json"
REPORT_FILE = "RESULTS.md"
_NEED_FREE_GIB = 8
_OWN_CLUSTERS = frozenset({LOOKUP, LARGE_LINK, *(case.name for case in SITES)})
T = TypeVar("T")
_FAILURES = (MeasurementFailed, WireError, DrkitError, OSError)


@dataclass(slots=True)
class Run:
    """One run of the bench.

    Args:
        steps: names of what to measure, in order.
        records: for every backlog case, instead of its own number.
        out: where results go; written after every measurement.
        deadline: by the monotonic clock; steps that haven't begun by then are left out, and named.
    """

    steps: Sequence[str]
    extent: Extent
    records: int | None
    repeat: int
    results: Results
    out: Path
    toolchain: Toolchain
    screen: Screen
    deadline: float

    def run(self) -> None:
        """Measure what is asked for and isn't there yet."""
        self.results.failures.clear()  # they are tried again
        with tempfile.TemporaryDirectory(prefix="drkit-bench-") as folder:
            work = Path(folder)
            if shutil.disk_usage(work).free < _NEED_FREE_GIB << 30:
                raise Refused(
                    f"less than {_NEED_FREE_GIB} GiB are free in {work.parent}",
                    remedy="Make room, or point TMPDIR elsewhere",
                )
            if any(self._missing(step) for step in self.steps if step not in _OWN_CLUSTERS):
                with Clusters(work, self.toolchain, self.screen.say) as clusters:
                    self._on_clusters(clusters, work)
            if LOOKUP in self.steps and self._missing(LOOKUP) and self._in_time(LOOKUP):
                self._attempt(
                    LOOKUP, self.results.lookup.extend, partial(lookup.measure, work, self.screen, self.extent)
                )
            if LARGE_LINK in self.steps and self._missing(LARGE_LINK) and self._in_time(LARGE_LINK):
                self._large_links(work)
            for case in SITES:
                if case.name in self.steps and self._missing(case.name) and self._in_time(case.name):
                    self._site(work, self.extent.site(case))

    def write(self) -> None:
        """Write the report of what there is."""
        (self.out / REPORT_FILE).write_text(render_report(self.results), encoding="utf-8")

    def _on_clusters(self, clusters: Clusters, work: Path) -> None:
        peers: list[Peer] = [Drkit(), MirrorMaker(self.toolchain)]
        backlog = Backlog(clusters, work, self.screen)
        live = Live(clusters, work, self.screen, self.extent)
        translate = Translate(clusters, work, self.screen, self.extent)
        if set(self.steps) - _OWN_CLUSTERS - {MOVE, OUTAGE}:  # that case warms the brokers up itself
            self._warm_up(backlog, peers)
        for turn, step in enumerate(self.steps):
            if step in _OWN_CLUSTERS or not self._missing(step) or not self._in_time(step):
                continue
            ordered = peers if turn % 2 else peers[::-1]
            if step == TRANSLATE:
                for peer in ordered:
                    if not any(run.peer == peer.name for run in self.results.translate):
                        self._attempt(step, self.results.translate.extend, partial(translate.run, peer))
            elif step == MOVE:
                move = Move(clusters, work, self.screen, self.extent, self.toolchain)
                self._attempt(step, self.results.moves.extend, partial(move.run, self.repeat))
            elif step == OUTAGE:
                outage = Outage(clusters, work, self.screen, self.extent)
                self._attempt(step, self.results.outages.extend, partial(outage.run, self.repeat))
            elif case := next((case for case in LIVE if case.name == step), None):
                self._live(live, case, ordered)
            else:
                self._backlog(backlog, next(case for case in BACKLOG if case.name == step), ordered)

    def _warm_up(self, backlog: Backlog, peers: Sequence[Peer]) -> None:
        """Both mirrors once, unmeasured: the brokers' code is compiled and their caches are filled."""
        records = WARM_UP.records_in(self.extent, None)
        self.screen.say("warming the brokers up: each mirror once, not measured")
        backlog.load(WARM_UP, records)
        for peer in peers:
            self._attempt(WARM_UP.name, bool, partial(backlog.run, WARM_UP, records, peer, 0))

    def _backlog(self, backlog: Backlog, case: BacklogCase, peers: Sequence[Peer]) -> None:
        records = case.records_in(self.extent, self.records)
        self.screen.say(f"{case.name}: {records:,} records, {case.description}")
        if not self._attempt(case.name, bool, partial(backlog.load, case, records)):
            return
        for repeat in range(1, self.repeat + 1):
            for peer in peers if repeat % 2 else peers[::-1]:
                if not any(run.repeat == repeat for run in self.results.runs_of(case.name, peer.name)):
                    measure = partial(backlog.run, case, records, peer, repeat)
                    self._attempt(case.name, self.results.backlog.append, measure)

    def _site(self, work: Path, case: SiteCase) -> None:
        folder = work / case.name
        folder.mkdir()
        measure = Site(folder, self.toolchain, self.screen, case).run
        self._attempt(case.name, self.results.sites.extend, partial(measure, max(self.repeat, case.repeats)))
        shutil.rmtree(folder)

    def _large_links(self, work: Path) -> None:
        for repeat in range(len(self.results.large_links) + 1, self.repeat + 1):
            folder = work / f"{LARGE_LINK}-{repeat}"
            folder.mkdir()
            measure = LargeLink(folder, self.toolchain, self.screen, self.extent).run
            self._attempt(LARGE_LINK, self.results.large_links.append, partial(measure, repeat))
            shutil.rmtree(folder)  # tens of thousands of files

    def _live(self, live: Live, case: LiveCase, peers: Sequence[Peer]) -> None:
        for repeat in range(1, self.extent.live_runs(self.repeat) + 1):
            for peer in (None, Bare(case.partitions), *(peers if repeat % 2 else peers[::-1])):
                name = peer.name if peer else DIRECT
                if not any(run.repeat == repeat for run in self.results.live_of(case.name, name)):
                    self._attempt(case.name, self.results.live.append, partial(live.run, case, peer, repeat))

    def _missing(self, step: str) -> bool:
        """Whether anything of a step is still to be measured."""
        results = self.results
        peers = (Drkit.name, MirrorMaker.name)
        if step in _OWN_CLUSTERS or step in {MOVE, OUTAGE, TRANSLATE}:
            due, done = {
                LOOKUP: (1, len(results.lookup)),
                MOVE: (1, len(results.moves)),
                OUTAGE: (1, len(results.outages)),
                LARGE_LINK: (self.repeat, len(results.large_links)),
                TRANSLATE: (len(peers), len({run.peer for run in results.translate})),
            }.get(step, (1, sum(run.case == step for run in results.sites)))
            return done < due
        if any(case.name == step for case in LIVE):
            known = (len(results.live_of(step, peer)) for peer in (DIRECT, BARE, *peers))
            return any(count < self.extent.live_runs(self.repeat) for count in known)
        return any(len(results.runs_of(step, peer)) < self.repeat for peer in peers)

    def _in_time(self, step: str) -> bool:
        if time.monotonic() < self.deadline:
            return True
        self.results.failures.append(f"{step}: the time was over; run again with --resume")
        self.screen.say(self.results.failures[-1])
        return False

    def _attempt(self, step: str, keep: Callable[[T], object], measure: Callable[[], T]) -> bool:
        """Measure and keep; a failure is noted, and the other steps continue."""
        try:
            keep(measure())
        except Exception as error:  # noqa: BLE001 - one case's failure, whatever it is, mustn't cost the others
            expected = isinstance(error, _FAILURES)
            self.results.failures.append(f"{step}: {error}" if expected else f"{step}: {error!r}")
            self.screen.say(self.results.failures[-1])
            return False
        finally:
            self.results.save(self.out / RESULTS_FILE)
        return True
