"""Measures a site's failover: three links to one cluster, all sources dead, `drkit failover` from launch to end.

The mirror still runs, like a mirror beside the target: the failover must wait until it has left. Every group is caught
up or lags; afterwards a separate client reads each position.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cases import SITE_WAYS, Scene, SiteCase
from bench.clusters import TARGET, Cluster, Clusters
from bench.group_positions import Offsets, check, commit, delete_groups, make_positions
from bench.load import Shape, load
from bench.mirrors import DRKIT, STORE, drkit_toml
from bench.processes import CONFIG, Running, drkit, run, wait_until
from bench.results import SiteRun
from drkit.model.topology import LinkId
from drkit.store import open_store

SOURCES = ("primary", "orders", "payments")
_PREFIX = "bench-site-"
_HEAP_MIB = 512
_READY_SECONDS = 300.0
_LOOK_SECONDS = 0.5
_FAILOVER = ("failover", "--to", TARGET, "--unplanned", "--yes", "--accept-unfenced", "--output", "json")
_Positions = Mapping[str, Mapping[str, Offsets]]
"""The prefix of each source's groups."""


def measure(scene: Scene, case: SiteCase, repeats: int) -> list[SiteRun]:
    """Measure each way to die alternately, so many times, on its own four brokers.

    Raises:
        MeasurementFailed: mirror or failover failed, or a group has another position than it should.
    """
    case = scene.extent.site(case)
    scene.say(f"{case.name}: {len(SOURCES)} links, {case.description}")
    with Clusters(scene.work, scene.toolchain, scene.say, sources=SOURCES, heap_mib=_HEAP_MIB) as clusters:
        positions = {source.alias: _fill(source, case) for source in clusters.sources}
        turns = range(1, max(repeats, case.repeats) + 1)
        return [_measure_once(scene, clusters, case, positions, way, repeat) for repeat in turns for way in SITE_WAYS]


def _fill(source: Cluster, case: SiteCase) -> dict[str, Offsets]:
    """A topic on one source, and the positions of its share of the groups."""
    topic, partitions, records = f"{_PREFIX}{source.alias}", case.partitions, case.records
    source.create_topic(topic, partitions, {"retention.ms": "-1"})
    load(source.address, topic, Shape(records * partitions, 100, "lz4", records // 10, partitions))
    positions = make_positions(f"{_PREFIX}{source.alias}-", case.groups // len(SOURCES), topic, partitions, records)
    commit(source, positions)
    return positions


def _measure_once(
    scene: Scene, clusters: Clusters, case: SiteCase, positions: _Positions, way: str, repeat: int
) -> SiteRun:
    with TemporaryDirectory(dir=scene.work) as name:
        folder = Path(name)
        links = [
            (
                f'source = "{each.alias}"\ntarget = "{TARGET}"\ntopics = [\'{_PREFIX}{each.alias}\']',
                f"groups = ['{_PREFIX}{each.alias}-.*']",
            )
            for each in clusters.sources
        ]
        (folder / CONFIG).write_text(drkit_toml([*clusters.sources, clusters.target], links), encoding="utf-8")
        try:
            with _mirroring(folder, case, positions):
                if way == "silent":
                    clusters.silence_sources()
                else:
                    clusters.signal_sources(signal.SIGKILL if way == "killed" else signal.SIGSTOP)
                ended = run(drkit(folder, *_FAILOVER), folder)
        finally:
            clusters.heal_sources()
        offsets = {group: of_group for groups in positions.values() for group, of_group in groups.items()}
        check(clusters.target, DRKIT, offsets)
    delete_groups(clusters.target, _PREFIX)
    clusters.target.delete_topics()
    found = json.loads(ended.stdout)
    rto = found["evidence"]["rto_seconds"]
    slowest: dict[str, float] = {}
    for stage in found["stages"]:
        slowest[stage["name"]] = max(slowest.get(stage["name"], 0.0), float(stage["seconds"]))
    shown = ", ".join(f"{stage} {spent:.1f}" for stage, spent in slowest.items())
    scene.say(
        f"  {way}: {ended.seconds:.1f} s ({ended.cpu_seconds:.1f} CPU-s), to verified positions {rto:.1f} ({shown})"
    )
    return SiteRun(
        way=way,
        links=len(SOURCES),
        groups=len(offsets),
        partitions=case.partitions,
        repeat=repeat,
        seconds=ended.seconds,
        rto_seconds=rto,
        stages=slowest,
        cpu_seconds=ended.cpu_seconds,
        case=case.name,
    )


@contextmanager
def _mirroring(folder: Path, case: SiteCase, positions: _Positions) -> Iterator[None]:
    """A mirror of all links, which has copied everything when the block begins."""
    mirror = Running.launch(drkit(folder, "mirror"), folder / "mirror.log", folder)
    with mirror.watched(case.name):
        recorded = partial(_all_recorded, folder, case, positions)
        wait_until(recorded, "catching up", _READY_SECONDS, poll_seconds=_LOOK_SECONDS, running=mirror)
        yield


def _all_recorded(folder: Path, case: SiteCase, positions: _Positions) -> bool:
    """Whether the mirror has recorded all records and all positions."""
    if not (folder / STORE).exists():
        return False
    store = open_store(f"sqlite:///{folder / STORE}")
    try:
        for alias, groups in positions.items():
            link = LinkId(alias, TARGET)
            marks = store.watermarks(link).values()
            through = sum(mark.source_through for mark in marks if mark.topic.startswith(_PREFIX))
            captured = sum(each.group.startswith(_PREFIX) for each in store.group_positions(link))
            if through < case.records * case.partitions or captured < sum(map(len, groups.values())):
                return False
        return True
    finally:
        store.close()
