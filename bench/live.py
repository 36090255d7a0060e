"""A live case: a steady stream into the source; how old each record is when a reader of the target gets it."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cases import Extent, LiveCase
from bench.clusters import Cluster, Clusters
from bench.load import await_leaders
from bench.measure import ProcessTree
from bench.peers.base import Job, Peer, Running
from bench.processes import ROOT, Helper, MeasurementFailed, end, spawn
from bench.progress import Screen
from bench.results import LiveRun
from bench.wire import Connection

DIRECT = "direct"
_ARRIVAL_SECONDS = 120.0
_POLL_SECONDS = 0.05
_GRACE_SECONDS = 5.0
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Live:
    """Runs live cases on a pair of clusters; nothing else may run there."""

    clusters: Clusters
    work: Path
    screen: Screen
    extent: Extent

    def run(self, case: LiveCase, peer: Peer | None, repeat: int) -> LiveRun:
        """One measurement; without a peer the source itself is read.

        Raises:
            MeasurementFailed: nothing arrived, or the producer or the reader failed.
        """
        topic = f"bench-{case.name}-{repeat}-{peer.name if peer else DIRECT}"
        self.clusters.source.delete_topics()
        self.clusters.source.create_topic(topic, case.partitions)
        with Connection(self.clusters.source.address) as connection:
            await_leaders(connection, topic, case.partitions)
        title = peer.title if peer else "the source, directly"
        self.screen.say(f"{case.name}: {title}, {self.extent.live_warm_seconds + self.extent.live_seconds} s")
        with TemporaryDirectory(dir=self.work) as folder:
            producer = self._producer(case, topic, Path(folder))
            job = Job(Path(folder), self.clusters.source, self.clusters.target, topic, case.codec, live=True)
            running = peer.launch(job) if peer else None
            try:
                read_from = self.clusters.target if peer else self.clusters.source
                _await_first(read_from, topic, case.partitions, producer, running)
                if peer is not None and running is not None:
                    peer.check(job, running)
                time.sleep(self.extent.live_warm_seconds)  # compilers, buffers and catching up, for each alike
                return self._measure(case, peer.name if peer else DIRECT, repeat, read_from, topic, producer, running)
            finally:
                end([producer], _GRACE_SECONDS)
                if running is not None:
                    running.stop()
                self.clusters.target.delete_topics()
                self.clusters.source.delete_topics()

    def _producer(self, case: LiveCase, topic: str, folder: Path) -> subprocess.Popen[bytes]:
        numbers = (case.partitions, case.record_bytes, case.codec, case.records_per_second)
        command = [sys.executable, "-m", "bench.live_producer", self.clusters.source.address, topic]
        return spawn([*command, *map(str, numbers)], folder / "producer.log", cwd=ROOT)

    def _measure(
        self,
        case: LiveCase,
        name: str,
        repeat: int,
        read_from: Cluster,
        topic: str,
        producer: subprocess.Popen[bytes],
        running: Running | None,
    ) -> LiveRun:
        tree = ProcessTree(running.process) if running else None
        arguments = (read_from.address, topic, self.extent.live_seconds)
        try:
            with Helper.running("live_reader", *arguments, ready="reading") as reader:
                began, cpu = time.monotonic(), tree.cpu_seconds() if tree else 0.0
                seen = reader.answer()
                took, used = time.monotonic() - began, tree.cpu_seconds() - cpu if tree else 0.0
        finally:
            if producer.poll() is not None:  # without it no record comes, so this is the cause of the reader's failure
                raise MeasurementFailed(f"{case.name}, {name}: the producer could not keep the rate")
        percentiles = seen["percentiles"]
        return LiveRun(
            case=case.name,
            peer=name,
            repeat=repeat,
            records=seen["records"],
            records_per_second=seen["records"] / seen["seconds"],
            p50_ms=percentiles[49],
            p99_ms=percentiles[98],
            max_ms=seen["max"],
            cpu_share=used / took if tree else None,
            peak_rss_mib=round(tree.peak_rss_bytes() / _MIB, 1) if tree else None,
            percentiles=tuple(percentiles),
        )


def _await_first(
    cluster: Cluster, topic: str, partitions: int, producer: subprocess.Popen[bytes], running: Running | None
) -> None:
    """Wait until the topic holds a record on every partition."""
    deadline = time.monotonic() + _ARRIVAL_SECONDS
    with Connection(cluster.address) as connection:
        while len([end for end in connection.ends(topic, range(partitions)).values() if end]) < partitions:
            if producer.poll() is not None:
                raise MeasurementFailed(f"the producer ended with exit code {producer.returncode}")
            if running and (running.process.poll() is not None or time.monotonic() > deadline):
                raise MeasurementFailed(f"no record of {topic} arrived\n{running.last_words()}")
            time.sleep(_POLL_SECONDS)
