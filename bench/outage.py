"""An outage's end: what a producer on the target feels while the backlog of thousands of partitions is copied there.

    python -m bench.outage ADDRESS TOPIC PARTITIONS RATE

The mirror has copied all partitions once and was down; meanwhile the source has got a backlog. A producer sends 200
records per second to its own topic on the target: first undisturbed, then while `drkit mirror --until-caught-up` runs,
from its launch to its end. Alternately with the link's defaults, and with `catch_up.adaptive = false`.

As a process: that producer, one small record at a time; prints `producing` once the first is acknowledged, and after
SIGTERM each one's latency from when it was due, so that the wait for an earlier one's response counts, as a line of
JSON, in milliseconds.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

from bench.mirrors import Job, Scene, write_config
from bench.processes import Helper, drkit, run
from bench.report import Row, percentile
from bench.wire import Connection, Shape, json_values, load, record_batch

_POLICIES = {"adaptive": (), "unlimited": ("[links.catch_up]", "adaptive = false")}
_PREFIX = "bench-outage-"
_USERS_TOPIC = "bench-users"
_USERS_PARTITIONS = 4
_RATE = 200
_A_TOPIC = 100
_RECORD_BYTES = 100
_A_BATCH = 100
_VALUES = 500


def measure(scene: Scene) -> Iterator[Row]:
    """Measure each policy on the pair of clusters alternately.

    Raises:
        MeasurementFailed: the mirror or the producer failed.
    """
    partitions, records, alone_seconds = (5000, 20_000_000, 20) if scene.full else (500, 500_000, 5)
    source, target = scene.clusters.source, scene.clusters.target
    topics = [f"{_PREFIX}{number}" for number in range(partitions // _A_TOPIC)]
    scene.say(f"outage: {partitions:,} partitions, {records:,} records")

    def fill(records: int) -> None:
        for topic in topics:
            load(source.address, topic, Shape(records // len(topics), _RECORD_BYTES, "lz4", _A_BATCH, _A_TOPIC))

    def mirror(lines: tuple[str, ...] = ()) -> float:
        """Copy everything; returns the seconds from the mirror's launch to its end."""
        write_config(Job(scene.work, source, target, f"{_PREFIX}.*", "lz4"), lines)
        return run(drkit(scene.work, "mirror", "--until-caught-up"), scene.work).seconds

    for topic in topics:
        source.create_topic(topic, _A_TOPIC)
    target.create_topic(_USERS_TOPIC, _USERS_PARTITIONS)
    fill(partitions * _A_BATCH)
    mirror()
    for repeat in range(1, scene.repeats + 1):
        for policy, lines in _POLICIES.items():
            fill(records)
            alone, _ = _with_producer(scene, lambda: time.sleep(alone_seconds))
            loaded, seconds = _with_producer(scene, partial(mirror, lines))
            row = {"case": "outage", "policy": policy, "repeat": repeat, "partitions": partitions, "records": records}
            row |= {"alone_p50_ms": alone["p50_ms"], "alone_p99_ms": alone["p99_ms"], **loaded}
            row |= {"seconds": seconds, "records_per_second": records / seconds}
            scene.say(f"  {policy}: p99 {row['alone_p99_ms']:.1f} ms, then {row['p99_ms']:.1f} ms")
            yield row
    scene.clusters.delete_topics()


def _with_producer(scene: Scene, work: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
    """The measurements of a producer on the target during a call, and the result of that call."""
    arguments = (scene.clusters.target.address, _USERS_TOPIC, _USERS_PARTITIONS, _RATE)
    with Helper.running("outage", *arguments, ready="producing") as producer:
        done = work()
        producer.process.terminate()
        return producer.answer(), done


def acknowledge(address: str, topic: str, partitions: int, rate: float) -> dict[str, float]:
    """Produce until SIGTERM."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    values = json_values(_RECORD_BYTES, _VALUES)
    spent = array("d")
    with Connection(address) as connection:
        began = time.monotonic()
        for number in count():
            due = began + number / rate
            if (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            if ended:
                break
            connection.send_produce(topic, {number % partitions: record_batch([values[number % _VALUES]], "none")})
            connection.receive_produce()
            spent.append(1000 * (time.monotonic() - due))
            if number == 0:  # connecting and the broker's first access to the topic don't count
                print("producing", flush=True)
                began = time.monotonic() - 1 / rate
                spent.pop()
    ordered = sorted(spent)
    return {f"{name}_ms": round(percentile(ordered, at), 3) for name, at in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))}


if __name__ == "__main__":
    place, users, *numbers = sys.argv[1:]
    print(json.dumps(acknowledge(place, users, int(numbers[0]), float(numbers[1]))), flush=True)
