"""Measures moving many groups, from launch to end, with `drkit failover --at` and Kafka's `kafka-consumer-groups`.

Both set the same groups on the same topic of the same target to the log's position at one time. Kafka's tool only
commits. drkit also inspects both clusters, plans, fences and seals, never skips unread records, journals every step,
and reads back every position and the record there. Nine groups of ten are caught up; every tenth lags.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from confluent_kafka import Producer

from bench.cases import TIMES, Extent, Scene
from bench.clusters import Cluster
from bench.group_positions import Offsets, check, commit, delete_groups, make_positions
from bench.mirrors import DRKIT, STORE, Job, write_config
from bench.processes import MeasurementFailed, drkit, run
from bench.results import MoveRun
from bench.targets import MOVE_OTHER
from drkit.model.topology import TopicPartition

_TOPIC = "bench-move"
_PREFIX = "bench-move-"
_STEP_MS = 1000
_FLUSH_SECONDS = 60.0
_HEAP = "-Xmx512M"  # Kafka's own script gives its tools 256 MiB
_CLASS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def measure(scene: Scene, repeats: int) -> list[MoveRun]:
    """Run both tools on the pair of clusters alternately, so many times.

    Raises:
        MeasurementFailed: one of them failed, or left a group at another position.
    """
    extent, folder = scene.extent, scene.work
    scene.say(f"move: {extent.move_groups:,} groups {TIMES} {extent.move_partitions} partitions")
    source, target = scene.clusters.source, scene.clusters.target
    positions = make_positions(_PREFIX, extent.move_groups, _TOPIC, extent.move_partitions, extent.move_records)
    back_to = extent.move_records * 3 // 4
    try:
        at = _fill(source, extent, back_to)
        commit(source, positions)
        write_config(Job(folder, source, target, _TOPIC, "lz4"))
        run(drkit(folder, "mirror", "--until-caught-up"), folder)
        shutil.copy(folder / STORE, folder / "before.db")
        runs = []
        for repeat in range(1, repeats + 1):
            ends = {TopicPartition(_TOPIC, each): (extent.move_records, "") for each in range(extent.move_partitions)}
            commit(target, dict.fromkeys(positions, ends))  # Kafka's tool resets only groups that exist on its cluster
            runs.append(_measured(scene, MOVE_OTHER, _kafka(scene, at), repeat, positions, lambda _: back_to))
            delete_groups(target, _PREFIX)
            words = ("--to", target.alias, "--all-groups", "--execute", "--yes", "--accept-unfenced")
            command = drkit(folder, "failover", *words, "--at", at.strftime("%Y-%m-%dT%H:%M:%SZ"))
            runs.append(_measured(scene, DRKIT, command, repeat, positions, lambda offset: min(offset, back_to)))
            target.delete_topics(keep=(_TOPIC,))  # drkit's copy of its state: an older store moves nothing
            for rest in folder.glob(f"{STORE}*"):
                rest.unlink()
            shutil.copy(folder / "before.db", folder / STORE)
        return runs
    finally:
        for cluster in (target, source):
            delete_groups(cluster, _PREFIX)
        scene.clusters.delete_topics()


def _fill(source: Cluster, extent: Extent, back_to: int) -> datetime:
    """Fill a topic, one record per second on each partition; returns the time of record `back_to`, in whole seconds."""
    source.create_topic(_TOPIC, extent.move_partitions, {"retention.ms": "-1"})
    first = int(time.time() * 1000) - 2 * _STEP_MS * extent.move_records
    producer = Producer(
        {
            "bootstrap.servers": source.address,
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": "lz4",
            "queue.buffering.max.messages": extent.move_records * extent.move_partitions + 1,
        }
    )
    for number in range(extent.move_records):
        for partition in range(extent.move_partitions):
            value = b"%d-%d-%s" % (partition, number, b"x" * 80)
            producer.produce(_TOPIC, value, partition=partition, timestamp=first + _STEP_MS * number)
    if producer.flush(_FLUSH_SECONDS):
        raise MeasurementFailed("the source could not be filled")
    return datetime.fromtimestamp((first + _STEP_MS * back_to) // 1000, UTC)


def _kafka(scene: Scene, at: datetime) -> list[str]:
    return [
        *(str(scene.toolchain.java), _HEAP, "-cp", scene.toolchain.classpath("mirrormaker"), _CLASS),
        *("--bootstrap-server", scene.clusters.target.address, "--reset-offsets", "--all-groups", "--all-topics"),
        *("--to-datetime", at.strftime("%Y-%m-%dT%H:%M:%S.000"), "--execute"),
    ]


def _measured(
    scene: Scene,
    tool: str,
    command: Sequence[str],
    repeat: int,
    positions: Mapping[str, Offsets],
    expected: Callable[[int], int],
) -> MoveRun:
    """Run one tool, and check each group's position."""
    ended = run(command, scene.work)
    check(scene.clusters.target, tool, positions, expected)
    scene.say(f"  {tool}: {ended.seconds:.1f} s, {ended.cpu_seconds:.1f} CPU-s")
    partitions = scene.extent.move_partitions
    return MoveRun(tool, len(positions), partitions, repeat, ended.seconds, ended.cpu_seconds)
