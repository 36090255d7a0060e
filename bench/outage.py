"""Measures what a producer on the target feels while the backlog of thousands of partitions is copied there.

The mirror has copied all partitions once and was away; meanwhile a backlog came up on the source. A producer sends
200 records a second to a topic of its own on the target: first undisturbed, then while `drkit mirror --until-caught-
up` runs, from its launch to its end. By turns as the link is by default, and with `catch_up.adaptive = false`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.cases import Extent
from bench.clusters import ROOT, Clusters, die_with_parent
from bench.load import Shape, load
from bench.peers.base import Job
from bench.peers.drkit import CONFIG, render
from bench.progress import Screen
from bench.results import OutageRun
from bench.watch import MirrorFailed

_POLICIES = {"adaptive": (), "unlimited": ("[links.catch_up]", "adaptive = false")}
_PREFIX = "bench-outage-"
_USERS_TOPIC = "bench-users"
_USERS_PARTITIONS = 4
_RATE = 200
_A_TOPIC = 100
_RECORD_BYTES = 100
_A_BATCH = 100
_LIMIT_SECONDS = 900.0
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
            MirrorFailed: the mirror or the producer failed.
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
        with self._producer() as ended:
            time.sleep(self.extent.outage_seconds)
            alone = ended()
        with self._producer() as ended:
            seconds = self._mirror(job, lines)
            beside = ended()
        records = self.extent.outage_records
        run = OutageRun(
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
        felt = f"p99 {run.alone_p99_ms:.1f} ms, then {run.p99_ms:.1f} ms"
        self.screen.say(f"  {policy}: {felt}; {run.records_per_second:,.0f} records/s")
        return run

    @contextmanager
    def _producer(self) -> Iterator[Callable[[], dict[str, Any]]]:
        """A producer on the target; what is given ends it, and says what it measured."""
        arguments = (self.clusters.target.address, _USERS_TOPIC, _USERS_PARTITIONS, _RATE)
        command = [sys.executable, "-m", "bench.produce_latency", *map(str, arguments)]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - no lock is taken between fork and exec
        ) as child:
            if child.stdout is None or child.stdout.readline().strip() != "producing":
                raise MirrorFailed("outage: the producer got no answer")
            output = child.stdout

            def ended() -> dict[str, Any]:
                child.terminate()
                said: dict[str, Any] = json.loads(output.readline())
                return said

            try:
                yield ended
            finally:
                child.terminate()

    def _mirror(self, job: Job, lines: tuple[str, ...]) -> float:
        """Have all copied; returns the seconds from the mirror's launch to its end."""
        config = job.folder / CONFIG
        config.write_text(render(job, lines=lines), encoding="utf-8")
        command = [sys.executable, "-m", "drkit", "mirror", "--until-caught-up", "--config", str(config)]
        began = time.monotonic()
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=job.folder, timeout=_LIMIT_SECONDS
        )
        if ended.returncode:
            raise MirrorFailed(f"outage: the mirror ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
        return time.monotonic() - began
