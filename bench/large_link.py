"""Measures a link of 10,000 partitions in 1,000 topics: its start, its cost when idle, its start with topics there.

A bare kafka-python loop creates the source's topics on an otherwise idle broker: a mirror, which must create the same
topics on the target, can't be faster.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from kafka.admin import KafkaAdminClient, NewTopic

from bench.clusters import TARGET, Cluster, Clusters
from bench.mirrors import Drkit, Job, Scene
from bench.processes import MIB, MeasurementFailed, ProcessTree, Running, drkit, run, wait_until
from bench.report import Row
from bench.wire import Connection, batch_variants
from drkit.lab.ports import free_ports

_PARTITIONS_A_TOPIC = 10
_TOPICS_A_REQUEST = 200
_RECORDS_A_BATCH = 10
_LIMIT_SECONDS = 300.0
_COMMANDS = {
    "status": ("status",),
    "doctor": ("doctor",),
    "plan": ("failover", "--to", TARGET, "--unplanned", "--accept-unfenced", "--dry-run"),
}
_NOT_READY = frozenset({0, 3, 6})
"""Exit codes of successful commands: a link without groups may be reported as not ready."""


def measure(scene: Scene) -> Iterator[Row]:
    """Measure everything, on its own two brokers.

    Raises:
        MeasurementFailed: the mirror failed, or not every partition moved in time.
    """
    topics = [f"bench-large-{number:04}" for number in range(1000 if scene.full else 100)]
    partitions = _PARTITIONS_A_TOPIC * len(topics)
    scene.say(f"a link of {partitions:,} partitions in {len(topics):,} topics")
    for repeat in range(1, scene.repeats + 1):
        with scene.folder() as inner, Clusters(inner.work, scene.say) as clusters:
            created = _create(clusters.source, topics)
            _fill(clusters.source, topics)
            job = Job(inner.work, clusters.source, clusters.target, "bench-large-.*", "lz4")
            running = Drkit().launch(job)
            with running.watched(f"{partitions:,} partitions"):
                first, moving = _wait_for_all(clusters.target, topics, running, 0)
                tree = ProcessTree(running.process)
                time.sleep(30 if scene.full else 15)
                began, used = time.monotonic(), tree.cpu_seconds()
                time.sleep(60 if scene.full else 20)
                idle = (tree.cpu_seconds() - used) / (time.monotonic() - began)
                peak = tree.peak_rss_bytes() / MIB
                commands = _time_commands(inner.work)
            _fill(clusters.source, topics)
            running = Drkit().launch(job)
            with running.watched("launched again"):
                again_first, again_moving = _wait_for_all(clusters.target, topics, running, _RECORDS_A_BATCH)
                peak = max(peak, ProcessTree(running.process).peak_rss_bytes() / MIB)
        times = {"created": created, "first": first, "moving": moving}
        times |= {"again_first": again_first, "again_moving": again_moving, "idle_share": idle, "peak_rss_mib": peak}
        figures = {name: round(value, 3) for name, value in (times | commands).items()}
        yield {"case": "partitions-10000", "repeat": repeat, "topics": len(topics), "partitions": partitions, **figures}


def _time_commands(folder: Path) -> dict[str, float]:
    """Seconds of each command, beside the mirror at rest; of the page: from its launch until all of it is there."""
    seconds = {}
    for name, command in _COMMANDS.items():
        seconds[name] = run(drkit(folder, *command, "--output", "json"), folder, _NOT_READY).seconds
    address = f"127.0.0.1:{free_ports(1)[0]}"
    serving = Running.launch(drkit(folder, "serve", "--listen", address), folder / "serve.log", folder)
    with serving.watched("serve"):
        wait_until(lambda: _answers(f"http://{address}/readyz"), "the page", _LIMIT_SECONDS, running=serving)
        for part in ("", "api/summary", "api/partitions", "status.json"):
            if not _answers(f"http://{address}/{part}"):
                raise MeasurementFailed(f"the page has no {part}")
        seconds["page"] = time.monotonic() - serving.launched_at
    return seconds


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_LIMIT_SECONDS) as answer:  # noqa: S310 - http, on loopback
            return bool(answer.read())
    except (urllib.error.URLError, ConnectionError):
        return False


def _create(cluster: Cluster, topics: list[str]) -> float:
    """Create the topics, and wait until each partition has a log; returns the seconds."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.address, request_timeout_ms=120_000)
    try:
        began = time.monotonic()
        for start in range(0, len(topics), _TOPICS_A_REQUEST):
            chunk = [NewTopic(name, _PARTITIONS_A_TOPIC, 1) for name in topics[start : start + _TOPICS_A_REQUEST]]
            admin.create_topics(chunk, timeout_ms=120_000)
        with Connection(cluster.address) as connection:
            wanted = _PARTITIONS_A_TOPIC * len(topics)
            wait_until(lambda: _ends(connection, topics, -1) == wanted, "the topics", _LIMIT_SECONDS)
        return time.monotonic() - began
    finally:
        admin.close()


def _fill(cluster: Cluster, topics: list[str]) -> None:
    """Write a batch of records to each partition."""
    batch = batch_variants(record_bytes=100, codec="lz4", records_a_batch=_RECORDS_A_BATCH, variants=1)[0]
    with Connection(cluster.address) as connection:
        for topic in topics:
            connection.send_produce(topic, dict.fromkeys(range(_PARTITIONS_A_TOPIC), batch))
            connection.receive_produce()


def _ends(connection: Connection, topics: list[str], above: int) -> int:
    """The number of partitions that end above an offset."""
    found = connection.ends_of(dict.fromkeys(topics, range(_PARTITIONS_A_TOPIC)))
    return sum(offset > above for ends in found.values() for offset in ends.values())


def _wait_for_all(cluster: Cluster, topics: list[str], running: Running, above: int) -> tuple[float, float]:
    """Seconds from the launch to the first partition, and to all, with a record above an offset on the target."""
    seconds: list[float] = []
    with Connection(cluster.address) as connection:
        for wanted in (1, _PARTITIONS_A_TOPIC * len(topics)):
            moved = f"{wanted:,} partitions to move"
            wait_until(
                lambda wanted=wanted: _ends(connection, topics, above) >= wanted,  # type: ignore[misc]
                moved,
                _LIMIT_SECONDS,
                running=running,
            )
            seconds.append(time.monotonic() - running.launched_at)
    return seconds[0], seconds[1]
