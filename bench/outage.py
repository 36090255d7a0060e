"""Measures what a producer on the target feels while the backlog of thousands of partitions is copied there.

The mirror has copied all partitions once and was away; meanwhile a backlog came up on the source. A producer sends
200 records a second to a topic of its own on the target: first undisturbed, then while `drkit mirror --until-caught-
up` runs, from its launch to its end. By turns as the link is by default, and with `catch_up.adaptive = false`.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.cases import Extent
from bench.clusters import Clusters
from bench.load import Shape, load
from bench.peers.base import Job
from bench.peers.drkit import render
from bench.processes import CONFIG, Helper, drkit, run
from bench.progress import Screen
from bench.results import OutageRun

_POLICIES = {"adaptive": (), "unlimited": ("[links.catch_up]", "adaptive = false")}
_PREFIX = "bench-outage-"
_USERS_TOPIC = "bench-users"
_USERS_PARTITIONS = 4
_RATE = 200
_A_TOPIC = 100
_RECORD_BYTES = 100
_A_BATCH = 100
_MB = 1e6


@dataclass(frozen=True, slots=True)
class Outage:
    """Measures on a pair of clusters; nothing else may run there."""

    clusters: Clusters
    work: Path
    screen: Screen
    extent: Extent

    def run(self, repeats: int) -> list[OutageRun]:
        """Each policy, by turns, so many times.

        Raises:
            MeasurementFailed: the mirror or the producer failed.
        """
        source, target = self.clusters.source, self.clusters.target
        topics = [f"{_PREFIX}{number}" for number in range(max(1, self.extent.outage_partitions // _A_TOPIC))]
        partitions = self.extent.outage_partitions // len(topics)
        self.screen.say(f"outage: {len(topics) * partitions:,} partitions, {self.extent.outage_records:,} records")
        with TemporaryDirectory(dir=self.work) as name:
            folder = Path(name)
            for topic in topics:
                source.create_topic(topic, partitions)
            target.create_topic(_USERS_TOPIC, _USERS_PARTITIONS)
            job = Job(folder, source, target, f"{_PREFIX}.*", "lz4")
            self._load(topics, partitions, partitions * len(topics) * _A_BATCH)
            self._mirror(job, ())
            found = []
            for repeat in range(1, repeats + 1):
                for policy, lines in _POLICIES.items():
                    self._load(topics, partitions, self.extent.outage_records)
                    found.append(self._once(job, policy, lines, repeat))
            target.delete_topics()
            source.delete_topics()
            return found

    def _load(self, topics: list[str], partitions: int, records: int) -> None:
        shape = Shape(records // len(topics), _RECORD_BYTES, "lz4", _A_BATCH, partitions)
        for topic in topics:
            load(self.clusters.source.address, topic, shape, lambda _: None)

    def _once(self, job: Job, policy: str, lines: tuple[str, ...], repeat: int) -> OutageRun:
        with self._producer() as producer:
            time.sleep(self.extent.outage_seconds)
            alone = _measured(producer)
        with self._producer() as producer:
            seconds = self._mirror(job, lines)
            beside = _measured(producer)
        records = self.extent.outage_records
        found = OutageRun(
            policy,
            repeat,
            self.extent.outage_partitions,
            records,
            *(alone[name] for name in ("p50_ms", "p99_ms")),
            *(beside[name] for name in ("p50_ms", "p99_ms", "max_ms")),
            seconds,
            records / seconds,
            records * _RECORD_BYTES / seconds / _MB,
        )
        felt = f"p99 {found.alone_p99_ms:.1f} ms, then {found.p99_ms:.1f} ms"
        self.screen.say(f"  {policy}: {felt}; {found.records_per_second:,.0f} records/s")
        return found

    def _producer(self) -> AbstractContextManager[Helper]:
        """A producer on the target, which measures until it is ended."""
        arguments = (self.clusters.target.address, _USERS_TOPIC, _USERS_PARTITIONS, _RATE)
        return Helper.running("produce_latency", *arguments, ready="producing")

    def _mirror(self, job: Job, lines: tuple[str, ...]) -> float:
        """Have all copied; returns the seconds from the mirror's launch to its end."""
        (job.folder / CONFIG).write_text(render(job, lines=lines), encoding="utf-8")
        return run(drkit(job.folder, "mirror", "--until-caught-up"), job.folder).seconds


def _measured(producer: Helper) -> dict[str, Any]:
    """End a producer, and have what it measured."""
    producer.process.terminate()
    return producer.answer()
