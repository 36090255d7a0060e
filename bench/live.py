"""A live case: a steady stream to the source; measures the age of each record on arrival at a reader of the target."""

from __future__ import annotations

import sys
import time
from typing import Any

from bench.cases import LiveCase, Scene
from bench.clusters import Cluster
from bench.load import wait_for_leaders
from bench.mirrors import DIRECT, TITLES, Job, Mirror
from bench.processes import MIB, ROOT, Helper, MeasurementFailed, ProcessTree, Running, end
from bench.results import LiveRun
from bench.wire import Connection

_ARRIVAL_SECONDS = 120.0
_POLL_SECONDS = 0.05
_GRACE_SECONDS = 5.0


def measure(scene: Scene, case: LiveCase, mirror: Mirror | None, repeat: int) -> list[LiveRun]:
    """One measurement on the pair of clusters; without a mirror, the reader reads the source.

    Raises:
        MeasurementFailed: nothing arrived, or the producer or the reader failed.
    """
    name, title = (mirror.name, mirror.title) if mirror else (DIRECT, TITLES[DIRECT])
    source, target, extent = scene.clusters.source, scene.clusters.target, scene.extent
    topic = f"bench-{case.name}-{repeat}-{name}"
    source.delete_topics()
    source.create_topic(topic, case.partitions)
    with Connection(source.address) as connection:
        wait_for_leaders(connection, topic, case.partitions)
    scene.say(f"{case.name}: {title}, {extent.live_warm_seconds + extent.live_seconds} s")
    numbers = (case.partitions, case.record_bytes, case.codec, case.records_per_second)
    command = [sys.executable, "-m", "bench.latency", "send", source.address, topic, *map(str, numbers)]
    producer = Running.launch(command, scene.work / "producer.log", ROOT)
    job = Job(scene.work, source, target, topic, case.codec, live=True)
    running = mirror.launch(job) if mirror else None
    try:
        read_from = target if mirror else source
        _wait_for_first(read_from, topic, case.partitions, producer, running)
        if mirror is not None and running is not None:
            mirror.check(job, running)
        time.sleep(extent.live_warm_seconds)  # compilers, buffers and catching up, the same for each
        tree = ProcessTree(running.process) if running else None
        seen, cpu_share = _read(read_from, topic, extent.live_seconds, tree)
        peak = round(tree.peak_rss_bytes() / MIB, 1) if tree else None
    finally:
        kept_pace = not producer.ended
        end([producer.process], _GRACE_SECONDS)
        if running is not None:
            running.stop()
        scene.clusters.delete_topics()
        if not kept_pace:  # without it no record comes, so it is the cause of the reader's failure
            raise MeasurementFailed(f"{case.name}, {name}: the producer ended: {producer.output_tail()}")
    return [
        LiveRun(
            case=case.name,
            peer=name,
            repeat=repeat,
            records=seen["records"],
            records_per_second=seen["records"] / seen["seconds"],
            p50_ms=seen["p50_ms"],
            p99_ms=seen["p99_ms"],
            max_ms=seen["max_ms"],
            cpu_share=cpu_share,
            peak_rss_mib=peak,
        )
    ]


def _read(cluster: Cluster, topic: str, seconds: int, tree: ProcessTree | None) -> tuple[dict[str, Any], float | None]:
    """The reader's measurements, and the share of a core that the mirror used meanwhile."""
    with Helper.running("latency", "read", cluster.address, topic, seconds, ready="reading") as reader:
        began, cpu = time.monotonic(), tree.cpu_seconds() if tree else 0.0
        seen = reader.answer()
        took = time.monotonic() - began
        return seen, (tree.cpu_seconds() - cpu) / took if tree else None


def _wait_for_first(cluster: Cluster, topic: str, partitions: int, producer: Running, running: Running | None) -> None:
    """Wait until the topic holds a record on every partition."""
    deadline = time.monotonic() + _ARRIVAL_SECONDS
    with Connection(cluster.address) as connection:
        while len([end for end in connection.ends(topic, range(partitions)).values() if end]) < partitions:
            if producer.ended or (running is not None and running.ended) or time.monotonic() > deadline:
                raise MeasurementFailed(f"no record of {topic} arrived\n{running.output_tail() if running else ''}")
            time.sleep(_POLL_SECONDS)
