"""Measures the effect on a producer on the target while the backlog of thousands of partitions is copied there.

The mirror has copied all partitions once and was down; meanwhile the source has got a backlog. A producer sends 200
records per second to its own topic on the target: first undisturbed, then while `drkit mirror --until-caught-up` runs,
from its launch to its end. Alternately with the link's defaults, and with `catch_up.adaptive = false`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.cases import Scene
from bench.load import Shape, load
from bench.mirrors import Job, write_config
from bench.processes import Helper, drkit, run
from bench.results import OutageRun

_POLICIES = {"adaptive": (), "unlimited": ("[links.catch_up]", "adaptive = false")}
_PREFIX = "bench-outage-"
_USERS_TOPIC = "bench-users"
_USERS_PARTITIONS = 4
_RATE = 200
_A_TOPIC = 100
_RECORD_BYTES = 100
_A_BATCH = 100


def measure(scene: Scene, repeats: int) -> list[OutageRun]:
    """Measure each policy on the pair of clusters alternately, so many times.

    Raises:
        MeasurementFailed: the mirror or the producer failed.
    """
    source, target, records = scene.clusters.source, scene.clusters.target, scene.extent.outage_records
    topics = [f"{_PREFIX}{number}" for number in range(max(1, scene.extent.outage_partitions // _A_TOPIC))]
    partitions = scene.extent.outage_partitions // len(topics)
    scene.say(f"outage: {len(topics) * partitions:,} partitions, {records:,} records")

    def fill(records: int) -> None:
        for topic in topics:
            load(source.address, topic, Shape(records // len(topics), _RECORD_BYTES, "lz4", _A_BATCH, partitions))

    def mirror(lines: tuple[str, ...] = ()) -> float:
        """Copy everything; returns the seconds from the mirror's launch to its end."""
        write_config(Job(scene.work, source, target, f"{_PREFIX}.*", "lz4"), lines)
        return run(drkit(scene.work, "mirror", "--until-caught-up"), scene.work).seconds

    for topic in topics:
        source.create_topic(topic, partitions)
    target.create_topic(_USERS_TOPIC, _USERS_PARTITIONS)
    fill(partitions * len(topics) * _A_BATCH)
    mirror()
    found = []
    for repeat in range(1, repeats + 1):
        for policy, lines in _POLICIES.items():
            fill(records)
            alone, _ = _with_producer(scene, lambda: time.sleep(scene.extent.outage_seconds))
            loaded, seconds = _with_producer(scene, partial(mirror, lines))
            row = OutageRun(
                policy=policy,
                repeat=repeat,
                partitions=scene.extent.outage_partitions,
                records=records,
                alone_p50_ms=alone["p50_ms"],
                alone_p99_ms=alone["p99_ms"],
                p50_ms=loaded["p50_ms"],
                p99_ms=loaded["p99_ms"],
                max_ms=loaded["max_ms"],
                seconds=seconds,
                records_per_second=records / seconds,
            )
            p99 = f"p99 {row.alone_p99_ms:.1f} ms, then {row.p99_ms:.1f} ms"
            scene.say(f"  {policy}: {p99}; {row.records_per_second:,.0f} records/s")
            found.append(row)
    scene.clusters.delete_topics()
    return found


def _with_producer(scene: Scene, work: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
    """The measurements of a producer on the target during a call, and the result of that call."""
    arguments = (scene.clusters.target.address, _USERS_TOPIC, _USERS_PARTITIONS, _RATE)
    with Helper.running("latency", "acknowledge", *arguments, ready="producing") as producer:
        done = work()
        producer.process.terminate()
        return producer.answer(), done
