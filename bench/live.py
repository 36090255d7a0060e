"""A live case: a steady stream to the source; measures the age of each record on arrival at a reader of the target.

    python -m bench.live send ADDRESS TOPIC PARTITIONS BYTES CODEC RATE
    python -m bench.live read ADDRESS TOPIC SECONDS
    python -m bench.live forward SOURCE TARGET TOPIC PARTITIONS

`send`: sends a produce request every 2 ms, with the records due since the last one, spread over the partitions, each
with its time of sending. It runs until it is ended; if it can't keep the rate, it exits with 1.

`read`: from the topic's end; prints `reading` after the first record, and after SECONDS the age of each record of
`send` on arrival, as a line of JSON, in milliseconds. The monotonic clock is the same for all processes of a machine.

`forward`: the bare forwarder, which is not a mirror. Two sockets and one thread, no mapping, no sequence numbers, no
state, no checks: any failure makes it lose or duplicate records. Its cost and latency are the lower bound for a
forwarder in Python on this machine.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, zip_longest
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from bench.mirrors import Job, Mirror, Scene
from bench.processes import MIB, ROOT, Helper, MeasurementFailed, ProcessTree, Running, end, wait_until
from bench.report import BARE, DIRECT, TITLES, Row, percentile
from bench.wire import Codec, Connection, Session, json_values, record_batch, wait_for_leaders
from drkit.kafka.protocol.record_batch import HEADER_BYTES, LOG_OVERHEAD
from drkit.model.wording import counted

_ARRIVAL_SECONDS = 120.0
_RATE = 5000
_PREFIX = b'{"sent_ns":"'
_DIGITS = 19
_STAMP = slice(len(_PREFIX), len(_PREFIX) + _DIGITS)
_TICK_NS = 2_000_000
_IN_FLIGHT = 5
_LATEST_NS = 5_000_000_000
_VALUES = 500
_FIRST_RECORD_SECONDS = 30.0
_AT_ONCE = 10_000
_LAST_DELTA_AT = 23
_BASE_OFFSET = bytes(8)  # a producer's batches begin at 0; the broker sets the base offset


@dataclass(frozen=True, slots=True)
class LiveCase:
    """A steady stream of 5,000 records per second."""

    name: str
    record_bytes: int
    codec: Codec
    partitions: int

    def __str__(self) -> str:
        """A readable line."""
        stream = f"{_RATE:,} records/s of {self.record_bytes:,} B JSON"
        return f"{stream}, {self.codec}, {counted(self.partitions, 'partition')}"


@dataclass(frozen=True)
class Bare(Mirror):
    """The bare forwarder: forwards new records of one topic with so many partitions."""

    partitions: int
    name: str = BARE

    def launch(self, job: Job) -> Running:
        """Create the topic on the target, then start."""
        job.target.create_topic(job.topics, self.partitions)
        command = [sys.executable, "-m", "bench.live", "forward", job.source.address, job.target.address, job.topics]
        return Running.launch([*command, str(self.partitions)], job.folder / "forwarder.log", ROOT)


def measure(scene: Scene, case: LiveCase) -> Iterator[Row]:
    """In turn a reader of the source itself, the bare forwarder, both mirrors; a full run does this three times.

    Raises:
        MeasurementFailed: nothing arrived, or the producer or the reader failed.
    """
    for repeat in range(1, max(scene.repeats, 3 if scene.full else 1) + 1):
        for mirror in (None, Bare(case.partitions), *scene.in_turn(repeat)):
            with scene.folder() as inner:
                yield _measure_once(inner, case, mirror, repeat)


def _measure_once(scene: Scene, case: LiveCase, mirror: Mirror | None, repeat: int) -> Row:
    name = mirror.name if mirror else DIRECT
    source, target, (warm, seconds) = scene.clusters.source, scene.clusters.target, (8, 15) if scene.full else (4, 6)
    topic = f"bench-{case.name}-{repeat}-{name}"
    source.delete_topics()
    source.create_topic(topic, case.partitions)
    with Connection(source.address) as connection:
        wait_for_leaders(connection, topic, case.partitions)
    scene.say(f"{case.name}: {TITLES[name]}, {warm + seconds} s")
    numbers = map(str, (case.partitions, case.record_bytes, case.codec, _RATE))
    command = [sys.executable, "-m", "bench.live", "send", source.address, topic, *numbers]
    producer = Running.launch(command, scene.work / "producer.log", ROOT)
    job = Job(scene.work, source, target, topic, case.codec, live=True)
    running = mirror.launch(job) if mirror else None
    try:
        read_from = target if mirror else source
        with Connection(read_from.address) as connection:
            everywhere = range(case.partitions)
            wait_until(
                lambda: all(connection.ends(topic, everywhere).get(each) for each in everywhere),
                f"a record on each partition of {topic}",
                _ARRIVAL_SECONDS,
                running=running or producer,
            )
        if mirror is not None and running is not None:
            mirror.check(job, running)
        time.sleep(warm)  # compilers, buffers and catching up, the same for each
        tree = ProcessTree(running.process) if running else None
        with Helper.running("live", "read", read_from.address, topic, seconds, ready="reading") as reader:
            began, cpu = time.monotonic(), tree.cpu_seconds() if tree else 0.0
            seen = reader.answer()
            share = (tree.cpu_seconds() - cpu) / (time.monotonic() - began) if tree else None
        peak = round(tree.peak_rss_bytes() / MIB, 1) if tree else None
    finally:
        kept_pace = not producer.ended
        end([producer.process], 5.0)
        if running is not None:
            running.stop()
        scene.clusters.delete_topics()
        if not kept_pace:  # without it no record comes, so it is the cause of the reader's failure
            raise MeasurementFailed(f"{case.name}, {name}: the producer ended: {producer.output_tail()}")
    rate = seen["records"] / seen.pop("seconds")
    figures = {"records_per_second": rate, **seen, "cpu_share": share, "peak_rss_mib": peak}
    return {"case": case.name, "peer": name, "repeat": repeat, **figures}


# --- the child processes ------------------------------------------------------------------------------------------


def stamped(filler: bytes, at_ns: int) -> bytes:
    """A JSON value with `at_ns`, padded with `filler` (which has no quotes or backslashes)."""
    return _PREFIX + str(at_ns).zfill(_DIGITS).encode() + b'","note":"' + filler + b'"}'


OVERHEAD = len(stamped(b"", 0))
"""Bytes of a value without its filler."""


def sent_ns(value: bytes) -> int:
    """The time at which a value was sent, in nanoseconds of the monotonic clock."""
    return int(value[_STAMP])


def send(address: str, topic: str, partitions: int, record_bytes: int, codec: Codec, rate: int) -> None:
    """Send forever.

    Raises:
        TimeoutError: more than five seconds behind the rate.
    """
    fillers = [value.replace(b'"', b"'")[: record_bytes - OVERHEAD] for value in json_values(record_bytes, _VALUES)]
    began, sent, unanswered = time.monotonic_ns(), 0, 0
    with Connection(address) as connection:
        for tick in count(1):
            wait = began + tick * _TICK_NS - time.monotonic_ns()
            if wait > 0:
                time.sleep(wait / 1e9)
            elif wait < -_LATEST_NS:
                raise TimeoutError(f"{rate} records/s can't be kept on this machine")
            due = tick * _TICK_NS * rate // 1_000_000_000
            values: dict[int, list[bytes]] = {}
            for number in range(sent, due):
                filler = fillers[number % _VALUES]
                values.setdefault(number % partitions, []).append(stamped(filler, time.monotonic_ns()))
            sent = due
            if not values:
                continue
            if unanswered >= _IN_FLIGHT:
                connection.receive_produce()
                unanswered -= 1
            connection.send_produce(topic, {place: record_batch(each, codec) for place, each in values.items()})
            unanswered += 1


def read(address: str, topic: str, seconds: float) -> dict[str, Any]:
    """Read for so many seconds, counted from the first record on.

    Raises:
        TimeoutError: no record came for 30 s.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.min.bytes": 1,
            "fetch.error.backoff.ms": 10,
            "isolation.level": "read_committed",
        }
    )
    ages = array("q")
    try:
        known = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_END) for number in known])
        began = 0
        while not began or time.monotonic_ns() - began < seconds * 1e9:
            message = consumer.poll(_FIRST_RECORD_SECONDS)
            if message is None:
                raise TimeoutError(f"no record of {topic} came for {_FIRST_RECORD_SECONDS:.0f} s")
            if not began:
                began = time.monotonic_ns()
                print("reading", flush=True)
            for each in (message, *consumer.consume(_AT_ONCE, 0)):  # `consume` waits its whole timeout
                value = None if each.error() else each.value()
                if value is not None:
                    ages.append(time.monotonic_ns() - sent_ns(value))
        took = (time.monotonic_ns() - began) / 1e9
    finally:
        consumer.close()
    ordered = sorted(age / 1e6 for age in ages)
    p50, p99, most = (round(percentile(ordered, share), 3) for share in (0.5, 0.99, 1.0))
    return {"seconds": took, "records": len(ordered), "p50_ms": p50, "p99_ms": p99, "max_ms": most}


def forward(source: str, target: str, topic: str, partitions: int) -> None:
    """Forward new records of the source forever."""
    with Connection(source) as reading, Connection(target) as writing:
        positions = reading.ends(topic, range(partitions))
        changed, session = dict(positions), Session(topic)
        while True:
            found = reading.fetch(session, changed)
            changed = {}
            queues: list[list[tuple[int, bytes]]] = []
            for partition, data in found.items():
                batches, changed[partition] = _batches(data, positions[partition])
                queues.append([(partition, batch) for batch in batches])
            positions.update(changed)
            requests = [dict(filter(None, each)) for each in zip_longest(*queues)]  # one batch of a partition in each
            for request in requests:
                writing.send_produce(topic, request)
            for _ in requests:
                writing.receive_produce()


def _batches(data: memoryview, position: int) -> tuple[list[bytes], int]:
    """The whole batches from a position on, in a producer's form, and the position after them."""
    found, at = [], 0
    while at + HEADER_BYTES <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        after = at + LOG_OVERHEAD + length
        if after > len(data):
            break
        last = base + struct.unpack_from(">i", data, at + _LAST_DELTA_AT)[0]
        if last >= position:
            found.append(_BASE_OFFSET + bytes(data[at + len(_BASE_OFFSET) : after]))
            position = last + 1
        at = after
    return found, position


def main(what: str, address: str, topic: str, *more: str) -> None:
    """Run the command line; see the module docstring."""
    if what == "send":
        partitions, record_bytes, codec, rate = more
        send(address, topic, int(partitions), int(record_bytes), codec, int(rate))  # type: ignore[arg-type]  # a codec
    elif what == "read":
        print(json.dumps(read(address, topic, float(more[0]))), flush=True)
    else:
        forward(address, topic, more[0], int(more[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
