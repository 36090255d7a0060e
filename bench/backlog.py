"""A backlog case: loads the source once, then lets each mirror copy it to an empty target, and watches from outside.

The only clock is this process's monotonic one. A record counts as being on the target when the partition's high
watermark there has passed it; on a single broker that is when it was appended. The watcher polls every 10 ms until the
first record, then every 20 ms: that is the resolution of both ends of the measured span.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from bench.cases import BacklogCase, Scene
from bench.clusters import Clusters
from bench.load import load
from bench.mirrors import STORE, Drkit, Job, Mirror
from bench.processes import MIB, MeasurementFailed, ProcessTree, Running
from bench.results import BacklogRun
from bench.wire import Connection

_QUIET_SECONDS = 120.0
_LIMIT_SECONDS = 180.0
_FIRST_POLL_SECONDS = 0.01
_POLL_SECONDS = 0.02
_MEMORY_SECONDS = 0.25


class Backlog:
    """A case on a pair of clusters; nothing else may run there until its last mirror has been measured."""

    def __init__(self, case: BacklogCase) -> None:
        self._case = case
        self._loaded = False

    def load(self, scene: Scene) -> None:
        """Create and fill the source's topic; deletes all earlier topics on both sides."""
        shape = self._case.shape(scene.extent)
        scene.say(f"{self._case.name}: {shape.loaded_records:,} records, {self._case.description}")
        scene.clusters.delete_topics()
        scene.clusters.source.create_topic(self._case.topic, shape.partitions)
        load(scene.clusters.source.address, self._case.topic, shape)
        self._loaded = True

    def measure(self, scene: Scene, mirror: Mirror, repeat: int) -> list[BacklogRun]:
        """The figures of one mirror; as `copy`."""
        watched, records = self.copy(scene, mirror), self._case.shape(scene.extent).loaded_records
        run = summary(self._case, mirror.name, repeat, records, watched)
        return [replace(run, mapping_bytes=_mapping_bytes(scene.work)) if isinstance(mirror, Drkit) else run]

    def copy(self, scene: Scene, mirror: Mirror) -> WatchedRun:
        """Watch one mirror copy the topic, which is loaded for the first one. Deletes the target's topics afterwards.

        Raises:
            MeasurementFailed: it ended or got stuck; the message has its last lines.
        """
        case, clusters = self._case, scene.clusters
        shape = case.shape(scene.extent)
        if not self._loaded:
            self.load(scene)
        scene.say(f"{case.name}: {mirror.title}")
        job = Job(scene.work, clusters.source, clusters.target, case.topic, case.codec)
        running = mirror.launch(job)
        try:
            with running.watched(f"{case.name}, {mirror.title}"):
                watched = watch(job.target.address, case.topic, shape.partitions, shape.loaded_records, running)
                mirror.check(job, running)
            if watched.complete:
                watched.uneven_partitions = _differing_partitions(clusters, case)
            return watched
        finally:  # delete everything on the target, and a mirror's own topics on the source
            clusters.target.delete_topics()
            clusters.source.delete_topics(keep=[case.topic])


# --- watching -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Observation:
    """One observation. `seconds`: since the launch."""

    seconds: float
    records: int
    cpu_seconds: float
    rss_bytes: int


@dataclass(slots=True)
class WatchedRun:
    """A run, seen from outside. `observations`: about four per second from the first record on. `uneven_partitions`: as
    in `BacklogRun`."""

    observations: list[Observation]
    peak_rss_bytes: int
    complete: bool
    uneven_partitions: int = 0


def watch(address: str, topic: str, partitions: int, expected: int, running: Running) -> WatchedRun:
    """Watch a topic, which need not exist yet, until it has `expected` records; not `complete` after three minutes.

    Raises:
        MeasurementFailed: the mirror ended, or made no progress for too long.
    """
    tree = ProcessTree(running.process)
    seen = 0
    observations: list[Observation] = []
    moved_at = time.monotonic()
    with Connection(address) as connection:
        while True:
            records = sum(connection.ends(topic, range(partitions)).values())
            now = time.monotonic()
            seconds = now - running.launched_at
            due = not observations or seconds - observations[-1].seconds >= _MEMORY_SECONDS
            if records and (records >= expected or due):
                observations.append(Observation(seconds, records, tree.cpu_seconds(), tree.rss_bytes()))
                tree.peak_rss_bytes()
            over = seconds > _LIMIT_SECONDS
            if observations and (records >= expected or over):
                return WatchedRun(observations, tree.peak_rss_bytes(), records >= expected)
            if records != seen:
                seen, moved_at = records, now
            if running.ended:
                code = running.process.returncode
                raise MeasurementFailed(f"it ended with exit code {code} after {records:,} records")
            if now - moved_at > _QUIET_SECONDS or over:
                raise MeasurementFailed(f"no new record for {now - moved_at:.0f} s after {records:,} of {expected:,}")
            time.sleep(_POLL_SECONDS if observations else _FIRST_POLL_SECONDS)


def summary(case: BacklogCase, peer: str, repeat: int, expected: int, watched: WatchedRun) -> BacklogRun:
    """The figures of a run."""
    first, last = watched.observations[0], watched.observations[-1]
    seconds, mirrored = last.seconds - first.seconds, last.records - first.records
    cpu = last.cpu_seconds - first.cpu_seconds
    rate = mirrored / seconds if seconds > 0 and mirrored > 0 else None  # all within one observation: no rate
    half = first.seconds + seconds / 2
    early = [each.rss_bytes for each in watched.observations if each.seconds <= half]
    late = [each.rss_bytes for each in watched.observations if each.seconds > half]
    return BacklogRun(
        case=case.name,
        peer=peer,
        repeat=repeat,
        records=expected,
        mirrored_records=last.records,
        complete=watched.complete,
        seconds=round(seconds, 3),
        records_per_second=rate,
        mb_per_second=None if rate is None else rate * case.record_bytes / 1e6,
        cpu_seconds=round(cpu, 3),
        cpu_seconds_per_million=cpu / mirrored * 1e6 if mirrored else None,
        launch_seconds=round(first.seconds, 3),
        launch_cpu_seconds=round(first.cpu_seconds, 3),
        peak_rss_mib=round(watched.peak_rss_bytes / MIB, 1),
        rss_first_half_mib=round(max(early) / MIB, 1),
        rss_second_half_mib=round(max(late or early) / MIB, 1),
        uneven_partitions=watched.uneven_partitions,
    )


# --- after a run --------------------------------------------------------------------------------


def _differing_partitions(clusters: Clusters, case: BacklogCase) -> int:
    """Partitions whose log ends differ between source and target."""
    numbers = range(case.partitions)
    with Connection(clusters.source.address) as source, Connection(clusters.target.address) as target:
        ours, theirs = source.ends(case.topic, numbers), target.ends(case.topic, numbers)
    return sum(ours[number] != theirs.get(number) for number in ours)


def _mapping_bytes(folder: Path) -> int:
    """The bytes of the mapping rows in drkit's store."""
    with closing(sqlite3.connect(folder / STORE)) as database:
        (payload,) = database.execute("SELECT coalesce(sum(payload), 0) FROM dbstat WHERE name = 'mapping'").fetchone()
    return int(payload)
