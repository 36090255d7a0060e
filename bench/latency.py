"""Child processes that measure the latency of records: sent, read, or acknowledged at a steady rate.

    python -m bench.latency send ADDRESS TOPIC PARTITIONS BYTES CODEC RATE
    python -m bench.latency read ADDRESS TOPIC SECONDS
    python -m bench.latency acknowledge ADDRESS TOPIC PARTITIONS RATE

`send`: sends a produce request every 2 ms, with the records due since the last one, spread over the partitions, each
with its time of sending. It runs until it is ended; if it can't keep the rate, it exits with 1.

`read`: from the topic's end; prints `reading` after the first record, and after SECONDS the age of each record of
`send` on arrival.

`acknowledge`: one small record at a time; prints `producing` once the first is acknowledged, and after SIGTERM each
one's latency from when it was due, so that the wait for an earlier one's response counts.

The measurements are one line of JSON, in milliseconds. The monotonic clock is the same for all processes of a machine.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from array import array
from itertools import count
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from bench.load import Codec, json_values, record_batch
from bench.stats import percentile
from bench.wire import Connection

_PREFIX = b'{"sent_ns":"'
_DIGITS = 19
_STAMP = slice(len(_PREFIX), len(_PREFIX) + _DIGITS)
_TICK_NS = 2_000_000
_IN_FLIGHT = 5
_LATEST_NS = 5_000_000_000
_VALUES = 500
_VALUE_BYTES = 100
_FIRST_RECORD_SECONDS = 30.0
_AT_ONCE = 10_000


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
    return {"seconds": took, **_summary([age / 1e6 for age in ages])}


def acknowledge(address: str, topic: str, partitions: int, rate: float) -> dict[str, Any]:
    """Produce until SIGTERM."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    values = json_values(_VALUE_BYTES, _VALUES)
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
            spent.append(time.monotonic() - due)
            if number == 0:  # connecting and the broker's first access to the topic don't count
                print("producing", flush=True)
                began = time.monotonic() - 1 / rate
                spent.pop()
    return _summary([1000 * each for each in spent])


def _summary(milliseconds: list[float]) -> dict[str, Any]:
    ordered = sorted(milliseconds)
    p50, p99 = (round(percentile(ordered, share), 3) for share in (0.5, 0.99))
    return {"records": len(ordered), "p50_ms": p50, "p99_ms": p99, "max_ms": round(ordered[-1], 3)}


def main(what: str, address: str, topic: str, *more: str) -> None:
    """Run the command line; see the module docstring."""
    if what == "send":
        partitions, record_bytes, codec, rate = more
        send(address, topic, int(partitions), int(record_bytes), codec, int(rate))  # type: ignore[arg-type]  # a codec
    elif what == "read":
        print(json.dumps(read(address, topic, float(more[0]))), flush=True)
    else:
        print(json.dumps(acknowledge(address, topic, int(more[0]), float(more[1]))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
