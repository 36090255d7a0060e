"""Measures a link of 10,000 partitions in 1,000 topics: its start, its cost when idle, and the duration of commands.

A bare kafka-python loop creates the source's topics on an otherwise idle broker: a mirror, which must create the same
topics on the target, can't be faster. Then `drkit mirror` is launched and left alone while `status`, `doctor`,
`failover --dry-run` and `serve` run; then it is launched again, with new records everywhere.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from kafka.admin import KafkaAdminClient, NewTopic

from bench.cases import Scene
from bench.clusters import TARGET, Cluster, Clusters
from bench.load import batch_variants
from bench.mirrors import Drkit, Job
from bench.processes import MIB, MeasurementFailed, ProcessTree, Running, drkit, run, wait_until
from bench.results import LargeLinkRun
from bench.wire import Connection
from drkit.lab.ports import free_ports

PARTITIONS_A_TOPIC = 10
_TOPICS_A_REQUEST = 200
_RECORDS_A_BATCH = 10
_POLL_SECONDS = 0.1
_LIMIT_SECONDS = 300.0
_COMMAND_SECONDS = 60.0
_COMMANDS = {
    "status": ("status",),
    "doctor": ("doctor",),
    "plan": ("failover", "--to", TARGET, "--unplanned", "--accept-unfenced", "--dry-run"),
}
_NOT_READY = frozenset({0, 3, 6})
"""Exit codes of successful commands: a link without groups may be reported as not ready."""


def measure(scene: Scene, repeat: int) -> list[LargeLinkRun]:
    """Measure everything once, on its own two brokers.

    Raises:
        MeasurementFailed: the mirror or a command failed, or not every partition moved in time.
    """
    topics = {f"bench-large-{number:04}": PARTITIONS_A_TOPIC for number in range(scene.extent.large_link_topics)}
    partitions = sum(topics.values())
    scene.say(f"a link of {partitions:,} partitions in {len(topics):,} topics")
    folder = scene.work / "mirror"
    folder.mkdir()
    with Clusters(scene.work, scene.toolchain, scene.say) as clusters:
        created = _create(clusters.source, topics)
        scene.say(f"  made by a bare client in {created:.1f} s")
        _fill(clusters.source, topics)
        job = Job(folder, clusters.source, clusters.target, "bench-large-.*", "lz4")
        running = Drkit().launch(job)
        with running.watched(f"{partitions:,} partitions"):
            first, moving, moving_cpu = _wait_for_all(clusters.target, topics, running, 0)
            scene.say(f"  first record after {first:.1f} s, all moving after {moving:.1f} s")
            tree = ProcessTree(running.process)
            time.sleep(scene.extent.large_link_settle_seconds)
            began, used = time.monotonic(), tree.cpu_seconds()
            time.sleep(scene.extent.large_link_idle_seconds)
            idle = (tree.cpu_seconds() - used) / (time.monotonic() - began)
            peak = tree.peak_rss_bytes() / MIB
            walls, cpus = _time_commands(folder)
            shown = ", ".join(f"{each} {seconds:.1f} s" for each, seconds in walls.items())
            scene.say(f"  at rest {100 * idle:.1f}% of a core, {peak:.0f} MiB; {shown}")
        _fill(clusters.source, topics)
        running = Drkit().launch(job)
        with running.watched("launched again"):
            again_first, again_moving, _ = _wait_for_all(clusters.target, topics, running, _RECORDS_A_BATCH)
            peak = max(peak, ProcessTree(running.process).peak_rss_bytes() / MIB)
            scene.say(f"  launched again: {again_first:.1f} s, {again_moving:.1f} s")
    return [
        LargeLinkRun(
            topics=len(topics),
            partitions=partitions,
            repeat=repeat,
            created=round(created, 2),
            first=round(first, 2),
            moving=round(moving, 2),
            moving_cpu=round(moving_cpu, 2),
            again_first=round(again_first, 2),
            again_moving=round(again_moving, 2),
            idle_share=round(idle, 4),
            peak_rss_mib=round(peak, 1),
            commands=walls,
            commands_cpu=cpus,
        )
    ]


def _create(cluster: Cluster, topics: Mapping[str, int]) -> float:
    """Create the topics, and wait until each partition has a log; returns the seconds."""
    names = list(topics)
    admin = KafkaAdminClient(bootstrap_servers=cluster.address, request_timeout_ms=120_000)
    try:
        began = time.monotonic()
        for start in range(0, len(names), _TOPICS_A_REQUEST):
            chunk = names[start : start + _TOPICS_A_REQUEST]
            admin.create_topics([NewTopic(name, topics[name], 1) for name in chunk], timeout_ms=120_000)
        with Connection(cluster.address) as connection:
            wanted = sum(topics.values())
            wait_until(lambda: _ends(connection, topics, -1) == wanted, "the topics", _LIMIT_SECONDS)
        return time.monotonic() - began
    finally:
        admin.close()


def _fill(cluster: Cluster, topics: Mapping[str, int]) -> None:
    """Write a batch of records to each partition."""
    batch = batch_variants(record_bytes=100, codec="lz4", records_a_batch=_RECORDS_A_BATCH, variants=1)[0]
    with Connection(cluster.address) as connection:
        for topic, partitions in topics.items():
            connection.send_produce(topic, dict.fromkeys(range(partitions), batch))
            connection.receive_produce()


def _ends(connection: Connection, topics: Mapping[str, int], above: int) -> int:
    """The number of partitions that end above an offset."""
    found = connection.ends_of({topic: range(partitions) for topic, partitions in topics.items()})
    return sum(offset > above for ends in found.values() for offset in ends.values())


def _wait_for_all(
    cluster: Cluster, topics: Mapping[str, int], running: Running, above: int
) -> tuple[float, float, float]:
    """Seconds from the launch to the first partition, and to all, with a record above an offset on the target; and the
    mirror's CPU seconds until then.
    """
    tree, first = ProcessTree(running.process), None
    wanted = sum(topics.values())
    with Connection(cluster.address) as connection:
        while True:
            moving = _ends(connection, topics, above)
            seconds = time.monotonic() - running.launched_at
            if moving and first is None:
                first = seconds
            if first is not None and moving == wanted:
                return first, seconds, tree.cpu_seconds()
            if running.ended or seconds > _LIMIT_SECONDS:
                raise MeasurementFailed(f"only {moving:,} of {wanted:,} partitions moved within {seconds:.0f} s")
            time.sleep(_POLL_SECONDS)


def _time_commands(folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds by command: wall clock, and CPU."""
    walls, cpus = {}, {}
    for name, command in _COMMANDS.items():
        ended = run(drkit(folder, *command, "--output", "json"), folder, _NOT_READY)
        walls[name], cpus[name] = round(ended.seconds, 2), round(ended.cpu_seconds, 2)
    walls["page"], cpus["page"] = _page(folder)
    return walls, cpus


def _page(folder: Path) -> tuple[float, float]:
    """Seconds from the launch of `drkit serve` until its page is complete; and its CPU seconds until then."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    serving = Running.launch(drkit(folder, "serve", "--listen", address), folder / "serve.log", folder)
    with serving.watched("serve"):
        wait_until(lambda: _answers(f"http://{address}/readyz"), "the page", _COMMAND_SECONDS, running=serving)
        for part in ("", "api/summary", "api/partitions", "status.json"):
            if not _answers(f"http://{address}/{part}"):
                raise MeasurementFailed(f"the page has no {part}")
        seconds = time.monotonic() - serving.launched_at
        return round(seconds, 2), round(ProcessTree(serving.process).cpu_seconds(), 2)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_COMMAND_SECONDS) as answer:  # noqa: S310 - http, on loopback
            return bool(answer.read())
    except (urllib.error.URLError, ConnectionError):
        return False
