"""A site that goes down: three links into one cluster, all their sources dead, `drkit failover` from launch to end.

The mirror still runs, as it does where it stands beside the target: the failover has to wait until it has left. Every
group is caught up or lags somewhere; afterwards each position is read by a client of its own.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cases import SITE_WAYS, SiteCase
from bench.clusters import TARGET, Cluster, Clusters
from bench.load import Shape, load
from bench.peers.drkit import STORE
from bench.positions import Offsets, check, commit, delete_groups, scattered
from bench.processes import CONFIG, MeasurementFailed, drkit, end, run, spawn
from bench.progress import Screen
from bench.results import SiteRun
from bench.targets import DRKIT
from drkit.lab.toolchain import Toolchain
from drkit.model.topology import LinkId
from drkit.store import open_store

SOURCES = ("primary", "orders", "payments")
_PREFIX = "bench-site-"
_HEAP_MIB = 512
_READY_SECONDS = 300.0
_LOOK_SECONDS = 0.5
_FAILOVER = ("failover", "--to", TARGET, "--unplanned", "--yes", "--accept-unfenced", "--output", "json")


@dataclass(frozen=True, slots=True)
class Site:
    """Measures failovers of one site, on four brokers of its own in `work`."""

    work: Path
    toolchain: Toolchain
    screen: Screen
    case: SiteCase

    def run(self, repeats: int, ways: Sequence[str] = SITE_WAYS) -> list[SiteRun]:
        """Each way to die, by turns, so many times.

        Raises:
            MeasurementFailed: mirror or failover failed, or a group stands elsewhere than it should.
        """
        self.screen.say(f"{self.case.name}: {len(SOURCES)} links, {self.case.description}")
        with Clusters(self.work, self.toolchain, self.screen.say, sources=SOURCES, heap_mib=_HEAP_MIB) as clusters:
            stands = {source.alias: self._fill(source) for source in clusters.sources}
            turns = range(1, repeats + 1)
            return [self._once(clusters, stands, way, repeat) for repeat in turns for way in ways]

    def _fill(self, source: Cluster) -> dict[str, Offsets]:
        """A topic on one source, and where its share of the groups stands."""
        topic, partitions, records = f"{_PREFIX}{source.alias}", self.case.partitions, self.case.records
        source.create_topic(topic, partitions, {"retention.ms": "-1"})
        shape = Shape(records * partitions, 100, "lz4", records // 10, partitions)
        load(source.address, topic, shape, lambda _: None)
        groups = self.case.groups // len(SOURCES)
        stands = scattered(f"{_PREFIX}{source.alias}-", groups, topic, partitions, records)
        commit(source, stands)
        return stands

    def _once(self, clusters: Clusters, stands: dict[str, dict[str, Offsets]], way: str, repeat: int) -> SiteRun:
        with TemporaryDirectory(dir=self.work) as name:
            folder = Path(name)
            (folder / CONFIG).write_text(_render(clusters), encoding="utf-8")
            try:
                with self._mirroring(folder, stands):
                    _strike(clusters, way)
                    ended = run(drkit(folder, *_FAILOVER), folder)
            finally:
                clusters.heal_sources()
            wanted = {
                (group, tp): offset
                for groups in stands.values()
                for group, offsets in groups.items()
                for tp, (offset, _) in offsets.items()
            }
            check(clusters.target, DRKIT, wanted)
        delete_groups(clusters.target, _PREFIX)
        clusters.target.delete_topics()
        found, seconds, cpu = json.loads(ended.stdout), ended.seconds, ended.cpu_seconds
        slowest: dict[str, float] = {}
        for stage in found["stages"]:
            slowest[stage["name"]] = max(slowest.get(stage["name"], 0.0), float(stage["seconds"]))
        told = ", ".join(f"{stage} {spent:.1f}" for stage, spent in slowest.items())
        self.screen.say(
            f"  {way}: {seconds:.1f} s ({cpu:.1f} CPU-s), to verified positions "
            f"{found['evidence']['rto_seconds']:.1f} ({told})"
        )
        return SiteRun(
            way,
            len(SOURCES),
            sum(map(len, stands.values())),
            self.case.partitions,
            repeat,
            seconds,
            found["evidence"]["rto_seconds"],
            slowest,
            cpu,
            self.case.name,
        )

    @contextmanager
    def _mirroring(self, folder: Path, stands: dict[str, dict[str, Offsets]]) -> Iterator[None]:
        """A mirror of all links, which has brought everything over when the block begins."""
        mirror = spawn(drkit(folder, "mirror"), folder / "mirror.log", cwd=folder)
        try:
            deadline = time.monotonic() + _READY_SECONDS
            while not self._all_there(folder, stands):
                if mirror.poll() is not None or time.monotonic() > deadline:
                    last = (folder / "mirror.log").read_text()[-2000:]
                    raise MeasurementFailed(f"the mirror did not catch up:\n{last}")
                time.sleep(_LOOK_SECONDS)
            yield
        finally:
            end([mirror])

    def _all_there(self, folder: Path, stands: dict[str, dict[str, Offsets]]) -> bool:
        """Whether the mirror has recorded all records and all positions."""
        if not (folder / STORE).exists():
            return False
        store = open_store(f"sqlite:///{folder / STORE}")
        try:
            for alias, groups in stands.items():
                link = LinkId(alias, TARGET)
                marks = store.watermarks(link).values()
                through = sum(mark.source_through for mark in marks if mark.topic.startswith(_PREFIX))
                positions = sum(each.group.startswith(_PREFIX) for each in store.group_positions(link))
                if through < self.case.records * self.case.partitions or positions < sum(map(len, groups.values())):
                    return False
            return True
        finally:
            store.close()


def _render(clusters: Clusters) -> str:
    both = [*clusters.sources, clusters.target]
    tables = [f'[clusters.{each.alias}]\nbootstrap_servers = "{each.address}"' for each in both]
    links = [
        f'[[links]]\nsource = "{each.alias}"\ntarget = "{TARGET}"\ntopics = [\'{_PREFIX}{each.alias}\']\n'
        f"groups = ['{_PREFIX}{each.alias}-.*']"
        for each in clusters.sources
    ]
    return "\n".join([*tables, f'[store]\nurl = "sqlite:///{STORE}"', *links]) + "\n"


def _strike(clusters: Clusters, way: str) -> None:
    """Have the sources die."""
    if way == "silent":
        clusters.silence_sources()
    else:
        clusters.strike_sources(signal.SIGKILL if way == "killed" else signal.SIGSTOP)
