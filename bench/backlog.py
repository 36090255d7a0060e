"""A backlog case: loads the source once, then lets each mirror copy it to an empty target, and watches from outside.

The only clock is this process's monotonic one. A record counts as being on the target when the partition's high
watermark there has passed it; on a single broker that is when it was appended. The watcher polls every 10 ms until the
first record, then every 20 ms: that is the resolution of both ends of the measured span.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bench.mirrors import STORE, Drkit, Job, Mirror, Scene
from bench.processes import MIB, MeasurementFailed, ProcessTree, Running
from bench.report import Row
from bench.wire import Codec, Connection, Shape, load
from drkit.model.wording import counted

_QUIET_SECONDS = 120.0
_LIMIT_SECONDS = 180.0
_FIRST_POLL_SECONDS = 0.01
_POLL_SECONDS = 0.02
_MEMORY_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class BacklogCase:
    """A topic that is complete before the mirror starts. `records`: in a full run, and in a quick one."""

    name: str
    records_a_batch: int
    record_bytes: int
    codec: Codec
    partitions: int
    records: tuple[int, int]

    @property
    def topic(self) -> str:
        """Its topic."""
        return f"bench-{self.name}"

    def shape(self, *, full: bool) -> Shape:
        """The topic, in such a run."""
        records = self.records[0 if full else 1]
        return Shape(records, self.record_bytes, self.codec, self.records_a_batch, self.partitions)

    def __str__(self) -> str:
        """A readable line."""
        batch = f"{self.record_bytes:,} B JSON, {self.codec}, {self.records_a_batch:,} a batch"
        return f"{batch}, {counted(self.partitions, 'partition')}"


def measure(scene: Scene, case: BacklogCase) -> Iterator[Row]:
    """Load the source, and let each mirror copy it in turn."""
    load_case(scene, case)
    for repeat in range(1, scene.repeats + 1):
        for mirror in scene.in_turn(repeat):
            with scene.folder() as inner:
                watched = copy(inner, case, mirror)
                yield {
                    "case": case.name,
                    "peer": mirror.name,
                    "repeat": repeat,
                    **summary(case.record_bytes, watched),
                    "mapping_bytes": _mapping_bytes(inner.work) if isinstance(mirror, Drkit) else None,
                }


def load_case(scene: Scene, case: BacklogCase) -> None:
    """Create and fill the source's topic; deletes all earlier topics on both sides."""
    shape = case.shape(full=scene.full)
    scene.say(f"{case.name}: {shape.loaded_records:,} records, {case}")
    scene.clusters.delete_topics()
    scene.clusters.source.create_topic(case.topic, shape.partitions)
    load(scene.clusters.source.address, case.topic, shape)


def copy(scene: Scene, case: BacklogCase, mirror: Mirror) -> WatchedRun:
    """Watch one mirror copy the loaded topic. Deletes the target's topics afterwards.

    Raises:
        MeasurementFailed: it ended or got stuck, or a partition ends elsewhere than on the source.
    """
    clusters, shape = scene.clusters, case.shape(full=scene.full)
    scene.say(f"{case.name}: {mirror.name}")
    job = Job(scene.work, clusters.source, clusters.target, case.topic, case.codec)
    running = mirror.launch(job)
    try:
        with running.watched(f"{case.name}, {mirror.name}"):
            watched = watch(job.target.address, case.topic, shape.partitions, shape.loaded_records, running)
            mirror.check(job, running)
        if watched.observations[-1].records >= shape.loaded_records:
            with Connection(clusters.source.address) as source, Connection(clusters.target.address) as target:
                ends = [each.ends(case.topic, range(case.partitions)) for each in (source, target)]
            if ends[0] != ends[1]:
                raise MeasurementFailed(f"{case.name}, {mirror.name}: the target's ends differ from the source's")
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
    """A run, seen from outside. `observations`: about four per second from the first record on."""

    observations: list[Observation]
    peak_rss_bytes: int


def watch(address: str, topic: str, partitions: int, expected: int, running: Running) -> WatchedRun:
    """Watch a topic, which need not exist yet, until it has `expected` records, for three minutes at most.

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
                return WatchedRun(observations, tree.peak_rss_bytes())
            if records != seen:
                seen, moved_at = records, now
            if running.ended:
                code = running.process.returncode
                raise MeasurementFailed(f"it ended with exit code {code} after {records:,} records")
            if now - moved_at > _QUIET_SECONDS or over:
                raise MeasurementFailed(f"no new record for {now - moved_at:.0f} s after {records:,} of {expected:,}")
            time.sleep(_POLL_SECONDS if observations else _FIRST_POLL_SECONDS)


def summary(record_bytes: int, watched: WatchedRun) -> Row:
    """The figures of a run, from the first to the last record on the target.

    `launch_*`: until the first record. A run that was seen in one look has no rate.
    """
    first, last = watched.observations[0], watched.observations[-1]
    seconds, mirrored = last.seconds - first.seconds, last.records - first.records
    cpu = last.cpu_seconds - first.cpu_seconds
    rate = mirrored / seconds if seconds > 0 and mirrored > 0 else None
    half = first.seconds + seconds / 2
    early = [each.rss_bytes for each in watched.observations if each.seconds <= half]
    late = [each.rss_bytes for each in watched.observations if each.seconds > half]
    return {
        "mirrored_records": last.records,
        "seconds": round(seconds, 3),
        "records_per_second": rate,
        "mb_per_second": None if rate is None else rate * record_bytes / 1e6,
        "cpu_seconds": round(cpu, 3),
        "cpu_seconds_per_million": cpu / mirrored * 1e6 if mirrored else None,
        "launch_seconds": round(first.seconds, 3),
        "launch_cpu_seconds": round(first.cpu_seconds, 3),
        "peak_rss_mib": round(watched.peak_rss_bytes / MIB, 1),
        "rss_first_half_mib": round(max(early) / MIB, 1),
        "rss_second_half_mib": round(max(late or early) / MIB, 1),
    }


def _mapping_bytes(folder: Path) -> int:
    """The bytes of the mapping rows in drkit's store."""
    with closing(sqlite3.connect(folder / STORE)) as database:
        (payload,) = database.execute("SELECT coalesce(sum(payload), 0) FROM dbstat WHERE name = 'mapping'").fetchone()
    return int(payload)
